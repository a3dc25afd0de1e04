"""Writes curate/tests/data/phone_matches.json: lines with telephone numbers, and those that PhoneNumberMatcher finds.

Needs phonenumbers 9.0.43, whose PhoneNumberMatcher is libphonenumber's. Usage:

    python tests/oracles/phone_matches.py > curate/tests/data/phone_matches.json

A row is a region, a line and the matches of `PhoneNumberMatcher(line, region)` with leniency VALID. Numbers are the metadata's
example numbers with other last digits, in every way of writing them; between them are dates, times, prices, pages and other numbers.
"""

import json
import random

import phonenumbers
from phonenumbers import PhoneNumberFormat as Form
from phonenumbers import PhoneNumberMatcher
from phonenumbers import PhoneNumberType as Type

assert phonenumbers.__version__ == "9.0.43", phonenumbers.__version__
random.seed(3)
REGIONS = "US GB DE FR ES IT NL PL SE NO FI DK CZ RU JP BR IN AU MX AR CN CH AT BE PT GR HU RO IE ZA KR TW TR UA IR EG".split()
BEFORE = ["Call ", "Tel.: ", "", "Fax: ", "(", "no. ", "x", "\u00e9", "Rufen Sie ", "T\u00e9l. ", "\u7535\u8bdd", "mobile "]
BEHIND = ["", " now.", ".", ",", "; ", "a", " (home)", " or", "\u3002", "%"]
ROWS = 600


def number(region):
    kind = random.choice([Type.FIXED_LINE, Type.MOBILE, Type.TOLL_FREE])
    n = phonenumbers.example_number_for_type(region, kind) or phonenumbers.example_number(region)
    digits = str(n.national_number)
    last = random.randint(0, 4)
    digits = digits[: len(digits) - last] + "".join(random.choice("0123456789") for _ in range(last))
    n = phonenumbers.PhoneNumber(country_code=n.country_code, national_number=int(digits), italian_leading_zero=n.italian_leading_zero,
                                 number_of_leading_zeros=n.number_of_leading_zeros)
    form = random.choice([Form.NATIONAL, Form.NATIONAL, Form.INTERNATIONAL, Form.E164, "abroad", "digits"])
    if form == "abroad":
        text = phonenumbers.format_out_of_country_calling_number(n, random.choice(REGIONS))
    elif form == "digits":
        text = phonenumbers.national_significant_number(n)
    else:
        text = phonenumbers.format_number(n, form)
    way = random.random()
    if way < 0.1:
        text = text.replace(" ", random.choice(["-", ".", "/", "\u00a0", "\u2013", "  ", ""]))
    elif way < 0.15:
        text = random.choice(["(", "[", "(+", "++", " ("]) + text + random.choice([")", "", "]"])
    elif way < 0.25:
        text += random.choice([" ext. 123", " x45", "x12#", " \u0434\u043e\u0431. 12", ";ext=99", " - 503#", " ext 1234567", "/x2303", " int 33", "~5"])
    elif way < 0.29:
        zero = random.choice([0xFF10, 0x660, 0x6F0, 0x966])
        text = "".join(chr(zero + int(c)) if c in "0123456789" else c for c in text)
    return text


def other():
    n = random.randint
    two = [number(random.choice(REGIONS)) for _ in range(2)]
    return random.choice([
        "%d-%02d-%02d %02d:%02d" % (n(1900, 2030), n(1, 12), n(1, 28), n(0, 23), n(0, 59)), "%02d/%02d/%d" % (n(1, 31), n(1, 12), n(1990, 2030)),
        "12(3): 211-227 (2003)", "$%d,%03d.%02d" % (n(1, 999), n(0, 999), n(0, 99)), "%d%%" % n(1, 10 ** n(1, 11)), "\u20ac%d" % n(1, 10**10),
        "ISBN 978-%d-%d-%d-%d" % (n(0, 9), n(10, 99), n(10000, 99999), n(0, 9)), str(n(0, 10 ** n(3, 16))), ".".join(str(n(0, 255)) for _ in range(4)),
        "abc%d" % n(10**6, 10**11), "%dkm" % n(10**6, 10**11), "/".join(two), " ".join(two), " ".join(str(n(0, 9999)) for _ in range(n(2, 9))),
        "%d - %s" % (n(1, 99999), two[0]), "(%d)" % n(1, 10**9), "tel:%s" % two[0],
    ])


rows = []
for _ in range(ROWS):
    region = random.choice(REGIONS)
    parts = [random.choice(BEFORE) + (number(region) if random.random() < 0.65 else other()) + random.choice(BEHIND) for _ in range(random.randint(1, 3))]
    line = " ".join(parts)
    rows.append([region, line, [m.raw_string for m in PhoneNumberMatcher(line, region)]])
print(json.dumps({"made_by": "tests/oracles/phone_matches.py, phonenumbers 9.0.43", "rows": rows}, indent=0, separators=(",", ":")))

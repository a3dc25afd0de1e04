"""Writes curate/tests/data/pii.json: texts as datatrove's PIIFormatter tags them, numbers that python-stdnum calls valid.

Needs datatrove 0.10.1 and python-stdnum 2.x, Python 3.13 (`ipaddress` of 3.12.4 and before has other networks). Usage:

    python tests/oracles/datatrove_pii.py > curate/tests/data/pii.json
"""

import ipaddress
import json
import random

from datatrove.pipeline.formatters.pii import PIIFormatter
from stdnum import iban, luhn

assert not ipaddress.ip_address("192.0.0.8").is_global, "Python is too old"

random.seed(5)
LOCALS = ["jane", "j.roe", "a+b", "_x_", "!odd", "x--y", "o'neil", "a..b", ".dot", "dot.", "1.2.3.4", "caf\u00e9", "{n}", "\u00e9a"]
DOMAINS = ["mail.org", "x", "a.b.c.co", "-a.com", "a-.com", "a--b.com", "[1.2.3.4]", "[300.1.1.1]", "b.com.", "b..com", "\u00fc.de", "b.c_d"]
AROUND = ["", " ", "<", ">", ",", ".", "@", "\u00e9", "e\u0301", "x", "-", "'", "(", "\n", "1", "_", "\u4e2d", "\u00b2"]
OCTETS = ["0", "1", "8", "9", "10", "25", "99", "100", "127", "168", "172", "192", "198", "203", "249", "250", "255", "256", "299", "300", "01", "001", "1234"]
SPECIAL = ["0.0.0.0", "10.1.2.3", "100.63.0.1", "100.64.0.1", "100.127.9.9", "100.128.0.1", "127.0.0.1", "169.254.1.1", "172.15.0.1", "172.16.0.1", "172.31.0.1", "172.32.0.1", "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.1.1", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.17.0.1", "198.18.0.1", "198.19.9.9", "198.20.0.1", "198.51.100.1", "203.0.113.7", "203.0.114.7", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "8.8.8.8"]


def address():
    return random.choice(SPECIAL) if random.random() < 0.4 else ".".join(random.choice(OCTETS) for _ in range(random.choice([3, 4, 4, 4, 5, 8])))


def piece():
    kind = random.random()
    if kind < 0.45:
        return random.choice(LOCALS) + "@" + random.choice(DOMAINS)
    return address() if kind < 0.9 else random.choice(["version 1.2.3", "a@", "@b.com", "word", "a@b@c.com", "1.2.3.4@5.6.7.8"])


def text():
    return "".join(random.choice(AROUND) + piece() + random.choice(AROUND) for _ in range(random.randint(1, 4)))


def tagged(public):
    return PIIFormatter(only_remove_public_ips=public, email_replacement="<EMAIL>", ip_replacement="<IP_ADDRESS>").format


rows = []
for t in sorted({text() for _ in range(1500)} | set(SPECIAL)):
    row = {"text": t}
    for key, public in (("public", True), ("all", False)):
        after = tagged(public)(t)
        if after != t:
            row[key] = after
    rows.append(row)

IBANS = ["GB33BUKB20201555555555", "DE89 3704 0044 0532 0130 00", "FR14 2004 1010 0505 0001 3M02 606", "NO9386011117947", "MT84MALT011000012345MTLCAST001S",
         "NL91 ABNA 0417 1643 00", "CH93 0076 2011 6238 5295 7", "SA0380000000608010167519", "BR1800360305000010009795493C1", "PL61109010140000071219812874",
         "SE4550000000058398257466", "AT611904300234573201", "BE68539007547034", "DK5000400440116243", "ES9121000418450200051332", "FI2112345600000785",
         "IT60X0542811101000000123456", "PT50000201231234567890154", "GR1601101250000000012300695", "IE29AIBK93115212345678", "LU280019400644750000",
         "CZ6508000000192000145399", "HU42117730161111101800000000", "TR330006100519786457841326", "AE070331234567890123456"]
ibans = []
for number in IBANS:
    wrong = number[:-1] + ("1" if number[-1] != "1" else "2")
    for n in (number, wrong, number[:4] + number[4:-1]):
        # what stdnum strips (hyphens, dots) is not offered
        ibans.append([n, bool(iban.is_valid(n, check_country=False))])

CARDS = ["4111 1111 1111 1111", "4242424242424242", "5555-5555-5555-4444", "5105105105105100", "2223003122003222", "378282246310005", "3714 496353 98431",
         "6011111111111117", "6011 0009 9013 9424", "30569309025904", "38520000023237", "3530111333300000", "3566002020360505", "4222222222222",
         "6200000000000005", "6445644564456445", "4000056655665556", "5200828282828210", "2720990000000015", "36227206271667", "4012 8888 8888 1881",
         "6555900000604105", "5454545454545454"]
cards = []
for number in CARDS:
    for n in (number, number[:-1] + str((int(number[-1]) + 1) % 10)):
        cards.append([n, bool(luhn.is_valid(n.replace(" ", "").replace("-", "")))])
# nobody issues these, whatever their sum
cards += [[n, False] for n in ("1234567812345670", "9999999999999995", "0000000000000000", "4444444444444448"[:12])]
print(json.dumps({"texts": rows, "iban": ibans, "card": cards}, ensure_ascii=True, indent=0, separators=(",", ":")))

"""Writes curate/tests/data/national_ids.json: numbers by kind, each with python-stdnum's verdict.

Needs python-stdnum 2.2. Usage:

    python tests/oracles/national_ids.py > curate/tests/data/national_ids.json

Numbers have no separators but Swedish and Finnish signs. Rows whose verdict depends on today's date are left out. python-stdnum
has no module for British NINO and for Hungary: their published rules are written here a second time.
"""

import datetime
import json
import random
import re

import stdnum
from stdnum.at import vnr
from stdnum.be import bis, nn
from stdnum.bg import egn
from stdnum.ch import ssn as ahv
from stdnum.cz import rc
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.ee import ik
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.gr import amka
from stdnum.hr import oib
from stdnum.ie import pps
from stdnum.it import codicefiscale
from stdnum.lt import asmens
from stdnum.lv import pvn
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.ro import cnp
from stdnum.se import personnummer
from stdnum.si import emso
from stdnum.sk import rc as sk_rc
from stdnum.us import itin, ssn

assert stdnum.__version__ == "2.2", stdnum.__version__
random.seed(11)
real_date = datetime.date
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def on(day):
    """A class of dates with this one as today."""
    return type("date", (real_date,), {"today": classmethod(lambda cls: real_date(*day))})


def digits(n):
    return "".join(random.choice("0123456789") for _ in range(n))


def pick(text):
    return random.choice(text)


def day(order, months=0):
    """A date, one in eight of which is none."""
    odd = random.random() < 0.125
    y, m, d = random.randint(0, 99), random.randint(1, 14 if odd else 12), random.randint(1, 33 if odd else 28)
    parts = {"y": "%02d" % y, "m": "%02d" % (m + random.choice([0, months])), "d": "%02d" % d}
    return "".join(parts[c] for c in order)


def nino(n):
    return bool(re.fullmatch(r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]\d{6}[A-D]", n))


def hu_tax(n):
    return n[0] == "8" and sum(i * int(c) for i, c in enumerate(n[:9], 1)) % 11 == int(n[9])


def hu_taj(n):
    return n != "000000000" and sum(int(c) * (3 if i % 2 == 0 else 7) for i, c in enumerate(n[:8])) % 10 == int(n[8])


def steuer_id():
    first = random.sample("123456789", 1) + random.sample("0123456789", 9)
    return "".join(first[:10]) + digits(1)


KINDS = {
    "us_ssn": (ssn.is_valid, lambda: pick(["000", "666", digits(3), digits(3), digits(3)]) + pick(["00", digits(2), digits(2)]) + pick(["0000", digits(4), digits(4)])),
    "us_itin": (itin.is_valid, lambda: pick("9998") + digits(2) + pick("06789") + digits(5)),
    "uk_nino": (nino, lambda: pick(LETTERS) + pick(LETTERS) + digits(6) + pick("ABCDE")),
    "uk_nhs": (nhs.is_valid, lambda: digits(10)),
    "de_steuer_id": (idnr.is_valid, lambda: pick([steuer_id(), digits(11)])),
    "fr_nir": (nir.is_valid, lambda: pick("1234") + digits(2) + "%02d" % random.randint(1, 13) + pick([digits(2), digits(2), "2A", "2B", "2C"]) + digits(6) + "%02d" % random.randint(1, 99)),
    "es_dni": (dni.is_valid, lambda: digits(8) + pick(LETTERS)),
    "es_nie": (nie.is_valid, lambda: pick("XYZ") + digits(7) + pick(LETTERS)),
    "it_codice_fiscale": (codicefiscale.is_valid, lambda: "".join(pick(LETTERS) for _ in range(6)) + digits(1) + pick("0123456789LMNPQRSTUVA") + pick("ABCDEHLMPRSTF") + pick("01234567") + digits(1) + pick(LETTERS) + digits(2) + pick("0123456789LMNPQRSTUV") + pick(LETTERS)),
    "be_nn": (lambda n: nn.is_valid(n) or bis.is_valid(n), lambda: day("ymd", pick([0, 20, 40])) + digits(3) + "%02d" % random.randint(1, 97)),
    "se_personnummer": (personnummer.is_valid, lambda: pick(["", "", "19", "20", "18"]) + day("ymd") + pick("-+") + digits(4)),
    "fi_hetu": (hetu.is_valid, lambda: day("dmy") + pick("-+ABCFGUYX") + pick(["001", "950", digits(3), digits(3), digits(3)]) + pick("0123456789ABCDEFHJKLMNPRSTUVWXY")),
    "cz_rodne_cislo": (lambda n: rc.is_valid(n) and sk_rc.is_valid(n), lambda: day("ymd", pick([50, 20, 70])) + pick([digits(3), digits(4), digits(4)])),
    "ie_pps": (pps.is_valid, lambda: digits(7) + pick(LETTERS) + pick(["", "A", "B", "H", "W", "T", "X", "C"])),
    "ch_ahv": (ahv.is_valid, lambda: pick(["756", "756", "757"]) + digits(10)),
    "lv_personas_kods": (pvn.is_valid, lambda: pick([day("dmy") + pick("012") + digits(4), "32" + digits(9)])),
    "nl_bsn": (bsn.is_valid, lambda: pick(["000000000", digits(9), digits(9), digits(9)])),
    "pl_pesel": (pesel.is_valid, lambda: day("ymd", pick([20, 40, 60, 80])) + digits(5)),
    "pt_nif": (nif.is_valid, lambda: digits(9)),
    "dk_cpr": (cpr.is_valid, lambda: day("dmy", 8) + digits(4)),
    "no_fodselsnummer": (fodselsnummer.is_valid, lambda: day(pick(["dmy"]), 40) + digits(5)),
    "at_vnr": (vnr.is_valid, lambda: digits(4) + day("dmy")),
    "ro_cnp": (cnp.is_valid, lambda: pick("0123456789") + day("ymd") + "%02d" % random.randint(1, 60) + digits(4)),
    "bg_egn": (egn.is_valid, lambda: day("ymd", pick([20, 40])) + digits(4)),
    "hu_adoazonosito": (hu_tax, lambda: pick("8887") + digits(9)),
    "hu_taj": (hu_taj, lambda: pick(["000000000", digits(9), digits(9)])),
    "gr_amka": (amka.is_valid, lambda: day("dmy") + digits(5)),
    "hr_oib": (oib.is_valid, lambda: digits(11)),
    "si_emso": (emso.is_valid, lambda: day("dm") + pick(["9", "0", "1"]) + digits(8)),
    "ee_isikukood": (ik.is_valid, lambda: pick("0123456789") + day("ymd") + digits(4)),
    "lt_asmens_kodas": (asmens.is_valid, lambda: pick("3456999") + day("ymd") + digits(4)),
}
VALID, INVALID = 40, 60

out = {"made_by": "tests/oracles/national_ids.py, python-stdnum 2.2", "numbers": {}}
for name, (is_valid, make) in KINDS.items():
    rows = {True: [], False: []}
    seen = set()
    for _ in range(300_000):
        n = make()
        verdicts = []
        for today in ((2026, 11, 26), (2099, 12, 31)):
            datetime.date = on(today)
            verdicts.append(bool(is_valid(n)))
        datetime.date = real_date
        wanted = VALID if verdicts[0] else INVALID
        if n in seen or verdicts[0] != verdicts[1] or len(rows[verdicts[0]]) >= wanted:
            if len(rows[True]) >= VALID and len(rows[False]) >= INVALID:
                break
            continue
        seen.add(n)
        rows[verdicts[0]].append(n)
        # one character changed
        if verdicts[0] and len(rows[False]) < INVALID:
            at = random.randrange(len(n))
            if n[at].isdigit():
                other = n[:at] + str((int(n[at]) + random.randint(1, 9)) % 10) + n[at + 1 :]
                again = []
                for today in ((2026, 11, 26), (2099, 12, 31)):
                    datetime.date = on(today)
                    again.append(bool(is_valid(other)))
                datetime.date = real_date
                if not any(again):
                    rows[False].append(other)
                    seen.add(other)
    assert len(rows[True]) == VALID and len(rows[False]) >= 40, (name, len(rows[True]), len(rows[False]))
    out["numbers"][name] = {"valid": rows[True], "invalid": rows[False]}
print(json.dumps(out, indent=0, separators=(",", ":")))

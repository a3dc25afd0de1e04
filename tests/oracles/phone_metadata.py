"""Writes curate/src/pii/phone/regions.tsv: the numbering plans of libphonenumber, as the package `phonenumbers` has them.

Needs phonenumbers 9.0.43 (libphonenumber 9.0.43, Apache-2.0). Usage:

    python tests/oracles/phone_metadata.py > curate/src/pii/phone/regions.tsv

One line per region, the main region of a country code first, with tabs between: region, country code, prefix for calls
abroad, prefix for calls inside, its replacement, leading digits of the region's numbers, pattern of all numbers, their
lengths, lengths of local numbers, pattern of the types' numbers, formats of which some want the prefix
(`leading digits~pattern~1 if the prefix is wanted`, with `;` between).
"""

import re
import sys

import phonenumbers
from phonenumbers.data import _COUNTRY_CODE_TO_REGION_CODE
from phonenumbers.phonemetadata import PhoneMetadata
from phonenumbers.phonenumberutil import _formatting_rule_has_first_group_only

try:
    from re import _parser as sre_parse
except ImportError:
    import sre_parse

TYPES = ["premium_rate", "toll_free", "shared_cost", "voip", "personal_number", "pager", "uan", "voicemail", "fixed_line", "mobile"]


def lengths(tree):
    """Every length that a pattern matches."""
    all = {0}
    for op, arg in tree:
        name = str(op)
        if name in ("LITERAL", "IN", "ANY", "CATEGORY"):
            each = {1}
        elif name == "BRANCH":
            each = set().union(*(lengths(branch) for branch in arg[1]))
        elif name == "SUBPATTERN":
            each = lengths(arg[-1])
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = arg
            once, each, now = lengths(inner), set(), {0}
            for n in range(int(high) + 1):
                if n >= low:
                    each |= now
                now = {a + b for a in now for b in once}
        else:
            raise ValueError(name)
        all = {a + b for a in all for b in each}
    return all


def wants_prefix(f):
    rule = f.national_prefix_formatting_rule
    return bool(rule) and not f.national_prefix_optional_when_formatting and not _formatting_rule_has_first_group_only(rule)


def formats(m):
    rows = [(f.leading_digits_pattern[-1] if f.leading_digits_pattern else "", f.pattern, "1" if wants_prefix(f) else "0") for f in m.number_format]
    while rows and rows[-1][2] == "0":
        rows.pop()
    return ";".join("~".join(row) for row in rows)


def numbers(list):
    return ",".join(str(n) for n in list if n >= 0)


assert phonenumbers.__version__ == "9.0.43", phonenumbers.__version__
print("# numbering plans of libphonenumber 9.0.43 (Apache-2.0), made by tests/oracles/phone_metadata.py")
for code, regions in sorted(_COUNTRY_CODE_TO_REGION_CODE.items()):
    for at, region in enumerate(regions):
        m = PhoneMetadata.metadata_for_region_or_calling_code(code, region)
        general = m.general_desc
        types = []
        for name in TYPES:
            d = getattr(m, name)
            if d is None or not d.national_number_pattern:
                continue
            # so that patterns alone tell a type's numbers
            stray = lengths(sre_parse.parse(d.national_number_pattern)) - set(d.possible_length or general.possible_length)
            if stray:
                print(region, name, "also matches lengths", sorted(stray), file=sys.stderr)
            if d.national_number_pattern not in types:
                types.append(d.national_number_pattern)
        row = [region, str(code), m.international_prefix, m.national_prefix_for_parsing, m.national_prefix_transform_rule, m.leading_digits,
               general.national_number_pattern, numbers(general.possible_length), numbers(general.possible_length_local_only),
               "|".join(types), formats(m) if at == 0 else ""]
        row = ["" if field is None else field for field in row]
        assert not re.search(r"[\t\n ]", "".join(row)) and "~" not in "".join(row[:10]), row
        print("\t".join(row))

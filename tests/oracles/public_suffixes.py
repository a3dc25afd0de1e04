"""Writes curate/src/text/suffixes.txt.zst: the rules of Mozilla's Public Suffix List (MPL-2.0).

Needs zstandard and the list, as publicsuffix.org has it (`public_suffix_list.dat`) or without its comments (`data/rules.txt` of the crate psl 2.1.247, which
was read). A rule a line, sorted by bytes; a rule that is not ASCII stands there in Punycode as well, as hosts of addresses have it.

    python tests/oracles/public_suffixes.py LIST > curate/src/text/suffixes.txt.zst
"""

import sys

import zstandard


def punycode(label):
    return label if label.isascii() else "xn--" + label.encode("punycode").decode()


with open(sys.argv[1], encoding="utf-8") as file:
    rules = {line.split()[0] for line in file if line.strip() and not line.startswith("//")}
rules |= {".".join(map(punycode, rule.split("."))) for rule in rules}
text = b"".join(sorted(rule.encode() + b"\n" for rule in rules))
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(text))

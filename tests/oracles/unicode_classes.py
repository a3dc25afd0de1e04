#!/usr/bin/env python3
"""Writes index/src/tokenizer/byte_bpe/unicode17.bin: the class of every code point, as runs.

Needs regex (PyPI) 2026.5.9, which has Unicode 17.0 (2026.11.15 has 18.0). One run is a class in the low 2 bits (0 other,
1 white space, 2 number, 3 letter) and the length in code points above them, as an LEB128 number; surrogates are class 0.
The last run ends with U+10FFFF.
"""
import pathlib, regex

# Python's \s has U+001C to U+001F as well, which Unicode's White_Space (the engines' \s) has not.
patterns = [regex.compile(c, regex.V1) for c in [r"\p{White_Space}", r"\p{N}", r"\p{L}"]]

def kind(cp):
    if 0xD800 <= cp < 0xE000:
        return 0
    c = chr(cp)
    return next((i + 1 for i, p in enumerate(patterns) if p.match(c)), 0)

out, start, last = bytearray(), 0, kind(0)
def run(k, n):
    v = n << 2 | k
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
for cp in range(1, 0x110000):
    k = kind(cp)
    if k != last:
        run(last, cp - start)
        start, last = cp, k
run(last, 0x110000 - start)
path = pathlib.Path(__file__).parents[2] / "index/src/tokenizer/byte_bpe/unicode17.bin"
path.write_bytes(out)
print(len(out), "bytes")

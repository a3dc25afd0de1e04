"""Makes tests/data/hostile/*.xz with Python's lzma (liblzma 5.4): zeros, and a header that asks for a dictionary of 4 GiB; and
zeros.br, 96 MiB of blanks, with brotli 1.2.0."""

import lzma
import struct
import sys
import zlib

import brotli

folder = sys.argv[1]
with open(f"{folder}/zeros.xz", "wb") as out:
    out.write(lzma.compress(bytes(64 << 20), preset=6))
small = bytearray(lzma.compress(b'{"text":"a"}\n' * 100, preset=6))
# stream header 12 bytes; block header: size, flags, filter id, size of properties, dictionary, padding, CRC32
assert small[13] & 0xC0 == 0 and small[14] == 0x21 and small[15] == 1, small[12:24].hex()
size = (small[12] + 1) * 4
small[16] = 40
small[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(bytes(small[12 : 12 + size - 4])))
with open(f"{folder}/dictionary_of_4_gib.xz", "wb") as out:
    out.write(small)
with open(f"{folder}/zeros.br", "wb") as out:
    out.write(brotli.compress(b" " * (96 << 20), quality=9))

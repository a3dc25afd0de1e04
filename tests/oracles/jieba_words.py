"""Writes curate/src/text/words/jieba.txt.zst: the words of jieba's dictionary with their frequencies.

Needs jieba 0.42.1 (MIT), zstandard. A line: the word, a space, its frequency. Sorted by bytes; parts of speech, which word boundaries do not need, are left
out, and so is the second of two equal lines (`B超`).

    python tests/oracles/jieba_words.py > curate/src/text/words/jieba.txt.zst
"""

import os
import sys

import jieba
import zstandard

with open(os.path.join(os.path.dirname(jieba.__file__), "dict.txt"), encoding="utf-8") as file:
    entries = {tuple(line.split(" ")[:2]) for line in file}
words = [word for word, _ in entries]
assert len(words) == len(set(words)) == 349_045
lines = sorted(f"{word} {frequency}\n".encode() for word, frequency in entries)
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(b"".join(lines)))

"""Writes curate/tests/data/profiles/gopher_quality.json.zst: verdicts of datatrove's Gopher quality filter with other languages and stop words.

Needs datatrove 0.10.1, spacy 3.8 and zstandard. The texts and their languages are those of fineweb2.json.zst.

    python tests/oracles/profiles_gopher_quality.py > curate/tests/data/profiles/gopher_quality.json.zst
"""

import io
import json
import os
import sys

import zstandard
from datatrove.data import Document
from datatrove.pipeline.filters import GopherQualityFilter

FOLDER = os.path.join(os.path.dirname(__file__), "../../curate/tests/data/profiles")
with open(os.path.join(FOLDER, "fineweb2.json.zst"), "rb") as packed:
    pages = json.load(io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8"))
# words that occur in texts of some of the languages, and the published English ones
WORDS = ["na", "ya", "i", "u", "a", "og", "ve", "le", "the", "and"]
rows = []
for number, page in enumerate(pages):
    for words, least in [(None, 2), (WORDS, 2), (WORDS, 5), (WORDS[:3], 0)]:
        one = GopherQualityFilter(language=page["language"], stop_words=words, min_stop_words=least, min_doc_words=20)
        try:
            told = one.filter(Document(text=page["input"], id="1"))
        except ZeroDivisionError:
            told = (False, "division by zero")
        rows.append({"page": number, "stop_words": words or [], "min_stop_words": least, "verdict": True if told is True else told[1]})
text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=19).compress(text.encode()))

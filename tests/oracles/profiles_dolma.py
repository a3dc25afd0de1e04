"""Writes curate/tests/data/profiles/dolma.json.zst: the attributes of dolma's Gopher, C4 and repetition taggers, and the text that
its mixer leaves of a page.

Needs dolma 1.2.1, zstandard.

    python tests/oracles/profiles_dolma.py TEXTS > curate/tests/data/profiles/dolma.json.zst
"""

import sys

import nltk

nltk.data.find = lambda *a, **k: None  # dolma would download sentences that no tagger here needs
from dolma.core.data_types import Document
from dolma.taggers import c4, gopher
from dolma.taggers.repetitions import RepetitionsTagger
from profiles_pages import pages, write

LIMITS = {"word_count": "words", "median_word_length": "median_word_length", "symbol_to_word_ratio": "max_symbol_to_word_ratio",
          "fraction_of_words_with_alpha_character": "min_alphabetic_word_ratio", "required_word_count": "min_required_words",
          "fraction_of_lines_starting_with_bullet_point": "max_bullet_ratio", "fraction_of_lines_ending_with_ellipsis": "max_ellipsis_ratio",
          "fraction_of_duplicate_lines": "max_duplicate_line_ratio", "fraction_of_characters_in_duplicate_lines": "max_duplicate_line_char_ratio"}
LIMITS |= {f"fraction_of_characters_in_most_common_{n}grams": f"max_top_{n}_gram_ratio" for n in (2, 3, 4)}
LIMITS |= {f"fraction_of_characters_in_duplicate_{n}grams": f"max_duplicate_{n}_gram_ratio" for n in range(5, 11)}


def figures(spans):
    found = {}
    for span in spans:
        name = LIMITS.get(span.type)
        if name in ("words", "median_word_length"):
            found["min_" + name] = found["max_" + name] = span.score
        elif name:
            found[name] = span.score
    return found




c4.NAUGHTY_WORDS, c4.NAUGHTY_PHRASES = set(), set()  # bad words are a step of their own


def mixed(text, spans):
    """The page as `configs/c4-replication/mixer.yaml` leaves it; the mixer cuts out the union of the spans."""
    types = {s.type for s in spans}
    for rule in ("curly_brace", "lorem_ipsum", "javascript"):
        if f"has_{rule}" in types:
            return {"c4": rule}
    gone = set()
    for span in spans:
        if span.type.startswith("lines_with"):
            gone.update(range(span.start, span.end))
    return {"text": "".join(c for i, c in enumerate(text) if i not in gone)}


rows = []
for text in pages(sys.argv[1], 400):
    doc = Document(source="s", version="v", id="1", text=text)
    row = {"input": text, "v1": figures(gopher.GopherTagger().predict(doc).spans), "v2": figures(gopher.GopherTaggerV2().predict(doc).spans)}
    row |= mixed(text, c4.FasterC4Tagger().predict(doc).spans)
    row["shifts"] = len(text.lower()) != len(text)
    spans = RepetitionsTagger().predict(doc).spans
    row["repetitions"] = {s.type: s.score for s in spans if s.type.startswith("doc_")}
    rows.append(row)
write(rows)

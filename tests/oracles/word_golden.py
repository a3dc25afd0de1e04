"""Writes curate/tests/data/words.json.zst: the words of datatrove's rule-based tokenizers (spaCy's languages, IndicNLP) for awkward texts.

Needs datatrove 0.10.1, spacy 3.8, indic-nlp-library 0.92, zstandard, and the Universal Declaration of Human Rights by language (NLTK's udhr2) as
`code TAB paragraph` lines. Each language gets paragraphs of the declaration, if it is there, and lines that are put together at random from its
special cases, its letters, numbers, units, marks, and addresses.

    python tests/oracles/word_golden.py UDHR > curate/tests/data/words.json.zst
"""

import json
import random
import sys

import spacy
import zstandard
from datatrove.utils.text import split_into_words
from spacy_rules import CODES

UDHR = "am arb bul cat dan deu ell spa pes fin fao fra gle - hsb hun ind ita kir lat ltz lij lit mkd - nob nld pol por ron rus slv srp swe tir tgl tur tat ukr".split()
NAMES = (
    "amh_Ethi arb_Arab bul_Cyrl cat_Latn dan_Latn deu_Latn ell_Grek spa_Latn fas_Arab fin_Latn fao_Latn fra_Latn gle_Latn grc_Grek hsb_Latn hun_Latn ind_Latn ita_Latn kir_Cyrl lat_Latn "
    "ltz_Latn lij_Latn lit_Latn mkd_Cyrl zsm_Latn nob_Latn nld_Latn pol_Latn por_Latn ron_Latn rus_Cyrl slv_Latn srp_Cyrl swe_Latn tir_Ethi fil_Latn tur_Latn tat_Cyrl ukr_Cyrl"
).split()
MARKS = list("()[]{}.,:;!?/-+*=<>\"'%&#@_~") + ["\u2013", "\u2014", "\u2026", "...", "\u201e", "\u201c", "\u00ab", "\u00bb", "\u2019", "''", "--", "\u00b0C", "\u20ac", "$", "\u0964", "\u060c"]
UNITS = ["km", "kg", "%", "\u00b0C.", "mm\u00b2", "GB", "\u043a\u043c", "\u20ac", "US$", "m/s", "mg", "\u043a\u0433"]
ADDRESSES = ["www.example.org", "http://a.example.com/b?c=d", "name@example.com", "10.1.1.1"]


def texts(code, paragraphs, rng):
    yield from rng.sample(paragraphs, min(6, len(paragraphs)))
    special = [w for w in spacy.blank(code).tokenizer.rules if not any(c.isspace() for c in w)] if code in CODES else ["12.5", "10/12/2010"]
    words = [w for p in paragraphs for w in p.split()][:400] or special
    mark, word = (lambda: rng.choice(MARKS)), (lambda: rng.choice(words).strip(".,;"))
    shapes = [
        lambda: mark() + word() + mark(),
        lambda: word() + mark() + word(),
        lambda: rng.choice(special),
        lambda: mark() + rng.choice(special) + mark(),
        lambda: str(rng.randrange(3000)) + rng.choice(UNITS) + rng.choice(["", ".", ",", ")"]),
        lambda: f"{rng.randrange(40)}{mark()}{rng.randrange(99)}",
        lambda: word().upper() + rng.choice([".", "'s", "-", ":"]) + word(),
        lambda: rng.choice(ADDRESSES) + rng.choice(["", ".", ")"]),
        lambda: word() + "-" + word().lower() + rng.choice(["", "-" + word()]),
        word,
    ]
    for _ in range(14):
        yield " ".join(rng.choice(shapes)() for _ in range(14))


def main():
    declaration = {}
    for line in open(sys.argv[1], encoding="utf-8"):
        fields = line.rstrip("\n").split("\t")
        if len(fields) > 1:
            declaration.setdefault(fields[0].split("_")[0], []).append(fields[-1])
    rng = random.Random(7)
    rows = []
    languages = list(zip(CODES, NAMES, UDHR)) + [("hi", "hin_Deva", "hin"), ("ur", "urd_Arab", "urd"), ("bn", "ben_Beng", "ben"), ("ta", "tam_Taml", "tam")]
    for code, name, declared in languages:
        paragraphs = [p for p in declaration.get(declared, []) if p.strip()]
        for text in texts(code, paragraphs, rng):
            rows.append([name, text, split_into_words(text, name)])
    packed = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.buffer.write(zstandard.ZstdCompressor(level=19).compress(packed.encode()))


if __name__ == "__main__":
    main()

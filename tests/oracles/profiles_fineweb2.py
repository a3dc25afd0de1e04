"""Writes curate/tests/data/profiles/fineweb2.json.zst: words and verdicts of FineWeb-2's three filters in several languages.

Needs datatrove 0.10.1, spacy 3.8, pyyaml, zstandard, a checkout of huggingface/fineweb-2 (d0defb2), and the Universal Declaration of Human
Rights by language (NLTK's udhr2) as `code TAB paragraph` lines.

    python tests/oracles/profiles_fineweb2.py FINEWEB2 UDHR > curate/tests/data/profiles/fineweb2.json.zst
"""

import io
import random
import sys

import yaml
import zstandard
from datatrove.data import Document
from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.utils.text import split_into_words
from profiles_pages import ODD, write

LANGUAGES = "swh_Latn zul_Latn lug_Latn xho_Latn hrv_Latn ces_Latn isl_Latn heb_Hebr hye_Armn slk_Latn uzn_Cyrl azj_Latn ssw_Latn tso_Latn yor_Latn tgk_Cyrl eus_Latn als_Latn".split()

raw = zstandard.ZstdDecompressor().stream_reader(open(sys.argv[2], "rb")).read().decode()
texts = {}
for line in raw.split("\n"):
    fields = line.split("\t")
    if len(fields) > 1:
        texts.setdefault(fields[0].split("_")[0], []).append(fields[-1])
rng = random.Random(3)
rows = []
for code in LANGUAGES:
    paragraphs = texts.get(code[:3])
    if not paragraphs:
        print("no text:", code, file=sys.stderr)
        continue
    c = yaml.safe_load(open(f"{sys.argv[1]}/configs/{code}.yml"))
    filters = [
        GopherRepetitionFilter(language=code, dup_para_frac=0, dup_line_char_frac=0, dup_para_char_frac=0, dup_line_frac=c["dup_line_frac"], top_n_grams=c["top_n_grams"], dup_n_grams=c["dup_n_grams"]),
        FineWebQualityFilter(language=code, short_line_thr=999, char_duplicates_ratio=0.1, line_punct_thr=c["line_punct_thr"], new_line_ratio=c["new_line_ratio"]),
        GopherQualityFilter(language=code, max_avg_word_length=c["max_avg_word_length"], min_avg_word_length=c["min_avg_word_length"], stop_words=c["stopwords"], max_non_alpha_words_ratio=c["max_non_alpha_words_ratio"], min_stop_words=2),
    ]
    for i in range(12):
        start = rng.randrange(max(1, len(paragraphs) - 8))
        lines = paragraphs[start : start + rng.choice([2, 6, 10, 20])]
        if i % 3:
            lines += rng.choices(ODD, k=rng.randint(0, 6))
            rng.shuffle(lines)
        if i % 4 == 3:
            lines = [w for line in lines for w in line.split(" ")] if i % 8 == 3 else lines + lines[: len(lines) // 2]
        text = "\n".join(lines)
        verdict = True
        for one in filters:
            told = one.filter(Document(text=text, id="1"))
            if told is not True:
                verdict = told[1] if isinstance(told, tuple) else False
                break
        row = {"language": code, "input": text, "verdict": verdict}
        if i < 6:
            row["words"] = split_into_words(text, code)
        rows.append(row)
write(rows)

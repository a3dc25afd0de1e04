"""Writes curate/src/filter/fineweb2/languages.tsv.zst: FineWeb-2's thresholds and stop words of every language, and whose words they need.

Needs datatrove 0.10.1, spacy 3.8, pyyaml, zstandard, and a checkout of huggingface/fineweb-2 (d0defb2).
A line: code, splitter (en, xx, base: spaCy's rules with English or default infixes and no English words; else the name of the program whose words they
are), then dup_line_frac, three top n-grams, six duplicate n-grams, line_punct_thr, new_line_ratio, least and greatest word length, least share of words with
a letter, then stop words, all between tabs.

    python tests/oracles/fineweb2_languages.py FINEWEB2 > curate/src/filter/fineweb2/languages.tsv.zst
"""

import csv
import os
import sys

import spacy
import yaml
import zstandard
from datatrove.utils._import_utils import ASSETS_PATH


def rules(code):
    t = spacy.blank(code).tokenizer
    patterns = [m.__self__.pattern if m else None for m in (t.prefix_search, t.suffix_search, t.infix_finditer, t.url_match, t.token_match)]
    return patterns, {k: [list(p.values())[0] for p in v] for k, v in t.rules.items()}


base_rules = rules("xx")
KNOWN = {"en": rules("en"), "xx": base_rules, "base": (rules("en")[0], base_rules[1])}


def splitter(kind, code, seen={}):
    if kind == "WhitespaceTokenizer":
        return "xx"
    if kind != "SpaCyTokenizer":
        return kind.removesuffix("Tokenizer") + (" " + code if code else "")
    if code not in seen:
        try:
            seen[code] = next((name for name, known in KNOWN.items() if known == rules(code)), "spaCy " + code)
        except Exception:  # one that needs another program
            seen[code] = "spaCy " + code
    return seen[code]


lines = []
rows = {f"{r['code_3']}_{r['script']}": r for r in csv.DictReader(open(os.path.join(ASSETS_PATH, "tokenizer_assignment.csv")))}
for name in sorted(os.listdir(sys.argv[1] + "/configs")):
    code = name.removesuffix(".yml")
    c = yaml.safe_load(open(f"{sys.argv[1]}/configs/{name}"))
    row = rows[code]
    kind = splitter(row["type"], row["tok_code"])
    fields = [code, kind]
    if kind in KNOWN:
        fields += [c["dup_line_frac"], *(f for _, f in c["top_n_grams"]), *(f for _, f in c["dup_n_grams"]), c["line_punct_thr"], c["new_line_ratio"]]
        fields += [c["min_avg_word_length"], c["max_avg_word_length"], c["max_non_alpha_words_ratio"], *c["stopwords"]]
    lines.append("\t".join(map(str, fields)))
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress("\n".join(lines).encode()))

"""Writes curate/src/text/languages.tsv.zst: the languages of datatrove with their tokenizers, and FineWeb-2's thresholds and stop words.

Needs datatrove 0.10.1, spacy 3.8, pyyaml, zstandard, and a checkout of huggingface/fineweb-2 (d0defb2).
A line, fields between tabs: code (`swh_Latn`); tokenizer; other names, between spaces (`swh`, `sw_Latn`, `sw`); and for the 1,929 languages of FineWeb-2
dup_line_frac, three top n-grams, six duplicate n-grams, line_punct_thr, new_line_ratio, least and greatest word length, least share of words with a letter, then
stop words. Tokenizer: en, xx, base: spaCy's rules with English or default infixes and no English words; else the name of datatrove's class and its argument
(`spaCy de`, `Stanza wo`, `Thai`).

    python tests/oracles/languages.py FINEWEB2 > curate/src/text/languages.tsv.zst
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


def tokenizer(kind, code, seen={}):
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


# The first row that claims a name has it. datatrove itself takes the word FALSE for true there, so that its `zh` and `ms` are the last row's (Latin, Thai).
names, lines = {}, {}
for r in csv.DictReader(open(os.path.join(ASSETS_PATH, "tokenizer_assignment.csv"))):
    if not r["type"]:
        continue
    code = f"{r['code_3']}_{r['script']}"
    if code not in names:
        names[code] = code
        if r["default_script"] == "TRUE":
            names.setdefault(r["code_3"], code)
    short = f"{r['code_1']}_{r['script']}"
    if r["code_1"] and r["default_code_1"] == "TRUE" and short not in names:
        names[short] = code
        if r["default_script"] == "TRUE":
            names.setdefault(r["code_1"], code)
    lines[code] = [tokenizer(r["type"], r["tok_code"])]
for code, line in lines.items():
    line.append(" ".join(n for n, c in names.items() if c == code and n != code))
for file in os.listdir(sys.argv[1] + "/configs"):
    c = yaml.safe_load(open(f"{sys.argv[1]}/configs/{file}"))
    fields = [c["dup_line_frac"], *(f for _, f in c["top_n_grams"]), *(f for _, f in c["dup_n_grams"]), c["line_punct_thr"], c["new_line_ratio"]]
    fields += [c["min_avg_word_length"], c["max_avg_word_length"], c["max_non_alpha_words_ratio"], *c["stopwords"]]
    lines[file.removesuffix(".yml")] += map(str, fields)
text = "\n".join("\t".join([code, *line]) for code, line in sorted(lines.items()))
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(text.encode()))

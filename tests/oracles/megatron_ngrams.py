"""megatron_ngrams.py FILTER_NGRAMS.py SPEECHES.jsonl | zstd -19 > curate/tests/data/megatron_ngrams.json.zst: what Megatron-LM cuts.

FILTER_NGRAMS.py: `git show 26ad37925^:tools/openwebtext/filter_ngrams.py` of NVIDIA/Megatron-LM; its own functions index the
evaluation texts, count n-grams in the documents and cut them. SPEECHES: public-domain speeches, JSONL with `text`. Python 3.11.
"""

import argparse
import contextlib
import importlib.util
import json
import random
import re
import sys
import tempfile
import types
import unicodedata

from speeches import pieces_of

sys.modules["nltk"] = types.ModuleType("nltk")  # imported there, not used
spec = importlib.util.spec_from_file_location("filter_ngrams", sys.argv[1])
theirs = importlib.util.module_from_spec(spec)
sys.modules["filter_ngrams"] = theirs  # its workers look it up
spec.loader.exec_module(theirs)
piece = pieces_of(sys.argv[2])
random.seed(5)


def mangled(text):
    kind = random.randrange(4)
    return [text, text.upper(), text.replace(" ", "  --  "), text.replace(" ", "\n")][kind]


tasks = {
    "long": [piece(random.randint(13, 40)) for _ in range(40)],
    "short": [piece(random.randint(5, 12)) for _ in range(40)],
    "common": ["we the people of the united states ask every member of this congress to listen today",
               "may god bless you and the united states"],
    "odd": ["Caf\u00e9 na\u00efve \u039f\u0394\u039f\u03a3 \u00bd \u4e2d\u6587 e\u0301t\u00e9 x_1 don't 3.14 na na na", "a b c d e f g h i", "", "\u2014 ..."],
}
every = [t for texts in tasks.values() for t in texts]
documents = [piece(random.randint(1, 400)) for _ in range(20)]
for _ in range(120):
    parts = []
    for _ in range(random.randint(1, 4)):
        parts.append(piece(random.randint(0, 150)))
        parts.append(mangled(random.choice(every)))
    parts.append(piece(random.randint(0, 150)))
    documents.append(" ".join(p for p in parts if p))
for n in (9, 10, 11, 12, 30):  # many pieces
    documents.append(" ".join(piece(130) + ". " + random.choice(tasks["long"]) + " " + piece(100) for _ in range(n)))
for i in range(14):  # frequent n-grams
    documents.append(piece(60) + " " + tasks["common"][0] + ". " + piece(60))
    documents.append(piece(30) + " " + tasks["common"][1] + " " * (i % 3) + piece(i))
for text in tasks["long"][:6] + tasks["short"][:6]:  # at the ends, with nothing around, of 12, 13 and 14 words
    documents += [text, text + " " + piece(200), piece(200) + " " + text]
    few = text.split()
    documents += [" ".join(few[:n]) + piece(k) for n, k in ((12, 1), (13, 1), (8, 5), (8, 6))]
    documents.append(re.sub(r"[.!?]", ",", piece(200)) + " " + text + " " + re.sub(r"[.!?]", ",", piece(200)))
    documents.append("\u00e9" * 300 + ". " + text + "\u4e2d" * 230 + "! \u00e9" + "x\u00e9 " * 120)
odd = "\u0391\u03a3 \u03a3\u0391\u03a3. "
documents.append(odd * 60 + tasks["odd"][0] + odd * 60)
documents.append("".join(tasks["odd"][1] + ",," for _ in range(200)))
documents.append("")

runs = []
settings = [{}, {"key_threshold": 1000000}, {"key_threshold": 3, "splits_count": 3, "filter_text_char_len": 20, "remove_char_each_side": 30},
            {"max_ngram_size": 9, "min_ngram_size": 2, "key_threshold": 1000000, "remove_char_each_side": 0}]
for given in settings:
    args = argparse.Namespace(max_ngram_size=13, min_ngram_size=8, filter_text_char_len=200, key_threshold=10, splits_count=10,
                              remove_char_each_side=200, num_threads=2, tasks=[], output=None)
    vars(args).update(given)
    with contextlib.redirect_stdout(sys.stderr), tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        ngrams, below = {}, {}
        for text in every:
            theirs.compute_ngrams_insert_dict(args, text, ngrams)
        for d in documents:
            file.write(json.dumps({"text": d}) + "\n")
        file.flush()
        lengths = theirs.compute_ngram_freq_sorted(args, ngrams)
        theirs.get_ngrams_below_threshold(args, ngrams, below, file.name, "text", lengths)
        args.get_ngram_freq_only = False
        lengths = theirs.compute_ngram_freq_sorted(args, below)
        cuts = []
        for d in documents:
            pieces, trimmed, _, _ = theirs.free_ngram(json.dumps({"text": d}), args, "text", below, lengths)
            if pieces == [d]:
                cuts.append(None)
            else:
                cuts.append([] if len(pieces) > args.splits_count else pieces)
    runs.append({"settings": given, "ngrams": {k: [v, k in below] for k, v in sorted(ngrams.items())}, "cuts": cuts})

# every assigned character that is part of a word, as ranges
chars = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
flags = [(c, bool(re.match(r"\w", chr(c)))) for c in chars]
ranges = []
for c, flag in flags:
    if ranges and ranges[-1][2] == flag and ranges[-1][1] == c - 1:
        ranges[-1][1] = c
    else:
        ranges.append([c, c, flag])
json.dump({"tasks": tasks, "documents": documents, "runs": runs, "characters": ranges}, sys.stdout)

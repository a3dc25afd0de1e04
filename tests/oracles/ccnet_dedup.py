"""ccnet_dedup.py CC_NET SPEECHES.jsonl > curate/tests/data/ccnet_dedup.json: what CCNet's dedup.py leaves of some texts.

Needs a checkout of facebookresearch/cc_net (bda555b) and numpy, psutil, requests, typing_extensions. SPEECHES: public-domain
speeches, JSONL with `text`; pieces of them are mixed so that lines come again in other spellings.
"""

import json
import random
import sys

sys.path.insert(0, sys.argv[1])
from cc_net.dedup import DuplicatesRemover, HashesCollector
from cc_net.flat_hash_set import NaiveHashSet

lines = []
for line in open(sys.argv[2], encoding="utf-8"):
    words = json.loads(line)["text"].split()
    lines += [" ".join(words[i : i + 9]) for i in range(0, min(len(words), 90), 9)]
lines = lines[:60] + [
    "", " ", "Share this!", "SHARE THIS!", "page 1 of 20", "page 3 of 47", "\u201cQuoted\u201d \u2026 text", "quoted  text",
    "\u0663 apples", "3 apples", "\uff11 apple", "\u00c9T\u00c9", "\u00e9t\u00e9", "\u039f\u03a3", "a\x07b", "ab", "a\u00adb",
    "\x1c ab\x85", "\u4e2d\u6587\uff0c\u3002", "\u4e2d\u6587", "\u0130x", "i\u0307x", "(a) b", "\u3000ab\u3000",
]
random.seed(1)


def text():
    copies = [random.choice(lines) for _ in range(random.randint(1, 9))]
    odd = [random.choice([str.upper, str.lower, str, lambda s: " " + s + "\t"])(c) for c in copies]
    odd += ["".join(random.choices("abcdefgh", k=12)) for _ in range(random.randint(0, 2))]
    random.shuffle(odd)
    return "\n".join(odd)


files = [[t for t in (text() for _ in range(n)) if t] for n in (40, 1, 25)]
documents = [{"raw_content": t} for f in files for t in f]


def left(remover):
    out = []
    for d in documents:
        done = remover.do(dict(d))
        # Millrace leaves out what has no line with text
        if done is not None and done["raw_content"].strip("\n") != "":
            out.append(done["raw_content"])
    return out


first = DuplicatesRemover("raw_content", [], collect=True)
first.duplicates = NaiveHashSet()
collector = HashesCollector("raw_content", hashes=NaiveHashSet())
for d in documents:
    collector.do(dict(d))
none = DuplicatesRemover("raw_content", [])
none.duplicates = collector.hashes
json.dump({"files": files, "first": left(first), "none": left(none)}, sys.stdout)

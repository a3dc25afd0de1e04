"""Writes curate/tests/data/kenlm.json.zst: small models of every kind that KenLM writes, with its scores of some sentences.

Needs kpu/kenlm built (BIN holds lmplz and build_binary), its Python module, zstandard. TEXTS is a JSONL file with `text`.

    python tests/oracles/kenlm_scores.py BIN TEXTS > curate/tests/data/kenlm.json.zst
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kenlm
import zstandard

tools, texts = Path(sys.argv[1]), sys.argv[2]
lines = []
for line in open(texts, encoding="utf-8"):
    lines += [" ".join(re.findall(r"[a-z]+|[.,;]", s.lower())) for s in re.split(r"(?<=[.!?])\s+|\n+", json.loads(line)["text"])]
    if len(lines) > 1200:
        break
lines = [s for s in lines if len(s.split()) > 3]
train, held = lines[:110], lines[110:150]
sentences = train[:6] + held + ["", "unknownword", "the the the the the the", "of unknownword of the", "<unk> the", "<s> a </s> b"]
with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    arpa = folder / "m.arpa"
    made = subprocess.run([tools / "lmplz", "-o", "4", "--discount_fallback", "-S", "10%"], input="\n".join(train).encode(), capture_output=True, check=True)
    arpa.write_bytes(made.stdout)
    kinds = {"arpa": None, "probing": ["probing"], "probing-p2": ["-p", "2.0", "probing"], "trie": ["trie"], "trie-q": ["-q", "8", "-b", "7", "trie"],
             "trie-a": ["-a", "22", "trie"], "trie-qa": ["-a", "6", "-q", "6", "trie"]}
    out = {"sentences": sentences, "files": {}, "scores": {}, "perplexity": {}}
    for name, options in kinds.items():
        path = arpa
        if options:
            path = folder / name
            subprocess.run([tools / "build_binary", *options[:-1], options[-1], arpa, path], capture_output=True, check=True)
        model = kenlm.Model(str(path))
        out["files"][name] = path.read_bytes().hex()
        out["scores"][name] = [model.score(s) for s in sentences]
        out["perplexity"][name] = model.perplexity(sentences[0])
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(json.dumps(out).encode()))

"""Writes curate/tests/data/kenlm_train.json.zst: corpora and the models that KenLM's lmplz estimates from them.

Needs kpu/kenlm built (BIN holds lmplz) and zstandard. TEXTS is a JSONL file with `text` (public-domain speeches).

    python tests/oracles/kenlm_train.py BIN TEXTS > curate/tests/data/kenlm_train.json.zst
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import zstandard

tools, texts = Path(sys.argv[1]), sys.argv[2]
lines = []
opened = zstandard.open(texts, "rt", encoding="utf-8") if texts.endswith(".zst") else open(texts, encoding="utf-8")
for line in opened:
    lines += [" ".join(re.findall(r"[a-z]+|[.,;]", s.lower())) for s in re.split(r"(?<=[.!?])\s+|\n+", json.loads(line)["text"])]
    if len(lines) > 1200:
        break
lines = [s for s in lines if len(s.split()) > 3]
cases = []
for count, order, options in [
    (260, 2, {}),
    (260, 3, {}),
    (260, 3, {"prune": [0, 0, 1]}),
    (260, 4, {"prune": [0, 1]}),
    (160, 5, {}),
    (160, 5, {"prune": [1, 1, 2]}),
    (3, 4, {"fallback": True}),
    (1, 2, {"fallback": True}),
]:
    command = [tools / "lmplz", "-o", str(order), "-S", "10%"]
    if "prune" in options:
        command += ["--prune", *map(str, options["prune"])]
    if "fallback" in options:
        command += ["--discount_fallback"]
    made = subprocess.run(command, input="".join(s + "\n" for s in lines[:count]).encode(), capture_output=True)
    if made.returncode:
        sys.exit(made.stderr.decode())
    cases.append({"sentences": count, "order": order, **options, "arpa": made.stdout.decode()})
out = {"lines": lines[:260], "cases": cases}
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(json.dumps(out).encode()))

"""Draws of CPython's `random.Random` for `index/tests/data/python_random.json`.

Run: python tests/oracles/python_random.py > index/tests/data/python_random.json
"""

import json
import random
import sys

SEEDS = [0, 1, 1234, 99_999, 2**32 - 1, 2**32, 2**40 + 7]
# (kind, population, draws): lists and sets of `sample`, both sides of its limits
DRAWS = [
    ("sample", 10, 3), ("sample", 21, 5), ("sample", 22, 5), ("sample", 7473, 5), ("sample", 39905, 6),
    ("sample", 277, 16), ("sample", 278, 16), ("sample", 85, 6), ("sample", 86, 6), ("sample", 3, 3), ("sample", 1, 1),
    ("choices", 1, 2), ("choices", 7, 20), ("choices", 1319, 20), ("sample", 65536, 4),
]


def cases():
    for seed in SEEDS:
        rng = random.Random(seed)
        draws = []
        for kind, n, k in DRAWS:
            found = rng.sample(range(n), k) if kind == "sample" else rng.choices(range(n), k=k)
            draws.append({"kind": kind, "n": n, "k": k, "found": found})
        yield {"seed": seed, "draws": draws}


print(json.dumps({"python": sys.version.split()[0], "cases": list(cases())}))

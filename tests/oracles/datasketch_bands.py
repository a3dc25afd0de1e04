"""datasketch's choice of bands and rows for thresholds and numbers of permutations.

    python tests/oracles/datasketch_bands.py > curate/tests/data/datasketch_bands.json

Needs datasketch 2.0.0 (PyPI) and scipy. Rows of [threshold, permutations, bands, rows] from `_optimal_param` with equal
weights of false positives and false negatives, which is what `MinHashLSH(threshold, num_perm)` uses.
"""
import json
from datasketch.lsh import _optimal_param

rows = []
for permutations in (1, 2, 16, 32, 64, 100, 112, 128):
    for hundredths in (10, 20, 30, 40, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 99, 100):
        threshold = hundredths / 100
        bands, of = _optimal_param(threshold, permutations, 0.5, 0.5)
        rows.append([threshold, permutations, bands, of])
print("[" + ",\n".join(json.dumps(r) for r in rows) + "]")

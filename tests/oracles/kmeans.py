#!/usr/bin/env python3
"""Writes tests/data/semantic/kmeans.json: vectors of length 1 and their clusters by faiss's spherical k-means.

    python tests/oracles/kmeans.py            (needs faiss-cpu 1.15.1, numpy)

`vectors`: 240 of 20 numbers around eight directions; `first`: the vectors at which the clusters begin; `clusters` and
`centres`: where faiss ends after 50 iterations, which is long after no vector changes its cluster.
"""
import json
from pathlib import Path

import faiss
import numpy as np

OUT = Path(__file__).resolve().parents[1] / "data" / "semantic" / "kmeans.json"


def main():
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(8, 20))
    vectors = directions[rng.integers(0, 8, 240)] + 1.1 * rng.normal(size=(240, 20))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.array([[float(f"{x:.6g}") for x in row] for row in vectors], dtype=np.float32)
    first = rng.permutation(240)[:6]
    kmeans = faiss.Kmeans(20, 6, niter=50, spherical=True, nredo=1, min_points_per_centroid=1, verbose=False)
    kmeans.train(vectors, init_centroids=vectors[first] / np.linalg.norm(vectors[first], axis=1, keepdims=True))
    _, clusters = kmeans.index.search(vectors, 1)
    found = {
        "first": first.tolist(),
        "clusters": clusters[:, 0].tolist(),
        "centres": [[float(f"{x:.7g}") for x in row] for row in kmeans.centroids],
        "vectors": [[float(f"{x:.6g}") for x in row] for row in vectors],
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(np.bincount(clusters[:, 0]), kmeans.obj[-3:])


if __name__ == "__main__":
    main()

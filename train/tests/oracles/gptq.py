#!/usr/bin/env python3
"""Writes gptq.json beside this file: random layers, and their codes and scales by GPTQ in float64 with numpy, as the paper's program
(gptq.py of IST-DASLab/gptq, `fasterquant`) has it: H^-1 by inversion, its upper Cholesky factor, columns in turn. Scales are the
largest size by 7.5 rounded to bf16, those of 4 bits without zero points in compressed-tensors; a dead input keeps its weights.

    python train/tests/oracles/gptq.py   (needs numpy 2.4, torch 2.15 for bf16)
"""
import json
from pathlib import Path

import numpy as np
import torch


def scale_of(part):
    largest = np.abs(part.astype(np.float32)).max(axis=1) / np.float32(7.5)
    scale = torch.from_numpy(largest).bfloat16().double().numpy()
    return np.where(scale == 0, np.finfo(np.float32).eps, scale)


def gptq(weights, x, group, act_order):
    w, n = weights.copy(), x.shape[1]
    h = x.T @ x
    mean = np.diag(h).mean()
    dead = np.diag(h) == 0
    h[dead, dead] = max(mean, 1.0)
    order = np.argsort(-np.diag(x.T @ x), kind="stable") if act_order else np.arange(n)
    fixed = np.stack([scale_of(w[:, g : g + group]) for g in range(0, n, group)], 1) if act_order else None
    h = h[order][:, order] + 0.01 * mean * np.eye(n)
    w = w[:, order]
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    codes, scales = np.zeros(w.shape, dtype=np.int64), np.zeros((w.shape[0], n // group))
    for i in range(n):
        g = order[i] // group
        if act_order:
            scales[:, g] = fixed[:, g]
        elif i % group == 0:
            scales[:, g] = scale_of(w[:, i : i + group])
        q = np.rint(np.clip(w[:, i] / scales[:, g], -8, 7))
        codes[:, order[i]] = q
        error = (w[:, i] - q * scales[:, g]) / upper[i, i]
        w[:, i + 1 :] -= np.outer(error, upper[i, i + 1 :])
    return codes, scales


rng = np.random.default_rng(5)
cases = []
for out, n, rows, group, act_order, dead in [(6, 32, 100, 8, False, False), (6, 32, 100, 8, True, False), (9, 48, 60, 16, False, True),
                                             (9, 48, 60, 48, True, True), (3, 80, 50, 16, False, False)]:
    # inputs that depend on each other, of sizes that differ
    x = rng.normal(size=(rows, n)) @ rng.normal(size=(n, n)) * np.exp(rng.normal(size=n))
    # few digits keep the file small; the numbers are f32's
    x = np.round(x, 1).astype(np.float32).astype(np.float64)
    if dead:
        x[:, 5] = 0
    w = np.round(rng.normal(size=(out, n)) * 0.05, 4).astype(np.float32).astype(np.float64)
    codes, scales = gptq(w, x, group, act_order)
    short = lambda a: [float(np.format_float_positional(np.float32(v), unique=True)) for v in a.flatten()]
    cases.append({"n": n, "group": group, "act_order": act_order, "inputs": short(x), "weights": short(w),
                  "codes": codes.flatten().tolist(), "scales": scales.flatten().tolist()})
Path(__file__).with_suffix(".json").write_text(json.dumps({"cases": cases}) + "\n")

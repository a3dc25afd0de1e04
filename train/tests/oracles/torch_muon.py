#!/usr/bin/env python3
"""Writes muon.json: ten steps of torch.optim.Muon in f64 that src/optim/muon.rs is tested with (needs torch).

    python train/tests/oracles/torch_muon.py

Recorded with torch 2.15.0. torch casts the direction to bf16 before it iterates; here that cast is to f64, so that what is
compared are formulas. Weights and gradients are cosines of the element's number, so that the test can make them too.
"""
import json
import pathlib

import torch

torch.bfloat16 = torch.float64  # the cast inside the optimizer
cases = []
for rows, cols in [(24, 10), (10, 24), (16, 16)]:
    at = torch.arange(rows * cols, dtype=torch.float64)
    weight = torch.nn.Parameter((0.1 * torch.cos(0.37 * at)).reshape(rows, cols))
    optimizer = torch.optim.Muon([weight], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5,
                                 adjust_lr_fn="match_rms_adamw")
    for step in range(1, 11):
        weight.grad = torch.cos(0.61 * at * step + step).reshape(rows, cols) * 0.01 * step
        optimizer.step()
    cases.append({"rows": rows, "cols": cols, "weights": weight.detach().flatten().tolist()})
path = pathlib.Path(__file__).with_name("muon.json")
path.write_text(json.dumps(cases) + "\n")

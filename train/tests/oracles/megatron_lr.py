#!/usr/bin/env python3
"""Writes learning rates and batch sizes of megatron-core as megatron_lr.json, which src/optim/schedule.rs and src/recipe.rs
are tested with (needs torch, megatron-core; no GPU).

    python train/tests/oracles/megatron_lr.py

Recorded with megatron-core 0.16.1: peak 1, floor 0.1, 10 steps of warm-up, decay over 110 steps, the last 40 of them for WSD.
"""
import json
import pathlib

import torch
from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

STEPS = [1, 5, 10, 11, 35, 60, 70, 71, 80, 95, 109, 110, 120]
STYLES = ["cosine", "linear", "constant", "inverse-square-root",
          "WSD linear", "WSD cosine", "WSD exponential", "WSD minus_sqrt"]
rates = {}
for style in STYLES:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    kind, _, decay = style.partition(" ")
    wsd = {"wsd_decay_steps": 40, "lr_wsd_decay_style": decay} if decay else {}
    scheduler = OptimizerParamScheduler(optimizer, 0.0, 1.0, 0.1, 10, 110, kind, 0.0, 0.0, 0, "constant",
                                        use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=False,
                                        **wsd)
    all_rates = []
    for _ in range(max(STEPS)):
        scheduler.step(1)
        all_rates.append(optimizer.param_groups[0]["lr"])
    rates[style] = [all_rates[step - 1] for step in STEPS]

# start, increment, samples, global batch: the batch of every step until it is whole and two more
batches = []
for start, increment, samples, whole in [(8, 8, 96, 32), (4, 2, 37, 12), (2, 2, 10, 8), (8, 8, 1, 16)]:
    sizes, consumed = [], 0
    while len(sizes) < 40:
        calculator = RampupBatchsizeNumMicroBatchesCalculator(whole, 1, 1, False, 1, start, increment, samples)
        calculator.update(consumed, True)
        sizes.append(calculator.get_current_global_batch_size())
        consumed += sizes[-1]
        if len(sizes) > 2 and sizes[-3] == whole:
            break
    batches.append({"start": start, "increment": increment, "samples": samples, "global": whole, "sizes": sizes})

path = pathlib.Path(__file__).with_name("megatron_lr.json")
path.write_text(json.dumps({"steps": STEPS, "rates": rates, "batches": batches}, indent=1) + "\n")

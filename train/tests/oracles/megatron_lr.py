#!/usr/bin/env python3
"""Prints the learning rates that src/optim/schedule.rs is tested with (needs torch, megatron-core).

    python train/tests/oracles/megatron_lr.py

Recorded with megatron-core 0.16.1: peak 1, floor 0.1, 10 steps of warm-up, decay over 110 steps.
"""
import torch
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

STEPS = (1, 5, 10, 11, 35, 60, 109, 110, 120)
for style in ("cosine", "linear", "constant"):
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = OptimizerParamScheduler(opt, 0.0, 1.0, 0.1, 10, 110, style, 0.0, 0.0, 0, "constant",
                                        use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=False)
    rates = []
    for _ in range(max(STEPS)):
        scheduler.step(1)
        rates.append(opt.param_groups[0]["lr"])
    print(style, [rates[step - 1] for step in STEPS])

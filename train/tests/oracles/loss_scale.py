"""Scales of the loss after each step of made-up patterns of overflows: torch.amp.GradScaler on the CPU and
megatron-core's DynamicGradScaler. Writes loss_scale.json. torch 2.x, megatron-core 0.16.1.

    python train/tests/oracles/loss_scale.py
"""

import json
import pathlib
import random

import torch
from megatron.core.optimizer.grad_scaler import DynamicGradScaler


def pattern(seed, steps, share):
    """'!' where a step overflows: a bad start, then here and there, then a run of them at the end."""
    draw = random.Random(seed)
    middle = ["!" if draw.random() < share else "." for _ in range(steps)]
    return "!" * 3 + "".join(middle) + "!" * 12 + "." * 9


def by_torch(steps, initial, growth, backoff, window):
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_factor=growth,
                                  backoff_factor=backoff, growth_interval=window)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scales = []
    for step in steps:
        scaler.scale((weight * 1.0).sum())  # creates the state
        weight.grad = torch.full_like(weight, float("inf") if step == "!" else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def by_megatron(steps, initial, least, growth, backoff, window, hysteresis):
    # the class wants CUDA tensors; its rule does not
    on_cpu = lambda make: lambda *a, **k: make(*a, **{**k, "device": "cpu"})
    tensor = torch.tensor
    torch.tensor = on_cpu(tensor)
    try:
        scaler = DynamicGradScaler(initial, least, growth, backoff, window, hysteresis)
        scales = []
        for step in steps:
            scaler.update(step == "!")
            scales.append(scaler.scale.item())
    finally:
        torch.tensor = tensor
    return scales


def main():
    cases = []
    for seed, (initial, growth, backoff, window) in enumerate(
            [(65536.0, 2.0, 0.5, 2000), (65536.0, 2.0, 0.5, 5), (1000.0, 1.7, 0.3, 3), (2.0**126, 4.0, 0.5, 2)]):
        steps = pattern(seed, 120, 0.1)
        cases.append({
            "scaler": "torch",
            "config": {"initial": initial, "min": 1.2e-38, "window": window, "hysteresis": 1,
                       "growth": growth, "backoff": backoff},
            "steps": steps,
            "scales": by_torch(steps, initial, growth, backoff, window),
        })
    for seed, (initial, least, growth, backoff, window, hysteresis) in enumerate(
            [(2.0**32, 1.0, 2.0, 0.5, 1000, 2), (2.0**32, 1.0, 2.0, 0.5, 7, 2), (64.0, 16.0, 2.0, 0.5, 4, 3)]):
        steps = pattern(seed + 10, 120, 0.1)
        cases.append({
            "scaler": "megatron",
            "config": {"initial": initial, "min": least, "window": window, "hysteresis": hysteresis,
                       "growth": growth, "backoff": backoff},
            "steps": steps,
            "scales": by_megatron(steps, initial, least, growth, backoff, window, hysteresis),
        })
    out = pathlib.Path(__file__).with_name("loss_scale.json")
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f"[\n{lines}\n]\n")
    print(torch.__version__)


main()

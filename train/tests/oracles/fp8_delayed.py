"""Scales after each step of made-up histories, and numbers rounded with them, by the rule of Transformer Engine's
DelayedScaling and torch's float8 casts. Writes fp8_delayed.json; every f32 is told by its bits. torch 2.x.

    python train/tests/oracles/fp8_delayed.py

The rule (docs.nvidia.com, Transformer Engine, `transformer_engine.common.recipe.DelayedScaling`):
    NEW_SCALING_FACTOR = (FP8_MAX / AMAX) / 2^margin
with AMAX the maximum or the most recent of `amax_history_len` steps; the old factor stays where AMAX is 0 or not finite, and
a factor that f32 cannot hold becomes its largest. Numbers beyond the format's largest become that.
"""

import json
import math
import pathlib
import random

import torch

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def bits(tensor):
    return [bit & 0xFFFFFFFF for bit in tensor.to(torch.float32).contiguous().view(torch.int32).tolist()]


def amaxes(seed, steps):
    """Sizes over many orders, with zeros, an infinity, and some that no factor fits."""
    draw = random.Random(seed)
    sizes = [math.exp(draw.uniform(-12, 8)) for _ in range(steps)]
    for at, size in [(2, 0.0), (7, math.inf), (11, 1e-42), (12, 1e-39), (13, 3e38), (17, 0.0), (18, 0.0)]:
        sizes[at] = size
    return torch.tensor(sizes, dtype=torch.float32)


def scales(history_len, algorithm, margin, largest, sizes):
    """One tensor's factors: its history is a row whose first element is this step's."""
    history, scale = torch.zeros(history_len), torch.tensor(1.0)
    largest_f32 = torch.tensor(torch.finfo(torch.float32).max)
    found = []
    for size in sizes:
        history[0] = size
        amax = history.max() if algorithm == "max" else history[0].clone()
        factor = (torch.tensor(largest) / amax) / (2**margin)
        factor = torch.where(amax > 0.0, factor, scale)
        factor = torch.where(torch.isfinite(amax), factor, scale)
        scale = torch.where(torch.isinf(factor), largest_f32, factor)
        history = torch.roll(history, -1)
        history[0] = 0.0
        found.append(scale)
    return torch.stack(found)


def rounded(x, scale, name):
    kind = FORMATS[name]
    largest = torch.finfo(kind).max
    return (x * scale).clamp(-largest, largest).to(kind).to(torch.float32) * (1.0 / scale)


def main():
    draw = random.Random(0)
    x = [draw.choice([-1, 1]) * math.exp(draw.uniform(-16, 10)) for _ in range(40)]
    x = torch.tensor(x + [0.0, -0.0, 448.0, 449.0, -464.0, 57344.0, 6e4, 1e30, math.inf, -math.inf], dtype=torch.float32)
    cases = []
    for seed, (history_len, algorithm, margin, pair, role) in enumerate([
            (1, "most_recent", 0, "hybrid", "forward"), (1, "most_recent", 0, "hybrid", "backward"),
            (4, "max", 0, "hybrid", "forward"), (4, "max", 2, "hybrid", "backward"),
            (1024, "max", 0, "e4m3", "backward"), (5, "most_recent", 1, "e4m3", "forward")]):
        name = "e5m2" if (pair, role) == ("hybrid", "backward") else "e4m3"
        sizes = amaxes(seed, 24)
        after = scales(history_len, algorithm, margin, torch.finfo(FORMATS[name]).max, sizes)
        before = [torch.tensor(1.0), *after[:-1]]
        cases.append({
            "config": {"recipe": "delayed", "format": pair, "margin": margin, "amax_history_len": history_len,
                       "amax_compute_algo": algorithm},
            "role": role,
            "amax": bits(sizes),
            "scales": bits(after),
            "x": bits(x),
            "rounded": [bits(rounded(x, scale, name)) for scale in before],
        })
    out = pathlib.Path(__file__).with_name("fp8_delayed.json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    out.write_text(f"[\n{lines}\n]\n")
    print(torch.__version__)


main()

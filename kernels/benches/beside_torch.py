"""Matrix products of Millrace and of torch in turn, as a table of GFLOP/s, one thread.

    python kernels/benches/beside_torch.py
    python kernels/benches/beside_torch.py --models 10M --rounds 3

The products are those of a step of the GPTs of train/benches/beside_torch.py: 1,024 tokens, each linear layer
forward, its input's gradient and its weight's. Operands are far from the caches: 12 sets in turn, or 3 where
the head's are. Each figure is the median over the calls of a round, then over rounds.

f32: both programs the same numbers. bf16: both read bf16 and write bf16 with sums in f32, as torch.autocast
does; Millrace's sums are those that training has on the machine, in tiles with AMX, else in pairs. `step`: as Millrace has it in a step in layout mode, with weights in f32 (those of out and fc2 input first),
sums in leaves, and results in f32 where a residual or a norm reads them, or the gradient of a weight; `packed`: the
same with weights packed before, as for the second and later micro-batches of a step (with AMX alone).
Needs torch and cargo; run it on an idle machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

TOKENS = 1024
WIDTHS = {"10M": (384, None), "124M": (768, 50304)}


def products(model):
    """Name, product, the same as Millrace has it in a step, what it stores then (a, b, result), its leaf."""
    d, vocabulary = WIDTHS[model]
    layers = [("qkv", d, 3 * d), ("out", d, d), ("fc1", d, 4 * d), ("fc2", 4 * d, d)]
    if vocabulary:
        layers.append(("head", d, vocabulary))
    for name, inputs, outputs in layers:
        is_row = name in ("out", "fc2")
        # between the products of a feed-forward layer and in front of attention all is bf16
        stored = {"qkv": "fh", "out": "ff", "fc1": "fh", "fc2": "hf", "head": "ff"}[name]
        before, after = stored
        turned = {"nt": "nn", "nn": "nt"} if is_row else {}
        forward, back = ("nt", TOKENS, outputs, inputs), ("nn", TOKENS, inputs, outputs)
        weight = ("tn", outputs, inputs, TOKENS)
        own = [(turned.get(kind, kind), *size) for kind, *size in (forward, back)]
        leaf = inputs // 8 if is_row else 0
        yield (f"{name} forward", forward, own[0], before + "f" + after, leaf)
        leaf = 0 if is_row else outputs // 8
        yield (f"{name} input gradient", back, own[1], after + "f" + ("h" if is_row else "f"), leaf)
        own = ("tn", inputs, outputs, TOKENS) if is_row else weight
        factors = before + after if is_row else after + before
        yield (f"{name} weight gradient", weight, own, factors + "f", 32)


def torch_speed(kind, m, n, k, half, sets, seconds=0.6):
    import torch

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if half else torch.float32
    a = [torch.randn((k, m) if kind == "tn" else (m, k)).to(dtype) for _ in range(sets)]
    b = [torch.randn((n, k) if kind == "nt" else (k, n)).to(dtype) for _ in range(sets)]
    c = [torch.zeros((m, n), dtype=dtype) for _ in range(sets)]
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < sets:
        at = len(times) % sets
        x = a[at].t() if kind == "tn" else a[at]
        y = b[at].t() if kind == "nt" else b[at]
        begun = time.perf_counter()
        torch.mm(x, y, out=c[at])
        times.append(time.perf_counter() - begun)
    return 2e-9 * m * n * k / statistics.median(times)


def millrace_speed(binary, kind, m, n, k, sets, **options):
    args = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    run = [binary, *args, "--sets", str(sets), f"{kind}:{m}:{n}:{k}"]
    env = dict(os.environ, RAYON_NUM_THREADS="1")
    out = subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout
    speed = out.split()[-1]
    return None if speed == "-" else float(speed)


def build():
    command = ["cargo", "bench", "-p", "millrace-kernels", "--bench", "product", "--no-run"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return told[told.rindex("(") + 1 : told.rindex(")")]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--models", nargs="+", default=list(WIDTHS), choices=list(WIDTHS))
    options.add_argument("--rounds", type=int, default=2)
    asked = options.parse_args()
    binary = build()
    print("| model | product | f32: torch | Millrace | | bf16: torch | Millrace | | step | packed |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    ratios = {"f32": [], "bf16": []}
    for model in asked.models:
        for name, at, own, stored, leaf in products(model):
            kind, m, n, k = at
            sets = 12 if max(m * n, n * k, m * k) < 1 << 23 else 3
            in_step = {"numbers": "bf16", "stored": stored, "leaf": leaf}
            columns = [
                lambda: torch_speed(*at, False, sets),
                lambda: millrace_speed(binary, *at, sets, numbers="f32"),
                lambda: torch_speed(*at, True, sets),
                lambda: millrace_speed(binary, *at, sets, numbers="bf16", stored="hhh"),
                lambda: millrace_speed(binary, *own, sets, **in_step),
            ]
            # products over a longer k read no packs
            if kind != "tn" and k <= 5120:
                columns.append(lambda: millrace_speed(binary, *own, sets, **in_step, packed="true"))
            rounds = [[column() for column in columns] for _ in range(asked.rounds)]
            found = [None if None in column else statistics.median(column) for column in zip(*rounds)]
            plain, half = found[1] / found[0], found[3] / found[2]
            ratios["f32"].append(plain)
            ratios["bf16"].append(half)
            packed = f"{found[5]:.0f}" if found[5:] and found[5] else "-"
            cells = [f"{found[0]:.0f}", f"{found[1]:.0f}", f"{plain:.2f}", f"{found[2]:.0f}"]
            cells += [f"{found[3]:.0f}", f"{half:.2f}", f"{found[4]:.0f}", packed]
            print(f"| {model} | {name} {m} x {n} x {k} | " + " | ".join(cells) + " |", flush=True)
    for numbers, all_of_them in ratios.items():
        mean = statistics.geometric_mean(all_of_them)
        print(f"{numbers}: Millrace / torch {min(all_of_them):.2f} to {max(all_of_them):.2f}, geometric mean {mean:.2f}")


if __name__ == "__main__":
    sys.exit(main())

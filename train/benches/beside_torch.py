"""Training steps of Millrace and of torch in turn, as a table: tokens per second, ratio, peak memory.

    python train/benches/beside_torch.py
    python train/benches/beside_torch.py --models 10M --precisions bf16 --threads 1 --rounds 3

Both train the same GPTs (pre-norm, GELU, learned positions, tied head, no dropout) on random tokens, 4
sequences of 256 a step, clip the gradient's norm at 1 and step AdamW; torch has SDPA, fused AdamW and, in
bf16, autocast. Each figure is the best step of all rounds; every program runs once a round, one after the
other, each in a process of its own, whose resident memory at most is told. `layout` and `off` are
Millrace's `determinism`. Needs torch and cargo; run it on an idle machine.
"""

import argparse
import json
import os
import subprocess
import sys

SHAPES = {"10M": (6, 6, 384, 256), "124M": (12, 12, 768, 50257)}
BATCH, LENGTH, WARM = 4, 256, 2


def torch_steps(model, precision, threads, compiled, steps):
    """Trains and prints the best step's tokens per second."""
    import time

    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layers, heads, width, vocabulary = SHAPES[model]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.before_mlp = nn.LayerNorm(width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            by_head = self.qkv(self.before_attention(x)).unflatten(-1, (3, heads, -1))
            q, k, v = (part.transpose(1, 2) for part in by_head.unbind(2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.before_mlp(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(LENGTH, width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.norm = nn.LayerNorm(width)
            for weight in self.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight
            logits = F.linear(self.norm(self.layers(x)), self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    gpt = Gpt()
    run = torch.compile(gpt) if compiled else gpt
    optimizer = torch.optim.AdamW(
        gpt.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    ids = torch.randint(0, vocabulary, (BATCH, LENGTH + 1))
    best = float("inf")
    for step in range(WARM + steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= WARM:
            best = min(best, time.perf_counter() - start)
    print(json.dumps({"best_tok_s": BATCH * LENGTH / best}))


def measured(command, threads):
    """Tokens per second and MiB of a child, or None if it failed."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    environment["RAYON_NUM_THREADS"] = str(threads)
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    with child.stdout as printed:
        lines = printed.read().splitlines()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0 or not lines:
        return None
    return json.loads(lines[-1])["best_tok_s"], used.ru_maxrss / 1024


def step_bench():
    """Builds the bench and returns its path."""
    command = "cargo bench -p millrace-train --bench step --no-run --message-format=json"
    built = subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, text=True)
    paths = [json.loads(line).get("executable") for line in built.stdout.splitlines()]
    return [path for path in paths if path][-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--precisions", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--torch", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        model, precision, threads, how = options.torch
        torch_steps(model, precision, int(threads), how == "compiled", options.steps)
        return
    bench = step_bench()
    programs = ["torch"] + ["compiled"] * options.compile + ["off", "layout"]
    print("| model | numbers | threads |", " | ".join(programs), "| layout / torch | MiB |")
    print("|---" * (len(programs) + 5) + "|")
    cases = [(m, p, t) for m in options.models for p in options.precisions for t in options.threads]
    for model, precision, threads in cases:
        best = {name: (0.0, 0.0) for name in programs}
        for _ in range(options.rounds):
            for name in programs:
                if name in ("torch", "compiled"):
                    command = [sys.executable, __file__, "--steps", str(options.steps)]
                    command += ["--torch", model, precision, str(threads), name]
                else:
                    command = [bench, "--steps", str(WARM + options.steps), "--model", model]
                    command += ["--precision", precision, "--threads", str(threads), "--mode", name]
                result = measured(command, threads)
                if result:
                    best[name] = (max(best[name][0], result[0]), max(best[name][1], result[1]))
        rates = " | ".join(f"{best[name][0]:,.0f}" for name in programs)
        peer = max(best[name][0] for name in programs if name in ("torch", "compiled"))
        memory = ", ".join(f"{name} {best[name][1]:,.0f}" for name in programs)
        ratio = f"{best['layout'][0] / peer:.2f}" if peer else "-"
        print(f"| {model} | {precision} | {threads} | {rates} | {ratio} | {memory} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains pipelines/jobs/bench/gpt_10m.toml with millrace and with torch and compares the curves.

    python train/tests/oracles/converge.py MILLRACE OUT      (from the root; needs torch, transformers)

Both begin with the same weights (a run of one step at a rate of 1e-30, exported) and see the same samples in the same
order (`blend --dump`). Torch: transformers' GPT2LMHeadModel in float32, clip_grad_norm_, AdamW without decay on norms
and biases, the same cosine. Writes OUT/curves.tsv: step, our loss, torch's loss; after it validation losses. Fails if
the last validation losses are 0.01 nats apart or more.
"""
import json
import math
import subprocess
import sys
from pathlib import Path

import torch
import transformers

JOB = "pipelines/jobs/bench/gpt_10m.toml"


def millrace(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def rate(t, step):
    """Linear warm-up from 0, half a cosine to min_lr at the last step."""
    if step <= t["warmup_steps"]:
        return t["lr"] * step / t["warmup_steps"]
    done = (step - t["warmup_steps"]) / (t["steps"] - t["warmup_steps"])
    return t["min_lr"] + (t["lr"] - t["min_lr"]) * (1 + math.cos(math.pi * done)) / 2


def main():
    import tomllib

    out = Path(sys.argv[2])
    job = tomllib.loads(Path(JOB).read_text())
    t, length = job["train"], job["blend"]["seq_length"]
    samples = t["steps"] * t["global_batch"]
    first, whole = out / "first", out / "whole"
    once = ["train.steps=1", "train.warmup_steps=0", "train.lr=1e-30", "train.min_lr=0.0", "train.weight_decay=0.0"]
    for folder, changes in ((first, once), (whole, [])):
        sets = [word for change in [f'out="{folder}"', *changes] for word in ("--set", change)]
        for verb in ("tokenize", "blend", "train"):
            millrace(verb, JOB, *sets)
    hf = out / "hf"
    millrace("convert", "--checkpoint", str(first / "checkpoints/step-00000001"), str(hf))
    dump = json.loads(millrace("blend", JOB, "--set", f'out="{whole}"', "--dump", str(samples), "--json"))
    train = [s["tokens"] for s in dump["splits"]["train"]["samples"]]
    valid = [s["tokens"] for s in dump["splits"]["valid"]["samples"]][: t["eval_samples"]]
    assert len(train) == samples and len(valid) == t["eval_samples"], (len(train), len(valid))

    records = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    ours = {r["step"]: r["loss"] for r in records if "loss" in r}
    ours_valid = {r["step"]: r["valid_loss"] for r in records if "valid_loss" in r}

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel.from_pretrained(hf, attn_implementation="sdpa").float()
    assert model.config.resid_pdrop == model.config.embd_pdrop == model.config.attn_pdrop == 0
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": t["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8)

    def loss_of(rows):
        ids = torch.tensor(rows)
        logits = model(ids[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    lines, theirs_valid = [], {}
    for step in range(1, t["steps"] + 1):
        batch = train[(step - 1) * t["global_batch"]: step * t["global_batch"]]
        for group in opt.param_groups:
            group["lr"] = rate(t, step)
        opt.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), t["clip_norm"])
        opt.step()
        lines.append(f"{step}\t{ours[step]:.6f}\t{float(loss.detach()):.6f}")
        if step % t["eval_every"] == 0 or step == t["steps"]:
            with torch.no_grad():
                parts = [float(loss_of(valid[i: i + 8])) for i in range(0, len(valid), 8)]
            theirs_valid[step] = sum(parts) / len(parts)
            print(step, ours_valid[step], theirs_valid[step], flush=True)
    lines += [f"valid {step}\t{ours_valid[step]:.6f}\t{theirs_valid[step]:.6f}" for step in theirs_valid]
    (out / "curves.tsv").write_text("step\tmillrace\ttorch\n" + "\n".join(lines) + "\n")
    last = t["steps"]
    off = abs(ours_valid[last] - theirs_valid[last])
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {samples * length:,} tokens: last validation "
          f"losses {ours_valid[last]:.4f} and {theirs_valid[last]:.4f}, {off:.5f} apart (torch {torch.__version__})")
    assert off < 0.01


main()

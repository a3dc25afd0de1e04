"""Ten steps of a tiny torch model, and the golden files of them: what the scripts *_goldens.py beside this share.

A run gives (tensors by name, series of numbers by name), as conditioning.py takes it: logits and gradients of the first
batch, weights after the last step; losses and gradient norms of every step.
"""
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from conditioning import moved, worst
from safetensors.numpy import save_file

HERE = Path(__file__).parent
VOCAB, BATCH, STEPS = 61, 4, 10
LR, DECAY, BETAS, CLIP = 1e-2, 0.1, (0.9, 0.95), 0.5


def formula(salt, dims, scale, offset):
    """Element i is ((i + 977 salt) * 2654435761 mod 2^32 >> 16) / 2^16 - 1/2, scaled in float32: exact everywhere."""
    i = np.arange(int(np.prod(dims)), dtype=np.uint64) + np.uint64(977 * salt)
    h = ((i * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)) >> np.uint64(16)
    x = h.astype(np.float32) / np.float32(65536.0) - np.float32(0.5)
    return (x * np.float32(scale) + np.float32(offset)).reshape(dims)


class InFormat:
    """torch for a class that computes some steps in float32 whatever its format is: float32 is this format instead."""

    def __init__(self, dtype):
        self.float32 = self.float = dtype

    def __getattr__(self, name):
        return getattr(torch, name)


def token(sample, position):
    return (sample * 7919 + position * position * 31 + position * 17) % VOCAB


def states(model):
    """Tensors of a file that no gradient moves: biases of experts' scores."""
    return {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}


def train(model, weights, dtype, eps, forward):
    """A run with AdamW and clipping; `forward(model, step)` gives a batch's loss and the logits to record."""
    model = model.to(dtype).train()
    named = dict(model.named_parameters())
    named |= states(model)
    assert sorted(named) == sorted(weights), set(named) ^ set(weights)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(weights[name]).to(dtype))
    # biases of stacked experts have two dims
    is_matrix = {name: p.dim() > 1 and not name.endswith("bias") for name, p in model.named_parameters()}
    groups = [{"params": [named[name] for name, it_is in is_matrix.items() if it_is], "weight_decay": DECAY},
              {"params": [named[name] for name, it_is in is_matrix.items() if not it_is], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=eps)
    out, losses, norms = {}, [], []
    for step in range(STEPS):
        loss, logits = forward(model, step)
        opt.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out |= {"grad." + n: torch.zeros_like(p).numpy() if p.grad is None else p.grad.numpy().copy()
                    for n, p in named.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(float(loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in named.items()}
    return out, {"losses": losses, "grad_norms": norms}


def write(name, weights, run, singles=None, **head):
    """Writes name.safetensors and name.json: `run(weights, dtype)` in float64, and how closely float32 can follow it.

    `singles` are torch's own runs in float32, one by default; `head` comes first in the JSON.
    """
    wide, record = run(weights, torch.float64)
    others = singles or [run(weights, torch.float32)]
    others += [run(moved(weights, seed), torch.float64) for seed in range(8)]
    tensors = {"weight." + k: v for k, v in weights.items()} | {k: v.astype(np.float32) for k, v in wide.items()}
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, HERE / f"{name}.safetensors")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
    record = {"versions": versions} | head | record | {"torch_f32": worst((wide, record), others)}
    (HERE / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    error = record["torch_f32"]["max_abs_error"]
    print(name, record["losses"], "worst", sorted(error.items(), key=lambda x: -x[1])[:4])

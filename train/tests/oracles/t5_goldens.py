#!/usr/bin/env python3
"""Writes t5 and t5_gated (.safetensors and .json) beside this file.

    OMP_NUM_THREADS=1 python train/tests/oracles/t5_goldens.py   (needs torch, transformers, safetensors, numpy)

As decoder_goldens.py, for T5ForConditionalGeneration: t5 as first published (ReLU, tied head on rows divided by the
root of d_model), t5_gated as T5 1.1 and mT5 (tanh GELU gates, a head of its own, heads wider than d_model together).
transformers' own initial weights, norms moved off 1. Both sequences have different lengths; the decoder's inputs are
its labels one place later, after token 0; the loss is the mean over the labels of the batch. 10 steps.
Logits behind a sequence's end are recorded as 0.

The error recorded beside each quantity is what conditioning.py measures.
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
LR, DECAY, BETAS, EPS, CLIP = 1e-2, 0.1, (0.9, 0.95), 1e-4, 0.5
BOTH = dict(vocab_size=VOCAB, d_model=16, d_ff=24, num_heads=4, num_layers=2, dropout_rate=0.0)

# name: (settings, encoder's and decoder's length)
MODELS = {
    "t5": (BOTH | dict(d_kv=4, num_decoder_layers=3, feed_forward_proj="relu", relative_attention_num_buckets=8,
                       relative_attention_max_distance=12), (16, 8)),
    "t5_gated": (BOTH | dict(d_kv=8, num_decoder_layers=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
                 (24, 16)),
}


def build(settings):
    config = transformers.T5Config(**settings)
    config._attn_implementation = "eager"
    model = transformers.T5ForConditionalGeneration(config)
    if not config.scale_decoder_outputs:  # transformers ties until it reads a file with two tables
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    return model


def token(sample, position):
    return (sample * 7919 + position * position * 31 + position * 17) % VOCAB


def sample(index, lengths):
    """Encoder's tokens and which are seen, decoder's tokens and labels."""
    encoder, decoder = lengths[0] - index % 5, lengths[1] - index % 3
    labels = [token(index + 500, j) if j < decoder else -100 for j in range(lengths[1])]
    inputs = [0] + [max(label, 0) for label in labels[:-1]]
    return [token(index, j) for j in range(lengths[0])], [int(j < encoder) for j in range(lengths[0])], inputs, labels


def train(settings, lengths, weights, dtype):
    model = build(settings).to(dtype).train()
    named = dict(model.named_parameters())
    assert sorted(named) == sorted(weights), set(named) ^ set(weights)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(weights[name]).to(dtype))
    groups = [{"params": [p for p in named.values() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in named.values() if p.dim() == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    out, losses, norms = {}, [], []
    for step in range(STEPS):
        batch = zip(*(sample(step * BATCH + s, lengths) for s in range(BATCH)))
        ids, seen, inputs, labels = (torch.tensor(x) for x in batch)
        result = model(ids, attention_mask=seen, decoder_input_ids=inputs, labels=labels, use_cache=False)
        opt.zero_grad()
        result.loss.backward()
        if step == 0:
            counts = (labels >= 0)[..., None]
            out["logits"] = (result.logits * counts).detach().numpy().copy()
            out |= {"grad." + n: p.grad.numpy().copy() for n, p in named.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(float(result.loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in named.items()}
    return out, {"losses": losses, "grad_norms": norms}


def initial(name, settings):
    torch.manual_seed(sum(map(ord, name)))
    weights = {}
    for n, p in build(settings).named_parameters():
        if "layer_norm" in n:
            p = 1 + 0.1 * torch.randn(p.shape)
        elif n == "lm_head.weight":
            p = 0.3 * torch.randn(p.shape)
        elif "relative" in n:
            p = 0.5 * torch.randn(p.shape)
        weights[n] = p.detach().numpy().copy()
    return weights


if __name__ == "__main__":
    for name, (settings, lengths) in MODELS.items():
        weights = initial(name, settings)
        wide, record = train(settings, lengths, weights, torch.float64)
        others = [train(settings, lengths, weights, torch.float32)]
        others += [train(settings, lengths, moved(weights, seed), torch.float64) for seed in range(8)]
        tensors = {"weight." + k: v for k, v in weights.items()} | {k: v.astype(np.float32) for k, v in wide.items()}
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, HERE / f"{name}.safetensors")
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}
        config = json.loads(build(settings).config.to_json_string(use_diff=False))
        record = {"versions": versions, "config": config, "lengths": lengths} | record | {"torch_f32": worst((wide, record), others)}
        (HERE / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        error = record["torch_f32"]["max_abs_error"]
        print(name, record["losses"], record["grad_norms"], "worst", sorted(error.items(), key=lambda x: -x[1])[:4])

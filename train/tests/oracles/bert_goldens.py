#!/usr/bin/env python3
"""Writes bert.safetensors, bert.json, bert_pre.safetensors, bert_pre.json beside this file.

    python train/tests/oracles/bert_goldens.py        (needs torch, transformers, safetensors, numpy)

As torch_goldens.py, for masked language models: BertForMaskedLM (norms after the sums) and MegatronBertForMaskedLM
(norms before the layers), tiny, eager attention, dropout off. Sequences have different lengths, two segments and
masked places; the loss is the mean over the masked places of the batch. 10 steps.

The error recorded beside each quantity is the larger of torch's own float32 error and the largest change in float64
when every weight is moved by up to a unit in the last place of float32, 8 times (half for its own rounding, half for
that of what it is multiplied with): no float32 program is closer to the float64 values but by luck, and single sums
of torch are lucky.
"""
import json

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from torch_goldens import BATCH, BETAS, CLIP, D, DECAY, EPS, F, HEADS, HERE, LAYERS, LR, PADDED, T, VOCAB, formula, token

STEPS, MASK = 10, 5


def native(post):
    """name -> array in our layout, salts counted in order."""
    out = {}

    def add(name, *dims):
        is_norm = "norm" in name and name.endswith("weight")
        w = formula(len(out), dims, 0.5 if len(dims) == 2 else 0.25, 1.0 if is_norm else 0.0)
        if name in ("embedding.weight", "head.bias"):
            w[VOCAB:] = 0
        out[name] = w

    def both(name, *dims):
        add(name + ".weight", *dims)
        add(name + ".bias", dims[0])

    add("embedding.weight", PADDED, D)
    add("position.weight", T, D)
    add("segment.weight", 2, D)
    if post:
        both("embedding.norm", D)
    for i in range(LAYERS):
        at = f"layers.{i}"
        both(at + ".norm1", D)
        both(at + ".qkv", 3 * D, D)
        add(at + ".out.weight", D, D)
        add(at + ".out.bias", D)
        both(at + ".norm2", D)
        both(at + ".fc1", F, D)
        add(at + ".fc2.weight", F, D)
        add(at + ".fc2.bias", D)
    if not post:
        both("norm", D)
    both("head.transform", D, D)
    both("head.norm", D)
    add("head.bias", PADDED)
    return out


def to_hf(w, post):
    out = {}

    def both(name, source):
        out[name + ".weight"], out[name + ".bias"] = w[source + ".weight"], w[source + ".bias"]

    def rows(x):
        heads = x.reshape((HEADS, 3, D // HEADS) + x.shape[1:])
        return [heads[:, i].reshape((D,) + x.shape[1:]) for i in range(3)]

    e = "bert.embeddings."
    out[e + "word_embeddings.weight"] = w["embedding.weight"][:VOCAB]
    out[e + "position_embeddings.weight"] = w["position.weight"]
    out[e + "token_type_embeddings.weight"] = w["segment.weight"]
    both(*((e + "LayerNorm", "embedding.norm") if post else ("bert.encoder.ln", "norm")))
    for i in range(LAYERS):
        a, b = f"bert.encoder.layer.{i}.", f"layers.{i}."
        both(a + ("attention.output.LayerNorm" if post else "attention.ln"), b + "norm1")
        both(a + ("output.LayerNorm" if post else "ln"), b + "norm2")
        for kind in ("weight", "bias"):
            for n, x in zip(("query", "key", "value"), rows(w[b + "qkv." + kind])):
                out[a + f"attention.self.{n}.{kind}"] = x
        for n, source in (("attention.output.dense", "out"), ("output.dense", "fc2")):
            out[a + n + ".weight"], out[a + n + ".bias"] = w[b + source + ".weight"].T, w[b + source + ".bias"]
        both(a + "intermediate.dense", b + "fc1")
    both("cls.predictions.transform.dense", "head.transform")
    both("cls.predictions.transform.LayerNorm", "head.norm")
    out["cls.predictions.bias"] = w["head.bias"][:VOCAB]
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def sample(index):
    """tokens, segments, mask of what is seen, labels."""
    length = T - index % 4
    tokens = [token(index, j) for j in range(T)]
    labels = [t if j < length and (index * 5 + j * 3) % 4 == 1 else -100 for j, t in enumerate(tokens)]
    tokens = [MASK if y != -100 and j % 3 else t for j, (t, y) in enumerate(zip(tokens, labels))]
    return tokens, [int(j >= 7 + index % 3) for j in range(T)], [int(j < length) for j in range(T)], labels


def build(post):
    sizes = dict(vocab_size=VOCAB, max_position_embeddings=T, type_vocab_size=2, hidden_size=D, intermediate_size=F,
                 num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_act="gelu", layer_norm_eps=1e-5,
                 attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, attn_implementation="eager",
                 pad_token_id=None)  # with 0, torch would leave token 0's row out of the gradient
    if post:
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    return transformers.MegatronBertForMaskedLM(transformers.MegatronBertConfig(**sizes))


def train(post, weights, dtype):
    model = build(post).to(dtype).train()
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
        ids, segments, seen, labels = (torch.tensor(x) for x in zip(*(sample(step * BATCH + s) for s in range(BATCH))))
        logits = model(ids, attention_mask=seen, token_type_ids=segments).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        opt.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out |= {"grad." + n: p.grad.numpy().copy() for n, p in named.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(float(loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in named.items()}
    return out, losses, norms


if __name__ == "__main__":
    for name, post in (("bert", True), ("bert_pre", False)):
        weights = to_hf(native(post), post)
        wide, losses, norms = train(post, weights, torch.float64)
        others = [train(post, weights, torch.float32)]
        for seed in range(8):
            random = np.random.default_rng(seed)
            moved = {k: v.astype(np.float64) * (1 + 2.0**-23 * random.uniform(-1, 1, v.shape)) for k, v in weights.items()}
            others.append(train(post, moved, torch.float64))
        error = {k: max(float(np.abs(wide[k] - other[0][k]).max()) for other in others) for k in wide}

        def furthest(index, values):
            rows = zip(values, *(other[index] for other in others))
            return [max(row[1:], key=lambda x: abs(x - row[0])) for row in rows]

        tensors = {"weight." + k: v for k, v in weights.items()} | {k: v.astype(np.float32) for k, v in wide.items()}
        save_file(tensors, HERE / f"{name}.safetensors")
        record = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
                  "losses": losses, "grad_norms": norms,
                  "torch_f32": {"losses": furthest(1, losses), "grad_norms": furthest(2, norms), "max_abs_error": error}}
        (HERE / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(name, losses, norms, "worst", sorted(error.items(), key=lambda x: -x[1])[:4])

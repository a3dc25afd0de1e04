#!/usr/bin/env python3
"""Writes bert, bert_pre and bert_order (.safetensors and .json) beside this file.

    python train/tests/oracles/bert_goldens.py        (needs torch, transformers, safetensors, numpy)

As torch_goldens.py, for masked language models: BertForMaskedLM (norms after the sums) and MegatronBertForMaskedLM
(norms before the layers), tiny, eager attention, dropout off. Sequences have different lengths, two segments and
masked places; the loss is the mean over the masked places of the batch. 10 steps. bert_order is
MegatronBertForPreTraining: the loss of the order of segments, the mean over sequences, is added.

The error recorded beside each quantity is what conditioning.py measures.
"""
import numpy as np
import torch
import transformers
from tiny_runs import BATCH, VOCAB, formula, token, train, write
from torch_goldens import D, EPS, F, HEADS, LAYERS, PADDED, T

MASK = 5


def native(post, order=False):
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
    if order:
        both("head.pooler", D, D)
        both("head.order", 2, D)
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
    if "head.order.weight" in w:
        both("bert.pooler.dense", "head.pooler")
        both("cls.seq_relationship", "head.order")
    out["cls.predictions.bias"] = w["head.bias"][:VOCAB]
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def sample(index):
    """tokens, segments, mask of what is seen, labels."""
    length = T - index % 4
    tokens = [token(index, j) for j in range(T)]
    labels = [t if j < length and (index * 5 + j * 3) % 4 == 1 else -100 for j, t in enumerate(tokens)]
    tokens = [MASK if y != -100 and j % 3 else t for j, (t, y) in enumerate(zip(tokens, labels))]
    return tokens, [int(j >= 7 + index % 3) for j in range(T)], [int(j < length) for j in range(T)], labels


def is_swapped(index):
    return int((index * 7 + 1) % 3 == 0)


def build(post, order):
    sizes = dict(vocab_size=VOCAB, max_position_embeddings=T, type_vocab_size=2, hidden_size=D, intermediate_size=F,
                 num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_act="gelu", layer_norm_eps=1e-5,
                 attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, attn_implementation="eager",
                 pad_token_id=None)  # with 0, torch would leave token 0's row out of the gradient
    if order:
        return transformers.MegatronBertForPreTraining(transformers.MegatronBertConfig(**sizes))
    if post:
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    return transformers.MegatronBertForMaskedLM(transformers.MegatronBertConfig(**sizes))


def forward(model, step, order):
    ids, segments, seen, labels = (torch.tensor(x) for x in zip(*(sample(step * BATCH + s) for s in range(BATCH))))
    found = model(ids, attention_mask=seen, token_type_ids=segments)
    logits = found.prediction_logits if order else found.logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    if order:
        swapped = torch.tensor([is_swapped(step * BATCH + s) for s in range(BATCH)])
        loss = loss + torch.nn.functional.cross_entropy(found.seq_relationship_logits, swapped)
    return loss, logits


if __name__ == "__main__":
    for name, post, order in (("bert", True, False), ("bert_pre", False, False), ("bert_order", False, True)):
        step_of = lambda model, step: forward(model, step, order)
        run = lambda weights, dtype: train(build(post, order), weights, dtype, EPS, step_of)
        write(name, to_hf(native(post, order), post), run)

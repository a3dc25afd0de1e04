#!/usr/bin/env python3
"""Writes classes_bert, classes_bert_pre, classes_choices, classes_number and classes_gpt2 (.safetensors and .json) beside this file.

    python train/tests/oracles/classes_goldens.py        (needs torch, transformers, safetensors, numpy)

As bert_goldens.py and torch_goldens.py, for classification heads: BertForSequenceClassification (norms after the sums) and
MegatronBertForSequenceClassification (norms before the layers) with three classes, BertForMultipleChoice with two
choices, BertForSequenceClassification with one label (a regression), GPT2ForSequenceClassification with three classes; tiny, eager attention, dropout off. Sequences have different
lengths. Logits, loss and gradients of the first batch, weights after 10 steps.

The error recorded beside each quantity is what conditioning.py measures.
"""
import numpy as np
import torch
import transformers
from bert_goldens import native as bert_native, to_hf as bert_to_hf
from tiny_runs import BATCH, VOCAB, formula, token, train, write
from torch_goldens import D, EPS, F, HEADS, LAYERS, T, native as gpt_native, to_hf as gpt_to_hf

CLASSES, CHOICES, PAD = 3, 2, 60


def add(w, name, *dims):
    w[name] = formula(len(w), dims, 0.5 if len(dims) == 2 else 0.25, 0.0)


def bert(post, classes):
    w = {k: v for k, v in bert_native(post).items() if not k.startswith("head.")}
    for name, rows in (("head.pooler", D), ("head.classes", classes)):
        add(w, name + ".weight", rows, D)
        add(w, name + ".bias", rows)
    out = bert_to_hf(w | {f"head.{n}.{k}": np.zeros(VOCAB) for n in ("transform", "norm") for k in ("weight", "bias")}
                     | {"head.bias": np.zeros(VOCAB)}, post)
    out = {k: v for k, v in out.items() if not k.startswith("cls.")}
    for theirs, ours in (("bert.pooler.dense", "head.pooler"), ("classifier", "head.classes")):
        for kind in ("weight", "bias"):
            out[f"{theirs}.{kind}"] = np.ascontiguousarray(w[f"{ours}.{kind}"])
    return out


def gpt2():
    w, kv = gpt_native("gpt")
    add(w, "head.classes.weight", CLASSES, D)
    out = gpt_to_hf("gpt", w, kv)
    out["score.weight"] = w["head.classes.weight"]
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def sample(index):
    """tokens, segments, mask of what is seen."""
    length = T - index % 4
    tokens = [token(index, j) % (VOCAB - 1) if j < length else PAD for j in range(T)]
    return tokens, [int(j >= 7 + index % 3) for j in range(T)], [int(j < length) for j in range(T)]


def label(index, labels):
    return (index * 5 + 1) % labels


def number(index):
    return (index * 5 + 1) % 9 / 4 - 1


def encoder(post, choices, classes=CLASSES):
    sizes = dict(vocab_size=VOCAB, max_position_embeddings=T, type_vocab_size=2, hidden_size=D, intermediate_size=F,
                 num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_act="gelu", layer_norm_eps=1e-5,
                 attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, attn_implementation="eager",
                 pad_token_id=None)
    if choices > 1:
        return transformers.BertForMultipleChoice(transformers.BertConfig(**sizes))
    if post:
        return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, num_labels=classes))
    return transformers.MegatronBertForSequenceClassification(transformers.MegatronBertConfig(**sizes, num_labels=CLASSES))


def decoder():
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=T, n_embd=D, n_layer=LAYERS, n_head=HEADS, n_inner=F, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="eager", num_labels=CLASSES, pad_token_id=PAD))


def forward(model, step, choices, has_segments):
    first = step * BATCH
    ids, segments, seen = (torch.tensor(x) for x in zip(*(sample(first + s) for s in range(BATCH))))
    if choices > 1:
        labels = torch.tensor([label((first + s), choices) for s in range(0, BATCH, choices)])
        ids, segments, seen = (x.view(-1, choices, T) for x in (ids, segments, seen))
    elif model.config.num_labels == 1:
        labels = torch.tensor([number(first + s) for s in range(BATCH)], dtype=next(model.parameters()).dtype)
    else:
        labels = torch.tensor([label(first + s, CLASSES) for s in range(BATCH)])
    more = {"token_type_ids": segments} if has_segments else {}
    found = model(ids, attention_mask=seen, labels=labels, **more)
    return found.loss, found.logits


if __name__ == "__main__":
    for name, build, weights, choices, has_segments in (
        ("classes_bert", lambda: encoder(True, 1), bert(True, CLASSES), 1, True),
        ("classes_bert_pre", lambda: encoder(False, 1), bert(False, CLASSES), 1, True),
        ("classes_choices", lambda: encoder(True, CHOICES), bert(True, 1), CHOICES, True),
        ("classes_number", lambda: encoder(True, 1, 1), bert(True, 1), 1, True),
        ("classes_gpt2", decoder, gpt2(), 1, False),
    ):
        step_of = lambda model, step: forward(model, step, choices, has_segments)
        eps = EPS
        run = lambda weights, dtype: train(build(), weights, dtype, eps, step_of)
        write(name, weights, run)

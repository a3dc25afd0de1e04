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

import torch
import transformers
from tiny_runs import BATCH, VOCAB, token, train, write

EPS = 1e-4
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


def sample(index, lengths):
    """Encoder's tokens and which are seen, decoder's tokens and labels."""
    encoder, decoder = lengths[0] - index % 5, lengths[1] - index % 3
    labels = [token(index + 500, j) if j < decoder else -100 for j in range(lengths[1])]
    inputs = [0] + [max(label, 0) for label in labels[:-1]]
    return [token(index, j) for j in range(lengths[0])], [int(j < encoder) for j in range(lengths[0])], inputs, labels


def forward(model, step, lengths):
    batch = zip(*(sample(step * BATCH + s, lengths) for s in range(BATCH)))
    ids, seen, inputs, labels = (torch.tensor(x) for x in batch)
    result = model(ids, attention_mask=seen, decoder_input_ids=inputs, labels=labels, use_cache=False)
    return result.loss, result.logits * (labels >= 0)[..., None]


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
        step_of = lambda model, step: forward(model, step, lengths)
        run = lambda weights, dtype: train(build(settings), weights, dtype, EPS, step_of)
        config = json.loads(build(settings).config.to_json_string(use_diff=False))
        write(name, initial(name, settings), run, config=config, lengths=lengths)

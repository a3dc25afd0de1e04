"""Attention of encoder, decoder and cross attention as transformers' T5Attention computes it in float64.

Usage: kernel_t5_attention.py > kernels/tests/data/t5_attention.txt. Needs torch, transformers 5.23.
The layer's projections are replaced by given queries, keys and values. A case: a line `kind sequences
queries keys heads width buckets max_distance`, one with each sequence's keys without padding, then a line
each: q, k, v [sequence, row, head, width], table [bucket, head] (0 in cross attention), gradient of the
result, result, and the gradients of q, k, v and table.
"""

import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

B, HEADS, WIDTH, BUCKETS, DISTANCE = 2, 3, 4, 8, 6
generator = torch.Generator().manual_seed(7)


class Give(torch.nn.Module):
    def __init__(self, value=None):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x if self.value is None else self.value


def random(*dims):
    return torch.randn(*dims, generator=generator).double().requires_grad_()


def show(x):
    print(*[f"{v:.9g}" for v in x.detach().reshape(-1).tolist()])


for kind, t, time, lengths in (
    ("encoder", 11, 11, (11, 7)),
    ("decoder", 11, 11, (11, 11)),
    ("cross", 5, 9, (6, 9)),
):
    config = T5Config(
        d_model=HEADS * WIDTH,
        d_kv=WIDTH,
        num_heads=HEADS,
        relative_attention_num_buckets=BUCKETS,
        relative_attention_max_distance=DISTANCE,
        dropout_rate=0.0,
        is_decoder=kind != "encoder",
    )
    config._attn_implementation = "eager"
    layer = T5Attention(config, has_relative_attention_bias=kind != "cross", layer_idx=0).double()
    q = random(B, t, HEADS * WIDTH)
    k, v = random(B, time, HEADS * WIDTH), random(B, time, HEADS * WIDTH)
    table = random(BUCKETS, HEADS)
    outer = random(B, t, HEADS * WIDTH)
    layer.q, layer.k, layer.v, layer.o = Give(q), Give(k), Give(v), Give()
    if kind != "cross":
        layer.relative_attention_bias.weight = torch.nn.Parameter(table.detach().clone())
    hidden = torch.zeros(B, 1, t, time, dtype=torch.bool)
    for s, length in enumerate(lengths):
        hidden[s, :, :, length:] = True
    if kind == "decoder":
        hidden |= torch.ones(t, time).triu(1).bool()
    mask = torch.zeros(B, 1, t, time).double().masked_fill(hidden, torch.finfo(torch.float64).min)
    other = k if kind == "cross" else None
    out = layer(q, mask=mask, key_value_states=other)[0]
    (out * outer).sum().backward()
    print(kind, B, t, time, HEADS, WIDTH, BUCKETS, DISTANCE)
    print(*lengths)
    bias = table if kind == "cross" else layer.relative_attention_bias.weight
    dbias = torch.zeros_like(table) if kind == "cross" else bias.grad
    for x in (q, k, v, bias if kind != "cross" else dbias, outer, out, q.grad, k.grad, v.grad, dbias):
        show(x)

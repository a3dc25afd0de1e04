"""Frequencies of rotary positions as transformers' ROPE_INIT_FUNCTIONS make them, in f64.

Usage: kernel_rope.py > kernels/tests/data/rope.txt. Needs torch, transformers 5.23.
A line: kind, theta, rotated features, numbers of the scaling | frequencies, factor of cos and sin.
The functions ask for torch.float; it is torch.float64 while they run.
"""

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def line(kind, theta, width, partial, numbers, rope, length=None, most=8192):
    config = LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        max_position_embeddings=most,
        rope_parameters={"rope_type": kind, "rope_theta": theta, "partial_rotary_factor": partial, **rope},
    )
    saved = torch.float, torch.float32
    torch.float = torch.float32 = torch.float64
    try:
        if kind == "default":
            rope = {"rope_type": "linear", "rope_theta": theta, "partial_rotary_factor": partial, "factor": 1.0}
            config.rope_parameters = rope
            steps, magnitude = ROPE_INIT_FUNCTIONS["linear"](config, "cpu")
        else:
            steps, magnitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    finally:
        torch.float, torch.float32 = saved
    assert steps.dtype == torch.float64
    name = "plain" if kind == "default" else kind
    left = [name, theta, int(width * partial), *numbers]
    print(*left, "|", *[repr(x) for x in steps.tolist()], repr(float(magnitude)))


for theta, width, partial in [(10000.0, 64, 1.0), (500000.0, 128, 0.5), (1e6, 80, 0.4)]:
    line("default", theta, width, partial, [], {})
    for factor in (2.0, 8.0):
        line("linear", theta, width, partial, [factor], {"factor": factor})
        for length in (4096, 8192, 20000):
            numbers = [factor, 8192, length]
            line("dynamic", theta, width, partial, numbers, {"factor": factor}, length)
        for low, high, original in ((1.0, 4.0, 8192), (2.0, 3.0, 1000)):
            numbers = [factor, low, high, original]
            rope = {
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
            line("llama3", theta, width, partial, numbers, rope)
        for original, fast, slow, truncate, magnitude in (
            (4096, 32.0, 1.0, True, None),
            (2048, 16.0, 2.0, False, None),
            (8192, 32.0, 1.0, False, 1.25),
            (64, 32.0, 31.0, True, None),
        ):
            numbers = [factor, original, fast, slow, int(truncate), magnitude or 0.0]
            rope = {
                "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": fast,
                "beta_slow": slow,
                "truncate": truncate,
                "attention_factor": magnitude,
            }
            line("yarn", theta, width, partial, numbers, rope)

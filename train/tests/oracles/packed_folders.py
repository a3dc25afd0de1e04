#!/usr/bin/env python3
"""Writes the folders packed_*/ beside this file: a small random LLaMA whose linear layers are stored as GPTQ (4 bits in its first form
with act-order; 8 bits in its second form), AWQ (gemm) and compressed-tensors (4 bits with zero points by group; 8 bits by channel)
store them, and whole.safetensors with their weights in f32, which the packages' formula w = (q - z) s gives in float64, rounded once.

The packings of GPTQ and AWQ follow AutoGPTQ 0.7.1 (qlinear_cuda.py, `pack`) and AutoAWQ 0.2.9 (gemm.py, `from_linear`); those of
compressed-tensors are the package's own.

    python train/tests/oracles/packed_folders.py   (needs torch 2.15, safetensors 0.8, compressed-tensors 0.20)
"""
import json
from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import save_file

HERE = Path(__file__).parent
D, F, VOCAB, HEADS, KV, GROUP = 16, 32, 24, 2, 1, 8
E = D // HEADS
LAYERS = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (KV * E, D), "self_attn.v_proj": (KV * E, D), "self_attn.o_proj": (D, D),
          "mlp.gate_proj": (F, D), "mlp.up_proj": (F, D), "mlp.down_proj": (D, F)}
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": D, "intermediate_size": F, "num_hidden_layers": 1,
          "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": E, "vocab_size": VOCAB, "max_position_embeddings": 32,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float16",
          "attention_bias": False, "mlp_bias": False}
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def along(values, bits, order=None):
    """Packs the last axis of unsigned numbers into int32, the first in the lowest bits."""
    n = 32 // bits
    words = values.astype(np.uint64).reshape(*values.shape[:-1], -1, n)
    if order:
        words = words[..., order]
    shifted = words << (np.arange(n, dtype=np.uint64) * np.uint64(bits))
    return torch.from_numpy(np.bitwise_or.reduce(shifted, axis=-1).astype(np.uint32).view(np.int32).copy())


def gptq(rng, out, inputs, bits, zero_less, ordered):
    groups = inputs // GROUP
    codes = rng.integers(0, 2**bits, (inputs, out))
    zeros = rng.integers(1, 2**bits, (groups, out))
    scales = rng.uniform(1e-3, 2e-2, (groups, out)).astype(np.float16)
    g_idx = np.arange(inputs) // GROUP
    if ordered:
        g_idx = rng.permutation(g_idx)
    weight = (codes - zeros[g_idx]) * scales[g_idx].astype(np.float64)
    stored = {"qweight": along(codes.T, bits).T.contiguous(), "qzeros": along(zeros - zero_less, bits),
              "scales": torch.from_numpy(scales), "g_idx": torch.from_numpy(g_idx.astype(np.int32)),
              "bias": torch.zeros(out, dtype=torch.float16)}
    return stored, weight.T


def awq(rng, out, inputs):
    groups = inputs // GROUP
    codes = rng.integers(0, 16, (inputs, out))
    zeros = rng.integers(0, 16, (groups, out))
    scales = rng.uniform(1e-3, 2e-2, (groups, out)).astype(np.float16)
    weight = (codes - np.repeat(zeros, GROUP, 0)) * np.repeat(scales, GROUP, 0).astype(np.float64)
    return {"qweight": along(codes, 4, ORDER), "qzeros": along(zeros, 4, ORDER), "scales": torch.from_numpy(scales)}, weight.T


def compressed(rng, out, inputs, bits, has_zeros):
    group = GROUP if has_zeros else inputs
    low = -(2 ** (bits - 1))
    codes = rng.integers(low, -low, (out, inputs))
    zeros = rng.integers(low, -low, (out, inputs // group)) if has_zeros else np.zeros((out, inputs // group), dtype=np.int64)
    scales = torch.from_numpy(rng.uniform(1e-3, 2e-2, (out, inputs // group)).astype(np.float32)).bfloat16()
    wide = lambda x: np.repeat(x, group, 1)
    weight = (codes - wide(zeros)) * wide(scales.double().numpy())
    int8 = lambda x: torch.from_numpy(x.astype(np.int8))
    stored = {"weight_packed": pack_to_int32(int8(codes), bits), "weight_scale": scales, "weight_shape": torch.tensor([out, inputs])}
    if has_zeros:
        stored["weight_zero_point"] = pack_to_int32(int8(zeros), bits, packed_dim=0).contiguous()
    return stored, weight


def weights_of(bits, has_zeros):
    return {"num_bits": bits, "type": "int", "symmetric": not has_zeros, "strategy": "group" if has_zeros else "channel",
            "group_size": GROUP if has_zeros else None, "dynamic": False}


def packed(bits, has_zeros):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights_of(bits, has_zeros), "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": groups}


KINDS = {
    "gptq4": (lambda r, o, i: gptq(r, o, i, 4, 1, True),
              {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False, "checkpoint_format": "gptq"}),
    "gptq8": (lambda r, o, i: gptq(r, o, i, 8, 0, False),
              {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "desc_act": False, "sym": False, "checkpoint_format": "gptq_v2"}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "int4": (lambda r, o, i: compressed(r, o, i, 4, True), packed(4, True)),
    "int8": (lambda r, o, i: compressed(r, o, i, 8, False), packed(8, False)),
}
for number, (kind, (make, settings)) in enumerate(KINDS.items()):
    rng = np.random.default_rng(number)
    table = lambda *dims: torch.from_numpy(rng.normal(0, 0.02, dims).astype(np.float16))
    stored = {"model.embed_tokens.weight": table(VOCAB, D), "lm_head.weight": table(VOCAB, D), "model.norm.weight": table(D)}
    for norm in ["input_layernorm", "post_attention_layernorm"]:
        stored[f"model.layers.0.{norm}.weight"] = table(D)
    whole = {name: tensor.float() for name, tensor in stored.items()}
    for name, (out, inputs) in LAYERS.items():
        parts, weight = make(rng, out, inputs)
        stored.update({f"model.layers.0.{name}.{part}": tensor for part, tensor in parts.items()})
        whole[f"model.layers.0.{name}.weight"] = torch.from_numpy(weight.astype(np.float32))
    folder = HERE / f"packed_{kind}"
    folder.mkdir(exist_ok=True)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    save_file({name: tensor.contiguous() for name, tensor in whole.items()}, folder / "whole.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": settings}, indent=1) + "\n")

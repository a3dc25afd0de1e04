"""GGUF files of `millrace quantize` beside the package `gguf` and llama.cpp.

    cargo build --release
    python tests/oracles/gguf_files.py MILLRACE FOLDER [MODEL ...]

For random Hugging Face folders of each architecture (transformers' classes, seed 0, widths of multiples of 256, one that is none) and
each type: `gguf` reads the file; tensors of Q8_0, Q4_0, Q5_0, Q5_1, F16, BF16 and F32 have the bytes that it makes of the folder's
numbers, and K types dequantize to a squared error no larger than that of llama.cpp's reference quantizer, called in its library.
llama.cpp loads the file; the log-probabilities of a text and eight greedy tokens of an f32 file are those of transformers within
1e-3, unless two logits are that close. The models of DeepSeek are V2-Lite's and V3's kinds (groups of experts, stretched positions), and one with as
many layers as V2-Lite. MODEL: some of them alone. Prints a line for each file. gguf 0.19.0, llama-cpp-python 0.3.36, torch, transformers 4.57.6
(DeepSeek: 5.24).
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoConfig, AutoModelForCausalLM

TYPES = ["f32", "f16", "bf16", "q8_0", "q6_k", "q4_k_m", "q4_0"]
OF_GGUF = {Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q5_0, Type.Q5_1}
BASE = dict(vocab_size=384, hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=128, rms_norm_eps=1e-5)
DEEPSEEK = dict(BASE, num_hidden_layers=4, num_key_value_heads=8, rms_norm_eps=1e-6, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, moe_intermediate_size=256, n_routed_experts=8, num_experts_per_tok=3, first_k_dense_replace=1)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=0.9, mscale_all_dim=0.9, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=32)
MODELS = {
    "llama": dict(BASE, rope_theta=5e5),
    "llama_narrow": dict(BASE, model_type="llama", hidden_size=192, intermediate_size=320, num_attention_heads=6, num_key_value_heads=3, tie_word_embeddings=True),
    "llama3": dict(BASE, model_type="llama", rope_theta=5e5, rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "mistral": dict(BASE, sliding_window=None),
    "qwen2": dict(BASE, tie_word_embeddings=True),
    "qwen3": dict(BASE, head_dim=64),
    "mixtral": dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "qwen2_moe": dict(BASE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=512, norm_topk_prob=False),
    "deepseek_v2": dict(DEEPSEEK, q_lora_rank=None, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy", routed_scaling_factor=1.5, rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=0.707)),
    "deepseek_v2_lite": dict(DEEPSEEK, model_type="deepseek_v2", num_hidden_layers=27, q_lora_rank=None, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy", routed_scaling_factor=1.0),
    "deepseek_v3": dict(DEEPSEEK, q_lora_rank=256, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, rope_scaling=YARN),
    "gpt2": dict(vocab_size=384, n_embd=256, n_layer=8, n_head=8, n_positions=128),
}
LIBRARY = ctypes.CDLL(next(str(p) for p in Path(llama_cpp.__file__).parent.rglob("libggml-base.so*")))
WRONG = []
DEFAULTS = llama_cpp.llama_cpp.llama_model_default_params


def plain_buffers():
    """On processors with AMX, llama.cpp packs matrices for it, and then has no kernel for F16 products of latents, in files of its own converter, too."""
    params = DEFAULTS()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = plain_buffers


def expect(is_right, line):
    if not is_right:
        WRONG.append(line)
        print("WRONG", line, flush=True)


def make(name, fields, folder):
    kind = fields.pop("model_type", name)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields)).float().eval()
    # by these, DeepSeek-V3 chooses experts
    biases = [buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for parameter in [*model.parameters(), *biases]:
        with torch.no_grad():
            # vectors too, so that a forgotten bias is seen; logits far enough apart for greedy tokens
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim < 2 else 0.03))
    model.save_pretrained(folder)
    return model


def by_reference(kind, x):
    """llama.cpp's reference blocks of rows."""
    rows, cols = x.shape
    _, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((rows, cols // 256 * size), np.uint8)
    call = getattr(LIBRARY, f"quantize_row_{kind.name.lower().replace('_k', '_K')}_ref")
    for row in range(rows):
        line = np.ascontiguousarray(x[row])
        call(line.ctypes.data_as(ctypes.c_void_p), out[row].ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(cols))
    return out


def compare_tensors(name, type_name, file, plain):
    """Counts tensors by type; `plain` is the f32 file's."""
    counts, same_k, all_k = {}, 0, 0
    for tensor in gguf.GGUFReader(str(file)).tensors:
        kind, x = tensor.tensor_type, plain[tensor.name]
        counts[kind.name] = counts.get(kind.name, 0) + 1
        rows = x.reshape(-1, x.shape[-1])
        data = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
        if kind in OF_GGUF:
            want = np.ascontiguousarray(gguf.quantize(rows, kind)).view(np.uint8).reshape(-1)
            expect(np.array_equal(data, want), f"{name} {type_name} {tensor.name}: other bytes than gguf's")
            continue
        want = by_reference(kind, rows)
        all_k += want.size
        same_k += int((want.reshape(-1) == data).sum())
        back = [np.square(gguf.dequantize(blocks.reshape(rows.shape[0], -1), kind).astype(np.float64) - rows).sum() for blocks in (data, want)]
        expect(back[0] <= back[1] * 1.0001, f"{name} {type_name} {tensor.name}: error {back[0]} beside {back[1]}")
    return counts, round(same_k / all_k, 6) if all_k else None


def log_probabilities(logits):
    return torch.log_softmax(torch.as_tensor(logits, dtype=torch.float32), -1)


def of_llama_cpp(file, tokens, more=8):
    """Log-probabilities of a text, greedy tokens after it, and the least gap between the best two; with a cache in f32 (0)."""
    model = llama_cpp.Llama(str(file), n_ctx=128, n_batch=128, n_threads=2, logits_all=True, verbose=False, type_k=0, type_v=0)
    model.eval(tokens)
    scores = np.array(model.scores[: len(tokens)])
    greedy, gap, last = [], np.inf, scores[-1]
    for _ in range(more):
        best = np.sort(last)[-2:]
        gap = min(gap, float(best[1] - best[0]))
        greedy.append(int(last.argmax()))
        model.eval([greedy[-1]])
        last = np.array(model.scores[model.n_tokens - 1])
    model.close()
    return log_probabilities(scores), greedy, gap


def of_transformers(model, tokens, more=8):
    with torch.no_grad():
        ids = torch.tensor([tokens])
        scores = model(ids).logits[0]
        greedy = model.generate(ids, max_new_tokens=more, do_sample=False, eos_token_id=None, pad_token_id=0)[0, len(tokens):].tolist()
    return log_probabilities(scores), greedy


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    tokens = np.random.default_rng(1).integers(3, 384, 40).tolist()
    for name, fields in MODELS.items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        hf = folder / name
        model = make(name, dict(fields), hf)
        theirs, greedy = of_transformers(model, tokens)
        plain = {}
        for type_name in TYPES:
            file = folder / f"{name}.{type_name}.gguf"
            subprocess.run([program, "quantize", str(hf), "--type", type_name, "--to", "gguf", str(file)], check=True, capture_output=True)
            if type_name == "f32":
                plain = {t.name: np.array(t.data, np.float32) for t in gguf.GGUFReader(str(file)).tensors}
            counts, same = compare_tensors(name, type_name, file, plain)
            ours, found, gap = of_llama_cpp(file, tokens)
            off = float((ours - theirs).abs().max())
            if type_name == "f32":
                expect(off < 1e-3, f"{name}: log-probabilities part by {off}")
                expect(found == greedy or gap < 1e-3, f"{name}: greedy {found} beside {greedy}")
            print(json.dumps({"model": name, "type": type_name, "tensors": counts, "bytes_as_reference": same, "log_probability_off": round(off, 5), "greedy_as_transformers_f32": found == greedy}), flush=True)
    print(f"{len(WRONG)} wrong")
    sys.exit(bool(WRONG))


main()

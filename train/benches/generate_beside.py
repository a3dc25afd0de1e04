"""Inference of one LLaMA-like model beside llama.cpp and transformers, in one run and in turn.

    cargo build --release --bench generate -p millrace-train
    python train/benches/generate_beside.py --program target/release/deps/generate-HASH --out FOLDER

Needs numpy, torch, transformers, gguf and llama-cpp-python (from its source distribution, so that llama.cpp is compiled for this
machine). The weights are random (seed 0) and the same for all: speed does not depend on their values. For each number type
of weights (f32, bf16; llama.cpp also with f16) every program takes its turn `--rounds` times; the result is the median. Millrace
multiplies bf16 weights in f32, as `--dtype auto` does, and in bf16 (`--dtype bfloat16`), as both others do. Of Q8_0 and Q4_0
it and llama.cpp read the same GGUF file, all matrices in this type; llama.cpp rounds activations to 8 bits, Millrace multiplies in f32
and, with `--dtype int8`, rounds them as well.
Prints a JSON line a case: tokens/s of a prompt of 512 tokens, and of answers of one and of 16 streams.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

SHAPE = dict(layers=12, width=768, heads=12, kv_heads=4, feed_forward=2048, vocab=32000, context=1024)
PROMPT, ANSWER, STREAMS = 512, 64, 16


def weights():
    """Tensors by their Hugging Face names, f32."""
    rng = np.random.default_rng(0)
    d, f, v = SHAPE["width"], SHAPE["feed_forward"], SHAPE["vocab"]
    kv = d // SHAPE["heads"] * SHAPE["kv_heads"]
    draw = lambda *dims: (rng.standard_normal(dims, dtype=np.float32) * 0.02)
    out = {"model.embed_tokens.weight": draw(v, d), "model.norm.weight": np.ones(d, np.float32), "lm_head.weight": draw(v, d)}
    for i in range(SHAPE["layers"]):
        at = f"model.layers.{i}."
        for name, rows in [("q", d), ("k", kv), ("v", kv), ("o", d)]:
            out[f"{at}self_attn.{name}_proj.weight"] = draw(rows, d)
        out[f"{at}mlp.gate_proj.weight"], out[f"{at}mlp.up_proj.weight"] = draw(f, d), draw(f, d)
        out[f"{at}mlp.down_proj.weight"] = draw(d, f)
        for name in ["input_layernorm", "post_attention_layernorm"]:
            out[f"{at}{name}.weight"] = np.ones(d, np.float32)
    return out


def write_hugging_face(folder, tensors, kind):
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    save_file({name: torch.from_numpy(x).to(dtype) for name, x in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": SHAPE["width"],
        "num_hidden_layers": SHAPE["layers"], "num_attention_heads": SHAPE["heads"], "num_key_value_heads": SHAPE["kv_heads"],
        "intermediate_size": SHAPE["feed_forward"], "vocab_size": SHAPE["vocab"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": SHAPE["context"], "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[kind], "bos_token_id": 1, "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_gguf(path, tensors, kind):
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(SHAPE["context"])
    writer.add_embedding_length(SHAPE["width"])
    writer.add_block_count(SHAPE["layers"])
    writer.add_feed_forward_length(SHAPE["feed_forward"])
    writer.add_head_count(SHAPE["heads"])
    writer.add_head_count_kv(SHAPE["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(SHAPE["width"] // SHAPE["heads"])
    writer.add_vocab_size(SHAPE["vocab"])
    types = [2, 3, 3] + [6] * 256 + [1] * (SHAPE["vocab"] - 259)
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"t{i}" for i in range(SHAPE["vocab"] - 259)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([0.0] * len(names))
    writer.add_token_types(types)
    kinds = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
             "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}
    plain = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    inner = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }
    for name, x in tensors.items():
        stem = name.removesuffix(".weight")
        if stem in plain:
            to = plain[stem]
        else:
            _, _, layer, rest = stem.split(".", 3)
            to = f"blk.{layer}.{inner[rest]}"
            heads = {"self_attn.q_proj": SHAPE["heads"], "self_attn.k_proj": SHAPE["kv_heads"]}.get(rest)
            if heads:
                # llama.cpp turns neighbouring pairs, Hugging Face the two halves of a head
                x = x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        kind_of = kinds[kind] if x.ndim == 2 else kinds["f32"]
        data = np.ascontiguousarray(x) if kind_of == kinds["f32"] else gguf.quants.quantize(x, kind_of)
        writer.add_tensor(to + ".weight", data, raw_dtype=kind_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokens(count, seed):
    return np.random.default_rng(seed).integers(300, SHAPE["vocab"], count).tolist()


class LlamaCpp:
    """llama.cpp through its C interface; greedy."""

    def __init__(self, path, threads):
        import llama_cpp

        self.lib = llama_cpp
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.quiet = quiet
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = SHAPE["context"] * 4, 512, 512, STREAMS
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def run(self, rows):
        """rows: (token, position, sequence, wants logits); logits of the rows that want them"""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, int(wants)
            batch.seq_id[i][0] = sequence
        assert self.lib.llama_decode(self.context, batch) == 0
        of = lambda i: int(np.argmax(np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (SHAPE["vocab"],))))
        return [of(i) for i, row in enumerate(rows) if row[3]]

    def measure(self, length, streams):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start, last = time.perf_counter(), []
        for s in range(streams):
            prompt = tokens(length, s)
            last += self.run([(t, i, s, i + 1 == length) for i, t in enumerate(prompt)])
        filled = time.perf_counter()
        for step in range(ANSWER - 1):
            last = self.run([(t, length + step, s, True) for s, t in enumerate(last)])
        done = time.perf_counter()
        return length * streams / (filled - start), streams * (ANSWER - 1) / (done - filled)


class Transformers:
    def __init__(self, folder, threads):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto").eval()

    def measure(self, length, streams):
        torch = self.torch
        with torch.inference_mode():
            ids = torch.tensor([tokens(length, s) for s in range(streams)])
            start = time.perf_counter()
            out = self.model(ids, use_cache=True, logits_to_keep=1)
            filled = time.perf_counter()
            for _ in range(ANSWER - 1):
                ids = out.logits[:, -1:].argmax(-1)
                out = self.model(ids, past_key_values=out.past_key_values, use_cache=True)
            out.logits[:, -1:].argmax(-1)
            done = time.perf_counter()
        return length * streams / (filled - start), streams * (ANSWER - 1) / (done - filled)


def millrace(program, folder, threads, dtype):
    """{case: tokens/s} of one run of the bench, and the read bandwidth; folder: or a GGUF file; dtype: number format of products"""
    args = [program, "--model", folder, "--threads", str(threads), "--prompt", str(PROMPT), "--tokens", str(ANSWER), "--dtype", dtype]
    out = subprocess.run([str(a) for a in args], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in map(json.loads, out.splitlines()):
        if line["case"] == "read":
            found["read_gb_s"], found["bytes"] = line["gb_s"], line["bytes"]
        elif line["case"] == "prefill":
            found["prefill"] = line["tokens_s"]
        elif line["case"] == "decode":
            found[f"decode {line['streams']}"] = line["tokens_s"]
            found[f"share {line['streams']}"] = line["share"]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["f32", "bf16", "q8_0", "q4_0"])
    args = parser.parse_args()
    tensors = weights()
    for kind in ["f32", "bf16"]:
        write_hugging_face(args.out / kind, tensors, kind)
    for kind in ["f32", "bf16", "f16", "q8_0", "q4_0"]:
        write_gguf(args.out / f"{kind}.gguf", tensors, kind)
    for kind in args.kinds:
        is_in_blocks = kind.startswith("q")
        own = args.out / (f"{kind}.gguf" if is_in_blocks else kind)
        peers = {f"llama.cpp {kind}": LlamaCpp(args.out / f"{kind}.gguf", args.threads)}
        if kind == "bf16":
            peers["llama.cpp f16"] = LlamaCpp(args.out / "f16.gguf", args.threads)
        if not is_in_blocks:
            peers["transformers"] = Transformers(own, args.threads)
        found = {}
        note = lambda name, case, value: found.setdefault((name, case), []).append(value)
        for _ in range(args.rounds):
            for dtype in ["f32"] + (["bf16"] if kind == "bf16" else ["int8"] if is_in_blocks else []):
                name = f"millrace, {dtype} products"
                for case, value in millrace(args.program, own, args.threads, dtype).items():
                    note(name, case, value)
            for name, peer in peers.items():
                prefill, decode = peer.measure(PROMPT, 1)
                note(name, "prefill", prefill)
                note(name, "decode 1", decode)
                note(name, f"decode {STREAMS}", peer.measure(16, STREAMS)[1])
        for (name, case), values in found.items():
            print(json.dumps({"weights": kind, "of": name, "case": case, "median": round(statistics.median(values), 3), "all": [round(v, 2) for v in values]}), flush=True)


main()

"""Folders of `millrace quantize --to hf` beside transformers with compressed-tensors.

    cargo build --release
    python tests/oracles/quantized_folders.py MILLRACE FOLDER [KIND ...]

For random Hugging Face folders of LLaMA, Qwen 2, Qwen 3, DeepSeek-V2 and V3 (transformers' classes, seed 0) and each type: transformers loads the folder and
decompresses it (FP8 in blocks, which it runs on GPUs alone, is multiplied out with torch), and its weights are exactly those that
`millrace convert` reads out of it. GPTQ and AWQ are calibrated with random texts of a tokenizer of bytes.
KIND: some of them alone. Prints a line for each folder, with how far log-probabilities of a text moved. transformers 4.57.6, compressed-tensors 0.20, torch 2.15, tokenizers 0.22.2, safetensors 0.8.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, CompressedTensorsConfig

BASE = dict(vocab_size=320, hidden_size=192, intermediate_size=320, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=False)
LATENTS = dict(num_key_value_heads=6, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, moe_intermediate_size=64, n_routed_experts=8,
               num_experts_per_tok=3, first_k_dense_replace=1, rms_norm_eps=1e-6)
KINDS = {
    "llama": {},
    "qwen2": {},
    "qwen3": dict(head_dim=32),
    "deepseek_v2": dict(LATENTS, q_lora_rank=None, n_shared_experts=2, topk_method="greedy"),
    "deepseek_v3": dict(LATENTS, q_lora_rank=64, n_shared_experts=1, n_group=4, topk_group=2),
}
TYPES = {"fp8": [], "fp8-block": [], "w8a8": [], "int4": [], "gptq": ["--calibrate"], "awq": ["--calibrate"], "smooth": ["--calibrate"]}


def millrace(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tokenizer(path):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.save(str(path))


def blocks(folder):
    stored, whole = load_file(folder / "model.safetensors"), {}
    for name, tensor in stored.items():
        scale = stored.get(f"{name}_scale_inv")
        if name.endswith("_scale_inv"):
            continue
        if scale is not None:
            wide = scale.repeat_interleave(128, 0)[: tensor.shape[0]].repeat_interleave(128, 1)[:, : tensor.shape[1]]
            tensor = tensor.float() * wide
        whole[name] = tensor.float()
    return whole


def logits(folder, ids, config=None):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=config)
    with torch.no_grad():
        return model, torch.log_softmax(model(ids).logits, -1)


def main(program, out, only):
    torch.manual_seed(0)
    random.seed(0)
    out.mkdir(parents=True, exist_ok=True)
    texts = out / "texts.jsonl"
    rows = [json.dumps({"text": "".join(random.choices("etaoin shrdlu", k=400))}) for _ in range(12)]
    texts.write_text("\n".join(rows))
    ids = torch.randint(0, 256, (1, 64))
    for kind, fields in KINDS.items():
        if only and kind not in only:
            continue
        config = AutoConfig.for_model(kind, **{**BASE, **fields})
        source = out / kind
        made = AutoModelForCausalLM.from_config(config).float()
        for name, buffer in made.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.1)
        made.save_pretrained(source)
        tokenizer(source / "tokenizer.json")
        for name, more in TYPES.items():
            folder, back = out / f"{kind}-{name}", out / f"{kind}-{name}-back"
            type_ = "w8a8" if name == "smooth" else name
            calibrate = [*more, texts, "--calibrate-length", 64] if more else []
            millrace(program, "quantize", source, "--type", type_, "--to", "hf", "--group-size", 64, *calibrate, folder)
            read = out / f"{kind}-{name}-read"
            millrace(program, "convert", "--checkpoint", folder, "--to", "millrace", read)
            millrace(program, "convert", "--checkpoint", read, back)
            ours = load_file(back / "model.safetensors")
            if name == "fp8-block":
                theirs = blocks(folder)
            else:
                # activations are not rounded: only the weights are compared
                model, _ = logits(folder, ids, CompressedTensorsConfig(run_compressed=False))
                theirs = {key: value.detach().float() for key, value in model.state_dict().items()}
            for key, value in ours.items():
                assert torch.equal(theirs[key], value.float()), (folder, key)
            moved = (logits(back, ids)[1] - logits(source, ids)[1]).abs().mean().item()
            print(f"{folder.name}: equal weights; log-probabilities moved by {moved:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

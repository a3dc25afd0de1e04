#!/usr/bin/env python3
"""Loads what the example export_parity wrote with transformers and compares logits and greedy text.

    cargo run --release -p millrace-train --example export_parity -- OUT
    python train/tests/oracles/check_export.py OUT      (needs torch, transformers)

Fails if a tensor is missing or left over, or if the largest absolute difference reaches 1e-4.
"""
import json
import sys
from pathlib import Path

import torch
import transformers

for name, wanted in (("gpt", "GPT2LMHeadModel"), ("gpt_neox", "GPTNeoXForCausalLM"), ("opt", "OPTForCausalLM"), ("falcon", "FalconForCausalLM"),
                     ("bloom", "BloomForCausalLM"),
                     ("llama", "LlamaForCausalLM"), ("olmo2", "Olmo2ForCausalLM"), ("gemma2", "Gemma2ForCausalLM"), ("gemma3", "Gemma3ForCausalLM"),
                     ("gpt_oss", "GptOssForCausalLM"), ("deepseek_v2", "DeepseekV2ForCausalLM"),
                     ("deepseek_v3", "DeepseekV3ForCausalLM"), ("mixtral", "MixtralForCausalLM"),
                     ("qwen2_moe", "Qwen2MoeForCausalLM"), ("t5", "T5ForConditionalGeneration"),
                     ("t5_gated", "T5ForConditionalGeneration")):
    folder = Path(sys.argv[1]) / name
    is_pair = name.startswith("t5")
    auto = transformers.AutoModelForSeq2SeqLM if is_pair else transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert type(model).__name__ == wanted, type(model)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    record = json.loads((folder / "logits.json").read_text())
    ours = torch.tensor(record["logits"])
    with torch.no_grad():
        extra = {"decoder_input_ids": torch.tensor([record["decoder_tokens"]])} if is_pair else {}
        theirs = model.eval()(torch.tensor([record["tokens"]]), **extra).logits[0]
        prompt = torch.tensor([record["tokens"][:16]])
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=32, do_sample=False, pad_token_id=0)
    off = (ours - theirs).abs().max().item()
    print(f"{wanted}: {tuple(ours.shape)} logits up to {ours.abs().max():.3f}, max abs difference {off:.3e}, "
          f"same likeliest token at {(ours.argmax(-1) == theirs.argmax(-1)).float().mean():.1%} (transformers {transformers.__version__})")
    assert off < 1e-4
    text = text[0, 1 if is_pair else 16:].tolist()
    assert text == record["greedy"], (text, record["greedy"])

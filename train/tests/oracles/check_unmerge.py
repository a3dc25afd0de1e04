#!/usr/bin/env python3
"""Merges an adapter into a small LLaMA and a small GPT-2 with PEFT, takes it out again with PEFT's unmerge_adapter and with
`millrace convert --unmerge`, and compares the weights of both with each other and with the base's.

    python train/tests/oracles/check_unmerge.py MILLRACE   (needs torch, transformers, peft)
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import safetensors.torch
import torch
import transformers

MODELS = {
    "llama": (
        transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
        ),
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    ),
    "gpt2": (
        transformers.GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4),
        ["c_attn", "c_proj", "c_fc"],
    ),
}

program = sys.argv[1]
torch.manual_seed(1)
for name, (config, targets) in MODELS.items():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        base = transformers.AutoModelForCausalLM.from_config(config)
        before = {key: value.clone() for key, value in base.state_dict().items()}
        lora = peft.LoraConfig(
            r=4, lora_alpha=12, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False,
            fan_in_fan_out=name == "gpt2",
        )
        model = peft.get_peft_model(base, lora)
        model.save_pretrained(folder / "adapter", save_embedding_layers=False)
        model.merge_adapter()

        def plain():
            parts = model.base_model.model.state_dict().items()
            return {key.replace(".base_layer", ""): value.clone() for key, value in parts if ".lora_" not in key}

        merged = plain()
        whole = transformers.AutoModelForCausalLM.from_config(config)
        whole.load_state_dict(merged)
        whole.save_pretrained(folder / "merged")
        model.unmerge_adapter()
        theirs = plain()
        command = [program, "convert", "--checkpoint", folder / "merged", "--unmerge", folder / "adapter", folder / "out"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        ours = safetensors.torch.load_file(folder / "out" / "model.safetensors")

        def apart(one, other):
            keys = [key for key in one if key in other]
            assert len(keys) > 10, keys
            return max(float((one[key] - other[key]).abs().max()) for key in keys)

        off, of_base, of_merged = apart(ours, theirs), apart(ours, before), apart(merged, before)
        print(f"{name}: {off:.2e} apart from PEFT {peft.__version__}, {of_base:.2e} from the base, merged {of_merged:.2e}")
        assert off < 1e-6 and of_base < 1e-6 < of_merged, name

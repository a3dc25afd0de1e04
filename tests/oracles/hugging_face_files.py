"""Opens folders of `millrace convert --to hf` and `quantize --to hf` with transformers.

    cargo build --release
    python tests/oracles/hugging_face_files.py MILLRACE FOLDER

FOLDER gets a small LLaMA of transformers (seed 0) with a byte-level tokenizer, its chat template and its end of text, as a checkpoint,
a GGUF file and a PEFT adapter, and the Hugging Face folders that `millrace` makes of each. AutoTokenizer gives each the ids of the
source's tokenizer for some texts, the same special tokens and the same text of a conversation; GenerationConfig has the source's ids; and
`generate` of the exported model stops where that of the source stops. transformers 5.24, tokenizers, torch 2.15.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXTS = ["The quick brown fox", "  two  blanks\nand a line", "caf\u00e9 \u6c34 <|end|> after"]
TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def source(folder):
    """A model with all its files."""
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>", "<|pad|>"]
    trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    size = tokenizer.get_vocab_size()
    config = LlamaConfig(vocab_size=size, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 0, 1, 2
    model = LlamaForCausalLM(config)
    # a likely end, so that greedy texts stop
    with torch.no_grad():
        model.lm_head.weight[1] *= 2.5
    model.save_pretrained(folder)
    GenerationConfig(bos_token_id=0, eos_token_id=[1, 2], pad_token_id=2, temperature=0.5, do_sample=True).save_pretrained(folder)


def greedy(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = []
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
        texts.append(found[0].tolist())
    return texts


def compare(theirs, found, is_of_same_weights):
    a, b = AutoTokenizer.from_pretrained(theirs), AutoTokenizer.from_pretrained(found)
    wrong = []
    for text in TEXTS:
        if a(text).input_ids != b(text).input_ids:
            wrong.append(f"ids of {text!r}")
    if (a.bos_token, a.eos_token) != (b.bos_token, b.eos_token):
        wrong.append(f"special tokens {b.bos_token} {b.eos_token}")
    if a.apply_chat_template(TALK, tokenize=False) != b.apply_chat_template(TALK, tokenize=False):
        wrong.append("chat template")
    there, here = GenerationConfig.from_pretrained(theirs), GenerationConfig.from_pretrained(found)
    ends = lambda config: {config.eos_token_id} if isinstance(config.eos_token_id, int) else set(config.eos_token_id)
    if not ends(here) or not ends(here) <= ends(there) or here.bos_token_id != there.bos_token_id:
        wrong.append(f"generation: {here.eos_token_id} {here.bos_token_id}")
    if is_of_same_weights and greedy(theirs) != greedy(found):
        wrong.append("greedy texts")
    return wrong


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    theirs = folder / "source"
    source(theirs)
    run = lambda *args: subprocess.run([program, *map(str, args)], check=True, capture_output=True)
    run("convert", "--checkpoint", theirs, "--to", "millrace", folder / "ours")
    beside = ["--tokenizer", theirs / "tokenizer.json"]
    run("quantize", theirs, "--type", "f32", "--to", "gguf", "--pre", "gpt-2", folder / "model.gguf")
    made = {
        "checkpoint": ("convert", "--checkpoint", folder / "ours", *beside),
        "gguf": ("convert", "--checkpoint", folder / "model.gguf"),
        "fp8 of a folder": ("quantize", theirs, "--type", "fp8", "--to", "hf"),
        "int4 of a checkpoint": ("quantize", folder / "ours", "--type", "int4", "--group-size", "32", "--to", "hf", *beside),
    }
    bad = 0
    for name, args in made.items():
        out = folder / name.replace(" ", "_")
        run(*args, out)
        wrong = compare(theirs, out, args[0] == "convert")
        bad += len(wrong)
        print(json.dumps({"source": name, "files": sorted(file.name for file in out.iterdir()), "wrong": wrong}), flush=True)
    print(f"{bad} wrong")


main()

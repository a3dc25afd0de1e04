"""Steps of fine-tuning with LoRA and with all weights, of Millrace and of torch with PEFT in turn.

    cargo build --release
    python train/benches/lora_beside_peft.py --millrace target/release/millrace --out FOLDER

A LLaMA of 27.7 million random parameters (6 layers, 512 wide), conversations of 256 tokens of random words, a step of 8 of them in two
micro-batches, AdamW, clipping at 1, loss on answers only. Adapters have rank 8 on every linear layer of the blocks. torch has SDPA, fused AdamW
and, in bf16, autocast over weights in f32, as `train.precision = "bf16"` has. Prints a JSON line for each program, method and precision: the median
seconds of a step over all rounds, the first two steps of each left out. Needs torch, transformers, peft and tokenizers; run it on an idle
machine.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORDS, BATCH, MICRO, LENGTH, WARM = 8192, 8, 4, 256, 2
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}w1 {{ m.content }} w2 "
    "{% else %}{% generation %}{{ m.content }} </s>{% endgeneration %}{% endif %}{% endfor %}"
)
JOB = """name = "lora"
out = "run"
[finetune]
method = "{method}"
train = ["conversations.jsonl"]
seq_length = {length}
packing = false
epochs = 1
[train]
init_from = "base"
precision = "{precision}"
global_batch = {batch}
micro_batch = {micro}
lr = 1e-4
min_lr = 0.0
clip_norm = 1.0
"""
ASKED = 60
ANSWERED = LENGTH - ASKED - 3


def write_model_and_data(folder, steps):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )
    base = folder / "base"
    LlamaForCausalLM(config).save_pretrained(base)
    special = ["<unk>", "<s>", "</s>"]
    vocab = {name: at for at, name in enumerate(special + [f"w{i}" for i in range(WORDS - len(special))])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(base / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE,
    }
    (base / "tokenizer_config.json").write_text(json.dumps(settings))
    chosen = random.Random(1)
    words = lambda count: " ".join(f"w{chosen.randrange(3, WORDS - 3)}" for _ in range(count))
    with open(folder / "conversations.jsonl", "w") as out:
        for _ in range(steps * BATCH):
            messages = [{"role": "user", "content": words(ASKED)}, {"role": "assistant", "content": words(ANSWERED)}]
            out.write(json.dumps({"messages": messages}) + "\n")


def millrace(program, folder, method, precision):
    shutil.rmtree(folder / "run", ignore_errors=True)
    job = JOB.format(method=method, precision=precision, length=LENGTH, batch=BATCH, micro=MICRO)
    (folder / "job.toml").write_text(job)
    subprocess.run([program, "train", "job.toml", "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    lines = map(json.loads, open(folder / "run" / "metrics.jsonl"))
    return [line["step_s"] for line in lines if "step_s" in line and "loss" in line][WARM:]


def torch_steps(folder, method, precision, threads, steps):
    import contextlib

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32, attn_implementation="sdpa")
    if method == "lora":
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=MODULES, task_type="CAUSAL_LM"))
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    numbers = torch.Generator().manual_seed(2)
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        for _ in range(BATCH // MICRO):
            ids = torch.randint(3, WORDS, (MICRO, LENGTH), generator=numbers)
            labels = ids.clone()
            labels[:, : ASKED + 2] = -100
            narrow = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
            with narrow:
                loss = model(input_ids=ids, labels=labels, use_cache=False).loss
            (loss * MICRO / BATCH).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds[WARM:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--millrace", default="target/release/millrace")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--torch", nargs=2, metavar=("METHOD", "PRECISION"), help="steps of torch in this process")
    args = parser.parse_args()
    if args.torch:
        return torch_steps(args.out, *args.torch, args.threads, args.steps)
    args.out.mkdir(parents=True, exist_ok=True)
    write_model_and_data(args.out, args.steps)
    program = str(Path(args.millrace).resolve())
    found = {}
    for _ in range(args.rounds):
        for precision in args.precisions:
            for method in ["lora", "full"]:
                own = millrace(program, args.out, method, precision)
                found.setdefault(("millrace", method, precision), []).append(own)
                peer = [sys.executable, __file__, "--out", str(args.out), "--steps", str(args.steps), "--threads", str(args.threads)]
                printed = subprocess.run(peer + ["--torch", method, precision], check=True, capture_output=True, text=True).stdout
                found.setdefault(("torch", method, precision), []).append(json.loads(printed.splitlines()[-1]))
    for (of, method, precision), rounds in found.items():
        each = [round(statistics.median(steps), 3) for steps in rounds]
        print(json.dumps({"of": of, "method": method, "precision": precision, "step_s": statistics.median(each), "rounds": each}), flush=True)


main()

"""Sequence classifiers of Millrace and of transformers in turn: sequences per second, ratio, distance of logits.

    python train/benches/classify_beside_transformers.py
    python train/benches/classify_beside_transformers.py --model deberta --sequences 48 --threads 1

The model has BERT-base's shape (or DeBERTa-v3-base's) and random weights. The sequences have the lengths of the quick start's
texts (words between white space times 1.3, at most 512) and random ids, and both programs get them sorted by length.
transformers pads a batch to its longest sequence, runs in inference mode with its default attention (SDPA where the class has
it), and is measured with batches of 8, 16 and 32; its best counts. It has no 8-bit products on the CPU: beside int8 stands its
f32. Every program runs once a round, in a process of its own,
and the best of all rounds is told. Needs torch, transformers, zstandard and cargo; run it on an idle machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def made(folder, kind):
    """A random model in a folder."""
    import torch
    import transformers

    torch.manual_seed(1)
    if kind == "bert":
        config = transformers.BertConfig(vocab_size=30522, num_labels=1, problem_type="regression")
        model = transformers.BertForSequenceClassification(config)
    else:
        config = transformers.DebertaV2Config(
            vocab_size=32000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
            relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
            pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0, num_labels=3)
        model = transformers.DebertaV2ForSequenceClassification(config)
    model.save_pretrained(folder)


def lengths(count):
    """Of real texts, evenly from the shortest to the longest."""
    import zstandard

    packed = (ROOT / "pipelines/jobs/tiny/data/pile-00000.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(packed).read().splitlines()
    found = sorted(min(512, 2 + int(1.3 * len(json.loads(line)["text"].split()))) for line in lines)
    return [found[i * len(found) // count] for i in range(count)]


def theirs(folder, ids, precision, threads, out):
    """Prints the best seconds of transformers over the sizes of batches."""
    import time

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval()
    ids = json.loads(Path(ids).read_text())

    def run(size):
        logits = []
        for first in range(0, len(ids), size):
            batch = ids[first:first + size]
            longest = max(map(len, batch))
            tokens = torch.zeros(len(batch), longest, dtype=torch.long)
            mask = torch.zeros(len(batch), longest, dtype=torch.long)
            for row, sequence in enumerate(batch):
                tokens[row, :len(sequence)] = torch.tensor(sequence)
                mask[row, :len(sequence)] = 1
            logits.append(model(tokens, attention_mask=mask).logits.float())
        return torch.cat(logits)

    best = None
    with torch.inference_mode():
        run(8) if len(ids) < 32 else model(torch.tensor([ids[0]]))
        for size in (8, 16, 32):
            started = time.perf_counter()
            logits = run(size)
            seconds = time.perf_counter() - started
            if best is None or seconds < best[0]:
                best = (seconds, size)
    Path(out).write_text(json.dumps(dict(seconds=best[0], batch=best[1], logits=logits.tolist())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["theirs"]:
        folder, ids, precision, threads, out = sys.argv[2:]
        theirs(folder, ids, precision, int(threads), out)
        sys.exit()
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bert", choices=("bert", "deberta"))
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["f32", "int8"], choices=("f32", "bf16", "int8"))
    parser.add_argument("--bench", help="the built bench; else cargo runs it")
    arguments = parser.parse_args()
    import random

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        made(folder, arguments.model)
        draw = random.Random(1)
        ids = [[draw.randrange(1000, 30000) for _ in range(n)] for n in lengths(arguments.sequences)]
        tokens = sum(map(len, ids))
        (folder / "ids.json").write_text(json.dumps(ids))
        print(f"{arguments.model}: {len(ids)} sequences, {tokens} tokens, {arguments.threads} threads")
        bench = [arguments.bench] if arguments.bench else [
            "cargo", "bench", "-q", "-p", "millrace-train", "--bench", "classify", "--"]
        best = {}
        for _ in range(arguments.rounds):
            for precision in arguments.precisions:
                out = folder / "out.json"
                same = lambda precision: [str(folder), str(folder / "ids.json"), precision, str(arguments.threads)]
                commands = [("Millrace", [*bench, *same(precision), "1", str(out)])]
                if precision != "int8":
                    commands.append(("transformers", [sys.executable, __file__, "theirs", *same(precision), str(out)]))
                for who, command in commands:
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
                    found = json.loads(out.read_text())
                    if found["seconds"] < best.get((who, precision), found)["seconds"] or (who, precision) not in best:
                        best[who, precision] = found
        exact = best["transformers", arguments.precisions[0]]["logits"]
        for precision in arguments.precisions:
            ours = best["Millrace", precision]
            other = best["transformers", "f32" if precision == "int8" else precision]
            off = max(abs(a - b) for x, y in zip(ours["logits"], exact) for a, b in zip(x, y))
            print(f"{precision}: Millrace {len(ids) / ours['seconds']:.2f} sequences/s ({tokens / ours['seconds']:.0f} tokens/s), "
                  f"transformers {len(ids) / other['seconds']:.2f} (batches of {other['batch']}), "
                  f"ratio {other['seconds'] / ours['seconds']:.2f}; logits within {off:.1e} of transformers in {arguments.precisions[0]}")

"""Compares ids with the reference programs over a folder of tokenizers and a folder of texts; prints one line each.

Needs sentencepiece 0.2.3, tokenizers 0.23.3, tiktoken 0.14.0, zstandard. Usage:

    cargo build --release -p millrace-index --examples
    python tests/oracles/tokenizer_agree.py TOKENIZERS TEXTS [--megabytes N] [--only NAME]

TOKENIZERS holds gpt2/, roberta-base/, t5-small/, gpt-neox/, llama/, sentencepiece/, bert-base-uncased/, *.tiktoken and
golden-ids*.jsonl.zst (texts with the ids of each); any file may end in .zst. TEXTS holds .jsonl(.zst|.gz), .json, .txt; of
JSON every `text` is a document. Special tokens in text are text on both sides.
"""

import argparse
import base64
import gzip
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers
import zstandard

ENCODE = Path(__file__).parents[2] / "target/release/examples/encode"


def content(path):
    data = path.read_bytes()
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def documents(path):
    text = content(path).decode("utf-8", "surrogatepass")
    name = path.name.removesuffix(".zst").removesuffix(".gz")
    if name.endswith((".jsonl", ".json")):
        for line in text.split("\n"):  # not splitlines: U+2028 inside a record is no end of line
            if line.strip():
                yield json.loads(line)
    else:
        yield {"text": text}


def strings(folder, megabytes):
    left = megabytes * 1e6
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        for doc in documents(path):
            text = doc.get("text") if isinstance(doc, dict) else doc
            text = text if isinstance(text, str) else json.dumps(doc, ensure_ascii=False)
            text = text.encode("utf-8", "replace").decode()
            if left <= 0:
                return
            left -= len(text.encode())
            yield text


def references(root):
    def hf(path):
        tok = tokenizers.Tokenizer.from_file(str(path))
        tok.encode_special_tokens = True
        tok.no_truncation()
        return lambda batch: [e.ids for e in tok.encode_batch_fast(batch, add_special_tokens=False)]

    def gpt2(folder):
        tok = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt"))
        tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return lambda batch: [e.ids for e in tok.encode_batch_fast(batch, add_special_tokens=False)]

    def bert(folder):
        tok = tokenizers.BertWordPieceTokenizer(f"{folder}/vocab.txt", lowercase=True)
        tok._tokenizer.encode_special_tokens = True
        return lambda batch: [e.ids for e in tok._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]

    def spm(path):
        return sentencepiece.SentencePieceProcessor(model_file=str(path)).encode

    def cl100k(path):
        import tiktoken_ext.openai_public as public

        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in path.read_bytes().splitlines() if line)}
        pattern = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
        if "cl100k" not in path.name:
            pattern = public.r50k_pat_str
        enc = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return lambda batch: enc.encode_ordinary_batch(batch, num_threads=2)

    yield "gpt2", root / "gpt2", gpt2(root / "gpt2")
    yield "roberta", root / "roberta-base/tokenizer.json", hf(root / "roberta-base/tokenizer.json")
    yield "t5_small", root / "t5-small/tokenizer.json", hf(root / "t5-small/tokenizer.json")
    yield "gpt_neox", root / "gpt-neox/tokenizer.json", hf(root / "gpt-neox/tokenizer.json")
    yield "llama_json", root / "llama/tokenizer.json", hf(root / "llama/tokenizer.json")
    yield "llama_spm", root / "llama/tokenizer.model", spm(root / "llama/tokenizer.model")
    bpemb = next((root / "sentencepiece").iterdir())
    yield "bpemb_en100k", bpemb, spm(bpemb)
    yield "bert_uncased", root / "bert-base-uncased", bert(root / "bert-base-uncased")
    for path in sorted(root.glob("*.tiktoken")):
        yield path.name.split("_")[0].removesuffix(".tiktoken"), path, cl100k(path)
    for path in sorted(root.glob("extra/*.model")):
        yield path.stem, path, spm(path)


def ours(tokenizer, texts, folder):
    lines = Path(folder, "texts.jsonl")
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    out = subprocess.run([ENCODE, tokenizer, lines], capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.split("\n") if line]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizers", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--megabytes", type=float, default=1e9)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "t")
        for path in args.tokenizers.rglob("*"):
            if path.is_file():
                to = root / path.relative_to(args.tokenizers)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.with_name(to.name.removesuffix(".zst")).write_bytes(content(path))
        golden = [json.loads(line) for path in root.glob("golden-ids*.jsonl") for line in path.read_text().split("\n") if line]
        texts = list(strings(args.texts, args.megabytes))
        print(f"{len(golden)} golden texts; {len(texts)} texts, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB", flush=True)
        wrong = 0
        for name, path, reference in references(root):
            if args.only not in name:
                continue
            checked = 0
            if golden and name in golden[0]:
                checked = sum(a == g[name] for a, g in zip(ours(path, [g["text"] for g in golden], folder), golden, strict=True))
                wrong += len(golden) - checked
            bad, tokens = 0, 0
            for start in range(0, len(texts), 512):
                batch = texts[start : start + 512]
                for text, a, b in zip(batch, ours(path, batch, folder), reference(batch), strict=True):
                    tokens += len(b)
                    if a != b:
                        bad += 1
                        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                        print(f"  {name}: {text[:60]!r}: token {at}: ours {a[at:at + 4]}, reference {b[at:at + 4]}")
            wrong += bad
            print(f"{name}: golden {checked}/{len(golden)}, texts that differ {bad}/{len(texts)}, {tokens} tokens", flush=True)
    sys.exit(wrong > 0)


main()

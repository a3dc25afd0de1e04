"""Small rank files of Mistral and Qwen, and the ids that their programs give for awkward texts.

Needs mistral_common 1.13.1, tiktoken 0.14.0, zstandard. Usage:

    python tests/oracles/tokenizer_ranks.py index/tests/data/tokenizer_kinds.json.zst index/tests/data/tokenizer_ranks.json.zst

The first file is that of `tokenizer_kinds.py`: its texts are asked, and the merges of its byte-level BPE are the ranks.
"""

import base64
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import tiktoken
import zstandard
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# tokenization_qwen.py of Qwen-7B
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_of():
    out, extra = {}, 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b:
            out[chr(b)] = b
        else:
            out[chr(extra)], extra = b, extra + 1
    return out


def main():
    kinds = json.loads(zstandard.ZstdDecompressor().decompress(Path(sys.argv[1]).read_bytes(), max_output_size=1 << 28))
    merges = next(k["json"]["model"]["merges"] for k in kinds["kinds"] if k["name"] == "gpt2")
    bytes_of, ranks = byte_of(), [bytes([b]) for b in range(256)]
    for left, right in merges:
        token = bytes(bytes_of[c] for c in left + right)
        if token not in ranks:
            ranks.append(token)
    made = []
    named = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]
    for name, pattern, config, special in [
        ("tekken_v3", TEKKEN, {"version": "v3"}, None),
        ("tekken_v11", TEKKEN, {"version": "v11"}, named),
        ("tekken_other_pattern", r"\p{L}+|\p{N}{1,2}|\s+(?!\S)|\s|[^\s\p{L}\p{N}]+", {"version": "v11"}, named),
    ]:
        vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(ranks)]
        value = {"config": {"pattern": pattern, "num_vocab_tokens": len(vocab), "default_vocab_size": 30 + len(vocab) - 7,
                            "default_num_special_tokens": 30, **config}, "vocab": vocab}
        if special:
            value["special_tokens"] = special
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tekken.json")
            path.write_text(json.dumps(value))
            tok = Tekkenizer.from_file(path)
        ids = [tok.encode(text, bos=False, eos=False) for text in kinds["texts"]]
        made.append({"name": name, "file": "tekken.json", "content": json.dumps(value), "ids": ids, "eos": tok.eos_id, "vocab": tok.n_words})
    enc = tiktoken.Encoding("qwen", pat_str=QWEN, mergeable_ranks={t: i for i, t in enumerate(ranks)}, special_tokens={})
    lines = "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(ranks))
    made.append({"name": "qwen", "file": "small.tiktoken", "content": lines, "ids": [enc.encode_ordinary(t) for t in kinds["texts"]],
                 "eos": None, "vocab": len(ranks)})
    golden = {"versions": {p: version(p) for p in ["mistral_common", "tiktoken"]}, "texts": kinds["texts"], "models": made}
    data = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).encode()
    Path(sys.argv[2]).write_bytes(zstandard.ZstdCompressor(level=19).compress(data))


main()

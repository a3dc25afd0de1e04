"""Small tokenizers of every kind, trained with their reference programs, and their ids for awkward texts.

Needs sentencepiece 0.2.3, tokenizers 0.23.3, tiktoken 0.14.0, zstandard. Usage:

    python tests/oracles/tokenizer_torture.py NOVELS.jsonl[.zst] index/tests/data/tokenizer_torture.json.zst

NOVELS: any public-domain English, one object with `text` a line (the committed file: Gutenberg novels, first 400,000
characters). Texts are given as themselves or by formula (`unfold`); of long answers only the SHA-256 of the ids (u32,
little-endian) is kept. Special tokens in text are text for every reference; nothing is added around a text.
"""

import base64
import hashlib
import io
import json
import random
import struct
import sys
import tempfile
import unicodedata
from importlib.metadata import version
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers
import zstandard
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

OTHER = [
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "caf\u00e9 na\u00efve co\u00f6perate \u00c9t\u00e9 \u00dcber", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
] * 20


def unfold(text):
    """A text itself, or {"repeat": [part, n]}, {"lcg": [seed, n, letters]}."""
    if isinstance(text, str):
        return text
    if "repeat" in text:
        part, n = text["repeat"]
        return part * n
    state, n, letters = text["lcg"]
    out = []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(letters[(state >> 33) % len(letters)])
    return "".join(out)


def is_settled(c):
    """Not unassigned, and punctuation to Unicode exactly if it is to tokenizers 0.23, whose tables stop at Unicode 9.

    `tokenizer_kinds.py` compares every code point, those others too.
    """
    cut = len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{c}b")) == 3
    ascii_symbol = c.isascii() and not c.isalnum() and c.isprintable() and c != " "
    punctuation = unicodedata.category(c)[0] == "P" or ascii_symbol
    return unicodedata.category(c) != "Cn" and cut == punctuation


def texts():
    yield from ["", " ", "  ", "\n", "\t", "a", " a", "a ", "  a  b  ", "\r\n\r\n", "x\u00a0y\u3000z\u2009w"]
    yield "".join(map(chr, range(128)))
    yield from (chr(c) for c in range(128))
    yield from (f"a{chr(c)}b" for c in range(33))
    yield "\ufeffBOM at the start, \ufeff and inside"
    yield "nul\0inside\0\0"
    yield from ["\u2581", "\u2581\u2581a", "a\u2581b c", "\u2581 \u2581", " \u2581", "tail\u2581"]
    yield "\U0001F600 \U0001F469\u200d\U0001F4BB \U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466 \U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7 \U0001F44D\U0001F3FD\U0001F44D\U0001F3FF \u2764\ufe0f 1\ufe0f\u20e3"
    yield from OTHER[:7]
    yield "\u4f60\u597d\u4e16\u754c\U00020000\U0002a6d6\u3400\uf900\ufa0e"
    yield "\u1112\u1161\u11ab\u1100\u1173\u11af \u3131\u314f\uffa1 \ud55c\uae00"
    yield "\u0627\u0644\u0633\u0651\u064e\u0644\u064e\u0627\u0645\u064f \u0639\u064e\u0644\u064e\u064a\u0652\u0643\u064f\u0645 \ufdfa\ufefb\u0640\u0640"
    yield "\u0e19\u0e49\u0e33\u0e40\u0e1b\u0e47\u0e19 \u0e01\u0e33 \u0939\u093f\u0928\u094d\u0926\u0940 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd"
    yield "e\u0301 \u00e9 A\u030a \u212b \ufb01\ufb03 \u00bd \u2460 \u210c \uff21\uff22 o\u0327\u0301 \u1e9b\u0323 Z\u0351\u036b\u0343\u036a\u0302\u036b"
    yield "\u0130stanbul I\u0307 \u1e9e \u00df \u03a3\u03c2 \u01c5 \u0149 \u017f"
    yield "<s> </s> <unk> <pad> <0x41> <|endoftext|> [CLS] [SEP] [MASK] [UNK] <extra_id_0> <sym> \u2603snow\u2603 ##ing"
    yield "I'm you're they'll WE'VE it's'd 's 't don\u2019t 'S 'll"
    yield "1234567890 3.14159 1,000,000 \u0661\u0662\u0663 \u00b2\u00b3 0x1F \u2167"
    yield "if (x == 0) {\n\t\treturn f(x)->y[1];\n    }  // done\n\n\n"
    yield "\u200b\u200c\u200d\u2060\u00ad\u202e\u202c\u2028\u2029\x85\x1c\x1d\x1e\x1f\x0b\x0c"
    yield "\ufffd\ufffe\uffff\ue000\U000f0000\U0010ffff\U000e0041\ufdd0"
    yield "It was the best of times, it was the worst of times; the quick brown fox jumps over the lazy dog."
    rng = random.Random(7)
    ranges = [(0x20, 0x7f), (0, 0x250), (0x300, 0x370), (0x600, 0x700), (0x1100, 0x1200), (0x2000, 0x2c00),
              (0x3000, 0x3200), (0xac00, 0xd7a4), (0xf900, 0xfb07), (0xfe00, 0xffff), (0x1f300, 0x1faff), (1, 0x33480)]
    for _ in range(120):
        picked = [rng.choice(ranges) for _ in range(3)]
        codes = [rng.randrange(*rng.choice(picked)) for _ in range(rng.randrange(1, 40))]
        yield "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000 and is_settled(chr(c)))
    for part, n in [(" ", 100_000), ("\n", 100_000), ("a", 100_000), ("a", 1_000_000), ("=", 30_000), ("\u4f60", 50_000),
                    ("a\u0301", 20_000), (" a", 50_000), ("\u2581", 20_000), ("\U0001F600", 20_000), ("the ", 50_000),
                    ("\r\n", 30_000), ("\U0001F469\u200d", 10_000), ("'s", 20_000)]:
        yield {"repeat": [part, n]}
    yield {"lcg": [1, 1_000_000, "etaoinshrdlu"]}
    yield {"lcg": [2, 200_000, "abcdefghijklmnopqrstuvwxyz   .,'"]}
    yield {"lcg": [3, 50_000, "\u00e9\u4e00\uac00\U0001F600a 0\n"]}


def train_sentencepiece(name, corpus, **options):
    with tempfile.TemporaryDirectory() as folder:
        source, prefix = Path(folder, "text"), Path(folder, "m")
        source.write_text(corpus, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(source), model_prefix=str(prefix), minloglevel=2, num_threads=1, max_sentence_length=100_000,
            train_extremely_large_corpus=False, **options)
        data = Path(folder, "m.model").read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    return {"name": name, "kind": "sentencepiece", "files": {"m.model": data}}, processor.encode, processor.decode


def train_bpe(corpus):
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus.split("\n\n"), trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.encode_special_tokens = True
    state = json.loads(tok.to_str())["model"]
    files = {"vocab.json": json.dumps(state["vocab"], ensure_ascii=False).encode(),
             "merges.txt": ("#version: 0.2\n" + "\n".join(" ".join(m) for m in state["merges"]) + "\n").encode()}
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    return {"name": "gpt2", "kind": "gpt2", "files": files}, encode, lambda ids: tok.decode(ids, skip_special_tokens=False), state


def tiktoken_of(state, name, pattern):
    byte_of = {c: b for b, c in enumerate(byte_alphabet())}
    ranks = {bytes([b]): b for b in range(256)}
    for left, right in state["merges"]:
        ranks[bytes(byte_of[c] for c in left + right)] = len(ranks)
    lines = b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items())
    enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
    options = {"split": name, "special": [["<|endoftext|>", len(ranks)]]}
    return {"name": "tiktoken_" + name, "kind": "tiktoken", "options": options, "files": {"t.tiktoken": lines}}, enc.encode_ordinary, enc.decode


def byte_alphabet():
    out, extra = [], 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b:
            out.append(chr(b))
        else:
            out.append(chr(extra))
            extra += 1
    return out


def train_wordpiece(name, corpus, lowercase):
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(corpus.split("\n\n"), trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    vocab = sorted(tok.get_vocab().items(), key=lambda e: e[1])
    assert [i for _, i in vocab] == list(range(len(vocab)))
    # read back through the file, as a user would: the same vocabulary, special tokens known
    again = tokenizers.Tokenizer(models.WordPiece(dict(vocab), unk_token="[UNK]"))
    again.normalizer, again.pre_tokenizer = tok.normalizer, tok.pre_tokenizer
    again.decoder = decoders.WordPiece()
    again.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    again.encode_special_tokens = True
    files = {"vocab.txt": "".join(t + "\n" for t, _ in vocab).encode()}
    encode = lambda text: again.encode(text, add_special_tokens=False).ids
    return {"name": name, "kind": "wordpiece", "files": files}, encode, lambda ids: again.decode(ids, skip_special_tokens=False)


def surrogates(references):
    """What each reference does with a lone surrogate: its ids, or the exception's name."""
    text, out = json.loads('"a\\ud800b"'), {}
    for name, encode in references:
        try:
            out[name] = encode(text)
        except Exception as e:  # noqa: BLE001 - the kind of failure is the fact we are after
            out[name] = type(e).__name__
    return out


def answer(ids):
    if len(ids) <= 120:
        return ids
    return {"count": len(ids), "sha256": hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()}


def read(path):
    data = Path(path).read_bytes()
    if path.endswith(".zst"):
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(40_000_000)
    text = ""
    for line in data.decode("utf-8", "ignore").split("\n"):
        text += json.loads(line)["text"] + "\n\n"
        if len(text) > 400_000:
            break
    return text[:400_000] + "\n\n" + "\n\n".join(OTHER)


def main():
    corpus = read(sys.argv[1])
    symbols = dict(user_defined_symbols=["<sym>", "\u2603", "\u2603snow"], control_symbols=["<ctl>"])
    trained = [
        train_sentencepiece("unigram_nfkc", corpus, vocab_size=800, model_type="unigram", character_coverage=0.995, **symbols),
        train_sentencepiece("unigram_identity_suffix", corpus, vocab_size=900, model_type="unigram", normalization_rule_name="identity",
                            byte_fallback=True, treat_whitespace_as_suffix=True, remove_extra_whitespaces=False, character_coverage=0.99),
        train_sentencepiece("bpe_llama", corpus, vocab_size=900, model_type="bpe", normalization_rule_name="identity", byte_fallback=True,
                            split_digits=True, allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, character_coverage=0.99),
        train_sentencepiece("bpe_symbols", corpus, vocab_size=700, model_type="bpe", normalization_rule_name="identity",
                            split_by_whitespace=False, add_dummy_prefix=False, character_coverage=0.98, pad_id=3, pad_piece="<pad>",
                            unk_surface="??", **symbols),
    ]
    gpt2, encode, decode, state = train_bpe(corpus)
    trained.append((gpt2, encode, decode))
    import tiktoken_ext.openai_public as public  # the patterns as published; their files are not fetched

    patterns = {"cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
                "gpt2": public.r50k_pat_str,
                # o200k_base of tiktoken_ext/openai_public.py; LLaMA 3's as Meta publishes it
                "o200k": "|".join([
                    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
                    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""]),
                "llama3": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""}
    trained += [tiktoken_of(state, name, pattern) for name, pattern in patterns.items()]
    trained += [train_wordpiece("wordpiece_cased", corpus, False), train_wordpiece("wordpiece_uncased", corpus, True)]
    all_texts = list(texts())
    out = {"versions": {p: version(p) for p in ["sentencepiece", "tokenizers", "tiktoken"]}, "python": sys.version.split()[0],
           "texts": all_texts, "surrogate": surrogates([(m["name"], e) for m, e, _ in trained]), "models": []}
    rng = random.Random(11)
    for model, encode, decode in trained:
        model["ids"] = [answer(encode(unfold(t))) for t in all_texts]
        samples = [i for i in model["ids"] if isinstance(i, list) and i][:200:4]
        top = max(max(i) for i in samples)
        if model["kind"] == "sentencepiece":
            samples += [[rng.randrange(700) for _ in range(rng.randrange(1, 12))] for _ in range(60)]
        model["decoded"] = [[ids, decode(ids)] for ids in samples]
        model["files"] = {n: base64.b64encode(d).decode() for n, d in model["files"].items()}
        out["models"].append(model)
        print(model["name"], "highest sampled id", top, file=sys.stderr)
    text = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
    Path(sys.argv[2]).write_bytes(zstandard.ZstdCompressor(level=19).compress(text.encode()))


main()

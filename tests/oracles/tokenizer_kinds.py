"""Small tokenizer.json files of every kind that tokenizers loads, and the ids that it gives for awkward texts.

Needs tokenizers 0.23.3, zstandard. Usage:

    python tests/oracles/tokenizer_kinds.py index/tests/data/tokenizer_kinds.json.zst index/src/tokenizer/punctuation.bin

The patterns, normalizers and processors are those of published families (named in each entry); vocabularies are trained
here on the texts of `tokenizer_torture.py`. Three answers for a text: `plain` (special tokens in it are text, nothing is
added), `around` (the same with what the post-processor adds) and `parsed` (special tokens in it become their ids).
"""

import copy
import hashlib
import json
import random
import struct
import sys
import unicodedata
from importlib.metadata import version
from pathlib import Path

import tokenizers
import zstandard
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

ENGLISH = """It was the best of times, it was the worst of times; the quick brown fox jumps over the lazy dog. The rain in
Spain stays mainly in the plain, and we're sure they'll say it's 1,234,567 miles from here to there in 2026. Don't you think
that I'd have known? He said: "Nobody knows the trouble I've seen." def f(x): return x[0] + 10 * y  # done\n\n"""
OTHER = [
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "caf\u00e9 na\u00efve co\u00f6perate \u00c9t\u00e9 \u00dcber", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0964 \u06d4 \u060c",
]
CORPUS = [ENGLISH] * 3 + OTHER * 3

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
DEEPSEEK_LLM = [
    "[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
               "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
DIGITS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"
HAN_GROUPS = r"\p{Han}{1,2}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"


def split(pattern, behavior="Isolated", invert=False, literal=False):
    return {"type": "Split", "pattern": {"String" if literal else "Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normal(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def added(content, id, special=True, **more):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special,
            "special": special, **more}


def template(before, after, ids):
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [piece(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece(t) for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in before + after}}


def trained_byte_bpe(vocab_size=500, suffix=None):
    tok = tokenizers.Tokenizer(models.BPE(end_of_word_suffix=suffix) if suffix else models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    more = {"end_of_word_suffix": suffix} if suffix else {}
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), **more))
    state = json.loads(tok.to_str())["model"]
    if suffix:  # every character also ends a word
        for c in sorted(pre_tokenizers.ByteLevel.alphabet()):
            state["vocab"].setdefault(c + suffix, len(state["vocab"]))
        state["unk_token"] = "</s>"
    return state


def trained_char_bpe():
    """As LLaMA's converted models: blanks are U+2581, bytes fall back."""
    tok = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok.train_from_iterator([t.replace("\n", " ") for t in CORPUS[:3] * 3 + OTHER[5:6]], trainers.BpeTrainer(
        vocab_size=520, special_tokens=pieces, show_progress=False))
    return json.loads(tok.to_str())["model"]


def trained_unigram():
    tok = tokenizers.Tokenizer(models.Unigram())
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.train_from_iterator(CORPUS * 2, trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return json.loads(tok.to_str())["model"]


def trained_wordpiece():
    tok = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=450, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    return json.loads(tok.to_str())["model"]


def word_level():
    words = sorted({w for t in CORPUS for w in t.replace(".", " . ").split()})
    return {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(["[UNK]", "[CLS]", "[SEP]"] + words)}, "unk_token": "[UNK]"}


def kinds():
    """(name, tokenizer.json as an object)."""
    byte, suffixed, char, unigram, wordpiece, words = (
        trained_byte_bpe(), trained_byte_bpe(900, "</w>"), trained_char_bpe(), trained_unigram(), trained_wordpiece(), word_level())

    def make(model, pre=None, normalizer=None, processor=None, extra=(), special=(), decoder=None):
        ids = model["vocab"] if isinstance(model["vocab"], dict) else {p: i for i, (p, _) in enumerate(model["vocab"])}
        tokens = [added(t, ids[t]) for t in special]
        top = max(ids.values())
        tokens += [added(c, top + 1 + i, **more) for i, (c, more) in enumerate(extra)]
        if callable(processor):
            processor = processor(ids)
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
                "pre_tokenizer": pre, "post_processor": processor, "decoder": decoder or {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                "model": copy.deepcopy(model)}

    ends = ["<s>", "</s>"]
    around = lambda before, after: lambda ids: template(before, after, ids)
    byte_kinds = {
        "gpt2": byte_level(), "gpt2_prefix_space": byte_level(add_prefix_space=True),
        "llama3": sequence(split(LLAMA3), byte_level(False)), "qwen": sequence(split(QWEN), byte_level(False)),
        "o200k": sequence(split(O200K), byte_level(False)), "o200k_removed_inverted": sequence(split(O200K, "Removed", True), byte_level(False)),
        "tekken": sequence(split(TEKKEN), byte_level(False)), "kimi": sequence(split(KIMI), byte_level(False)),
        "bloom": sequence(split(BLOOM), byte_level(False)),
        "falcon": sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), {"type": "Digits", "individual_digits": False},
                           split("[0-9][0-9][0-9]")),
        "deepseek_llm": sequence(*map(split, DEEPSEEK_LLM), {"type": "Digits", "individual_digits": True}, byte_level(False)),
        "deepseek_coder": sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                                   {"type": "Digits", "individual_digits": True}, byte_level(False)),
        "deepseek_v3": sequence(*map(split, DEEPSEEK_V3), byte_level(False)),
        "digits_from_right": sequence(split(DIGITS_FROM_RIGHT), byte_level()), "han_groups": sequence(split(HAN_GROUPS), byte_level(False)),
        "starcoder": sequence({"type": "Digits", "individual_digits": True}, byte_level()),
        "byte_level_first": sequence(byte_level(), {"type": "Digits", "individual_digits": True}),
        "byte_level_twice": sequence(split(r"\s+", "MergedWithNext"), byte_level(False), split("\u0120", "MergedWithNext", literal=True)),
        "contiguous": sequence(split(r"\d", "Contiguous"), byte_level(False)), "merged_previous": sequence(split(" ", "MergedWithPrevious", literal=True), byte_level(False)),
        "backreference": sequence(split(r"(.)\1+"), byte_level(False)), "lookbehind": sequence(split(r"(?<=[a-z])(?=[A-Z0-9])"), byte_level(False)),
        "word_class": sequence(split(r"\w+|[^\w\s]+"), byte_level(False)), "posix": sequence(split(r"[[:punct:]]+|[[:alpha:]]+"), byte_level(False)),
        "possessive": sequence(split(r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"), byte_level(False)),
        "whitespace_then_bytes": sequence({"type": "Whitespace"}, byte_level(False)), "whitespace_split": sequence({"type": "WhitespaceSplit"}, byte_level(False)),
        "unicode_scripts": sequence({"type": "UnicodeScripts"}, byte_level(False)), "delimiter": sequence({"type": "CharDelimiterSplit", "delimiter": "a"}, byte_level(False)),
        "punctuation_next": sequence({"type": "Punctuation", "behavior": "MergedWithNext"}, byte_level(False)), "fixed_length": sequence({"type": "FixedLength", "length": 3}, byte_level(False)),
        "bert_then_bytes": sequence({"type": "BertPreTokenizer"}, byte_level(False)),
    }
    for name, pre in byte_kinds.items():
        yield name, make(byte, pre, processor=around(["<s>"], []) if name == "llama3" else None, special=ends)
    yield "roberta", make(byte, byte_level(), special=ends, processor=lambda ids: {
        "type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]], "trim_offsets": True, "add_prefix_space": False})
    yield "processors", make(byte, byte_level(), special=ends, processor=lambda ids: {
        "type": "Sequence", "processors": [byte_level(), template(["<s>", "<s>"], ["</s>"], ids)]})
    yield "clip", make(suffixed, sequence(split(CLIP, "Removed", True), byte_level(False)),
                       normal({"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}),
                       lambda ids: {"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]], "trim_offsets": False, "add_prefix_space": False},
                       special=ends)
    yield "nfc_gpt2", make(byte, byte_level(), {"type": "NFC"}, special=ends)
    yield "nfkd_lower_strip", make(byte, byte_level(), normal({"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": False}), special=ends)
    yield "nmt_nfd", make(byte, byte_level(), normal({"type": "Nmt"}, {"type": "NFD"}), special=ends)
    yield "byte_level_normalizer", make(byte, split(GPT2.replace(" ", "\u0120")), {"type": "ByteLevel"}, special=ends)
    yield "no_splitter", make(byte, byte_level(False), special=ends)
    yield "ignore_merges", make({**byte, "ignore_merges": True}, sequence(split(LLAMA3), byte_level(False)), special=ends)
    yield "added_tokens", make(byte, byte_level(), special=ends, extra=[
        ("<tool>", {}), (" very ", dict(special=False)), ("DON", dict(special=False, single_word=True)), ("<l>", dict(special=False, lstrip=True)),
        ("<r>", dict(special=False, rstrip=True)), ("Caf\u00e9", dict(special=False, normalized=True)), ("   ", dict(special=False)), ("<both>", dict(lstrip=True, rstrip=True))])
    yield "added_tokens_lower", make(byte, byte_level(), {"type": "Lowercase"}, special=ends, extra=[
        ("the best", dict(special=False)), ("Times", dict(special=False, normalized=False)), ("<X>", dict(normalized=True))])
    metaspace = lambda scheme, cut: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
    prepend = normal({"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})
    yield "llama", make(char, None, prepend, around(["<s>"], []), special=["<unk>"] + ends)
    yield "llama_metaspace", make(char, metaspace("first", False), None, around(["<s>"], ["</s>"]), special=["<unk>"] + ends)
    yield "gemma", make(char, split(" ", "MergedWithPrevious", literal=True), {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, special=["<unk>"] + ends)
    yield "char_no_fallback", make({**char, "byte_fallback": False}, metaspace("always", True), special=["<unk>"] + ends)
    yield "char_no_fuse", make({**char, "byte_fallback": False, "fuse_unk": False}, metaspace("never", True), special=["<unk>"] + ends)
    for scheme in ["always", "first", "never"]:
        yield "unigram_" + scheme, make(unigram, metaspace(scheme, True), {"type": "NFKC"}, around([], ["</s>"]), special=["<s>", "<pad>", "</s>", "<unk>"])
    yield "unigram_fallback", make({**unigram, "byte_fallback": True}, metaspace("always", True), special=["<s>", "<pad>", "</s>", "<unk>"])
    yield "albert", make(unigram, sequence({"type": "WhitespaceSplit"}, metaspace("always", True)), normal(
        {"type": "Replace", "pattern": {"String": "``"}, "content": "\""}, {"type": "Replace", "pattern": {"String": "''"}, "content": "\""},
        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        around(["<s>"], ["</s>"]), special=["<s>", "<pad>", "</s>", "<unk>"])
    for scheme, cut in [("always", True), ("first", True), ("first", False), ("never", True)]:
        name = f"split_then_metaspace_{scheme}_{cut}".lower()
        yield name, make(unigram, sequence(split(r"\d+|\p{L}+ ?"), metaspace(scheme, cut)), {"type": "NFKC"}, special=["<s>", "<pad>", "</s>", "<unk>"])
    yield "metaspace_then_split", make(char, sequence(metaspace("first", True), split(r"(?<=[a-z])(?=[A-Z0-9])")), None, special=["<unk>"] + ends)
    yield "removed_then_metaspace", make(unigram, sequence(split(r"[\s,;]+", "Removed"), metaspace("first", True)), special=["<s>", "<pad>", "</s>", "<unk>"])
    yield "nfd_metaspace", make(unigram, metaspace("always", True), normal({"type": "NFD"}, {"type": "StripAccents"}), special=["<s>", "<pad>", "</s>", "<unk>"])
    yield "punctuation_then_metaspace", make(unigram, sequence({"type": "Punctuation", "behavior": "Isolated"}, metaspace("always", True)), {"type": "NFKD"}, special=["<s>", "<pad>", "</s>", "<unk>"])
    roles = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert = lambda ids: {"type": "BertProcessing", "sep": ["[SEP]", ids["[SEP]"]], "cls": ["[CLS]", ids["[CLS]"]]}
    for name, more in [("uncased", {}), ("cased", dict(lowercase=False)), ("accents", dict(strip_accents=False)), ("no_clean", dict(clean_text=False)), ("no_cjk", dict(handle_chinese_chars=False))]:
        norm = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True, **more}
        yield "bert_" + name, make(wordpiece, {"type": "BertPreTokenizer"}, norm, bert, special=roles)
    yield "word_level", make(words, {"type": "Whitespace"}, {"type": "NFC"}, around(["[CLS]"], ["[SEP]"]), special=["[UNK]", "[CLS]", "[SEP]"])
    yield "word_level_punctuation", make(words, sequence({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}), special=["[UNK]"])


def texts():
    yield from ["", " ", "  ", "\n", "a", " a", "a ", "  a  b  ", "\r\n\r\n x", "x\u00a0y\u3000z\u2009w", "\t\ta"]
    yield ENGLISH
    yield from OTHER
    yield "".join(map(chr, range(128)))
    yield "1 12 123 1234 12345 123456 1234567 1,234,567.89 3.14159 \u0661\u0662\u0663\u0664 \u00b2\u00b3 \u2167 a1b22c333d4444"
    yield "<s>a</s> <s> b </s>[CLS] [SEP] <tool> x <tool>y  <l> a <r>  b <both>  c DON DONT aDON very  very much Caf\u00e9 CAF\u00c9 <X> <x> The Best times Times"
    yield "I'm you're they'll WE'VE it's'd 's 't don\u2019t 'S 'll ''quoted'' ``ticks``"
    yield "aaa bbbb  cccccc !!?? --==>> camelCaseWord HTTPServer2go snake_case_word"
    yield "\u4f60\u597d\u4e16\u754cabc\u65e5\u672c123\u6f22\u5b57\u3068\u3072\u3089\u304c\u306a\u30ab\u30bf\uff01\uff1f \u3005\u3007\u3021 \U00020000\U0002a6d6 \uf900"
    yield "e\u0301 \u00e9 A\u030a \u212b \ufb01\ufb03 \u00bd \u2460 \uff21\uff22 o\u0327\u0301 \u1e9b\u0323 \u0130stanbul I\u0307 \u1e9e \u00df \u03a3\u03c2 \u01c5 \u017f"
    yield "\U0001F600 \U0001F469\u200d\U0001F4BB \U0001F1E9\U0001F1EA \u2764\ufe0f 1\ufe0f\u20e3 \u200b\u200c\u00ad\u2028\u2029\x85\x1c\x0b\x0c\ufeff"
    yield "if (x == 0) {\n\t\treturn f(x)->y[1];\n    }  // done\n\n\n"
    yield "\u0939\u093f\u0928\u094d\u0926\u0940 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0e19\u0e49\u0e33 \u0627\u0644\u0633\u0651\u064e\u0644\u0627\u0645\u064f \u1112\u1161\u11ab"
    yield "nul\0inside\0\0 \ufffd\ue000\U0010ffff\u2581a\u2581 \u2581\u2581b \u0120x"
    rng = random.Random(7)
    ranges = [(0x20, 0x7f), (0, 0x250), (0x300, 0x370), (0x600, 0x700), (0x1100, 0x1200), (0x2000, 0x2c00), (0x3000, 0x3200),
              (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0xf900, 0xfb07), (0xfe00, 0xffff), (0x1f300, 0x1faff)]
    for _ in range(40):
        picked = [rng.choice(ranges) for _ in range(3)]
        codes = [rng.randrange(*rng.choice(picked)) for _ in range(rng.randrange(1, 40))]
        # what Unicode 9 had: later characters have no category in some of the programs' tables
        yield "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000 and unicodedata.ucd_3_2_0.category(chr(c)) != "Cn")


def points():
    return (chr(c) for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000)


def bert_points(lowercase):
    """SHA-256 of how BERT's normaliser and splitter cut every code point between two letters."""
    normalizer, splitter = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    out = hashlib.sha256()
    for c in points():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(f"a{c}b")):
            out.update(word.encode() + b"\x1f")
        out.update(b"\n")
    return out.hexdigest()


def punctuation():
    """Runs of what BERT's splitter cuts at, above ASCII: `index/src/tokenizer/punctuation.bin`."""
    splitter, runs = pre_tokenizers.BertPreTokenizer(), []
    for c in map(ord, (c for c in points() if len(splitter.pre_tokenize_str(f"a{c}b")) == 3)):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return b"".join(struct.pack("<II", *run) for run in runs)


def main():
    all_texts, out = list(texts()), []
    for name, value in kinds():
        tok = tokenizers.Tokenizer.from_str(json.dumps(value))
        answers = {"plain": [], "around": [], "parsed": []}
        for text in all_texts:
            tok.encode_special_tokens = True
            answers["plain"].append(tok.encode(text, add_special_tokens=False).ids)
            answers["around"].append(tok.encode(text, add_special_tokens=True).ids)
            tok.encode_special_tokens = False
            answers["parsed"].append(tok.encode(text, add_special_tokens=False).ids)
        out.append({"name": name, "json": value, **answers})
    golden = {"versions": {"tokenizers": version("tokenizers")}, "texts": all_texts, "kinds": out,
              "bert_points": {"bert_uncased": bert_points(True), "bert_cased": bert_points(False)}}
    data = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).encode()
    Path(sys.argv[1]).write_bytes(zstandard.ZstdCompressor(level=19).compress(data))
    Path(sys.argv[2]).write_bytes(punctuation())
    print(len(out), "kinds,", len(all_texts), "texts", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Writes curate/tests/data/dclm.json.zst: pages as DCLM-baseline's own functions judge and edit them.

Needs a checkout of mlfoundations/dclm (361714b), fasttext (numpy below 2), uniseg, nltk, transformers, zstandard and what its
modules import. TEXTS is a JSONL(.zst) file with `text`; pages are cut from it and spoilt by hand, so that every rule fires.

    PYTHONPATH=DCLM python tests/oracles/dclm.py TEXTS > curate/tests/data/dclm.json.zst
"""

import io
import json
import random
import sys

import zstandard
from baselines.mappers import modifiers as edit
from baselines.mappers.core_utils import split_words
from baselines.mappers.filters import content_filters as rule

random.seed(11)

# dclm_baseline_refinedweb.yaml, from newline_removal_modifier on, without language
PAGE = [
    ("words", lambda p: rule.page_length_filter(p, length_type="word", min_length=50, max_length=100000, ignore_punctuation=True)),
    ("mean_word_length", lambda p: rule.word_length_filter(p, min_length=3, max_length=10)),
    ("symbol_ratio", lambda p: rule.symbol_ratio_filter(p, max_symbol_to_word_ratio=0.1)),
    ("bullet_ratio", lambda p: rule.bullet_count_filter(p, max_bullet_start_ratio=0.9)),
    ("ellipsis_ratio", lambda p: rule.ellipsis_count_filter(p, max_ellipsis_end_ratio=0.3)),
    ("non_alphabetic_ratio", lambda p: rule.alphabetic_word_ratio_filter(p, max_ratio=0.2)),
    ("stop_words", lambda p: rule.stop_word_filter(p, count_unique=False, min_stop_word=2)),
    ("repetition", rule.massive_web_repetition_filters),
]
REPETITION = [("dup_line_frac", "line", 0.3, False), ("dup_para_frac", "paragraph", 0.3, False), ("dup_line_char_frac", "line", 0.2, True), ("dup_para_char_frac", "paragraph", 0.2, True)]
REPETITION += [(f"top_{n}_gram", n, f, True) for n, f in ((2, 0.2), (3, 0.18), (4, 0.16))]
REPETITION += [(f"duplicated_{n}_grams", n, f, True) for n, f in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))]
EDITS = [
    lambda p: edit.uppercase_ratio_line_modifier(p, max_ratio=0.5),
    lambda p: edit.numeric_ratio_line_modifier(p, max_ratio=0.999999),
    edit.counter_line_modifier(),
    lambda p: edit.line_length_modifier(p, min_length=2),
    edit.substring_line_modifier("items in cart", max_length=10, remove_substring_only=True),
    edit.substring_line_modifier("Read more...", max_length=10, location="suffix", remove_substring_only=True),
    edit.substring_line_modifier("Sign-in", max_length=10, location="prefix", remove_substring_only=True),
]
newlines = edit.newline_removal_modifier(max_consecutive=2)


def judge(text):
    page = newlines({"text": text})[0]
    for name, keep in PAGE:
        if keep(page):
            continue
        if name == "repetition":
            name = next(r for r, g, f, c in REPETITION if not rule.repetition_filter(page, g, f, count_characters=c))
        return {"rule": name}
    before = len(split_words(page["text"], ignore_punctuation=True))
    page["before"] = before
    for step in EDITS:
        if not step(page):
            return {"rule": "empty"}
    if not rule.word_removal_ratio_filter(page, "before", max_removed_ratio=0.05):
        return {"rule": "removed_ratio"}
    return {"text": page["text"]} if page["text"] != text else {}


raw = open(sys.argv[1], "rb").read()
raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read() if sys.argv[1].endswith(".zst") else raw
texts = [json.loads(line)["text"] for line in raw.decode().split("\n") if line]
random.shuffle(texts)

LINES = ["READ ALL ABOUT IT", "12345", "\u00b2\u00b3 12", "1,234 likes", "3.5K followers !", "\u00bb 12 shares", "7 likes this", "3 items in cart", "2 Items In Cart now", "items in cart",
         "The story goes on Read more...", "Read more about", "read more!!!", "Sign-in here", "sign-in", "Please sign-in", "word", "", "  ", "\t", "\u00c9T\u00c9 \u00c0 PARIS", "\u00bd", "one two"]
BULLETS = ["- ", "* ", "\u2022 ", "\u25cf", "\u2013 "]


def spoil(text):
    lines = text.split("\n")
    kind = random.choice([0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    if kind == 0:
        lines = [random.choice(BULLETS) + line if random.random() < 0.97 else line for line in lines if line.strip()]
    elif kind == 1:
        lines = [line + random.choice(["...", "\u2026", ". . .", " ... "]) if random.random() < 0.35 else line for line in lines]
    elif kind == 2:
        lines = [" ".join(line.split(" ")[: random.randint(4, 20)]) for line in lines if line.strip()]
        lines += random.choices(lines, k=random.randint(1, 1 + len(lines) // 3))
    elif kind == 3:
        words = text.split(" ")
        at = random.randrange(len(words))
        passage = words[at : at + random.choice([4, 8, 30, 60])]
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(words))
            words[at:at] = passage * random.choice([1, 1, 1, 4, 20])
        lines = " ".join(words).split("\n")
    elif kind == 4:
        lines = ["# " + w if random.random() < 0.12 else w for line in lines for w in line.split(" ")]
    elif kind == 5:
        lines = [" ".join(str(random.randrange(9999)) if random.random() < 0.22 else w for w in line.split(" ")) for line in lines]
    elif kind == 6:
        lines = [line.replace("the ", "").replace("and ", "").replace("of ", "").replace("to ", "") for line in lines]
        lines = [line for line in lines if not any(w.lower() in ("the", "be", "to", "of", "and", "that", "have", "with") for w in line.split())] + ["the"] * random.randint(0, 2)
    elif kind == 7:
        lines = [w[: random.randint(1, 4)] for line in lines for w in line.split(" ")]
    elif kind == 8:
        lines = ["".join(line.split(" ")[i : i + 3]) for line in lines for i in range(0, len(line.split(" ")), 3)]
    elif kind < 14:
        for _ in range(random.randint(1, 12)):
            lines.insert(random.randrange(len(lines) + 1), random.choice(LINES))
    elif kind == 14:
        lines = [line.upper() if random.random() < 0.05 else line for line in lines]
    return random.choice(["\n", "\n", "\n\n", "\n\n\n", "\r\n"]).join(lines)


rows = []
for text in texts * 3:
    start = random.randrange(max(1, len(text) - 3000))
    page = text[start : start + random.choice([300, 600, 1200, 2500])]
    for t in (page, spoil(page)):
        rows.append({"input": t, **judge(t)})
    if len(rows) >= 700:
        break
rows += [{"input": t, **judge(t)} for t in ("", " ", "\n\n\n", "one", "\u4e2d\u6587" * 60, "the of " * 100)]
data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=19).compress(data))

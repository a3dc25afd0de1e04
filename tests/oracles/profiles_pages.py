"""Pages for the profiles' oracles: cut from texts and spoilt so that every rule has something to find."""

import io
import json
import random
import sys

import zstandard

ODD = [
    "READ ALL ABOUT IT", "12345 67890", "\u00b2\u00b3 12", "Privacy Policy and Terms of Use", "We use cookies.", "This site uses cookies to improve your experience",
    "Please enable JavaScript to see this page.", "javascript:void(0)", "Lorem ipsum dolor sit amet", "{ color: red }", "See [12] and [citation needed].", "[edit]",
    "https://example.com/a?b=c&d=%20e#f is an address", "http://porn.example/x", "www.example.org", "\u2022 one bullet", "- two bullets", "* three stars", "\u25e6 four",
    "The story goes on...", "and on\u2026", "read more", "Read More..", "[...]", "... # ... # #", "## heading ##", "(a) [b] {c} \u27e8d\u27e9", "na na na na na na batman",
    "\u00c9T\u00c9 \u00c0 PARIS", "\u0130stanbul \u039f\u0394\u039f\u03a3 \u03a3", "\u4e00\u4e8c\u4e09 \u4f60\u597d", "\u0661\u0662\u0663 \u0645\u0631\u062d\u0628\u0627", "na\u00efve caf\u00e9 e\u0301", "K\u00f6ln \u212aelvin use coo\u212aies",
    "\u01c5 title", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "a\u00a0b\u2003c", "tab\there", "\r", "", "", "  ", "=====", "----", "--------------------", "ha ha ha ha", "hahahaha", "ab\u00a0ab ab\tab ab", "word",
    "\"Is it?\" she asked. \"It is!\" he said.", "Mr. Smith went to Washington. He saw the U.S. Capitol", "1.5 km is 1,500 m; that's 5% of it.", "end with a quote'", "\u201cquoted.\u201d",
]


def read(path):
    raw = open(path, "rb").read()
    if path.endswith(".zst"):
        raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()
    return [json.loads(line)["text"] for line in raw.decode().split("\n") if line]


def spoilt(rng, text):
    lines = text.split("\n")
    kind = rng.randrange(11)
    if kind == 0:
        lines = [rng.choice(["- ", "* ", "\u2022 ", "\u25e6 "]) + line for line in lines]
    elif kind == 1:
        lines = [line + rng.choice(["...", "\u2026", " read more", ""]) for line in lines]
    elif kind == 2:
        lines = [" ".join(line.split(" ")[: rng.randint(3, 12)]) for line in lines]
        lines += rng.choices(lines, k=rng.randint(1, 1 + len(lines)))
    elif kind == 3:
        words = text.split(" ")
        at = rng.randrange(len(words))
        passage = words[at : at + rng.choice([1, 2, 4, 9, 30])]
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(words))
            words[at:at] = passage * rng.choice([1, 2, 5, 20])
        lines = " ".join(words).split("\n")
    elif kind == 4:
        lines = [" ".join(rng.choice(["#", "12", "(x)", "...", w, w, w]) for w in line.split(" ")) for line in lines]
    elif kind == 5:
        lines = [w[: rng.randint(1, 4)] for line in lines for w in line.split(" ")]
    elif kind == 6:
        lines = ["".join(line.split(" ")) for line in lines]
    elif kind == 7:
        lines = [line.upper() for line in lines]
    for _ in range(rng.randint(0, 8)):
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(ODD))
    return rng.choice(["\n", "\n", "\n", "\n\n", "\n\n\n", "\r\n", "\u2028"]).join(lines)


def pages(path, count):
    rng = random.Random(5)
    texts = read(path)
    found = ["", " ", "\n\n", "one", "#", "\u4e2d\u6587" * 60, "the of " * 100, "a\n" * 50, "...", ".", "\u00e9", "\U0001f600 \U0001f600 \U0001f600 \U0001f600", "\n".join(ODD)]
    while len(found) < count:
        text = rng.choice(texts)
        start = rng.randrange(max(1, len(text) - 2000))
        page = text[start : start + rng.choice([80, 300, 600, 1500])]
        found.append(page if len(found) % 4 == 0 else spoilt(rng, page))
    return found


def write(rows):
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    sys.stdout.buffer.write(zstandard.ZstdCompressor(level=19).compress(data))

"""Writes curate/src/text/words/boundaries.bin.zst: weights that place word boundaries in Korean, Vietnamese and Thai as Kiwi, pyvi and PyThaiNLP do.

Needs datatrove 0.10.1, spacy 3.8, pyvi, kiwipiepy 0.20.4 (the last with the model that datatrove names), pythainlp 5.4, zstandard, `curate/examples/words.rs`, and
sentences of the languages as `code TAB kind TAB text` lines (lingua's test data, Leipzig Corpora, CC BY 4.0). Korean is cut between syllables; the syllables of
Vietnamese and the words of ICU's dictionary for Thai (those of `lao_Laoo` in that program, which joins none) are joined. The weights are those of an averaged perceptron (Freund and Schapire
1999; Collins 2002) over hashed features, 65,536 signed bytes for each language. Every fifth sentence is left out of training; figures on these go to stderr.

    python tests/oracles/word_boundaries.py SENTENCES PROGRAM > curate/src/text/words/boundaries.bin.zst
"""

import json
import random
import re
import subprocess
import sys

import zstandard
from datatrove.utils.word_tokenizers import load_word_tokenizer
from kiwipiepy import Kiwi

BUCKETS = 1 << 16


def feature(number, *parts):
    x = 2166136261
    for byte in bytes([number]) + b"".join(p.encode() + b"\x01" for p in parts):
        x = ((x ^ byte) * 16777619) & 0xFFFFFFFF
    return x >> 16


def korean_features(run, i):
    """Features of the place before run[i]."""
    n = len(run)
    at = lambda j: run[i + j] if 0 <= i + j < n else "^"
    a, b, c, d, e, f = (at(j) for j in range(-3, 3))
    left, right = str(min(i, 3)), str(min(n - i, 4))
    sets = [(c,), (d,), (c, d), (b, c), (d, e), (b, c, d), (c, d, e), (d, e, f), (b, c, d, e), (left, right), (d, right), (c, right), (d, e, right), (a, b, c), (c, d, right)]
    return [feature(k, *s) for k, s in enumerate(sets)]


def kind(word):
    return "U" if word[:1].isupper() else "l"


def joining_features(words, i):
    """Features of the place before words[i]."""
    n = len(words)
    at = lambda j: words[i + j].lower() if 0 <= i + j < n else "^"
    a, b, c, d = (at(j) for j in range(-2, 2))
    case = kind(words[i - 1]) + kind(words[i])
    sets = [(b,), (c,), (b, c), (a, b), (c, d), (case,), (a,), (d,), (b, case), (c, case), (b[-1:], c[:1]), (c[-1:],), (a, b, c)]
    return [feature(k, *s) for k, s in enumerate(sets)]


def korean_examples(texts):
    kiwi = Kiwi(model_type="sbg")
    for text in texts:
        ends = {p for t in kiwi.tokenize(text) for p in (t.start, t.end)}
        yield [(korean_features(m.group(), i), m.start() + i in ends) for m in re.finditer("[가-힣]+", text) for i in range(1, len(m.group()))]


def vietnamese_examples(texts):
    tokenizer = load_word_tokenizer("vie_Latn")
    for text in texts:
        words, joins = [], []
        for token in tokenizer.word_tokenize(text):
            for i, word in enumerate(token.split()):
                words.append(word)
                joins.append(i > 0)
        fits = lambda i: words[i - 1][-1:].isalpha() and words[i][:1].isalpha()
        yield [(joining_features(words, i), joins[i]) for i in range(1, len(words)) if fits(i)]


def thai_examples(texts):
    tokenizer = load_word_tokenizer("tha_Thai")
    given = "".join(f"lao_Laoo\t{text}\n" for text in texts)
    done = subprocess.run([sys.argv[2]], input=given.encode(), stdout=subprocess.PIPE, check=True)
    for text, line in zip(texts, done.stdout.decode().split("\n")):
        words = json.loads(line)
        ends, at = set(), 0
        for token in tokenizer.word_tokenize(text):
            at += len("".join(token.split()))
            ends.add(at)
        examples, at = [], 0
        for i in range(1, len(words)):
            at += len(words[i - 1])
            if words[i - 1][-1].isalnum() or words[i - 1][-1] > "\u0e00":
                examples.append((joining_features(words, i), at not in ends))
        yield examples


def train(sentences):
    weights, sums, seen = [0] * BUCKETS, [0] * BUCKETS, 1
    rng = random.Random(2)
    sentences = list(sentences)
    for _ in range(10):
        rng.shuffle(sentences)
        for sentence in sentences:
            for features, wanted in sentence:
                if (sum(weights[f] for f in features) > 0) != wanted:
                    step = 1 if wanted else -1
                    for f in features:
                        weights[f] += step
                        sums[f] += seen * step
                seen += 1
    mean = [w - s / seen for w, s in zip(weights, sums)]
    most = max(map(abs, mean))
    return [round(m * 127 / most) for m in mean]


def score(weights, sentences):
    right = told = wanted = 0
    for features, yes in (e for s in sentences for e in s):
        found = sum(weights[f] for f in features) > 0
        right += found and yes
        told += found
        wanted += yes
    return 2 * right / (told + wanted)


lines = [line.split("\t") for line in open(sys.argv[1], encoding="utf-8").read().split("\n")]
out = b""
for code, examples in [("ko", korean_examples), ("vi", vietnamese_examples), ("th", thai_examples)]:
    texts = [f[2] for f in lines if len(f) > 2 and f[0] == code]
    whole = [f[2] for f in lines if len(f) > 2 and f[0] == code and f[1] == "sentences"]
    held = set(whole[::5])
    figures = train(examples([t for t in texts if t not in held]))
    print(code, len(texts), "texts, F1 of boundaries on", len(held), "held out:", round(score(figures, list(examples(sorted(held)))), 4), file=sys.stderr)
    out += bytes(w & 255 for w in figures)
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(out))

#!/usr/bin/env python3
"""Writes golden.jsonl beside itself: what datatrove says about texts made for its rules.

First line: versions. Then per text: words (spaCy's blank English through datatrove), simplified text, shingle
hashes, signature, and each filter's verdict alone (true or its reason), with C4's rewritten text.
pip install datatrove==0.10.1 spacy==3.8.18 regex numpy xxhash; the texts are ours, sentences by hand and random
mixtures of spaCy's special cases with punctuation.
"""
import importlib.metadata as meta
import json, os, random, sys, warnings

import spacy
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.utils.text import simplify_text, split_into_words

warnings.filterwarnings("ignore")
random.seed(11)
HERE = os.path.dirname(os.path.abspath(__file__))
NOUNS = "river mountain teacher village engine garden letter winter captain music harbour window market student bridge forest doctor kitchen morning island".split()
VERBS = "follows remembers carries watches repairs crosses paints measures forgets visits".split()
ADJS = "old quiet bright narrow heavy gentle broken distant early green".split()


def sentence():
    r = random.choice
    return f"The {r(ADJS)} {r(NOUNS)} {r(VERBS)} that {r(ADJS)} {r(NOUNS)} with {random.randint(2, 999)} {r(NOUNS)}s and a {r(NOUNS)}{r('.?!')}"


def prose(n, sep=" "):
    return sep.join(sentence() for _ in range(n))


def texts():
    good = "\n".join(prose(3) for _ in range(6))
    yield good
    yield "A short text."
    yield "" + prose(12).replace("The", "A").replace("that", "a").replace("with", "near").replace("and", "or")
    yield " ".join("ab cd it of to be a x".split() * 12) + "."
    yield " ".join("internationalisation " + w + "ological-misunderstandingness" for w in NOUNS * 3) + " the of"
    yield good.replace(" that", " # that").replace(" with", " # with")
    yield good.replace(" that", " ... that").replace(" with", " \u2026 with")
    yield "\n".join("- " + sentence() for _ in range(12))
    yield "\n".join("\u2022 " + sentence() for _ in range(12))
    yield "\n".join(sentence()[:-1] + "..." for _ in range(12))
    yield " ".join(str(random.randint(1, 10**6)) + " " + random.choice(NOUNS) for _ in range(60)) + " the of"
    yield "\n\n".join([sentence()] * 8 + [prose(2)])
    yield "\n\n".join([prose(12)] * 2 + [sentence() for _ in range(6)])
    yield "\n".join([sentence()] * 6 + [sentence() for _ in range(9)])
    yield "\n".join([prose(6)] * 2 + [sentence() for _ in range(9)])
    yield " ".join(["deep sea"] * 30 + [sentence() for _ in range(3)])
    yield " ".join("big red door " + random.choice(NOUNS) for _ in range(60))
    yield " ".join("one two three four " + random.choice(NOUNS) + " " + random.choice(ADJS) for _ in range(60))
    for n in range(5, 11):
        piece = " ".join(random.choice(NOUNS + ADJS) for _ in range(n))
        yield " ".join(x for i in range(9) for x in (piece, prose(1)))
        yield " ".join(x for i in range(6) for x in (piece, prose(2)))
    yield good + "\nLorem Ipsum dolor sit amet, they wrote."
    yield good + "\nfunction () { return the value. }."
    yield good + "\nPlease enable JavaScript to view this page.\nWe uses cookies for all of this.\nRead our Privacy Policy first."
    yield good.replace(".", ".[12]").replace("?", "?[edit]") + "\nAs shown before.[citation needed]"
    yield good + "\n" + "x" * 1200 + " is a long word here."
    yield "One line. Two lines. Three lines are here."
    yield "\n".join("no end mark here " + random.choice(NOUNS) + " " + prose(1)[:-1] for _ in range(10))
    yield "\n".join(random.choice(NOUNS) + "." for _ in range(40)) + "\n" + prose(2)
    yield "\n".join([prose(2), "A line that is here twice, with words."] * 2 + [prose(3)])
    yield "\n".join(sentence()[:40] + "." for _ in range(30))
    yield "\n\n".join(random.choice(NOUNS) + " is the word of the day, they say." for _ in range(12))
    yield "\u5927\u5bb6\u597d\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002 " + prose(4)
    yield "Caf\u00e9 na\u00efve \u00c5ngstr\u00f6m 3.14 1,000,000 \u0663\u0664\u066b\u0665 \u03a3\u03a3\u03a3 \u0130stanbul \u212a " + prose(2)
    rules = list(spacy.blank("en").tokenizer.rules)
    chars = list("abcXYZ019.,:;!?'\"()[]{}<>-_+*/=^~#$%&@|\\") + list("\u2019\u201c\u201d\u2026\u2014\u2013\u00b0\u00b2\u20ac\u4e00\u044f\u042f\u00e9\u00a0\u200b\u2122\u00bd") + ["US$", "km", "http://", "www.", "a.com", "10.1.1.1", "'s", "n't"]
    for _ in range(40):
        parts = []
        for _ in range(random.randint(20, 90)):
            x = random.random()
            parts.append(random.choice(rules) if x < 0.4 else "".join(random.choice(chars) for _ in range(random.randint(1, 7))) if x < 0.8 else str(random.randint(0, 99)) + random.choice("km m/s GB % kg".split()) if x < 0.9 else random.choice(NOUNS))
            parts.append(random.choice(["", " ", " ", "  ", "\n", "\t", " \n", "\r\n", "\u2028"]))
        yield "".join(parts)


def main():
    filters = {"gopher_repetition": GopherRepetitionFilter(), "gopher_quality": GopherQualityFilter(), "c4": C4QualityFilter(), "fineweb": FineWebQualityFilter()}
    hasher = MinhashDedupSignature("/tmp/unused", config=MinhashConfig())
    with open(os.path.join(HERE, "golden.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps({p: meta.version(p) for p in ("datatrove", "spacy", "regex", "numpy", "xxhash")} | {"python": sys.version.split()[0]}) + "\n")
        for text in texts():
            row = {"text": text, "words": "\t".join(split_into_words(text)), "simple": simplify_text(text)}
            shingles = hasher.get_shingles(text)
            row["shingles"] = [int(x) for x in shingles.flatten()[:3]]
            row["signature"] = [int(x) for b in hasher.get_signature(shingles) for x in b][::13] if shingles.size else None
            for name, f in filters.items():
                doc = Document(text=text, id="x", metadata={})
                try:
                    r = f.filter(doc)
                    row[name] = True if r is True or (isinstance(r, tuple) and r[0]) else r[1]
                except (ZeroDivisionError, AssertionError) as e:
                    row[name] = "raises " + type(e).__name__
                if name == "c4" and row[name] is True:
                    row["after_c4"] = doc.text
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


main()

#!/usr/bin/env python3
"""code_sets.py LINGUIST NOVELS WIKIPEDIA SETS.tsv TRAIN.jsonl TEST.jsonl REPO=EXT,EXT:LANGUAGE...: texts that train and
measure the model that tells code.

LINGUIST: github-linguist's samples (.jsonl.zst: text, meta.language); half of them, by a hash of the text, are the test,
with no file of the repositories. NOVELS, WIKIPEDIA (.jsonl.zst, .json.zst) and SETS.tsv (language_sets.py) give prose,
halved the same way. REPO: git directories of repositories under permissive licences, of which up to 150 files of at most
60 kB with these extensions are training texts, for example gin/.git=go:Go.
The model in use was trained with gin, cobra, luarocks, cats, scopt, Newtonsoft.Json, composer, Slim, vuejs/core,
jekyll, sinatra, gson, fmt, leveldb, jq, hiredis, express, axios, underscore, requests, flask (MIT, BSD or Apache-2.0) and Rust crates of this workspace's own dependencies.
"""
import hashlib, io, json, random, subprocess, sys
import zstandard

LINGUIST, NOVELS, WIKIPEDIA, SETS, TRAIN, TEST, *REPOS = sys.argv[1:]
NAMES = "C,C#,C++,Go,Java,JavaScript,Lua,PHP,Python,Ruby,Rust,Scala,TypeScript".split(",")
# neither clearly code nor clearly prose, or a dialect of a language asked for
LEFT_OUT = "Text,Markdown,reStructuredText,AsciiDoc,TSX,JSX,Hack".split(",")
rng = random.Random(3)
train, test = open(TRAIN, "w", encoding="utf-8"), open(TEST, "w", encoding="utf-8")

def lines(path):
    return io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(open(path, "rb")), encoding="utf-8")

def put(label, text, key=None, to=None):
    half = hashlib.sha256((key or text).encode("utf-8", "replace")).digest()[0] % 2
    (to or (test if half else train)).write(json.dumps({"language": label, "text": text}) + "\n")

for line in lines(LINGUIST):
    record = json.loads(line)
    language, text = record["meta"]["language"], record["text"]
    if language not in LEFT_OUT and len(text.strip()) >= 40:
        put(language if language in NAMES else "other", text)
for line in lines(NOVELS):
    text = json.loads(line)["text"]
    for _ in range(6):
        start = rng.randrange(max(1, len(text) - 6000))
        put("prose", text[start:start + rng.choice([200, 1000, 4000])], key=text[:500])
for line in lines(WIKIPEDIA):
    text = json.loads(line)["body"].strip()
    if len(text) > 100:
        put("prose", text[:4000])
by = {}
for line in open(SETS, encoding="utf-8"):
    fields = line.rstrip("\n").split("\t")
    if fields[0] in ("train", "test") and fields[1] in ("lingua-sentences", "udhr", "tatoeba"):
        by.setdefault((fields[0], fields[2]), []).append(fields[3])
for (split, code), texts in sorted(by.items()):
    rng.shuffle(texts)
    most = 1000 if code == "en" else 80
    while texts and most > 0:
        group = [texts.pop() for _ in range(min(len(texts), rng.randrange(1, 7)))]
        put("prose", rng.choice([" ", " ", "\n"]).join(group), to=train if split == "train" else test)
        most -= len(group)
for repo in REPOS:
    folder, _, what = repo.rpartition("=")
    extensions, _, language = what.partition(":")
    taken = 0
    for entry in subprocess.run(["git", "-C", folder, "ls-tree", "-r", "-l", "HEAD"], capture_output=True, text=True, check=True).stdout.split("\n"):
        fields = entry.split(None, 4)
        if len(fields) < 5 or not fields[3].isdigit() or not 80 <= int(fields[3]) <= 60000 or taken >= 150:
            continue
        if fields[4].rpartition(".")[2] in extensions.split(","):
            text = subprocess.run(["git", "-C", folder, "show", "HEAD:" + fields[4]], capture_output=True).stdout
            put(language, text.decode("utf-8", "replace"), to=train)
            taken += 1

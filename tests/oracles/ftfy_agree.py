#!/usr/bin/env python3
"""ftfy_agree.py TEXTS.jsonl PREDICT [PASSES]: our repairs and speed beside ftfy's.

TEXTS: lines with `text`. PREDICT: `target/release/examples/normalize`. Compares every text, then times CPU seconds of
`ftfy.fix_text` and ours over all of them. Run under `taskset -c N`.
"""
import json, resource, subprocess, sys, time
import ftfy

path, predict = sys.argv[1:3]
passes = int(sys.argv[3]) if len(sys.argv) > 3 else 20
texts = [json.loads(line)["text"] for line in open(path, encoding="utf-8")]

def ours(repeat):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([predict, str(repeat)], stdin=open(path, "rb"), capture_output=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

start = time.process_time()
wanted = [ftfy.fix_text(text) for text in texts]
theirs = time.process_time() - start
found = [json.loads(line)["text"] for line in ours(1)[0].decode("utf-8").split("\n") if line]
differ = [i for i, (a, b) in enumerate(zip(found, wanted)) if a != b]
print(f"{len(texts)} texts, {len(differ)} differ, ftfy changes {sum(a != b for a, b in zip(texts, wanted))}")
for i in differ[:10]:
    print(repr(texts[i][:80]), repr(found[i][:80]), repr(wanted[i][:80]))
seconds = (ours(2 * passes)[1] - ours(passes)[1]) / passes
size = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
print(f"ftfy {size / theirs:.2f} MB/s, ours {size / seconds:.1f} MB/s, {theirs / seconds:.1f} times ftfy")

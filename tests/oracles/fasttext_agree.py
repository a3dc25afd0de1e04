#!/usr/bin/env python3
"""fasttext_agree.py MODEL LINES PREDICT [PASSES]: our answers and speed beside fastText's, on one model and one file.

PREDICT: `target/release/examples/fasttext_predict`. Compares the three best labels and their probabilities (1e-4), then
times PASSES (5) over the lines: CPU seconds of fastText's `predict` (k = 1), of our reader, and of the built-in model, in
turns, best of three. Run under `taskset -c N` so that all share one core.
"""
import os, resource, subprocess, sys, time
import fasttext

model_path, lines_path, predict = sys.argv[1:4]
passes = int(sys.argv[4]) if len(sys.argv) > 4 else 5
model = fasttext.load_model(model_path)
lines = open(lines_path, encoding="utf-8").read().split("\n")
lines = lines[:-1] if lines[-1] == "" else lines

def ours(which, k, repeat=None):
    args = [predict, which, str(k)] + ([str(repeat)] if repeat else [])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(args, stdin=open(lines_path, "rb"), capture_output=True, check=True).stdout.decode("utf-8")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

answers = ours(model_path, 3)[0].split("\n")
differ = worst = 0
for line, answer in zip(lines, answers):
    wanted = [(label.removeprefix("__label__"), p) for p, label in model.f.predict(line + "\n", 3, 0.0, "strict")]
    found = [(pair.rpartition(":")[0], float(pair.rpartition(":")[2])) for pair in answer.split("\t") if pair]
    distance = max([abs(a[1] - b[1]) for a, b in zip(found, wanted)] + [0.0])
    worst = max(worst, distance)
    # labels of equal probability come in any order
    same = [a[0] for a in found] == [b[0] for b in wanted] or len({round(b[1], 6) for b in wanted}) < len(wanted)
    differ += len(found) != len(wanted) or distance > 1e-4 or not same
print(f"{len(lines)} lines, {differ} differ, largest distance {worst:.2e}")

size = sum(len(line.encode("utf-8")) + 1 for line in lines) * passes / 1e6
best = {}
for _ in range(3):
    start = time.process_time()
    for _ in range(passes):
        for line in lines:
            model.f.predict(line + "\n", 1, 0.0, "strict")
    best["fastText"] = min(best.get("fastText", 1e9), time.process_time() - start)
    for which in (model_path, "builtin"):
        # two runs, so that starting and loading cancel out
        name = "ours, builtin" if which == "builtin" else "ours, same model"
        seconds = ours(which, 1, 2 * passes)[1] - ours(which, 1, passes)[1]
        best[name] = min(best.get(name, 1e9), seconds)
for name, seconds in best.items():
    print(f"{name:18} {size / seconds:8.1f} MB/s  {best['fastText'] / seconds:5.2f} times fastText")

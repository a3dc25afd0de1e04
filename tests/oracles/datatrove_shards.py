"""Removed documents of datatrove and of Millrace with `keep = "datatrove"`, from 1, 3 and 7 files of the same documents.

    python tests/oracles/datatrove_shards.py MILLRACE IN.jsonl WORK

Needs datatrove[io,processing] 0.10.1, spacy 3.8 and zstandard. IN.jsonl has `id` and `text`. One file is one task of
datatrove's. Makes nothing; prints how many documents each removes and whether they are the same ones.
"""
import json, os, subprocess, sys

import zstandard
from datatrove_minhash import kept_ids


def millrace(binary, folder, files, out):
    job = f"{out}/job.toml"
    os.makedirs(out)
    with open(job, "w") as file:
        file.write(f'''name = "shards"
out = "{out}/out"
[curate]
inputs = [{{ path = "{folder}/*.jsonl", format = "jsonl", source = "texts" }}]
[dedup]
keep = "datatrove"
minhash = {{ preset = "fineweb" }}
''')
    for verb in ("curate", "dedup"):
        subprocess.run([binary, verb, job], check=True, stderr=subprocess.DEVNULL)
    kept = set()
    for shard in range(files):
        with open(f"{out}/out/clean/{shard:05}.jsonl.zst", "rb") as file:
            lines = zstandard.ZstdDecompressor().stream_reader(file).read().decode().split("\n")
        with open(f"{out}/out/keep/{shard:05}.keep", "rb") as file:
            keep = file.read()
        kept |= {json.loads(line)["id"] for line, flag in zip(filter(None, lines), keep[16:]) if flag == 0}
    return kept


def main(binary, texts, work):
    binary, work = os.path.abspath(binary), os.path.abspath(work)
    with open(texts) as file:
        lines = file.readlines()
    everything = {json.loads(line)["id"] for line in lines}
    for files in (1, 3, 7):
        folder = f"{work}/{files}/in"
        os.makedirs(folder)
        for i in range(files):
            with open(f"{folder}/{i:03}.jsonl", "w") as file:
                file.writelines(lines[len(lines) * i // files : len(lines) * (i + 1) // files])
        theirs = everything - kept_ids(folder, "*.jsonl", files, f"{work}/{files}/datatrove")
        ours = everything - millrace(binary, folder, files, f"{work}/{files}/millrace")
        print(f"{files} files: datatrove removes {len(theirs)}, Millrace {len(ours)}, differ {len(theirs ^ ours)}", flush=True)


main(*sys.argv[1:])

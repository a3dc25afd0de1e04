"""README's curation rows: Millrace and its peers in turn, on one core, in one run.

    cargo build --release -p millrace-pipelines && cargo build --release -p millrace-curate --examples
    python curate/benches/beside_peers.py --warc DIR --texts FILE... --lid lid.176.ftz

DIR holds `*.warc.gz` of web pages; the texts are JSON lines (`.jsonl`, `.jsonl.zst`) with `text`. Rows:

  warc      all records of the archives: FastWARC
  extract   main text of every STEP-th page: trafilatura
  language  labels of the texts' lines of 40 letters and more, cut at 200: fastText, the same model
  filters   Gopher repetition, Gopher quality, C4, FineWeb, JSONL to JSONL.gz: datatrove, one task, one worker
  minhash   the four stages of 14 x 8 on the same texts: datatrove

CPU seconds (user and system) of each program's process and its children. The peers' start (imports, models) is not
counted, Millrace's is. Documents that the filters keep, and those that MinHash removes, must be equal in number, and labels
of languages must be the same line by line. Every round runs all programs once; the table has medians. Two Python
programs may be named, since datatrove and trafilatura want other versions of one package:

  --datatrove PYTHON     datatrove 0.10.1 with spacy, xxhash, orjson
  --python PYTHON        fastwarc 2.0.1, trafilatura 2.3.1, fasttext 0.9.3
"""
import argparse, gzip, json, os, resource, statistics, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["warc", "extract", "language", "filters", "minhash"]
MB = 1e6


def cpu_of(kind):
    used = resource.getrusage(kind)
    return used.ru_utime + used.ru_stime


def run(command, **more):
    """CPU seconds of a program, and its output."""
    before = cpu_of(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.decode()[-2000:]}")
    return cpu_of(resource.RUSAGE_CHILDREN) - before, done.stdout


# ---- peers: each in a process of its own, which prints seconds and a result


def peer_warc(work):
    from fastwarc.warc import ArchiveIterator

    size = 0
    start = cpu_of(resource.RUSAGE_SELF)
    for path in work["warc"]:
        for record in ArchiveIterator(path, parse_http=False, fsspec_args=False):
            size += len(record.reader.read())
    return cpu_of(resource.RUSAGE_SELF) - start, size


def peer_extract(work):
    import struct
    from trafilatura import extract

    frames = Path(work["frames"]).read_bytes()
    at, pages = 0, []
    while at < len(frames):
        (size,) = struct.unpack_from("<I", frames, at)
        pages.append(frames[at + 4 : at + 4 + size])
        at += 4 + size
    extract("<html><body><p>warm up</p></body></html>")
    start, failed = cpu_of(resource.RUSAGE_SELF), 0
    for page in pages:
        try:
            extract(page, include_comments=False)
        except Exception:
            failed += 1
    return cpu_of(resource.RUSAGE_SELF) - start, {"pages": len(pages), "failed": failed}


def peer_language(work):
    import fasttext

    fasttext.FastText.eprint = lambda *_: None
    model = fasttext.load_model(work["lid"])
    lines = Path(work["lines"]).read_text().splitlines()
    # the pure module: its wrapper does not know NumPy 2
    predict = lambda line: model.f.predict(line + "\n", 1, 0.0, "strict")
    predict("warm up")
    start = cpu_of(resource.RUSAGE_SELF)
    found = [predict(line) for line in lines]
    seconds = cpu_of(resource.RUSAGE_SELF) - start
    return seconds, [label[0][1].removeprefix("__label__") if label else "" for label in found]


def datatrove(work, steps):
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.utils.logging import logger
    from datatrove.utils.text import split_into_sentences, split_into_words

    logger.remove()
    split_into_words("warm up."), split_into_sentences("warm up.")
    folder, name = os.path.split(work["texts"])
    read = lambda: JsonlReader(folder, glob_pattern=name)
    seconds = 0.0
    with tempfile.TemporaryDirectory() as out:
        for number, (make, tasks) in enumerate(steps(read, out)):
            executor = LocalPipelineExecutor(pipeline=make, tasks=tasks, workers=1, logging_dir=f"{out}/logs{number}")
            start = cpu_of(resource.RUSAGE_SELF) + cpu_of(resource.RUSAGE_CHILDREN)
            executor.run()
            seconds += cpu_of(resource.RUSAGE_SELF) + cpu_of(resource.RUSAGE_CHILDREN) - start
        kept = sum(1 for path in Path(out).glob("kept/*") for _ in gzip.open(path))
    return seconds, kept


def peer_filters(work):
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.writers import JsonlWriter

    def steps(read, out):
        filters = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]
        return [([read(), *filters, JsonlWriter(f"{out}/kept")], 1)]

    return datatrove(work, steps)


def peer_minhash(work):
    from datatrove.pipeline.dedup import minhash
    from datatrove.pipeline.writers import JsonlWriter

    config = minhash.MinhashConfig()

    def steps(read, out):
        return [
            ([read(), minhash.MinhashDedupSignature(f"{out}/sig", config=config)], 1),
            ([minhash.MinhashDedupBuckets(f"{out}/sig", f"{out}/buckets", config=config)], config.num_buckets),
            ([minhash.MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)], 1),
            ([read(), minhash.MinhashDedupFilter(f"{out}/remove"), JsonlWriter(f"{out}/kept")], 1),
        ]

    return datatrove(work, steps)


# ---- Millrace


class Ours:
    def __init__(self, program, examples, work):
        self.program, self.examples, self.work = program, examples, work

    def warc(self):
        seconds, out = run([self.examples / "records", "warc", "time", *self.work["warc"]])
        return seconds, None

    def extract(self):
        with open(self.work["frames"], "rb") as frames:
            seconds, out = run([self.examples / "extract_pages"], stdin=frames)
        return seconds, {"pages": out.count(b"\n"), "failed": 0}

    def language(self):
        with open(self.work["lines"], "rb") as lines:
            seconds, out = run([self.examples / "fasttext_predict", self.work["lid"], "1"], stdin=lines)
        return seconds, [line.split(":")[0] for line in out.decode().splitlines()]

    def job(self, steps, more):
        with tempfile.TemporaryDirectory() as folder:
            text = f'name = "beside"\nout = "{folder}/out"\nthreads = 1\n[curate]\ntasks = 1\noutput = "jsonl_gz"\nstep = [{steps}]\n'
            text += f'[[curate.inputs]]\npath = "{self.work["texts"]}"\n{more}'
            Path(folder, "job.toml").write_text(text)
            seconds, _ = run([self.program, "run", f"{folder}/job.toml"])
            manifest = json.loads(Path(folder, "out/manifest.json").read_text())
        return seconds, manifest

    def filters(self):
        seconds, manifest = self.job("{ gopher_repetition = {} }, { gopher_quality = {} }, { c4 = {} }, { fineweb = {} }", "")
        return seconds, manifest["curate"]["counts"]["kept"]

    def minhash(self):
        seconds, manifest = self.job("", '[dedup]\nkeep = "datatrove"\n[dedup.minhash]\n')
        return seconds, manifest["dedup"]["counts"]["kept"]


def prepared(args, folder):
    """Inputs in the forms that all programs read, and the bytes of each row."""
    import zstandard
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    archives = sorted(str(path) for path in Path(args.warc).glob("*.warc.gz"))
    sizes, pages, number = {"warc": 0, "extract": 0}, bytearray(), 0
    for path in archives:
        for record in ArchiveIterator(path, parse_http=False, fsspec_args=False):
            sizes["warc"] += len(record.reader.read())
        for record in ArchiveIterator(path, record_types=WarcRecordType.response, parse_http=True, fsspec_args=False):
            body = record.reader.read()
            if number % args.step == 0:
                pages += len(body).to_bytes(4, "little") + body
                sizes["extract"] += len(body)
            number += 1
    texts = []
    for path in args.texts:
        raw = open(path, "rb")
        stream = zstandard.ZstdDecompressor().stream_reader(raw) if path.endswith(".zst") else raw
        texts += [json.loads(line)["text"] for line in stream.read().splitlines()]
    lines = [" ".join(line.split())[:200] for text in texts for line in text.splitlines()]
    lines = [line for line in lines if sum(c.isalpha() for c in line) >= 40][: args.lines]
    Path(folder, "frames").write_bytes(pages)
    Path(folder, "lines").write_text("\n".join(lines) + "\n")
    with open(Path(folder, "texts.jsonl"), "w") as out:
        for number, text in enumerate(texts):
            out.write(json.dumps({"id": str(number), "text": text}) + "\n")
    size = sum(len(text.encode()) for text in texts)
    sizes |= {"language": sum(len(line.encode()) for line in lines), "filters": size, "minhash": size}
    work = {"warc": archives, "frames": f"{folder}/frames", "lines": f"{folder}/lines", "texts": f"{folder}/texts.jsonl", "lid": args.lid}
    return work, sizes, {"pages": number, "documents": len(texts), "lines": len(lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warc")
    parser.add_argument("--texts", nargs="+")
    parser.add_argument("--lid")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/millrace")
    parser.add_argument("--examples", type=Path, default=ROOT / "target/release/examples")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--datatrove", default=sys.executable)
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", type=int, default=4)
    parser.add_argument("--lines", type=int, default=40_000)
    parser.add_argument("--core", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        seconds, result = globals()[f"peer_{args.child}"](json.loads(sys.stdin.read()))
        print(json.dumps({"seconds": seconds, "result": result}))
        return
    os.sched_setaffinity(0, {args.core})
    os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        work, sizes, counts = prepared(args, folder)
        print(json.dumps(counts), flush=True)
        ours, found = Ours(args.program, args.examples, work), {}
        for number in range(args.rounds):
            for row in args.rows:
                python = args.datatrove if row in ("filters", "minhash") else args.python
                _, out = run([python, __file__, "--child", row], input=json.dumps(work).encode())
                peer = json.loads(out.splitlines()[-1])
                seconds, result = getattr(ours, row)()
                if result is not None and result != peer["result"]:
                    same = result if not isinstance(result, list) else sum(a == b for a, b in zip(result, peer["result"]))
                    print(f"{row}: NOT EQUAL: {same} of {peer['result'] if not isinstance(result, list) else len(result)}", flush=True)
                found.setdefault(row, []).append((seconds, peer["seconds"]))
                print(row, number, f"ours {seconds:.3f} s, peer {peer['seconds']:.3f} s", flush=True)
        for row, pairs in found.items():
            mine, other = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"| {row} | {sizes[row] / MB / mine:.2f} MB/s | {sizes[row] / MB / other:.3f} MB/s | {ratio:.1f} |")


if __name__ == "__main__":
    main()

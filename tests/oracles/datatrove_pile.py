"""What datatrove keeps of the committed Pile-style texts: python tests/oracles/datatrove_pile.py > tests/data/datatrove_pile.json

Needs datatrove[io,processing,cli], spacy >= 3.8, nltk and zstandard (PyPI). Documents are named by file and line.
`filters`: GopherRepetition, GopherQuality, C4Quality (filter_no_terminal_punct=False, as FineWeb sets it) and FineWeb,
chained, each on the text that the one before it left; per document `true` or the name and reason of the first drop.
`minhash`: datatrove's four stages with its default configuration over all non-empty documents; the ids removed.
"""
import glob, importlib.metadata, json, os, shutil, sys, tempfile

import zstandard
from loguru import logger

logger.remove()
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature)
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

here = os.path.dirname(os.path.abspath(__file__))
folder = os.path.join(here, "../../pipelines/jobs/tiny/data")
documents = []
for path in sorted(glob.glob(os.path.join(folder, "pile-*.jsonl.zst"))):
    stem = os.path.basename(path)[: -len(".jsonl.zst")]
    data = zstandard.ZstdDecompressor().stream_reader(open(path, "rb")).read().decode()
    for i, line in enumerate(l for l in data.split("\n") if l):
        documents.append((f"pile/{stem}/{i}", json.loads(line)["text"]))

chain = [("gopher_repetition", GopherRepetitionFilter()), ("gopher_quality", GopherQualityFilter()),
         ("c4", C4QualityFilter(filter_no_terminal_punct=False)), ("fineweb", FineWebQualityFilter())]


def judge(name, text):
    document = Document(text=text, id=name, metadata={})
    for family, f in chain:
        verdict = f.filter(document)
        kept, reason = verdict if isinstance(verdict, tuple) else (verdict, None)
        if not kept:
            return f"{family}.{reason}"
    return True


filters = {name: judge(name, text) for name, text in documents if text}
work = tempfile.mkdtemp()
os.makedirs(f"{work}/in")
with open(f"{work}/in/all.jsonl", "w", encoding="utf-8") as out:
    for name, text in documents:
        out.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
config = MinhashConfig()
stdout, sys.stdout = sys.stdout, sys.stderr


def run(name, tasks, *steps):
    LocalPipelineExecutor(pipeline=list(steps), tasks=tasks, workers=1, logging_dir=f"{work}/logs/{name}").run()


run("sig", 1, JsonlReader(f"{work}/in"), MinhashDedupSignature(f"{work}/sig", config=config))
run("buckets", config.num_buckets, MinhashDedupBuckets(f"{work}/sig", f"{work}/buckets", config=config))
run("cluster", 1, MinhashDedupCluster(f"{work}/buckets", f"{work}/remove", config=config))
run("filter", 1, JsonlReader(f"{work}/in"), MinhashDedupFilter(f"{work}/remove", exclusion_writer=JsonlWriter(f"{work}/gone", compression=None)))
sys.stdout = stdout
gone = [json.loads(l)["id"] for p in sorted(glob.glob(f"{work}/gone/*.jsonl")) for l in open(p, encoding="utf-8")]
shutil.rmtree(work)
versions = {p: importlib.metadata.version(p) for p in ["datatrove", "spacy", "xxhash", "numpy"]}
print(json.dumps({"made_by": "tests/oracles/datatrove_pile.py", "versions": versions, "filters": filters,
                  "minhash": {"config": str(config), "removed": sorted(gone)}}, indent=0))

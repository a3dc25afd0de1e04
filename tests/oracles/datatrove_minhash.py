"""datatrove's four stages of MinHash deduplication with its defaults."""
import glob
import json

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter,
                                              MinhashDedupSignature)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter


def kept_ids(folder, pattern, tasks, out):
    """Ids of the documents that it keeps of the files `pattern` in `folder`, one task a file."""
    config = MinhashConfig()
    read = lambda: JsonlReader(folder, glob_pattern=pattern)
    stages = [
        ([read(), MinhashDedupSignature(f"{out}/sig", config=config)], tasks),
        ([MinhashDedupBuckets(f"{out}/sig", f"{out}/buckets", config=config)], config.num_buckets),
        ([MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)], 1),
        ([read(), MinhashDedupFilter(f"{out}/remove"), JsonlWriter(f"{out}/kept", compression=None)], tasks),
    ]
    for i, (pipeline, workers) in enumerate(stages):
        LocalPipelineExecutor(pipeline=pipeline, tasks=workers, workers=1, logging_dir=f"{out}/logs{i}").run()
    kept = set()
    for part in glob.glob(f"{out}/kept/*.jsonl"):
        with open(part) as file:
            kept |= {json.loads(line)["id"] for line in file}
    return kept

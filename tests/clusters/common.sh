# What the scripts of real clusters share: the job's tables and the comparison. Sourced with $repository set.

# The curation and deduplication of the tiny job's data, in parts.
curation() {
  local data=$repository/pipelines/jobs/tiny/data
  cat <<TABLES
[curate]
figures = true
statistics = true
inputs = [
  { path = "$data/crawl-0000[0-3].warc.gz", format = "warc", source = "crawl" },
  { path = "$data/pile-0000[01].jsonl.zst", format = "jsonl", source = "pile" },
]
split_mb = 1
[[curate.step]]
extract = {}
[[curate.step]]
language = { keep = ["en"], min_confidence = 0.5 }
[[curate.step]]
gopher_repetition = {}
[[curate.step]]
gopher_quality = {}
[[curate.step]]
c4 = { filter_no_terminal_punct = false }
[[curate.step]]
fineweb = {}
[decontaminate]
files = ["$data/eval.jsonl.zst"]
fields = ["text"]
[dedup]
exact = {}
minhash = { preset = "fineweb" }
TABLES
}

# Fails unless two folders of a job hold the same results.
compare() {
  local folder
  for folder in "$@"; do
    (cd "$folder" && find clean dropped errors figures statistics keep statistics.json statistics.parquet errors.jsonl \
      -type f -not -name '.*' | sort | xargs sha256sum) > "$folder.sums"
  done
  cmp "$1.sums" "$2.sums"
  echo "equal: $(wc -l < "$1.sums") files"
}

# A tokenization and a training of two ranks on two nodes, as the rest of a job.
training() {
  cat <<TABLES
[tokenize]
tokenizer = { train = { kind = "bpe", vocab = 512 } }
inputs = [{ path = "$repository/pipelines/jobs/tiny/data/pile-00001.jsonl.zst", source = "pile" }]
[blend]
seq_length = 64
split = "95,5,0"
dataset = [{ name = "pile" }]
[model]
family = "llama"
layers = 2
d_model = 64
heads = 4
[parallel]
dp = 2
[nodes]
count = 2
fewest = 1
check_s = 20
[launch]
timeout = "30s"
[train]
steps = 240
global_batch = 4
micro_batch = 1
eval_every = 0
checkpoint = { every = 50, keep = 2 }
[eval]
samples = 4
TABLES
}

# Steps that a training has done.
steps_done() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }

# Fails unless two folders of a training hold the same weights and moments; state.json names the layout.
compare_training() {
  local folder
  for folder in "$@"; do
    (cd "$folder/checkpoints/step-00000240" && find . -type f -not -name state.json | sort | xargs sha256sum) > "$folder.sums"
  done
  cmp "$1.sums" "$2.sums"
  echo "equal: $(wc -l < "$1.sums") files of the last checkpoint"
}

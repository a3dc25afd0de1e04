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

//! `export`: the documents that the tokenizer reads, in files with one schema, the same bytes after a kill, and nothing lost
//! silently.

use crate::jobs::{assert_same, data, millrace, output, succeed};
use index::dataset::Dataset;
use index::tokenizer::Tokenizer;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: [&str; 7] = [
    "id", "text", "url", "source", "subset", "language", "metadata",
];

/// A job of two sources whose lines are deduplicated: some documents go, others are cut.
fn curated(folder: &Path) -> PathBuf {
    let text = format!(
        "name = \"exported\"\nout = {out:?}\n[curate]\ninputs = [\n\
         {{ path = {crawl:?}, format = \"warc\", source = \"crawl\" }},\n\
         {{ path = {pile:?}, format = \"jsonl\", source = \"pile\" }},\n]\n\
         step = [{{ extract = {{}} }}]\n[dedup]\nexact = {{}}\nlines = {{}}\n\
         [tokenize]\ntokenizer = {{ train = {{ kind = \"bpe\", vocab = 300 }} }}\nappend_eod = false\n",
        out = folder.join("out"),
        crawl = data("crawl-00000.warc.gz"),
        pile = data("pile-00000.jsonl.zst"),
    );
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    succeed(&["curate", path.to_str().unwrap()]);
    succeed(&["dedup", path.to_str().unwrap()]);
    path
}

fn export<'a>(job: &'a Path, form: &'a str, out: &'a Path) -> Vec<&'a str> {
    let (job, out) = (job.to_str().unwrap(), out.to_str().unwrap());
    vec!["export", job, "--to", form, out, "--file-mb", "1"]
}

fn files(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out.join("data")).unwrap().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    found.sort();
    found
}

type Row = Vec<Option<String>>;

/// Rows of JSON lines; each must have every field, in order.
fn line_rows(out: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for file in files(out) {
        let text = zstd::decode_all(&*fs::read(file).unwrap()).unwrap();
        for line in String::from_utf8(text).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let mut places = COLUMNS.map(|name| line.find(&format!("\"{name}\":")).unwrap());
            assert!(places.is_sorted(), "{line}");
            places.sort_unstable();
            assert_eq!(value.as_object().unwrap().len(), COLUMNS.len());
            let cell = |name: &&str| value[*name].as_str().map(str::to_string);
            rows.push(COLUMNS.iter().map(cell).collect());
        }
    }
    rows
}

/// Rows of Parquet; every file must have the schema.
fn parquet_rows(out: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for file in files(out) {
        let reader = SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).collect();
        assert_eq!(names, COLUMNS);
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let cell = |(_, field): (&String, &Field)| match field {
                Field::Str(text) => Some(text.clone()),
                Field::Null => None,
                other => panic!("{other:?}"),
            };
            rows.push(row.get_column_iter().map(cell).collect());
        }
    }
    rows
}

/// Texts of the job's token datasets by source, decoded.
fn tokenized(job: &Path, out: &Path) -> BTreeMap<String, Vec<String>> {
    succeed(&["tokenize", job.to_str().unwrap()]);
    let tokenizer = Tokenizer::load(&out.join("tokens/tokenizer.json")).unwrap();
    ["crawl", "pile"]
        .map(|source| {
            let dataset = Dataset::open(&out.join("tokens").join(source)).unwrap();
            let texts = (0..usize::try_from(dataset.sequences()).unwrap()).map(|i| {
                let mut ids = vec![0; dataset.length(i) as usize];
                dataset.read(i, 0, &mut ids).unwrap();
                tokenizer.decode(&ids).unwrap()
            });
            (source.to_string(), texts.collect())
        })
        .into()
}

#[test]
fn every_form_has_the_texts_that_the_tokenizer_reads_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let job = curated(dir.path());
    let out = |name: &str| dir.path().join(name);
    let [lines, table, hub] = ["lines", "table", "hub"].map(out);
    succeed(&export(&job, "jsonl.zst", &lines));
    succeed(&export(&job, "parquet", &table));
    succeed(&export(&job, "hf", &hub));
    let rows = line_rows(&lines);
    assert_eq!(parquet_rows(&table), rows);
    assert_eq!(parquet_rows(&hub), rows);
    assert!(files(&lines).len() > 1, "one file shows no cut");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &rows {
        let source = row[3].clone().unwrap();
        texts
            .entry(source)
            .or_default()
            .push(row[1].clone().unwrap());
    }
    assert_eq!(texts, tokenized(&job, &out("out")));
    // no language step ran: the column is there, and null
    assert!(rows.iter().all(|row| row[5].is_none()));
    let card = fs::read_to_string(hub.join("README.md")).unwrap();
    assert!(
        card.starts_with("---\npretty_name: \"exported\"\n"),
        "{card}"
    );
    for wanted in [
        "## Counts",
        "## Licences",
        "## Personal data",
        "## Robots",
        "## Filters",
    ] {
        assert!(card.contains(wanted), "{wanted}: {card}");
    }
    let record = fs::read_to_string(out("out").join("manifest.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let kept = record["dedup"]["counts"]["kept"].as_u64().unwrap();
    let exported = fs::read_to_string(hub.join("export.json")).unwrap();
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["counts"]["documents"], kept);
    assert_eq!(exported["counts"]["rows"], rows.len());
    let lost = exported["counts"]["emptied"].as_u64().unwrap();
    assert!(rows.len() as u64 >= kept - lost);
}

#[test]
fn a_killed_export_started_again_and_one_of_other_threads_have_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let job = curated(dir.path());
    let [calm, killed, one] = ["calm", "killed", "one"].map(|n| dir.path().join(n));
    succeed(&export(&job, "parquet", &calm));
    let mut kills = 0;
    // the process may end before it is killed
    for _ in 0..20 {
        let _ = fs::remove_dir_all(&killed);
        let mut child = millrace(&export(&job, "parquet", &killed)).spawn().unwrap();
        let record = killed.join(".millrace-export/00000.json");
        while !record.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if !killed.join("export.json").exists() && record.exists() {
            kills += 1;
            break;
        }
    }
    assert_eq!(kills, 1, "no export was killed in its middle");
    let first = fs::metadata(killed.join("data/00000.parquet")).unwrap();
    succeed(&export(&job, "parquet", &killed));
    assert_same(&calm, &killed, 4, "a killed export");
    // the file that was finished before the kill was not written again
    let again = fs::metadata(killed.join("data/00000.parquet")).unwrap();
    assert_eq!(first.modified().unwrap(), again.modified().unwrap());
    assert!(!killed.join(".millrace-export").exists());
    let mut args = export(&job, "parquet", &one);
    args.extend(["--set", "threads=1"]);
    succeed(&args);
    assert_same(&calm, &one, 4, "one thread");
}

#[test]
fn a_job_that_is_not_as_it_was_recorded_and_a_folder_in_use_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let job = curated(dir.path());
    let out = dir.path().join("out");
    let other = dir.path().join("other");
    let refused = |code: i32, wanted: &str| {
        let found = output(&export(&job, "parquet", &other));
        let stderr = String::from_utf8_lossy(&found.stderr).into_owned();
        assert_eq!(found.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(wanted), "{wanted}: {stderr}");
    };
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine.txt"), "x").unwrap();
    refused(2, "is not empty");
    assert!(!other.join("data").exists());
    fs::remove_file(other.join("mine.txt")).unwrap();
    // a record that promises another number of documents than the shard and its list have
    let manifest = out.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let mut records: Value = serde_json::from_str(&text).unwrap();
    let kept = &mut records["dedup"]["counts"]["kept_per_shard"][0];
    *kept = (kept.as_u64().unwrap() + 1).into();
    fs::write(&manifest, records.to_string()).unwrap();
    refused(1, "shard 00000 has");
    assert!(!other.join("export.json").exists());
    fs::write(&manifest, text).unwrap();
    // a shard that was changed behind the record's back
    let shard = out.join("clean/00000.jsonl.zst");
    let mut bytes = fs::read(&shard).unwrap();
    bytes.push(0);
    fs::write(&shard, bytes).unwrap();
    refused(1, "the files of curate/00000 are not those of its record");
}

/// The data card of a job that changed after it ran would name steps that never ran, and its keep lists are those of
/// other documents.
#[test]
fn a_job_that_changed_is_exported_only_after_it_ran_again() {
    let dir = tempfile::tempdir().unwrap();
    let job = curated(dir.path());
    let name = job.to_str().unwrap();
    let text = fs::read_to_string(&job).unwrap();
    let step = "{ expression = { name = \"long\", keep = \"chars > 400\" } }";
    let changed = text.replace(
        "[{ extract = {} }]",
        &format!("[{{ extract = {{}} }}, {step}]"),
    );
    fs::write(&job, &changed).unwrap();
    let out = dir.path().join("lines");
    let refused = |args: &[&str], why: &str| {
        let found = output(args);
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(!found.status.success() && said.contains(why), "{said}");
    };
    refused(
        &export(&job, "jsonl.zst", &out),
        "curate/00000 ran with other settings",
    );
    assert!(!out.exists());
    succeed(&["curate", name]);
    let why = "dedup ran over other documents; run `millrace dedup`";
    refused(&export(&job, "jsonl.zst", &out), why);
    refused(&["tokenize", name], why);
    succeed(&["dedup", name]);
    succeed(&export(&job, "jsonl.zst", &out));
    fs::write(&job, changed.replace("lines = {}", "url = {}")).unwrap();
    refused(
        &export(&job, "parquet", &dir.path().join("table")),
        "dedup ran with other settings",
    );
}

#[test]
fn a_verb_without_its_table_is_wrong_use_and_no_failed_stage() {
    let dir = tempfile::tempdir().unwrap();
    let job = curated(dir.path());
    let found = output(&["eval", job.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(2));
    assert!(!dir.path().join("out/records/failed/eval.json").exists());
}

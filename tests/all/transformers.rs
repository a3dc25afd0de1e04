//! Tests of transformer classifiers in a curation, from the command line: transformers' scores in the documents, the same bytes
//! for every division into tasks and after kills, folders that are refused.

use crate::jobs::{assert_same, data, killed_once, output, root, succeed};
use serde_json::Value;
use std::io::BufRead;
use std::path::{Path, PathBuf};

fn model(name: &str) -> PathBuf {
    root().join("tests/data/classifiers").join(name)
}

/// A job over the texts of `path` with three models.
fn job(folder: &Path, path: &Path) -> PathBuf {
    let text = format!(
        r#"
name = "classified"
out = {out:?}
[curate]
figures = true
inputs = [{{ path = {path:?}, source = "texts" }}]
[[curate.step]]
length = {{ max_chars = 100000 }}
[[curate.step]]
classifier = {{ name = "edu", model = {bert:?}, batch_tokens = 512, buckets = [-0.3, -0.1, 0.0, 0.2] }}
[[curate.step]]
pii = {{}}
[[curate.step]]
classifier = {{ name = "domain", model = {deberta:?}, max_tokens = 32, keep = ["News", "Science"] }}
[[curate.step]]
classifier = {{ name = "safety", model = {roberta:?}, dtype = "bf16", label = "toxic", max_score = 0.999, buckets = [0.1, 0.5], levels = [1, 2, 2, 2] }}
"#,
        out = folder.join("out"),
        bert = model("bert"),
        deberta = model("deberta_v3"),
        roberta = model("roberta"),
    );
    let job = folder.join("job.toml");
    std::fs::write(&job, text).unwrap();
    job
}

fn run(job: &Path, name: &str, sets: &[&str]) -> PathBuf {
    let out = job.with_file_name(name);
    let set = format!("out={out:?}");
    let mut args = vec!["curate", job.to_str().unwrap(), "--set", &set];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    succeed(&args);
    out
}

fn kept(out: &Path) -> Vec<Value> {
    let bytes = std::fs::read(out.join("clean/00000.jsonl.zst")).unwrap();
    let bytes = zstd::decode_all(&bytes[..]).unwrap();
    let lines = bytes.lines();
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

#[test]
fn documents_have_the_scores_of_transformers() {
    let dir = tempfile::tempdir().unwrap();
    let goldens = |name: &str| -> Vec<Value> {
        let text = std::fs::read(model(name).join("golden.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let bert = goldens("bert");
    let texts = dir.path().join("texts.jsonl");
    let lines = bert.iter().enumerate();
    let lines: String = lines
        .map(|(i, row)| {
            format!(
                "{}\n",
                serde_json::json!({"id": i.to_string(), "text": row["text"]})
            )
        })
        .collect();
    std::fs::write(&texts, lines).unwrap();
    let step = format!(
        "curate.step=[{{classifier={{name=\"edu\",model={:?}}}}}]",
        model("bert")
    );
    let xlm = format!(
        "curate.step=[{{classifier={{name=\"edu\",model={:?},label=\"high\"}}}}]",
        model("xlm")
    );
    let job = job(dir.path(), &texts);
    for (name, step) in [("bert", step), ("xlm", xlm)] {
        let goldens = goldens(name);
        let documents = kept(&run(&job, name, &[&step]));
        // a document without a character is dropped after the steps
        assert_eq!(documents.len(), goldens.len() - 1);
        for document in &documents {
            let number: usize = document["id"].as_str().unwrap().parse().unwrap();
            let logits = goldens[number]["exact"].as_array().unwrap();
            let logits: Vec<f64> = logits.iter().map(|x| x.as_f64().unwrap()).collect();
            let wanted = match logits[..] {
                [score] => score,
                _ => {
                    let sum: f64 = logits.iter().map(|x| x.exp()).sum();
                    logits[2].exp() / sum
                }
            };
            let found = document["meta"]["classifier_edu"].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-4, "{name}: {found} {wanted}");
        }
    }
}

/// Real texts, several batches of them.
fn texts(folder: &Path) -> PathBuf {
    let packed = std::fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let texts = zstd::decode_all(&packed[..]).unwrap();
    let path = folder.join("texts.jsonl");
    std::fs::write(&path, texts.repeat(2)).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 4 << 20);
    path
}

#[test]
fn tasks_threads_batches_and_kills_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), &texts(dir.path()));
    let journal = "curate.journal_mb=0";
    let calm = run(&job, "calm", &["threads=1", journal]);
    let documents = kept(&calm);
    assert!(documents.len() > 100);
    let meta = &documents[0]["meta"];
    for key in [
        "classifier_edu",
        "classifier_domain_label",
        "classifier_safety_scores",
        "quality_bucket",
        "quality_level",
    ] {
        assert!(!meta[key].is_null(), "{key}: {meta}");
    }
    let parts = ["threads=2", "curate.tasks=3", journal];
    assert_same(&calm, &run(&job, "other", &parts), 6, "threads and tasks");
    let killed = job.with_file_name("killed");
    let file = killed.join("records/curate/00000.journal");
    let length = || std::fs::metadata(&file).map_or(0, |m| m.len());
    let out = format!("out={killed:?}");
    let args = [
        "curate",
        job.to_str().unwrap(),
        "--set",
        &out,
        "--set",
        journal,
    ];
    // a process may end before its kill: then both once more
    let are_killed = (0..10).any(|_| {
        let _ = std::fs::remove_dir_all(&killed);
        let mut sizes = [1 << 19, 3 << 19].into_iter();
        sizes.all(|least| killed_once(&args, || length() >= least))
    });
    assert!(are_killed, "they ended before their kills");
    run(&job, "killed", &[journal]);
    assert_same(&calm, &killed, 6, "a calm run and one killed in its shard");
}

/// Texts that differ in case alone have one embedding, as the tokenizer lowers it; others are far from each other.
#[test]
fn documents_with_the_same_embedding_are_removed_and_the_embeddings_stay() {
    let dir = tempfile::tempdir().unwrap();
    let texts = dir.path().join("texts.jsonl");
    let line = |id: &str, text: &str| serde_json::json!({"id": id, "text": text}).to_string();
    let lines = [
        line(
            "river",
            "The people of the town walk to the river before it is dark.",
        ),
        line(
            "light",
            "Photosynthesis turns light, water and carbon dioxide into sugar.",
        ),
        line(
            "RIVER",
            "THE PEOPLE OF THE TOWN WALK TO THE RIVER BEFORE IT IS DARK.",
        ),
        line(
            "sugar",
            "a page about prices, cookies and the terms of a shop",
        ),
    ];
    std::fs::write(&texts, lines.join("\n") + "\n").unwrap();
    let embedder = root().join("tests/data/embedders/bare");
    let text = format!(
        r#"
name = "semantic"
out = {out:?}
[curate]
inputs = [{{ path = {texts:?}, source = "texts" }}]
[dedup]
exact = {{}}
semantic = {{ model = {embedder:?}, min_similarity = 0.9999, clusters = 1, keep = "first" }}
"#,
        out = dir.path().join("out"),
    );
    let job = dir.path().join("job.toml");
    std::fs::write(&job, text).unwrap();
    let run = |sets: &[&str]| {
        let mut args = vec!["run", job.to_str().unwrap()];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        String::from_utf8_lossy(&succeed(&args).stderr).into_owned()
    };
    let said = run(&[]);
    let wanted = "1 of nearly the same embedding in 1 clusters, 3 kept";
    assert!(said.contains(wanted), "{said}");
    let dropped = std::fs::read_to_string(dir.path().join("out/keep/dropped.jsonl")).unwrap();
    let dropped: Value = serde_json::from_str(dropped.trim()).unwrap();
    assert_eq!(dropped["document"], 2);
    assert_eq!(dropped["rule"], "semantic.min_similarity");
    succeed(&["report", job.to_str().unwrap()]);
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    let (_, section) = page.split_once("Alike in meaning").unwrap();
    let cells: Vec<&str> = section.split("<td").skip(1).take(5).collect();
    for (cell, wanted) in cells.iter().zip(["1", "4", "0", "1", "4"]) {
        assert!(cell.contains(&format!(">{wanted}<")), "{cells:?}");
    }
    let embeddings = dir.path().join("out/embeddings/00000.emb");
    let made = std::fs::metadata(&embeddings).unwrap().modified().unwrap();
    // another limit: the stage runs again, and the model does not
    assert!(run(&["dedup.semantic.min_similarity=0.99999"]).contains("dedup: 4 documents"));
    let found = std::fs::metadata(&embeddings).unwrap().modified().unwrap();
    assert_eq!(found, made);
    let found = succeed(&["inspect", embeddings.to_str().unwrap(), "--json"]).stdout;
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(
        (&found["embeddings"], &found["width"]),
        (&4.into(), &32.into()),
        "{found}"
    );
    let text = run(&[]);
    assert!(text.contains("3 kept"), "{text}");
    // what is taken down is not left in the embeddings
    let list = dir.path().join("list.txt");
    std::fs::write(&list, "id:river\n").unwrap();
    let out = dir.path().join("out");
    succeed(&[
        "takedown",
        list.to_str().unwrap(),
        "--corpus",
        out.to_str().unwrap(),
    ]);
    assert!(!out.join("embeddings").exists());
    let keep = out.join("keep/00000.keep");
    let found = succeed(&["inspect", keep.to_str().unwrap(), "--json"]).stdout;
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(
        (&found["kept"], &found["semantic"]),
        (&2.into(), &1.into()),
        "{found}"
    );
    let set = format!("dedup.semantic.model={:?}", dir.path());
    let refused = output(&["run", job.to_str().unwrap(), "--set", &set]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("config.json"),
        "{said}"
    );
}

#[test]
fn models_that_are_not_run_are_refused_before_any_text_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let texts = dir.path().join("texts.jsonl");
    std::fs::write(&texts, "{\"text\": \"a river\"}\n").unwrap();
    let job = job(dir.path(), &texts);
    let copy = dir.path().join("model");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(model("bert")).unwrap().flatten() {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let config = copy.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("\"gelu\"", "\"mish\"")).unwrap();
    let step = format!("curate.step=[{{classifier={{name=\"m\",model={copy:?}}}}}]");
    let absent = "curate.step=[{classifier={name=\"m\",model=\"no/such/folder\"}}]".to_string();
    let unknown = format!(
        "curate.step=[{{classifier={{name=\"m\",model={:?},label=\"x\"}}}}]",
        model("xlm")
    );
    for (step, wanted) in [
        (step, "hidden_act: found mish, want gelu"),
        (absent, "no/such/folder"),
        (unknown, "found \"x\", wanted one of the labels of"),
    ] {
        let out = output(&["curate", job.to_str().unwrap(), "--set", &step]);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && stderr.contains(wanted), "{stderr}");
    }
}

#[test]
fn scores_of_a_sample_part_it_into_buckets_of_one_size() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts(dir.path());
    let of = |name: &str, more: &[&str]| -> Value {
        let model = model(name);
        let mut args = vec!["classifier", "score", "--model", model.to_str().unwrap()];
        args.extend(more);
        args.push(texts.to_str().unwrap());
        serde_json::from_slice(&succeed(&args).stdout).unwrap()
    };
    let report = of("bert", &["--buckets", "4"]);
    let edges: Vec<f64> = serde_json::from_value(report["buckets"].clone()).unwrap();
    assert_eq!(edges.len(), 3);
    // the job's step agrees: a quarter of the texts in each bucket, up to equal texts
    let job = job(dir.path(), &texts);
    let step = format!(
        "curate.step=[{{classifier={{name=\"m\",model={:?},buckets={edges:?}}}}}]",
        model("bert")
    );
    let mut counts = [0u64; 4];
    for document in kept(&run(&job, "parted", &[&step])) {
        counts[usize::try_from(document["meta"]["quality_bucket"].as_u64().unwrap()).unwrap()] += 1;
    }
    let all: u64 = counts.iter().sum();
    assert_eq!(report["documents"], all);
    for count in counts {
        assert!(count.abs_diff(all / 4) <= all / 20, "{counts:?}");
    }
    let highest = of("roberta", &[]);
    assert_eq!(highest["label"], "highest");
    let labels = highest["labels"].as_array().unwrap();
    let sum: u64 = labels.iter().map(|label| label[1].as_u64().unwrap()).sum();
    assert_eq!(highest["documents"], sum);
}

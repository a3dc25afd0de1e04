//! Expressions through whole jobs: dolma's configurations as jobs, groups in the report, datasets by a condition.

use crate::jobs::{millrace, succeed};
use serde_json::{Value, json};
use std::path::Path;

/// Documents and attributes in dolma's layout.
fn dolma(folder: &Path) {
    let (mut documents, mut attributes) = (String::new(), String::new());
    for i in 0..40 {
        let site = ["a", "b", "c"][i % 3];
        let text = format!("Document {i} of the site {site} says the same thing as before.");
        let id = format!("d{i}");
        let record =
            json!({"id": id, "text": text, "source": "web", "metadata": {"site": site, "n": i}});
        documents += &format!("{record}\n");
        let record = json!({"id": id, "attributes": {"score": [[0, 8, i as f64 / 40.0]]}});
        attributes += &format!("{record}\n");
    }
    for (name, text) in [("documents", documents), ("attributes/quality", attributes)] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("x.jsonl"), text).unwrap();
    }
}

#[test]
fn a_configuration_of_dolmas_mixer_becomes_a_job_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    dolma(folder.path());
    let at = folder.path().display();
    let config = folder.path().join("mixer.yaml");
    let text = format!(
        "streams:\n- name: web\n  documents: ['{at}/documents/*.jsonl']\n  attributes: [quality]\n  \
         output: {{path: '{at}/out', max_size_in_bytes: 1_000, discard_fields: [attributes]}}\n  \
         filter: {{include: ['$.metadata[?(@.n < 30)]'], exclude: ['$.attributes[?(@.score[0][2] < 0.25)]']}}\n  \
         span_replacement: [{{span: $.attributes.score, min_score: 0.5, replacement: '[{{}}]'}}]\nprocesses: 2\n"
    );
    std::fs::write(&config, text).unwrap();
    let job = folder.path().join("job.toml");
    let (config, job) = (config.to_str().unwrap(), job.to_str().unwrap());
    let told = millrace(&["mixer", config, "--out", job]).output().unwrap();
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("no part of the job: processes"), "{told}");
    assert!(told.contains("max_size_in_bytes"), "{told}");
    let printed = String::from_utf8(succeed(&["mixer", config]).stdout).unwrap();
    assert_eq!(printed, std::fs::read_to_string(job).unwrap());
    succeed(&["curate", job]);
    let out = folder.path().join("out");
    let documents = curate::corpus::documents(&out, 0).unwrap();
    let kept: Vec<curate::corpus::CleanDocument> = documents.map(Result::unwrap).collect();
    // 0.25 to 30 / 40, of which the first half is below 0.5
    assert_eq!(kept.len(), 20);
    assert_eq!(kept[0].id, "d10");
    assert!(kept[0].text.starts_with("Document 10 of"));
    assert!(
        kept[10].text.starts_with("[Document] 20 of"),
        "{}",
        kept[10].text
    );
    assert_eq!(
        kept[0].meta,
        Some(json!({"site": "b", "n": 10, "source": "web"}))
    );
}

#[test]
fn a_configuration_without_a_counterpart_is_refused_with_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mixer.yaml");
    let text = "streams:\n- name: web\n  documents: [x]\n  output: {path: o}\n  filter: {exclude: ['$..a', '$.b.*']}\n";
    std::fs::write(&config, text).unwrap();
    let output = millrace(&["mixer", config.to_str().unwrap()])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    for part in [
        "mixer.yaml",
        "streams[0].filter.exclude[0]",
        "descent",
        "streams[0].filter.exclude[1]",
        "wildcards",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn datasets_by_a_condition_make_groups_for_the_blend_and_the_report_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    dolma(folder.path());
    let job = folder.path().join("job.toml");
    let text = format!(
        r#"
name = "fields"
out = {out:?}
[curate]
inputs = [{{ path = {documents:?}, format = "dolma", attributes = ["quality"], source = "web" }}]
step = [
  {{ group = {{ name = "site", by = "meta.site" }} }},
  {{ expression = {{ name = "score", keep = "attributes.score[0][2] >= 0.1" }} }},
  {{ tag = {{ set = {{ is_good = "attributes.score[0][2] > 0.5" }}, drop = ["attributes"] }} }},
]
[tokenize]
tokenizer = {{ train = {{ vocab = 300 }} }}
dataset = [
  {{ name = "good", sources = ["web"], where = "meta.is_good" }},
  {{ name = "a", sources = ["web"], where = "meta.site == 'a' and not meta.is_good" }},
]
[report]
"#,
        out = folder.path().join("out"),
        documents = folder.path().join("documents"),
    );
    std::fs::write(&job, text).unwrap();
    let path = job.to_str().unwrap();
    succeed(&["run", path]);
    let out = folder.path().join("out");
    let documents = |name: &str| {
        let index = out.join(format!("tokens/{name}.idx"));
        let told = succeed(&["inspect", index.to_str().unwrap(), "--json"]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        told["documents"].as_u64().unwrap()
    };
    // d21 to d39; d6, d9, d12, d15 and d18
    assert_eq!((documents("good"), documents("a")), (19, 5));
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("<h3>site</h3>") && report.contains("expression.score (2)"));
    let job = std::fs::read_to_string(&job).unwrap();
    std::fs::write(path, job.replace("meta.is_good\"", "is_good > 1\"")).unwrap();
    let output = millrace(&["tokenize", path]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("tokenize.dataset[0].where") && told.contains("\"is_good\""),
        "{told}"
    );
}

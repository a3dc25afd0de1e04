//! Names that a job's steps and inputs use: wrong ones and missing files are problems of the job, all of them at once,
//! and fields that no document has are noted after the run.

use crate::jobs::{output, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A job over four documents with these steps, one to a line from line 6 on.
fn job(folder: &Path, steps: &[&str], rest: &str) -> PathBuf {
    let documents = folder.join("in.jsonl");
    let lines: Vec<String> = (0..4)
        .map(|i| {
            let text = format!("A small document, number {i}, with some words.");
            let line = json!({"id": format!("d{i}"), "body": text, "score": i, "host": "a.org"});
            line.to_string()
        })
        .collect();
    std::fs::write(&documents, lines.join("\n")).unwrap();
    let steps: Vec<String> = steps
        .iter()
        .map(|step| format!("  {{ {step} }},"))
        .collect();
    let text = format!(
        "name = 'a'\nout = {:?}\n[curate]\ninputs = [{{ path = {documents:?}, text_key = ['body', 'nope'], keep_fields = ['score', 'scoer'] }}]\nstep = [\n{}\n]\n{rest}",
        folder.join("out"),
        steps.join("\n")
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Line of the file, key and found value of each problem that is printed.
fn problems(args: &[&str]) -> Vec<(usize, String, String)> {
    let printed = output(args);
    let text = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(2), "{text}");
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(file) = line.strip_prefix("  file   ") else {
            continue;
        };
        let number = file
            .rsplit(':')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let key = lines.next().unwrap().trim_start_matches("  key    ");
        let what = lines.next().unwrap().trim_start_matches("  found  ");
        let wanted = lines.next().unwrap();
        assert!(
            wanted.starts_with("  wanted ") && wanted.len() > 10,
            "{text}"
        );
        found.push((number, key.to_string(), what.to_string()));
    }
    found
}

#[test]
fn every_misspelt_name_in_a_step_is_a_problem_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let steps = [
        "expression = { name = 'a', keep = 'charz > 5 and language == \"en\"' }",
        "gopher_quality = {}",
        "expression = { name = 'b', keep = 'gopher_quality.short_dco > 1 and gopher_quality.short_doc > 1' }",
        "expression = { name = 'c', keep = 'score > 0.5 or mata.host == \"a\"' }",
        "sample = { name = 'd', weight = 'scoree' }",
        "group = { name = 'e', by = 'hosts' }",
        "tag = { set = { n = 'chras' }, where = 'language_confidence > 0.5' }",
        "quality = { name = 'q', model = 'none.bin', label = 'hq' }",
        "expression = { name = 'f', keep = 'quality.q.score > 0.5 and quality.score > 0.5' }",
    ];
    let rest = "[tokenize]\ntokenizer = { train = { kind = 'bpe', vocab = 300 } }\n[[tokenize.dataset]]\nname = 'x'\nwhere = \"hots == 'a.org'\"\n";
    let path = job(folder.path(), &steps, rest);
    let path = path.to_str().unwrap();
    for args in [
        &["run", path, "--check"][..],
        &["run", path],
        &["curate", path],
    ] {
        let found = problems(args);
        let keys: Vec<(usize, &str)> = found.iter().map(|p| (p.0, p.1.as_str())).collect();
        assert_eq!(
            keys,
            [
                (6, "curate.step[0].expression.keep"),
                (6, "curate.step[0].expression.keep"),
                (8, "curate.step[2].expression.keep"),
                (9, "curate.step[3].expression.keep"),
                (9, "curate.step[3].expression.keep"),
                (10, "curate.step[4].sample.weight"),
                (11, "curate.step[5].group.by"),
                (12, "curate.step[6].tag.set.n"),
                (12, "curate.step[6].tag.where"),
                (14, "curate.step[8].expression.keep"),
                (20, "tokenize.dataset[0].where"),
                (13, "curate.step[7].quality.model"),
            ],
            "{args:?}: {found:?}"
        );
        let what: Vec<&str> = found.iter().map(|p| p.2.as_str()).collect();
        assert_eq!(what[0], "\"charz\"; did you mean \"chars\"?");
        assert_eq!(what[1], "\"language\"");
        assert!(what[2].starts_with(
            "\"gopher_quality.short_dco\"; did you mean \"gopher_quality.short_doc\""
        ));
        assert!(what[3].starts_with("\"mata.host\"; did you mean \"meta.host\""));
        assert!(what[4].starts_with("\"score\""));
        assert_eq!(what[6], "\"hosts\"; did you mean \"host\"?");
        assert!(what[9].starts_with("\"quality.score\"; did you mean \"quality.q.score\""));
        assert_eq!(what[10], "\"hots\"; did you mean \"host\"?");
    }
}

#[test]
fn every_missing_model_and_list_is_a_problem_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let steps = [
        "language = { model = 'no.bin' }",
        "quality = { model = 'in.jsonl', label = 'hq' }",
        "classifier = { name = 'c', model = 'no' }",
        "perplexity = { model = 'no.arpa' }",
        "dsir = { model = 'no.dsir' }",
        "url = { lists = ['in.jsonl', 'no.txt'] }",
        "opt_out = { list = 'no.txt' }",
        "bad_words = { lists = 'no' }",
        "expression = { name = 'a', keep = 'charz > 1' }",
    ];
    let path = job(folder.path(), &[], "");
    let documents = folder.path().join("in.jsonl");
    let named: Vec<String> = (steps.iter())
        .map(|step| step.replace("in.jsonl", documents.to_str().unwrap()))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    job(folder.path(), &named, "");
    let path = path.to_str().unwrap();
    for args in [
        &["curate", path, "--check"][..],
        &["run", path],
        &["curate", path],
    ] {
        let found = problems(args);
        let keys: Vec<(usize, &str)> = found.iter().map(|p| (p.0, p.1.as_str())).collect();
        assert_eq!(
            keys,
            [
                (14, "curate.step[8].expression.keep"),
                (6, "curate.step[0].language.model"),
                (7, "curate.step[1].quality.model"),
                (8, "curate.step[2].classifier.model"),
                (9, "curate.step[3].perplexity.model"),
                (10, "curate.step[4].dsir.model"),
                (11, "curate.step[5].url.lists[1]"),
                (12, "curate.step[6].opt_out.list"),
                (13, "curate.step[7].bad_words.lists"),
            ],
            "{args:?}: {found:?}"
        );
        assert_eq!(found[1].2, "\"no.bin\": no such file");
        // documents are no model
        assert!(
            found[2].2.contains("a file that starts with \"{"),
            "{found:?}"
        );
    }
    assert!(!folder.path().join("out/clean").exists());
}

#[test]
fn steps_that_ask_for_languages_come_after_the_step_that_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let early = [
        "fineweb2 = { language = 'document' }",
        "language = {}",
        "gopher_quality = { language = 'document' }",
    ];
    let path = job(folder.path(), &early, "");
    let path = path.to_str().unwrap().to_string();
    for args in [&["curate", &path, "--check"][..], &["curate", &path]] {
        let found = problems(args);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].0, found[0].1.as_str()),
            (6, "curate.step[0].fineweb2.language")
        );
        assert!(found[0].2.contains("before step[1].language"), "{found:?}");
    }
    let without = [
        "gopher_quality = { language = 'document' }",
        "gopher_repetition = { language = 'document' }",
        "fineweb = { language = 'document' }",
    ];
    job(folder.path(), &without, "");
    assert_eq!(problems(&["curate", &path, "--check"]).len(), 3);
}

#[test]
fn names_that_no_document_has_are_told_whatever_the_number_of_tasks() {
    let notes = |tasks: usize| {
        let folder = tempfile::tempdir().unwrap();
        let steps = [
            "expression = { name = 'a', keep = 'meta.score < 3' }",
            "tag = { set = { copy = 'meta.scoer', real = 'meta.score' } }",
        ];
        let rest = format!(
            "[tokenize]\ntasks = {tasks}\ntokenizer = {{ train = {{ kind = 'bpe', vocab = 300 }} }}\n[[tokenize.dataset]]\nname = 'x'\nwhere = 'meta.scoer > 1 or meta.score > 1'\n[report]\n"
        );
        let path = job(folder.path(), &steps, &rest);
        let path = path.to_str().unwrap();
        let printed = String::from_utf8(succeed(&["run", path]).stderr).unwrap();
        let report = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
        assert!(report.contains("Fields that no document has"), "{report}");
        let manifest = std::fs::read(folder.path().join("out/manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let counts = &manifest["curate"]["counts"]["fields"]["step[1].tag.set.real"];
        assert_eq!(
            counts["meta.score"],
            json!({"documents": 3, "with_value": 3})
        );
        let notes = printed.lines().filter(|line| line.contains(": note: "));
        notes.map(str::to_string).collect::<Vec<String>>()
    };
    let found = notes(1);
    assert_eq!(
        found,
        [
            "curate: note: curate.inputs[0].keep_fields: scoer has no value in any of 4 documents",
            "curate: note: curate.inputs[0].text_key: nope has no value in any of 4 documents",
            "curate: note: curate.step[1].tag.set.copy: meta.scoer has no value in any of 3 documents",
            "tokenize/x: note: where: meta.scoer has no value in any of 3 documents",
        ]
    );
    assert_eq!(notes(2), found);
}

//! Expressions over everything that a record has, and the steps that use them, through the whole chain.

use std::io::Write;
use std::path::Path;

use curate::corpus::{CleanDocument, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, Step, shards};
use curate::read::{Format, Input};
use curate::{Error, Silent};
use serde_json::{Value, json};

fn steps(steps: Value) -> Vec<Step> {
    serde_json::from_value(steps).unwrap()
}

/// Runs steps over records of JSON lines.
fn run(records: &[Value], step: Value) -> Result<(ShardReport, Vec<CleanDocument>, String), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    records.iter().for_each(|r| writeln!(file, "{r}").unwrap());
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            source: "s".to_string(),
            ..Input::default()
        }],
        step: steps(step),
        ..CurateConfig::default()
    };
    let mut problems = Vec::new();
    config.check(&mut |k, f, w| problems.push(format!("{k}: found {f}, wanted {w}")));
    let found = run_config(&config, &folder.path().join("out"));
    // steps refuse no job that was found sound, and the other way round
    assert_eq!(problems.is_empty(), found.is_ok(), "{problems:?}");
    found
}

/// The report of a config, its documents, and what its first shard dropped.
fn run_config(
    config: &CurateConfig,
    out: &Path,
) -> Result<(ShardReport, Vec<CleanDocument>, String), Error> {
    let curator = Curator::new(config, None, None, 1)?;
    let mut sum = ShardReport::default();
    let mut found = Vec::new();
    for shard in shards(config)? {
        sum.merge(&curator.run_shard(&shard, out, &Silent)?);
        found.extend(documents(out, shard.number)?.map(Result::unwrap));
    }
    assert!(sum.adds_up());
    let dropped = std::fs::read(out.join("dropped/00000.jsonl.zst")).unwrap();
    let dropped = String::from_utf8(zstd::decode_all(&dropped[..]).unwrap()).unwrap();
    Ok((sum, found, dropped))
}

fn ids(documents: &[CleanDocument]) -> Vec<&str> {
    documents.iter().map(|d| d.id.as_str()).collect()
}

#[test]
fn conditions_read_fields_nested_fields_lists_and_the_languages_confidence() {
    let english = "The children play in the garden every day, and they like it.";
    let records = [
        json!({"id": "a", "text": english, "score": 0.9, "meta": {"tags": ["news"], "at": {"host": "x.org"}}}),
        json!({"id": "b", "text": english, "score": 0.2, "meta": {"tags": ["news"], "at": {"host": "x.org"}}}),
        json!({"id": "c", "text": english, "score": "0.9", "meta": {"tags": ["news"], "at": {"host": "x.org"}}}),
        json!({"id": "d", "text": english, "meta": {"tags": ["news"], "at": {"host": "x.org"}}}),
        json!({"id": "e", "text": english, "score": 1, "meta": {"tags": [], "at": {"host": "x.org"}}}),
        json!({"id": "f", "text": english, "score": 1, "meta": {"tags": ["news"], "at": {"host": "y.org"}}}),
        json!({"id": "g", "text": "12345 67890", "score": 1, "meta": {"tags": ["news"], "at": {"host": "x.org"}}}),
    ];
    let keep = "meta.score > 0.5 and 'news' in meta.tags and meta.at.host == 'x.org' and language_confidence > 0.3 \
                and source == 's' and id != 'z'";
    let step = json!([{"language": {}}, {"expression": {"name": "mine", "keep": keep}}]);
    let (report, kept, dropped) = run(&records, step).unwrap();
    assert_eq!(ids(&kept), ["a"]);
    assert_eq!(report.dropped["expression.mine"], 6);
    let confidence = kept[0].meta.as_ref().unwrap()["language_confidence"]
        .as_f64()
        .unwrap();
    assert!(confidence > 0.3 && confidence <= 1.0, "{confidence}");
    // what was compared is told, a text in its quotes
    for shown in [
        "meta.score=0.2",
        "meta.score=\\\"0.9\\\"",
        "meta.score=?",
        "meta.tags=[]",
        "meta.at.host=\\\"y.org\\\"",
    ] {
        assert!(dropped.contains(shown), "{shown}: {dropped}");
    }
}

#[test]
fn unknown_names_and_wrong_kinds_are_errors_of_the_job() {
    let wrong = |step: Value| {
        run(&[json!({"text": "a"})], step)
            .err()
            .unwrap()
            .to_string()
    };
    let why = wrong(json!([{"expression": {"name": "x", "keep": "score > 1"}}]));
    assert!(
        why.contains("step[0].expression.keep: found \"score\""),
        "{why}"
    );
    assert!(why.contains("meta.NAME"), "{why}");
    let why = wrong(json!([{"expression": {"name": "x", "keep": "language_confidence > 1"}}]));
    assert!(why.contains("a step `language` before this one"), "{why}");
    let why = wrong(json!([{"sample": {"name": "x", "weight": "quality.score"}}]));
    assert!(
        why.contains("step[0].sample.weight: found \"quality.score\""),
        "{why}"
    );
    let mut problems = Vec::new();
    let config = CurateConfig {
        step: steps(
            json!([{"expression": {"name": "x", "keep": "id > 3"}}, {"group": {"name": "", "by": "1 +"}},
            {"spans": {"replace": [{"spans": "", "with": "a", "with_value": "3"}], "where": "("}}]),
        ),
        ..CurateConfig::default()
    };
    config.check(&mut |key, found, _| problems.push(format!("{key}: {found}")));
    for wanted in [
        "step[0].expression.keep: byte 5: a number, \"3\"",
        "step[1].group.name: \"\"",
        "step[1].group.by: byte 3",
        "step[2].spans.replace[0].spans: byte 0",
        "step[2].spans.replace[0].with: \"a\" beside with_value",
        "step[2].spans.replace[0].with_value: byte 0: a number",
        "step[2].spans.where: byte 1",
    ] {
        assert!(
            problems.iter().any(|p| p.starts_with(wanted)),
            "{wanted}: {problems:#?}"
        );
    }
}

#[test]
fn tags_are_written_and_read_by_later_steps() {
    let records: Vec<Value> = (0..6)
        .map(|i| json!({"id": format!("d{i}"), "text": "word ".repeat(i + 1), "noise": [i]}))
        .collect();
    let step = json!([
        {"length": {}},
        {"tag": {"set": {"size": "length.min_chars", "is_long": "length(trim(text)) > 20"}, "drop": ["noise"]}},
        {"expression": {"name": "long", "keep": "meta.is_long or meta.size == 5"}},
    ]);
    let (_, kept, _) = run(&records, step).unwrap();
    assert_eq!(ids(&kept), ["d0", "d4", "d5"]);
    assert_eq!(kept[1].meta, Some(json!({"size": 25, "is_long": true})));
}

#[test]
fn groups_count_kept_and_dropped_documents_and_words() {
    let records: Vec<Value> = (0..30)
        .map(|i| json!({"text": "one two three".repeat(1 + i % 2), "site": (["a.org", "b.org", ""][i % 3]), "n": i}))
        .collect();
    let step = json!([
        {"group": {"name": "site", "by": "meta.site"}},
        {"expression": {"name": "early", "keep": "meta.n >= 6"}},
        {"group": {"name": "long", "by": "chars > 20"}},
        {"expression": {"name": "late", "keep": "meta.n < 24"}},
    ]);
    let (report, kept, _) = run(&records, step).unwrap();
    assert_eq!(kept.len(), 18);
    let sites = &report.groups["site"];
    assert_eq!(
        sites.keys().collect::<Vec<_>>(),
        ["(none)", "a.org", "b.org"]
    );
    for (site, counts) in sites {
        assert_eq!((counts.kept, counts.words), (6, 24), "{site}");
        let dropped = [("expression.early", 2), ("expression.late", 2)];
        let found = counts.dropped.iter().map(|(rule, n)| (rule.as_str(), *n));
        assert_eq!(found.collect::<Vec<_>>(), dropped, "{site}");
    }
    // the others were dropped before the step
    let long = &report.groups["long"];
    let sum: u64 = long
        .values()
        .map(|c| c.kept + c.dropped.values().sum::<u64>())
        .sum();
    assert_eq!((long.len(), sum), (2, 24));
}

/// Documents and attributes in dolma's layout.
fn dolma(folder: &Path, documents: &str, attributes: &[(&str, &str)]) -> Input {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("documents/x.jsonl", documents);
    for (name, text) in attributes {
        write(&format!("attributes/{name}/x.jsonl"), text);
    }
    Input {
        path: folder.join("documents").to_string_lossy().into_owned(),
        format: Format::Dolma,
        source: "s".to_string(),
        attributes: attributes
            .iter()
            .map(|(name, _)| name.to_string())
            .collect(),
        ..Input::default()
    }
}

#[test]
fn attributes_that_do_not_fit_their_documents_are_bad_records_by_name() {
    let lines = |ids: &[&str], rest: &str| -> String {
        ids.iter()
            .map(|id| format!("{{\"id\":\"{id}\",{rest}}}\n"))
            .collect()
    };
    let documents = lines(&["a", "b", "c"], "\"text\":\"words\"");
    let attributes = |ids: &[&str]| lines(ids, "\"attributes\":{\"n\":1}");
    for (found, kept, quarantined, why) in [
        (attributes(&["a", "b", "c"]), 3, 0, ""),
        (
            attributes(&["a", "b"]),
            2,
            1,
            "attributes n/deep end before it",
        ),
        (attributes(&["a", "c"]), 1, 2, "beside document"),
        (
            attributes(&["b", "a", "c"]),
            1,
            2,
            "attributes of document \\\"b\\\" beside document \\\"a\\\"",
        ),
        (
            attributes(&["a", "b", "c", "d"]),
            3,
            1,
            "attributes n/deep go on behind the last document",
        ),
        (
            attributes(&["a", "b"]) + "{\"id\":\"c\",\"attrib",
            2,
            1,
            "attributes",
        ),
        (
            attributes(&["a", "b"]) + "{\"id\":\"c\"}\n",
            2,
            1,
            "no attributes object",
        ),
        (String::new(), 0, 3, "attributes n/deep end before it"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = CurateConfig {
            inputs: vec![dolma(folder.path(), &documents, &[("n/deep", &found)])],
            step: steps(json!([{"expression": {"name": "n", "keep": "attributes.n == 1"}}])),
            ..CurateConfig::default()
        };
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let out = folder.path().join("out");
        let (report, documents, _) = run_config(&config, &out).unwrap();
        assert_eq!(
            (documents.len(), report.quarantined),
            (kept, quarantined),
            "{found}"
        );
        let errors = std::fs::read_to_string(out.join("errors/00000.jsonl")).unwrap();
        assert!(errors.contains(why), "{found}: {errors}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut input = dolma(folder.path(), &documents, &[]);
    input.attributes = vec!["none".to_string()];
    let config = CurateConfig {
        inputs: vec![input],
        ..CurateConfig::default()
    };
    let why = run_config(&config, &folder.path().join("out"))
        .err()
        .unwrap()
        .to_string();
    assert!(why.contains("attributes/none/x.jsonl"), "{why}");
}

#[test]
fn a_sample_by_weight_is_the_same_in_every_cut_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let record = |i: usize| {
        format!(
            "{}\n",
            json!({"id": format!("d{i}"), "text": format!("text number {i}"), "w": i % 5})
        )
    };
    let write = |name: &str, order: &mut dyn Iterator<Item = usize>| {
        let path = folder.path().join(name);
        std::fs::write(&path, order.map(record).collect::<String>()).unwrap();
        path
    };
    let there = write("a.jsonl", &mut (0..4000));
    let back = write("b.jsonl", &mut (0..4000).rev());
    let sampled = |path: &Path, tasks: usize| {
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.to_string_lossy().into_owned(),
                ..Input::default()
            }],
            tasks,
            step: steps(json!([{"sample": {"name": "w", "weight": "meta.w / 4", "seed": 3}}])),
            ..CurateConfig::default()
        };
        let (report, kept, _) = run_config(&config, &folder.path().join("out")).unwrap();
        let mut ids: Vec<String> = kept.into_iter().map(|d| d.id).collect();
        ids.sort();
        (ids, report.dropped["sample.w"])
    };
    let (ids, dropped) = sampled(&there, 1);
    // 800 documents of each weight: 0, 0.25, 0.5, 0.75, 1
    assert!((1900..2100).contains(&ids.len()), "{}", ids.len());
    assert_eq!(ids.len() as u64 + dropped, 4000);
    assert_eq!(sampled(&back, 3), (ids, dropped));
}

#[test]
fn fields_that_a_job_names_are_counted_in_the_documents_that_come_to_them() {
    let text = "Some words that are here.";
    let records: Vec<Value> = (0..40)
        .map(|i| json!({"id": format!("d{i}"), "text": text, "score": i, "none": null}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            keep_fields: Some(vec!["score".to_string(), "none".to_string()]),
            ..Input::default()
        }],
        step: steps(json!([
            {"expression": {"name": "a", "keep": "meta.score < 30 or meta.scoer > 1"}},
            {"tag": {"set": {"b": "has(meta.score)"}, "where": "meta.score >= 10"}},
            {"group": {"name": "g", "by": "meta.b"}},
        ])),
        ..CurateConfig::default()
    };
    let (report, ..) = run_config(&config, &folder.path().join("out")).unwrap();
    let counts =
        |documents: u64, with_value: u64| json!({"documents": documents, "with_value": with_value});
    assert_eq!(
        json!(report.fields),
        json!({
            "inputs[0].keep_fields": {"score": counts(40, 40), "none": counts(40, 0)},
            "step[0].expression.keep": {"meta.score": counts(40, 40), "meta.scoer": counts(40, 0)},
            "step[1].tag.set.b": {"meta.score": counts(30, 30)},
            "step[1].tag.where": {"meta.score": counts(30, 30)},
            "step[2].group.by": {"meta.b": counts(30, 20)},
        })
    );
    assert_eq!(
        report.absent_fields(),
        [
            "curate.inputs[0].keep_fields: none has no value in any of 40 documents",
            "curate.step[0].expression.keep: meta.scoer has no value in any of 40 documents",
        ]
    );
    // a run that is resumed from a journal counts what the journal knows
    let out = folder.path().join("resumed");
    let curator = Curator::new(&config, None, None, 1).unwrap();
    let shard = &shards(&config).unwrap()[0];
    for _ in 0..2 {
        let resumed = curator.resume_shard(shard, &out, "print", &Silent).unwrap();
        assert_eq!(resumed.fields, report.fields);
    }
}

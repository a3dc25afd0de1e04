//! Parity with datatrove's statistics of texts, recorded by tests/oracles/datatrove_statistics.py.

use curate::Silent;
use curate::pipeline::{CurateConfig, Curator, Step, shards};
use curate::read::Input;
use curate::statistics::{State, Statistics, TEXT_METRICS, measure};
use curate::text::Scratch;
use serde_json::{Value, json};

/// Texts of the golden rows, then the awkward ones.
fn texts(golden: &Value) -> Vec<String> {
    let rows = include_str!("../oracles/golden.jsonl").split('\n').skip(1);
    let of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["text"].clone();
    let rows = rows.filter(|line| !line.is_empty()).map(of);
    let awkward = golden["awkward"].as_array().unwrap().iter().cloned();
    let texts = rows.chain(awkward);
    texts.map(|t| t.as_str().unwrap().to_string()).collect()
}

#[test]
fn every_figure_equals_datatroves_to_the_last_bit() {
    let golden: Value = serde_json::from_str(include_str!("../data/statistics.json")).unwrap();
    let names: Vec<&str> = golden["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    assert_eq!(names, TEXT_METRICS[1..]);
    let texts = texts(&golden);
    let rows = golden["rows"].as_array().unwrap();
    assert_eq!(texts.len(), rows.len());
    let mut scratch = Scratch::new();
    for (i, (text, row)) in texts.iter().zip(rows).enumerate() {
        let ours = measure(text, &mut scratch);
        assert_eq!(ours[0], text.len() as f64);
        let theirs = row.as_str().unwrap().split(' ');
        for (name, (ours, theirs)) in names.iter().zip(ours[1..].iter().zip(theirs)) {
            let theirs: f64 = theirs.parse().unwrap();
            assert!(
                *ours == theirs,
                "{name} of text {i}: {ours}, datatrove {theirs}"
            );
        }
    }
}

/// Runs lines of JSON with a group by host and one by language of the metadata; the summary.
fn grouped(lines: &str, folder: &std::path::Path) -> Value {
    let path = folder.join("in.jsonl");
    std::fs::write(&path, lines).unwrap();
    let steps = json!([
        {"group": {"name": "host", "by": "host", "statistics": true}},
        {"group": {"name": "suffix", "by": "suffix", "statistics": true}},
        {"group": {"name": "counted", "by": "meta.n"}},
        {"length": {"min_chars": 10}},
    ]);
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        statistics: true,
        step: serde_json::from_value::<Vec<Step>>(steps).unwrap(),
        ..CurateConfig::default()
    };
    config.check(&mut |key, found, wanted| panic!("{key}: {found}: {wanted}"));
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let mut sum = Statistics::default();
    for shard in shards(&config).unwrap() {
        curator.run_shard(&shard, folder, &Silent).unwrap();
        let name = format!("statistics/{:05}.jsonl.zst", shard.number);
        sum.read(&folder.join(name)).unwrap();
    }
    assert_eq!(
        sum.groups()
            .filter(|(_, state, _)| *state == State::Kept)
            .count(),
        2
    );
    sum.summarize(folder).unwrap();
    let text = std::fs::read_to_string(folder.join("statistics.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_group_has_the_figures_of_its_documents_alone() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = [
        "https://www.A.co.uk/x",
        "https://b.a.co.uk/y",
        "http://c.org/",
        "",
    ];
    let (mut lines, mut texts) = (String::new(), Vec::new());
    for i in 0..200usize {
        let text = "words ".repeat(i % 30 + 1);
        let url = hosts[i % 7 % 4];
        lines += &json!({"text": text, "url": url, "n": i}).to_string();
        lines.push('\n');
        texts.push((["a.co.uk", "b.a.co.uk", "c.org", "(none)"][i % 7 % 4], text));
    }
    let found = grouped(&lines, folder.path());
    let groups = found["groups"].as_array().unwrap();
    let names: Vec<_> = groups
        .iter()
        .map(|g| (g["by"].clone(), g["state"].clone()))
        .collect();
    let want = [
        ("host", "kept"),
        ("host", "dropped"),
        ("suffix", "kept"),
        ("suffix", "dropped"),
    ];
    assert_eq!(names, want.map(|(by, state)| (json!(by), json!(state))));
    let mut scratch = Scratch::new();
    let suffix = |host: &str| match host {
        "(none)" => "(none)",
        "c.org" => "org",
        _ => "co.uk",
    };
    for group in groups {
        assert_eq!(group["most_too_small_by"], 0);
        let mut seen = 0;
        for row in group["figures"].as_array().unwrap() {
            let figure = TEXT_METRICS
                .iter()
                .position(|f| row["figure"] == *f)
                .unwrap();
            let mut values = Vec::new();
            for (host, text) in &texts {
                let value = match group["by"] == "host" {
                    true => *host,
                    false => suffix(host),
                };
                let is_kept = text.len() >= 10;
                if row["group"] == value && (group["state"] == "kept") == is_kept {
                    values.push(measure(text, &mut scratch)[figure]);
                }
            }
            assert_eq!(row["documents"], values.len(), "{row}");
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let found = row["mean"].as_f64().unwrap();
            assert!(
                (found - mean).abs() <= 1e-9 * mean.abs().max(1.0),
                "{row}: {mean}"
            );
            values.sort_by(f64::total_cmp);
            assert_eq!(row["min"], values[0]);
            assert_eq!(
                row["quantiles"]["p50"],
                values[(values.len() - 1) / 2],
                "{row}"
            );
            seen += usize::from(row["figure"] == "length");
        }
        assert!(seen >= 2, "{group}");
    }
    let path = folder.path().join("statistics.parquet");
    let mut rows = 0;
    let input = Input {
        format: curate::read::Format::Parquet,
        ..Input::default()
    };
    curate::read::each_record(&path, &input, None, 1 << 20, &mut |r| {
        let row: Value = serde_json::from_slice(r.block).unwrap();
        rows += usize::from(row["by"] == "host" && row["group"] == "c.org");
    })
    .unwrap();
    assert_eq!(rows, 2 * TEXT_METRICS.len(), "kept and dropped");
}

#[test]
fn values_beyond_the_bound_are_counted_together_without_losing_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for i in 0..3000u32 {
        let url = match i % 3 {
            0 => "https://often.org/".to_string(),
            _ => format!("https://h{i}.org/"),
        };
        lines += &json!({"text": "some words here", "url": url, "n": 1}).to_string();
        lines.push('\n');
    }
    let found = grouped(&lines, folder.path());
    let hosts = &found["groups"][0];
    assert!(hosts["most_too_small_by"].as_u64().unwrap() > 0, "{hosts}");
    let lengths = hosts["figures"].as_array().unwrap().iter();
    let lengths: Vec<&Value> = lengths.filter(|r| r["figure"] == "length").collect();
    assert_eq!(lengths.len(), 101);
    let documents = |row: &Value| row["documents"].as_u64().unwrap();
    assert_eq!(lengths.iter().map(|r| documents(r)).sum::<u64>(), 3000);
    assert_eq!(lengths[0]["group"], "often.org");
    assert_eq!(documents(lengths[0]), 1000);
    assert_eq!(lengths[100]["group"], "(others)");
}

#[test]
fn figures_by_group_need_statistics() {
    let step = json!([{"group": {"name": "host", "by": "host", "statistics": true}}]);
    let config = CurateConfig {
        inputs: vec![Input {
            path: "x".to_string(),
            ..Input::default()
        }],
        step: serde_json::from_value::<Vec<Step>>(step).unwrap(),
        ..CurateConfig::default()
    };
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(found, ["step[0].group.statistics"]);
}

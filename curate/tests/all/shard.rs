//! Shards end to end: files in, files and counts out.

use std::io::Write;
use std::path::Path;

use curate::Silent;
use curate::corpus::kept_documents;
use curate::dedup::{DedupConfig, KeepPolicy, dedup};
use curate::pipeline::Step;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};

/// Runs all shards of `config` and returns their reports.
fn run(config: &CurateConfig, dedup: &DedupConfig, out: &Path) -> Vec<ShardReport> {
    let curator = Curator::new(config, None, Some(dedup), 1).unwrap();
    let list = shards(config).unwrap();
    list.iter()
        .map(|shard| curator.run_shard(shard, out, &Silent).unwrap())
        .collect()
}

fn jsonl(folder: &Path, name: &str, texts: &[&str]) {
    let mut file = std::fs::File::create(folder.join(name)).unwrap();
    for text in texts {
        writeln!(
            file,
            "{}",
            serde_json::json!({"text": text, "meta": {"pile_set_name": "T"}})
        )
        .unwrap();
    }
}

const FOX: &str =
    "The quick brown fox jumps over the lazy dog and runs away from the angry farmer.";

#[test]
fn duplicates_across_shards_are_removed_and_the_first_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    std::fs::create_dir(&input).unwrap();
    jsonl(
        &input,
        "a.jsonl",
        &[
            FOX,
            "Something else entirely that nobody has ever written before.",
        ],
    );
    jsonl(
        &input,
        "b.jsonl",
        &[FOX, &FOX.to_uppercase(), "Short one here"],
    );
    let config = CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            format: Format::Jsonl,
            source: "s".to_string(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    for keep in [KeepPolicy::First, KeepPolicy::Datatrove] {
        let out = folder.path().join(format!("out-{keep:?}"));
        let settings = DedupConfig {
            keep,
            ..crate::both()
        };
        let reports = run(&config, &settings, &out);
        assert_eq!(reports.iter().map(|r| r.kept).sum::<u64>(), 5);
        let report = dedup(&settings, &out, 2, &Silent).unwrap();
        assert_eq!(
            (report.documents, report.exact, report.fuzzy, report.kept),
            (5, 1, 1, 3)
        );
        let ids: Vec<String> = (0..2)
            .flat_map(|s| kept_documents(&out, s).unwrap().map(|d| d.unwrap().id))
            .collect();
        assert_eq!(ids, ["s/a/0", "s/a/1", "s/b/2"]);
    }
}

#[test]
fn files_of_one_name_give_ids_of_their_own_whatever_the_order() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "one/x.jsonl",
        "two/x.jsonl",
        "two/y.jsonl",
        "deep/a/x.jsonl",
        "deep/b/x.jsonl",
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{{\"text\":\"the text of {name}\"}}\n")).unwrap();
    }
    let input = |name: &str| Input {
        path: folder.path().join(name).to_string_lossy().into_owned(),
        source: "s".to_string(),
        ..Input::default()
    };
    let mut inputs = vec![input("one"), input("two"), input("deep/**/*.jsonl")];
    let mut all = Vec::new();
    for turn in 0..2 {
        let config = CurateConfig {
            inputs: inputs.clone(),
            ..CurateConfig::default()
        };
        let out = folder.path().join(format!("out{turn}"));
        let count = run(&config, &crate::both(), &out).len();
        let mut found: Vec<(String, String)> = (0..count)
            .flat_map(|s| curate::corpus::documents(&out, s).unwrap())
            .map(|d| d.map(|d| (d.id, d.text)).unwrap())
            .collect();
        found.sort();
        all.push(found);
        inputs.reverse();
    }
    let ids: Vec<&str> = all[0].iter().map(|d| d.0.as_str()).collect();
    let want = [
        "s/a/x/0",
        "s/b/x/0",
        "s/one/x.jsonl/0",
        "s/two/x.jsonl/0",
        "s/y/0",
    ];
    assert_eq!(ids, want);
    assert_eq!(all[0], all[1]);
}

#[test]
fn bad_lines_are_quarantined_with_offset_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let mut bytes = b"{\"text\":\"one\"}\n{\"text\":\n\n{\"text\":\"\xff\"}\n{\"text\":\"".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 5000));
    bytes.extend(b"\"}\n{\"text\":\"two\"}");
    std::fs::write(&path, bytes).unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        max_record_bytes: 4096,
        step: vec![Step::Length(curate::filter::Length::default())],
        ..CurateConfig::default()
    };
    let out = folder.path().join("out");
    let report = &run(&config, &crate::both(), &out)[0];
    assert_eq!((report.records, report.kept, report.quarantined), (5, 2, 3));
    let errors = std::fs::read_to_string(out.join("errors/00000.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = errors
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines[0]["offset"], 15);
    assert_eq!(lines[0]["record"], 1);
    assert!(
        lines[1]["why"]
            .as_str()
            .unwrap()
            .contains("invalid UTF-8 at byte 9")
    );
    assert!(
        lines[2]["why"]
            .as_str()
            .unwrap()
            .contains("longer than 4096")
    );
}

#[test]
fn shown_samples_are_those_with_the_smallest_hashes_whatever_the_shards() {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
    let folder = tempfile::tempdir().unwrap();
    let long = |i: usize| {
        format!(
            "{i} {}",
            "the words of a text that is long enough ".repeat(8)
        )
    };
    // every fifth text is too short for the filter, every fiftieth is empty
    let texts: Vec<String> = (0..400)
        .map(|i| match i {
            _ if i % 50 == 7 => String::new(),
            _ if i % 5 == 0 => format!("short text number {i}"),
            _ => long(i),
        })
        .collect();
    let step = |text: &str| -> Step { serde_json::from_str(text).unwrap() };
    let mut seen = Vec::new();
    for parts in [1, 4] {
        let input = folder.path().join(format!("in{parts}"));
        std::fs::create_dir(&input).unwrap();
        for (i, part) in texts.chunks(texts.len() / parts).enumerate() {
            let mut file = std::fs::File::create(input.join(format!("{i}.jsonl"))).unwrap();
            for text in part {
                let id = xxh3_64(text.as_bytes());
                let line = serde_json::json!({"text": text, "id": format!("d{id:x}")});
                writeln!(file, "{line}").unwrap();
            }
        }
        let config = CurateConfig {
            inputs: vec![Input {
                path: input.to_string_lossy().into_owned(),
                source: "s".to_string(),
                ..Input::default()
            }],
            step: vec![step(r#"{"gopher_quality": {"min_doc_words": 20}}"#)],
            ..CurateConfig::default()
        };
        let out = folder.path().join(format!("out{parts}"));
        let mut sum = ShardReport::default();
        let mut reports = run(&config, &crate::both(), &out);
        reports.reverse();
        reports.iter().for_each(|r| sum.merge(r));
        let kept: Vec<String> = sum.kept_samples.iter().map(|s| s.excerpt.clone()).collect();
        assert_eq!(kept.len(), 8);
        // by the definition: XXH3 of the first 400 characters, seeded with XXH3 of the id
        let mut all: Vec<(u64, String)> = (0..parts)
            .flat_map(|s| curate::corpus::documents(&out, s).unwrap())
            .map(|d| {
                let d = d.unwrap();
                let excerpt: String = d.text.chars().take(400).collect();
                (
                    xxh3_64_with_seed(excerpt.as_bytes(), xxh3_64(d.id.as_bytes())),
                    d.id,
                )
            })
            .collect();
        all.sort();
        let ids: Vec<&String> = sum.kept_samples.iter().map(|s| &s.id).collect();
        let want: Vec<&String> = all[..8].iter().map(|(_, id)| id).collect();
        assert_eq!(ids, want);
        for rule in sum.dropped.keys() {
            assert!(
                sum.dropped_samples.iter().any(|s| s.rule == *rule),
                "{rule}"
            );
        }
        let dropped: Vec<String> = sum.dropped_samples.iter().map(|s| s.id.clone()).collect();
        seen.push((kept, dropped));
    }
    assert_eq!(seen[0], seen[1]);
}

//! The texts of the documents that reports show: those of the input, the same ones however it is read.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use curate::filter::Length;
use curate::pipeline::{
    CurateConfig, Curator, SampleText, ShardReport, Step, merge_samples, shards,
};
use curate::read::Input;
use curate::{Progress, Silent};

use crate::files::tree;

/// Longest text that is kept, in characters.
const MOST: usize = 30_000;

/// Texts by id: every third is dropped as it is too long, every fourth of the others as it is too short; characters of one to
/// four bytes.
fn texts(count: usize) -> Vec<(String, String)> {
    let text = |i: usize| {
        let word = ["word ", "Wörter ", "\u{1f600} \u{4e2d}\u{6587} "][i % 3 % 2 + i % 2];
        let words = match (i % 3, i % 4) {
            (0, _) => MOST,
            (_, 0) => 1,
            _ => 40 + 97 * i % 9_000,
        };
        format!("{i} {}", word.repeat(words))
    };
    (0..count).map(|i| (format!("id-{i}"), text(i))).collect()
}

fn write_file(path: &Path, texts: &[(String, String)]) {
    let line = |(id, text): &(String, String)| {
        format!("{}\n", serde_json::json!({"id": id, "text": text}))
    };
    std::fs::write(path, texts.iter().map(line).collect::<String>()).unwrap();
}

fn config(input: &Path) -> CurateConfig {
    CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            source: "s".to_string(),
            ..Input::default()
        }],
        step: vec![Step::Length(Length {
            min_chars: 20,
            max_chars: MOST,
        })],
        ..CurateConfig::default()
    }
}

fn curator(config: &CurateConfig) -> Curator {
    Curator::new(config, None, None, 0).unwrap()
}

/// The lines of `samples.jsonl` of a whole curation.
fn merged(out: &Path, reports: &[ShardReport]) -> (ShardReport, Vec<SampleText>) {
    let mut sum = ShardReport::default();
    reports.iter().for_each(|report| sum.merge(report));
    merge_samples(out, reports, &sum).unwrap();
    let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (sum, lines.collect())
}

#[test]
fn texts_shown_are_those_of_the_input_whatever_the_shards() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts(240);
    let whole: BTreeMap<&str, &str> = (texts.iter())
        .map(|(id, text)| (id.as_str(), text.as_str()))
        .collect();
    let mut seen: Vec<Vec<SampleText>> = Vec::new();
    for (parts, is_reversed) in [(1, false), (5, false), (5, true)] {
        let name = format!("{parts}-{is_reversed}");
        let input = folder.path().join(format!("in-{name}"));
        std::fs::create_dir(&input).unwrap();
        let mut files: Vec<_> = texts.chunks(texts.len() / parts).collect();
        if is_reversed {
            files.reverse();
        }
        for (i, file) in files.into_iter().enumerate() {
            write_file(&input.join(format!("{i}.jsonl")), file);
        }
        let config = config(&input);
        let (curator, out) = (curator(&config), folder.path().join(format!("out-{name}")));
        let reports: Vec<ShardReport> = (shards(&config).unwrap().iter())
            .map(|shard| curator.run_shard(shard, &out, &Silent).unwrap())
            .collect();
        assert_eq!(reports.len(), parts);
        let (sum, lines) = merged(&out, &reports);
        assert_eq!(sum.kept_samples.len(), 8);
        let rules: Vec<&str> = sum
            .dropped_samples
            .iter()
            .map(|s| s.rule.as_str())
            .collect();
        let (long, short) = ("length.max_chars", "length.min_chars");
        assert_eq!(rules, [long, long, long, short, short, short]);
        // a text that its excerpt shows whole has no line
        let with_more = sum.kept_samples.iter().chain(&sum.dropped_samples);
        let with_more = with_more.filter(|s| s.excerpt != whole[s.id.as_str()]);
        let ids: Vec<&str> = with_more.map(|s| s.id.as_str()).collect();
        assert!(ids.len() > 8 && ids.len() <= 11);
        let found: Vec<&str> = lines.iter().map(|line| line.sample.id.as_str()).collect();
        assert_eq!(found, ids);
        for line in &lines {
            let text = whole[line.sample.id.as_str()];
            let start: String = text.chars().take(20_000).collect();
            assert!(line.text == start, "{}", line.sample.id);
            assert_eq!(line.chars, text.chars().count() as u64);
        }
        seen.push(lines);
    }
    assert!(seen[0].iter().any(|line| line.chars > 20_000));
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

/// Ends its run at the first progress report of at least this many documents.
struct Until {
    most: u64,
    seen: AtomicU64,
}

impl Progress for Until {
    fn bytes(&self, _: u64) {}
    fn documents(&self, read: u64, _: u64) {
        let seen = self.seen.fetch_add(read, Ordering::Relaxed) + read;
        assert!(seen < self.most, "stopped by the test");
    }
}

#[test]
fn a_run_stopped_in_a_shard_shows_the_same_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    // every fiftieth is too long
    let text = |i: usize| {
        let words = if i % 50 == 7 { MOST } else { 150 };
        (format!("id-{i}"), format!("{i} {}", "word ".repeat(words)))
    };
    write_file(&path, &(0..7_000).map(text).collect::<Vec<_>>());
    let config = config(&path);
    let (curator, shard) = (curator(&config), shards(&config).unwrap().remove(0));
    let calm = folder.path().join("calm");
    let whole = curator.run_shard(&shard, &calm, &Silent).unwrap();
    let (_, lines) = merged(&calm, std::slice::from_ref(&whole));
    let dropped = lines.iter().filter(|line| !line.sample.rule.is_empty());
    assert_eq!(dropped.count(), 3);
    let out = folder.path().join("out");
    for most in [1, 3_000, 5_000] {
        let until = Until {
            most,
            seen: AtomicU64::new(0),
        };
        let run = || curator.resume_shard(&shard, &out, "p", &until);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }
    let resumed = curator.resume_shard(&shard, &out, "p", &Silent).unwrap();
    assert_eq!(resumed, whole);
    Curator::forget_journal(&out, shard.number).unwrap();
    merged(&out, &[resumed]);
    let mut files = tree(&out);
    files.retain(|(name, _)| !name.ends_with(".tmp"));
    assert_eq!(files, tree(&calm));
}

#[test]
fn of_documents_with_one_id_and_one_beginning_the_same_one_is_shown_whichever_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let text = |words: usize| "the same beginning ".repeat(words);
    // dropped with other values, and kept with other ends
    let alike: Vec<(String, String)> = [2_000, 1_900, 2_000, 30, 31, 29, 30]
        .map(|words| ("one".to_string(), text(words)))
        .to_vec();
    let mut seen = Vec::new();
    for turn in 0..alike.len() {
        let mut turned = alike.clone();
        turned.rotate_left(turn);
        for parts in [1, 3] {
            let input = folder.path().join(format!("in-{turn}-{parts}"));
            std::fs::create_dir(&input).unwrap();
            for (i, file) in turned.chunks(turned.len().div_ceil(parts)).enumerate() {
                write_file(&input.join(format!("{i}.jsonl")), file);
            }
            let config = config(&input);
            let out = folder.path().join(format!("out-{turn}-{parts}"));
            let curator = curator(&config);
            let reports: Vec<ShardReport> = (shards(&config).unwrap().iter())
                .map(|shard| curator.run_shard(shard, &out, &Silent).unwrap())
                .collect();
            let (sum, lines) = merged(&out, &reports);
            assert_eq!((sum.kept_samples.len(), sum.dropped_samples.len()), (1, 1));
            seen.push((sum.kept_samples, sum.dropped_samples, lines));
        }
    }
    assert!(seen.iter().all(|found| *found == seen[0]));
    let shown: Vec<&str> = seen[0].2.iter().map(|line| line.text.as_str()).collect();
    let dropped: String = text(1_900).chars().take(20_000).collect();
    assert_eq!(shown, [text(29), dropped]);
}

#[test]
fn shards_without_a_file_of_texts_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    write_file(&path, &texts(30));
    let config = config(&path);
    let shard = shards(&config).unwrap().remove(0);
    let out = folder.path().join("out");
    let report = curator(&config).run_shard(&shard, &out, &Silent).unwrap();
    std::fs::remove_file(out.join("samples/00000.jsonl.zst")).unwrap();
    let (sum, lines) = merged(&out, &[report]);
    assert_eq!(sum.kept_samples.len(), 8);
    assert!(lines.is_empty());
}

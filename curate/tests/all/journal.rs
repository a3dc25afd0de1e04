//! An interrupted shard resumes from its journal: the same bytes, without repeating the work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use curate::dedup::{DedupConfig, MinhashConfig, MinhashPreset};
use curate::filter::Length;
use curate::pii::{PiiConfig, PiiKind};
use curate::pipeline::Step;
use curate::pipeline::{CurateConfig, Curator, shards};
use curate::read::{Format, Input, Shard};
use curate::write::OutputFormat;
use curate::{Progress, Silent};

use crate::files::tree;

const RECORDS: u64 = 9_000;
/// Those with personal data.
const PERSONAL: u64 = 93;

/// Five batches of records: good ones, short ones, addresses, lines that are no JSON.
fn input(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let mut lines = String::new();
    for i in 0..RECORDS {
        let words = (0..20 + i % 30).map(|k| format!("w{}", (i * 31 + k * k) % 4093));
        let text = words.collect::<Vec<_>>().join(" ");
        match i % 97 {
            0 => lines += "{\"text\": 3\n",
            1 => lines += &format!("{}\n", serde_json::json!({"text": "short"})),
            2 => {
                let serial = 1000 + i;
                let text = format!(
                    "{text} someone{i}@example.com, SSN 536-90-{serial}, (212) 736-{serial}, pwd=abc{serial}"
                );
                let line = serde_json::json!({"text": text, "url": format!("http://a{i}.org/x")});
                lines += &format!("{line}\n");
            }
            _ => lines += &format!("{}\n", serde_json::json!({"text": text})),
        }
    }
    std::fs::write(folder.join("in.jsonl"), lines).unwrap();
}

fn config(folder: &Path, output: OutputFormat, least: usize) -> CurateConfig {
    CurateConfig {
        inputs: vec![Input {
            path: folder.join("in.jsonl").to_string_lossy().into_owned(),
            format: Format::Jsonl,
            source: "s".to_string(),
            ..Input::default()
        }],
        output,
        figures: true,
        statistics: true,
        step: vec![
            Step::Length(Length {
                min_chars: least,
                ..Length::default()
            }),
            Step::Pii(PiiConfig {
                kinds: vec![
                    PiiKind::Email,
                    PiiKind::NationalId,
                    PiiKind::Phone,
                    PiiKind::Secret,
                ],
                ..PiiConfig::default()
            }),
        ],
        ..CurateConfig::default()
    }
}

fn curator(config: &CurateConfig) -> (Curator, Shard) {
    let dedup = DedupConfig {
        minhash: Some(MinhashConfig::of(MinhashPreset::Native)),
        ..DedupConfig::default()
    };
    let shard = shards(config).unwrap().remove(0);
    (Curator::new(config, None, Some(&dedup), 0).unwrap(), shard)
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

/// Runs until `most` documents have been read.
fn interrupted(curator: &Curator, shard: &Shard, out: &Path, print: &str, most: u64) {
    let until = Until {
        most,
        seen: AtomicU64::new(0),
    };
    let run = catch_unwind(AssertUnwindSafe(|| {
        curator.resume_shard(shard, out, print, &until)
    }));
    assert!(run.is_err(), "the run was not stopped");
}

/// The files that count: a stopped run leaves temporary ones, which the job sweeps.
fn outputs(out: &Path) -> Vec<(String, String)> {
    let mut files = tree(out);
    files.retain(|(name, _)| !name.ends_with(".tmp"));
    files
}

#[test]
fn a_run_stopped_in_a_shard_goes_on_to_the_same_bytes_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    input(folder.path());
    for output in [
        OutputFormat::JsonlZst,
        OutputFormat::JsonlGz,
        OutputFormat::Parquet,
    ] {
        let config = config(folder.path(), output, 40);
        let (curator, shard) = curator(&config);
        let calm = folder.path().join(format!("calm-{output:?}"));
        let whole = curator.run_shard(&shard, &calm, &Silent).unwrap();
        assert_eq!(whole.records, RECORDS);
        for rule in ["email", "national_id.us_ssn", "phone", "secret"] {
            assert_eq!(whole.personal[&format!("pii.{rule}")], PERSONAL, "{rule}");
        }
        let out = folder.path().join(format!("out-{output:?}"));
        for most in [1, 3_000, 3_000, 7_000] {
            interrupted(&curator, &shard, &out, "p", most);
        }
        let resumed = curator.resume_shard(&shard, &out, "p", &Silent).unwrap();
        assert_eq!(resumed, whole);
        Curator::forget_journal(&out, shard.number).unwrap();
        assert_eq!(outputs(&out), outputs(&calm));
    }
}

#[test]
fn a_sampled_table_stopped_in_a_shard_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: usize| match i % 97 {
        0 => format!("{i},\"a row\",of four,fields\n"),
        _ => format!("{i},\"some words, and {i}\nmore of them in row {i}\",x\n"),
    };
    let rows: String = (0..9_000).map(row).collect();
    std::fs::write(folder.path().join("in.jsonl"), format!("id,text,x\n{rows}")).unwrap();
    let mut config = config(folder.path(), OutputFormat::JsonlZst, 10);
    config.inputs[0].format = Format::Auto;
    config.sample = 0.5;
    config.limit = 8_000;
    let (curator, shard) = curator(&config);
    assert_eq!(shard.input.format, Format::Csv);
    let calm = folder.path().join("calm");
    let whole = curator.run_shard(&shard, &calm, &Silent).unwrap();
    assert_eq!((whole.records, whole.quarantined), (8_000, 83));
    assert!(whole.dropped["sample"] > 3_500 && whole.kept > 3_500);
    let out = folder.path().join("out");
    for most in [1, 3_000, 3_000, 7_000] {
        interrupted(&curator, &shard, &out, "p", most);
    }
    let resumed = curator.resume_shard(&shard, &out, "p", &Silent).unwrap();
    assert_eq!(resumed, whole);
    Curator::forget_journal(&out, shard.number).unwrap();
    assert_eq!(outputs(&out), outputs(&calm));
}

#[test]
fn what_the_journal_knows_is_not_worked_out_again() {
    let folder = tempfile::tempdir().unwrap();
    input(folder.path());
    let lenient = config(folder.path(), OutputFormat::JsonlZst, 0);
    let strict = config(folder.path(), OutputFormat::JsonlZst, 1_000_000);
    let ((lenient, shard), (strict, _)) = (curator(&lenient), curator(&strict));
    let out = folder.path().join("out");
    interrupted(&lenient, &shard, &out, "p", 5_000);
    // another curator under the same print: the journal's outcomes are the lenient one's
    let mixed = strict.resume_shard(&shard, &out, "p", &Silent).unwrap();
    let bad = RECORDS.div_ceil(97);
    let batches = 3 * 2048;
    assert!(
        mixed.kept > batches - bad && mixed.kept < batches,
        "{}",
        mixed.kept
    );
    // under another fingerprint it finds nothing
    let alone = strict.resume_shard(&shard, &out, "q", &Silent).unwrap();
    assert_eq!(alone.kept, 0);
}

#[test]
fn a_torn_or_damaged_journal_is_used_up_to_its_last_whole_batch() {
    let folder = tempfile::tempdir().unwrap();
    input(folder.path());
    let config = config(folder.path(), OutputFormat::JsonlZst, 40);
    let (curator, shard) = curator(&config);
    let calm = folder.path().join("calm");
    let whole = curator.run_shard(&shard, &calm, &Silent).unwrap();
    let out = folder.path().join("out");
    let journal = out.join("records/curate/00000.journal");
    curator.resume_shard(&shard, &out, "p", &Silent).unwrap();
    let bytes = std::fs::read(&journal).unwrap();
    let step = bytes.len() / 7;
    for at in (0..bytes.len()).step_by(step) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let damaged = [
            bytes[..at].to_vec(),
            flipped,
            [&bytes[..at], &bytes].concat(),
        ];
        for damaged in damaged {
            std::fs::write(&journal, &damaged).unwrap();
            assert_eq!(
                curator.resume_shard(&shard, &out, "p", &Silent).unwrap(),
                whole
            );
            // and it is whole again
            assert_eq!(std::fs::read(&journal).unwrap(), bytes, "byte {at}");
        }
    }
    Curator::forget_journal(&out, shard.number).unwrap();
    Curator::forget_journal(&out, shard.number).unwrap();
    assert_eq!(outputs(&out), outputs(&calm));
}

#[test]
fn a_journal_that_another_process_has_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    input(folder.path());
    let config = config(folder.path(), OutputFormat::JsonlZst, 40);
    let (curator, shard) = curator(&config);
    let out = folder.path().join("out");
    interrupted(&curator, &shard, &out, "p", 5_000);
    let journal = out.join("records/curate/00000.journal");
    let before = std::fs::read(&journal).unwrap();
    let other = std::fs::File::open(&journal).unwrap();
    other.lock().unwrap();
    let report = curator.resume_shard(&shard, &out, "p", &Silent).unwrap();
    assert_eq!(report.records, RECORDS);
    assert_eq!(std::fs::read(&journal).unwrap(), before);
}

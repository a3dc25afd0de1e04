//! Deduplication from texts to keep lists: the same documents are kept for any division into files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use curate::Silent;
use curate::corpus::{KeepList, KeepStatus, documents};
use curate::dedup::{DedupConfig, MinhashConfig, MinhashPreset, dedup};
use curate::pipeline::{CurateConfig, Curator, shards};
use curate::read::{Format, Input};
use serde_json::{Value, json};

const DOCUMENTS: usize = 600;

/// Texts of 60 words, numbered consecutively: every third repeats an earlier one with one or no word changed.
fn texts() -> Vec<String> {
    let mix = |x: u64| (x.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 33;
    let word = |mut x: u64| {
        let mut word = String::from("q");
        while x > 0 {
            word.push(char::from(b'a' + u8::try_from(x % 26).unwrap()));
            x /= 26;
        }
        word
    };
    let mut texts: Vec<String> = Vec::new();
    for i in 0..DOCUMENTS as u64 {
        let repeated = mix(i) % i.max(1);
        let earlier = texts.get(usize::try_from(repeated).unwrap());
        let text = match earlier.filter(|_| i % 3 == 2) {
            Some(text) if i % 2 == 0 => text.clone(),
            Some(text) => {
                let mut words: Vec<&str> = text.split(' ').collect();
                words[59] = "changed";
                words.join(" ")
            }
            None => {
                let words: Vec<String> = (0..60).map(|k| word(mix(i * 60 + k))).collect();
                words.join(" ")
            }
        };
        texts.push(text);
    }
    texts
}

/// Texts as records, numbered consecutively.
fn records() -> Vec<Value> {
    let texts = texts().into_iter().enumerate();
    texts
        .map(|(i, text)| json!({"id": format!("{i}"), "text": text}))
        .collect()
}

/// Curates records from `files` files with signatures for `settings`; how many shards there are.
pub(crate) fn signed(out: &Path, records: &[Value], files: usize, settings: &DedupConfig) -> usize {
    let input = out.join("in");
    std::fs::create_dir_all(&input).unwrap();
    for file in 0..files {
        let range = records.len() * file / files..records.len() * (file + 1) / files;
        let lines = records[range].iter().map(|record| format!("{record}\n"));
        let path = input.join(format!("{file:03}.jsonl"));
        std::fs::write(path, lines.collect::<String>()).unwrap();
    }
    let config = CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            format: Format::Dolma,
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, Some(settings), 1).unwrap();
    let list = shards(&config).unwrap();
    for shard in &list {
        curator.run_shard(shard, out, &Silent).unwrap();
    }
    list.len()
}

/// The original of a document: none, the document with that id, or one of an earlier crawl.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Of {
    Nothing,
    This(String),
    Earlier,
}

/// The original of each document, by id.
pub(crate) fn outcomes(out: &Path, shards: usize) -> BTreeMap<String, Of> {
    let ids: Vec<Vec<String>> = (0..shards)
        .map(|s| documents(out, s).unwrap().map(|d| d.unwrap().id).collect())
        .collect();
    let mut outcomes = BTreeMap::new();
    for (shard, ids_here) in ids.iter().enumerate() {
        let keep = KeepList::read(&out.join(format!("keep/{shard:05}.keep"))).unwrap();
        for (i, id) in ids_here.iter().enumerate() {
            let of = match keep.status(i) {
                KeepStatus::Kept | KeepStatus::Hollow | KeepStatus::Contaminated => Of::Nothing,
                KeepStatus::Earlier(_) => Of::Earlier,
                KeepStatus::Exact(s, d)
                | KeepStatus::Fuzzy(s, d)
                | KeepStatus::Url(s, d)
                | KeepStatus::Semantic(s, d) => Of::This(ids[s as usize][d as usize].clone()),
            };
            outcomes.insert(id.clone(), of);
        }
    }
    outcomes
}

/// The original of each of the texts.
fn fates(out: &Path, files: usize, settings: &DedupConfig) -> BTreeMap<String, Of> {
    let shards = signed(out, &records(), files, settings);
    dedup(settings, out, shards, &Silent).unwrap();
    outcomes(out, shards)
}

#[test]
fn the_same_documents_stay_in_1_2_7_and_64_files_with_every_preset() {
    for preset in [
        MinhashPreset::Fineweb,
        MinhashPreset::Native,
        MinhashPreset::MtNlg,
        MinhashPreset::Redpajama,
        MinhashPreset::Nemotron,
    ] {
        let settings = DedupConfig {
            minhash: Some(MinhashConfig::of(preset)),
            ..crate::both()
        };
        let of = |files| fates(tempfile::tempdir().unwrap().path(), files, &settings);
        let one = of(1);
        assert_eq!(one.len(), DOCUMENTS);
        for files in [2, 7, 64] {
            assert_eq!(of(files), one, "{preset:?} in {files} files");
        }
        let gone = one.values().filter(|of| **of != Of::Nothing).count();
        // A third were made from others; a copy with one word changed at its end keeps 55 of 57 shingles.
        assert!((195..=200).contains(&gone), "{preset:?}: {gone} gone");
    }
}

#[test]
fn exact_duplicates_alone_need_no_minhash() {
    let settings = DedupConfig {
        minhash: None,
        ..crate::both()
    };
    let folder = tempfile::tempdir().unwrap();
    let fates = fates(folder.path(), 5, &settings);
    let texts = texts();
    let different: BTreeSet<&String> = texts.iter().collect();
    let kept = fates.values().filter(|of| **of == Of::Nothing).count();
    assert_eq!(kept, different.len());
}

/// The original of each document of two sources, where the second source's are `again`; and how many are kept.
fn of_two_sources(settings: &DedupConfig, records: [&[Value]; 2]) -> (u64, BTreeMap<String, Of>) {
    let folder = tempfile::tempdir().unwrap();
    let input = |(source, records): (&str, &[Value])| {
        let path = folder.path().join(format!("{source}.jsonl"));
        let lines = records.iter().map(|record| format!("{record}\n"));
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        Input {
            path: path.to_string_lossy().into_owned(),
            format: Format::Jsonl,
            source: source.to_string(),
            ..Input::default()
        }
    };
    let inputs = ["first", "again"].into_iter().zip(records).map(input);
    let config = CurateConfig {
        inputs: inputs.collect(),
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, Some(settings), 1).unwrap();
    let list = shards(&config).unwrap();
    let out = folder.path().join("out");
    for shard in &list {
        curator.run_shard(shard, &out, &Silent).unwrap();
    }
    let report = dedup(settings, &out, list.len(), &Silent).unwrap();
    (report.kept, outcomes(&out, list.len()))
}

#[test]
fn texts_of_the_same_words_are_exact_duplicates_where_that_is_asked_for() {
    let first = [
        json!({"id": "a", "text": "Hello, World!\n"}),
        json!({"id": "b", "text": "..."}),
        json!({"id": "c", "text": "hello worlds"}),
    ];
    let again = [
        json!({"id": "d", "text": "hello   world"}),
        json!({"id": "e", "text": "!!!"}),
        json!({"id": "f", "text": "..."}),
    ];
    for (normalized, kept, of_d) in [
        (false, 5, Of::Nothing),
        (true, 4, Of::This("a".to_string())),
    ] {
        let settings = DedupConfig {
            exact: Some(curate::dedup::ExactConfig { normalized }),
            ..DedupConfig::default()
        };
        let (left, outcomes) = of_two_sources(&settings, [&first, &again]);
        assert_eq!((left, &outcomes["d"]), (kept, &of_d));
        assert_eq!(outcomes["f"], Of::This("b".to_string()));
        assert_eq!(
            (&outcomes["e"], &outcomes["c"]),
            (&Of::Nothing, &Of::Nothing)
        );
    }
}

#[test]
fn signatures_of_raw_texts_are_refused_where_words_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let of = |normalized| DedupConfig {
        exact: Some(curate::dedup::ExactConfig { normalized }),
        ..DedupConfig::default()
    };
    let count = signed(folder.path(), &records(), 2, &of(false));
    let message = dedup(&of(true), folder.path(), count, &Silent).unwrap_err();
    let message = message.to_string();
    assert!(
        message.contains("exact.normalized") && message.contains("00000.sig"),
        "{message}"
    );
}

#[test]
fn of_one_address_the_best_source_stays() {
    let record = |id: &str, text: &str| json!({"id": id, "url": "http://e.org/x", "text": text});
    let first = [record("a", "longer than any other")];
    let again = [record("b", "short"), record("c", "longer")];
    for (priority, keep, stays) in [
        (vec![], curate::dedup::UrlKeep::First, "a"),
        (vec!["again"], curate::dedup::UrlKeep::First, "b"),
        (vec!["again"], curate::dedup::UrlKeep::Longest, "c"),
        (vec!["first", "again"], curate::dedup::UrlKeep::Longest, "a"),
    ] {
        let settings = DedupConfig {
            url: Some(curate::dedup::UrlDedupConfig {
                keep,
                ..curate::dedup::UrlDedupConfig::default()
            }),
            priority: priority.iter().map(ToString::to_string).collect(),
            ..DedupConfig::default()
        };
        let (kept, outcomes) = of_two_sources(&settings, [&first, &again]);
        assert_eq!((kept, &outcomes[stays]), (1, &Of::Nothing), "{priority:?}");
    }
}

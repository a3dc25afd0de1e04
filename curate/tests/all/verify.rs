//! Verified deduplication, keep policies and indexes of earlier crawls, against a greedy comparison of all pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use curate::corpus::KeepList;
use curate::dedup::{
    DedupConfig, DedupReport, KeepPolicy, MinhashConfig, MinhashPreset, Shingle, ShingleKind,
    dedup, merge_indexes,
};
use curate::pipeline::inspect;
use curate::{Error, Silent};
use serde_json::{Value, json};

use crate::dedup::{Of, outcomes, signed};

/// Numbers without a pattern, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).unwrap()
    }
}

fn word(number: usize) -> String {
    let letters = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
    [number, number / 26, number / 676, number / 17_576]
        .map(letters)
        .iter()
        .collect()
}

/// Texts of 40 different words. Two thirds take words from an earlier one, all but 1 to 12 of them, so similarities of
/// pairs go from 0.5 to 0.95 and chains of copies of copies arise.
fn texts(count: usize) -> Vec<BTreeSet<usize>> {
    let mut numbers = Numbers(5);
    let mut texts: Vec<BTreeSet<usize>> = Vec::new();
    for i in 0..count {
        let mut words = BTreeSet::new();
        if i > 10 && i % 3 > 0 {
            words = texts[numbers.below(i)].clone();
            for _ in 0..1 + numbers.below(12) {
                let gone = *words.iter().nth(numbers.below(words.len())).unwrap();
                words.remove(&gone);
            }
        }
        while words.len() < 40 {
            words.insert(numbers.below(300_000));
        }
        texts.push(words);
    }
    texts
}

fn records(texts: &[BTreeSet<usize>]) -> Vec<Value> {
    let records = texts.iter().enumerate();
    records
        .map(|(i, words)| {
            let text: Vec<String> = words.iter().map(|w| word(*w)).collect();
            let quality = (i * 7 % 11) as f64 / 10.0;
            let meta = if i % 5 == 0 { json!({}) } else { json!({ "quality": quality }) };
            let subset = ["Books3", "ArXiv", "Github"][i % 3];
            let mut pile = json!({"pile_set_name": subset});
            pile.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
            json!({"id": format!("{i:04}"), "text": text.join(" ") + &" more".repeat(i % 4), "meta": pile})
        })
        .collect()
}

fn settings(verify: f64) -> DedupConfig {
    DedupConfig {
        minhash: Some(MinhashConfig {
            shingle: Shingle {
                kind: ShingleKind::Words,
                n: 1,
            },
            bands: 28,
            rows: 4,
            verify,
            ..MinhashConfig::of(MinhashPreset::Native)
        }),
        ..DedupConfig::default()
    }
}

fn run(out: &Path, shards: usize, settings: &DedupConfig) -> (DedupReport, BTreeMap<String, Of>) {
    let report = dedup(settings, out, shards, &Silent).unwrap();
    let outcomes = outcomes(out, shards);
    let earlier = outcomes.values().filter(|of| **of == Of::Earlier).count() as u64;
    assert_eq!(report.earlier, earlier);
    assert_eq!(
        report.documents,
        report.kept + report.exact + report.fuzzy + report.url + report.hollow + earlier
    );
    (report, outcomes)
}

/// The set of words of a record.
fn set(record: &Value) -> BTreeSet<&str> {
    record["text"].as_str().unwrap().split(' ').collect()
}

fn jaccard(a: &BTreeSet<&str>, b: &BTreeSet<&str>) -> f64 {
    a.intersection(b).count() as f64 / a.union(b).count() as f64
}

/// Visits the members of every set of `bands` in the order of `key` and compares each with all keepers before it.
fn greedy<K: Ord>(
    records: &[Value],
    bands: &BTreeMap<String, Of>,
    threshold: f64,
    key: impl Fn(usize) -> K,
) -> BTreeMap<String, Of> {
    let mut sets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, (id, of)) in bands.iter().enumerate() {
        let root = match of {
            Of::This(root) => root,
            _ => id,
        };
        sets.entry(root).or_default().push(i);
    }
    let mut fates = BTreeMap::new();
    for mut members in sets.into_values() {
        members.sort_by_key(|i| (key(*i), *i));
        let mut keepers: Vec<usize> = Vec::new();
        for i in members {
            let own = set(&records[i]);
            let like = |k: &&usize| jaccard(&own, &set(&records[**k])) >= threshold;
            let id = |i: usize| records[i]["id"].as_str().unwrap().to_string();
            let of = match keepers.iter().find(like) {
                Some(keeper) => Of::This(id(*keeper)),
                None => {
                    keepers.push(i);
                    Of::Nothing
                }
            };
            fates.insert(id(i), of);
        }
    }
    fates
}

#[test]
fn verified_duplicates_are_those_of_a_greedy_visit_in_every_cut_with_every_budget() {
    let records = records(&texts(500));
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    let shards = signed(&one, &records, 1, &settings(0.0));
    let (bands, unverified) = run(&one, shards, &settings(0.0));
    assert!(
        bands.largest_cluster <= 64,
        "{} documents",
        bands.largest_cluster
    );
    let mut removed = Vec::new();
    for threshold in [0.6, 0.7, 0.8, 0.9] {
        let wanted = greedy(&records, &unverified, threshold, |_| ());
        let (report, outcomes) = run(&one, shards, &settings(threshold));
        assert_eq!(outcomes, wanted, "{threshold}");
        let verify = report.verify.clone().unwrap();
        assert_eq!(
            (verify.removed, verify.candidates),
            (report.fuzzy, bands.fuzzy)
        );
        assert_eq!(verify.removed + verify.rejected, verify.candidates);
        assert_eq!(verify.similarities.iter().sum::<u64>(), verify.compared);
        removed.push(verify.removed);
        let pairs = std::fs::read(one.join("keep/pairs.jsonl")).unwrap();
        for (files, threads, memory_mb) in [(2, 1, 512), (7, 3, 0), (64, 2, 1)] {
            let out = folder.path().join(format!("{files}"));
            let shards = signed(&out, &records, files, &settings(threshold));
            let settings = DedupConfig {
                memory_mb,
                ..settings(threshold)
            };
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let (other, outcomes) = pool.install(|| run(&out, shards, &settings));
            assert_eq!(outcomes, wanted, "{files} files");
            assert_eq!(other.verify, report.verify);
            let ids = |bytes: &[u8]| -> Vec<String> {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let lines = text
                    .lines()
                    .map(|l| serde_json::from_str::<Value>(l).unwrap());
                let pair = |p: Value| {
                    format!(
                        "{} {} {}",
                        p["jaccard"], p["documents"][0]["id"], p["documents"][1]["id"]
                    )
                };
                lines.map(pair).collect()
            };
            let others = std::fs::read(out.join("keep/pairs.jsonl")).unwrap();
            assert_eq!(ids(&others), ids(&pairs));
        }
    }
    assert!(removed.windows(2).all(|w| w[0] > w[1] + 10), "{removed:?}");
}

#[test]
fn pairs_to_look_at_have_the_similarity_of_their_texts() {
    let records = records(&texts(300));
    let folder = tempfile::tempdir().unwrap();
    let shards = signed(folder.path(), &records, 3, &settings(0.8));
    run(folder.path(), shards, &settings(0.8));
    let pairs = std::fs::read_to_string(folder.path().join("keep/pairs.jsonl")).unwrap();
    let mut seen = [0, 0];
    for line in pairs.lines() {
        let pair: Value = serde_json::from_str(line).unwrap();
        let record = |i: usize| {
            let id = pair["documents"][i]["id"].as_str().unwrap();
            let record = records.iter().find(|r| r["id"] == id).unwrap();
            let excerpt = pair["documents"][i]["excerpt"].as_str().unwrap();
            assert!(record["text"].as_str().unwrap().starts_with(excerpt));
            record
        };
        let similarity = jaccard(&set(record(0)), &set(record(1)));
        assert_eq!(pair["jaccard"].as_f64().unwrap(), similarity);
        assert_eq!(pair["removed"], similarity >= 0.8);
        seen[usize::from(similarity >= 0.8)] += 1;
    }
    assert_eq!(seen, [20, 20]);
}

#[test]
fn a_clean_shard_with_fewer_documents_than_signatures_is_refused_by_name() {
    let records = records(&texts(100));
    let folder = tempfile::tempdir().unwrap();
    let (out, short) = (folder.path().join("out"), folder.path().join("short"));
    signed(&short, &records[..20], 1, &settings(0.8));
    let shards = signed(&out, &records, 1, &settings(0.8));
    let name = "clean/00000.jsonl.zst";
    std::fs::copy(short.join(name), out.join(name)).unwrap();
    match dedup(&settings(0.8), &out, shards, &Silent) {
        Err(Error::Damaged { path, found, .. }) => {
            assert!(
                path.ends_with(name) && found.contains("document 20"),
                "{found}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sources_then_the_policy_decide_who_stays_verified_or_not() {
    let records = records(&texts(400));
    let folder = tempfile::tempdir().unwrap();
    let base = DedupConfig {
        exact: Some(curate::dedup::ExactConfig::default()),
        ..settings(0.0)
    };
    let shards = signed(folder.path(), &records, 5, &base);
    let (_, unverified) = run(folder.path(), shards, &base);
    let subset = |i: usize| ["Books3", "ArXiv", "Github"][i % 3];
    let length = |i: usize| usize::MAX - records[i]["text"].as_str().unwrap().len();
    // in tenths; none is last
    let quality = |i: usize| {
        if i.is_multiple_of(5) {
            1000
        } else {
            100 - i * 7 % 11
        }
    };
    let priority = ["other", "input/ArXiv", "input/Books3"];
    let source = |i: usize| {
        priority
            .iter()
            .position(|p| p.ends_with(subset(i)))
            .unwrap_or(9)
    };
    type Key<'a> = &'a dyn Fn(usize) -> (usize, usize);
    let policies: [(KeepPolicy, bool, Key<'_>); 5] = [
        (KeepPolicy::Longest, false, &|i| (0, length(i))),
        (KeepPolicy::Quality, false, &|i| (0, quality(i))),
        (KeepPolicy::First, true, &|i| (source(i), 0)),
        (KeepPolicy::Longest, true, &|i| (source(i), length(i))),
        (KeepPolicy::Quality, true, &|i| (source(i), quality(i))),
    ];
    for (keep, by_source, key) in policies {
        let names = if by_source { &priority[..] } else { &[] };
        for verify in [0.0, 0.75] {
            let settings = DedupConfig {
                keep,
                priority: names.iter().map(|n| (*n).to_string()).collect(),
                exact: base.exact.clone(),
                ..settings(verify)
            };
            let (report, outcomes) = run(folder.path(), shards, &settings);
            let wanted = greedy(&records, &unverified, verify, key);
            assert_eq!(outcomes, wanted, "{keep:?} {by_source} {verify}");
            assert!(report.fuzzy > 50, "{report:?}");
        }
    }
}

#[test]
fn of_equal_texts_the_best_source_stays_and_is_no_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let text = "one two three four five six seven eight nine ten eleven twelve";
    let other = "one two three four five six seven eight nine ten eleven thirteen";
    let record = |id: &str, text: &str, subset: &str| json!({"id": id, "text": text, "meta": {"pile_set_name": subset}});
    let records = [
        record("a", text, "Github"),
        record("b", text, "ArXiv"),
        record("c", other, "Github"),
        record("d", text, "Books3"),
    ];
    for verify in [0.0, 0.5] {
        let settings = DedupConfig {
            exact: Some(curate::dedup::ExactConfig::default()),
            priority: vec!["input/ArXiv".to_string()],
            ..settings(verify)
        };
        let shards = signed(folder.path(), &records, 2, &settings);
        let (report, outcomes) = run(folder.path(), shards, &settings);
        let b = || Of::This("b".to_string());
        let wanted = [("a", b()), ("b", Of::Nothing), ("c", b()), ("d", b())];
        assert_eq!(outcomes, wanted.map(|(id, of)| (id.to_string(), of)).into());
        assert_eq!((report.exact, report.fuzzy, report.kept), (2, 1, 1));
    }
}

#[test]
fn a_kept_document_tells_how_many_it_stands_for_and_rehydration_follows() {
    let records = records(&texts(500));
    let folder = tempfile::tempdir().unwrap();
    let shards = signed(folder.path(), &records, 4, &settings(0.7));
    for verify in [0.0, 0.7] {
        let (report, outcomes) = run(folder.path(), shards, &settings(verify));
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for (id, of) in &outcomes {
            let keeper = if let Of::This(keeper) = of {
                keeper
            } else {
                id
            };
            *sizes.entry(keeper.clone()).or_default() += 1;
        }
        let mut table = curate::dedup::REHYDRATION.map(|(from, times)| (from, times, 0));
        for size in sizes.values() {
            table.iter_mut().rev().find(|row| row.0 <= *size).unwrap().2 += 1;
        }
        let found: Vec<_> = report
            .rehydration
            .iter()
            .map(|r| (r.from, r.times, r.documents))
            .collect();
        assert_eq!(found, table);
        let mut found: Vec<u64> = Vec::new();
        for shard in 0..shards {
            let path = folder.path().join(format!("keep/{shard:05}.keep"));
            let keep = KeepList::read(&path).unwrap();
            found.extend(
                (0..keep.len())
                    .map(|i| keep.cluster_size(i))
                    .filter(|n| *n > 0),
            );
        }
        let wanted: Vec<u64> = sizes.into_values().collect();
        assert_eq!(found, wanted);
    }
}

/// Curates records and keeps those that are not in the indexes of `folder`; returns the report, the results and the
/// folder of the run.
fn crawl(
    root: &Path,
    name: &str,
    records: &[Value],
    files: usize,
    settings: &DedupConfig,
) -> (DedupReport, BTreeMap<String, Of>, PathBuf) {
    let out = root.join(name);
    let shards = signed(&out, records, files, settings);
    let (report, outcomes) = run(&out, shards, settings);
    (report, outcomes, out)
}

fn with_index(settings: DedupConfig, folder: &Path) -> DedupConfig {
    std::fs::create_dir_all(folder).unwrap();
    DedupConfig {
        index: Some(folder.to_path_buf()),
        exact: Some(curate::dedup::ExactConfig::default()),
        ..settings
    }
}

#[test]
fn a_new_crawl_loses_what_it_would_lose_behind_what_the_earlier_ones_kept() {
    let records = records(&texts(600));
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let folder = root.join("indexes");
    let settings = with_index(settings(0.0), &folder);
    let kept = |outcomes: &BTreeMap<String, Of>| -> Vec<Value> {
        let of = |r: &&Value| outcomes[r["id"].as_str().unwrap()] == Of::Nothing;
        records
            .iter()
            .filter(|r| outcomes.contains_key(r["id"].as_str().unwrap()))
            .filter(of)
            .cloned()
            .collect()
    };
    let (first, told_first, out) = crawl(root, "a", &records[..200], 3, &settings);
    assert_eq!((first.indexed, first.earlier), (0, 0));
    let described = inspect(&out.join("keep/kept.index")).unwrap();
    assert_eq!(described["kind"], "index of signatures");
    assert_eq!(described["documents"], first.kept);
    std::fs::rename(out.join("keep/kept.index"), folder.join("a.index")).unwrap();
    let (second, told_second, out) = crawl(root, "b", &records[200..400], 2, &settings);
    assert!(
        second.earlier > 20 && second.indexed == first.kept,
        "{second:?}"
    );
    std::fs::rename(out.join("keep/kept.index"), folder.join("b.index")).unwrap();
    // a crawl after both: from two indexes, from one merged index, and from scratch after their kept documents
    let (third, told_third, _) = crawl(root, "c", &records[400..], 5, &settings);
    let merged = root.join("merged");
    let settings_merged = with_index(settings.clone(), &merged);
    let parts = [folder.join("a.index"), folder.join("b.index")];
    let (file, documents) = merge_indexes(&merged.join("ab.index"), &parts, &Silent).unwrap();
    assert_eq!(
        (file.path.as_str(), documents),
        ("ab.index", first.kept + second.kept)
    );
    let (again, told_again, _) = crawl(root, "c2", &records[400..], 1, &settings_merged);
    assert_eq!(told_again, told_third);
    assert_eq!(
        (again.kept, again.earlier, again.indexed),
        (third.kept, third.earlier, documents)
    );
    let mut all = kept(&told_first);
    all.extend(kept(&told_second));
    all.extend_from_slice(&records[400..]);
    let alone = DedupConfig {
        index: None,
        ..settings
    };
    let (_, told_all, _) = crawl(root, "all", &all, 4, &alone);
    for (id, of) in &told_third {
        assert_eq!(*of == Of::Nothing, told_all[id] == Of::Nothing, "{id}");
    }
    assert!(third.earlier > 50 && third.fuzzy > 5, "{third:?}");
}

#[test]
fn verified_or_not_a_document_that_shares_a_band_with_an_earlier_crawl_goes_unseen() {
    let records = records(&texts(400));
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let folder = root.join("indexes");
    let settings = with_index(settings(0.8), &folder);
    let (_, _, out) = crawl(root, "a", &records[..60], 2, &settings);
    std::fs::rename(out.join("keep/kept.index"), folder.join("a.index")).unwrap();
    // its texts are gone
    std::fs::remove_dir_all(out).unwrap();
    let (report, outcomes, out) = crawl(root, "b", &records[60..], 3, &settings);
    let verify = report.verify.unwrap();
    assert_eq!(verify.unverified, report.earlier);
    assert!(
        report.earlier > 30 && verify.removed > 5 && verify.rejected > 5,
        "{verify:?}"
    );
    for (id, of) in &outcomes {
        if let Of::This(keeper) = of {
            let record = |id: &str| records.iter().find(|r| r["id"] == id).unwrap();
            assert_eq!(
                outcomes[keeper],
                Of::Nothing,
                "{id} repeats {keeper}, which is gone"
            );
            assert!(jaccard(&set(record(id)), &set(record(keeper))) >= 0.8);
        }
    }
    let clusters = std::fs::read_to_string(out.join("keep/clusters.jsonl")).unwrap();
    assert!(clusters.contains("\"crawl\""), "{clusters}");
}

#[test]
fn an_index_that_is_not_what_it_should_be_is_refused_by_name() {
    let records = records(&texts(60));
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let folder = root.join("indexes");
    let settings = with_index(settings(0.0), &folder);
    let (_, _, out) = crawl(root, "a", &records[..30], 2, &settings);
    let path = folder.join("a.index");
    std::fs::copy(out.join("keep/kept.index"), &path).unwrap();
    let sound = std::fs::read(&path).unwrap();
    let shards = signed(&root.join("b"), &records[30..], 2, &settings);
    let refused = |settings: &DedupConfig, out: &str, word: &str| match dedup(
        settings,
        &root.join(out),
        shards,
        &Silent,
    ) {
        Err(Error::Damaged {
            path,
            found,
            expected,
            ..
        }) => {
            assert!(path.extension().is_some_and(|e| e == "index"), "{path:?}");
            assert!(
                format!("{found} {expected}").contains(word),
                "{found}, {expected}"
            );
        }
        other => panic!("{word}: {other:?}"),
    };
    for at in (0..sound.len()).step_by(sound.len() / 60) {
        // the checksum of the whole file is not read, the columns that are compared are
        if at + 16 >= sound.len() || !used(at, &sound) {
            continue;
        }
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        refused(&settings, "b", "");
    }
    for end in [0, 7, 63, 64, 200, sound.len() - 1] {
        std::fs::write(&path, &sound[..end]).unwrap();
        refused(&settings, "b", "");
    }
    std::fs::write(&path, &sound).unwrap();
    refused(&settings, "a", "this very crawl");
    let twice = folder.join("b.index");
    std::fs::copy(&path, &twice).unwrap();
    refused(&settings, "b", "a.index");
    assert!(
        merge_indexes(
            &root.join("c.index"),
            &[path.clone(), twice.clone()],
            &Silent
        )
        .is_err()
    );
    std::fs::copy(root.join("b/clean/00000.sig"), &twice).unwrap();
    refused(&settings, "b", "signatures of a shard");
    std::fs::remove_file(&twice).unwrap();
    let mut other = settings.clone();
    other.minhash.as_mut().unwrap().seed = 2;
    let shards = signed(&root.join("d"), &records[30..], 2, &other);
    match dedup(&other, &root.join("d"), shards, &Silent) {
        Err(Error::Damaged { path, offset, .. }) => {
            assert!(
                path.ends_with("a.index") && offset == 8,
                "{path:?} {offset}"
            );
        }
        other => panic!("{other:?}"),
    }
    let absent = with_index(settings, &root.join("gone"));
    std::fs::remove_dir_all(root.join("gone")).unwrap();
    assert!(matches!(
        dedup(&absent, &root.join("b"), shards, &Silent),
        Err(Error::Io { .. })
    ));
}

/// True for bytes of columns that deduplication reads: not lengths, sources, qualities and places.
fn used(at: usize, sound: &[u8]) -> bool {
    let count = sound.len() - 40;
    let documents = usize::try_from(u64::from_le_bytes(
        sound[count..count + 8].try_into().unwrap(),
    ))
    .unwrap();
    let column = at.saturating_sub(64);
    let (fixed, bands) = (36 * documents, 36 * documents + 28 * 8 * documents);
    at < 64
        || column < 16 * documents
        || (fixed..bands).contains(&column)
        || column >= bands + 12 * documents
}

#[test]
fn contradictions_of_verification_policies_and_indexes_are_reported_at_once() {
    let text = r#"{"keep":"datatrove","priority":["a","a",""],"index":"x","minhash":{"preset":"fineweb","verify":0.5}}"#;
    let config: DedupConfig = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    let wanted = [
        "priority[1]",
        "priority[2]",
        "minhash.verify",
        "priority",
        "index",
    ];
    assert_eq!(found, wanted);
    let text = r#"{"index":"x","url":{},"minhash":null}"#;
    let config: DedupConfig = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(found, ["index"]);
    let wrong = r#"{"minhash":{"verify":1.5}}"#;
    let config: DedupConfig = serde_json::from_str(wrong).unwrap();
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(found, ["minhash.verify"]);
    // MT-NLG's definition has its own
    assert_eq!(MinhashConfig::of(MinhashPreset::MtNlg).verify, 0.8);
    assert_eq!(MinhashConfig::of(MinhashPreset::Fineweb).verify, 0.0);
}

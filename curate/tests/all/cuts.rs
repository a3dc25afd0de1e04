//! Deduplication of lines, substrings and addresses across shards: against naive implementations, and the same
//! bytes for any run configuration.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use curate::corpus::{
    EditList, Found, KeepList, KeepStatus, TextReader, documents, kept_documents,
};
use curate::dedup::{
    BloomConfig, BloomRemove, DedupConfig, DedupReport, LineHash, LineKeep, LineUnit, LinesConfig,
    RemovedCounts, SubstringConfig, SubstringUnit, UrlDedupConfig, UrlKeep, dedup,
};
use curate::pipeline::{CurateConfig, Curator, inspect, shards};
use curate::read::Input;
use curate::write::checksum;
use curate::{Error, Silent};
use serde_json::{Value, json};

/// Curates one shard a list of records.
fn curated(folder: &Path, lists: &[Vec<Value>]) -> usize {
    let input = folder.join("in");
    std::fs::create_dir_all(&input).unwrap();
    for (i, list) in lists.iter().enumerate() {
        let lines: String = list.iter().map(|r| format!("{r}\n")).collect();
        std::fs::write(input.join(format!("{i:03}.jsonl")), lines).unwrap();
    }
    let config = CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, None, 1).unwrap();
    let list = shards(&config).unwrap();
    for shard in &list {
        curator
            .run_shard(shard, &folder.join("out"), &Silent)
            .unwrap();
    }
    list.len()
}

fn texts(lists: &[&[&str]]) -> Vec<Vec<Value>> {
    let list = |texts: &&[&str]| texts.iter().map(|t| json!({ "text": t })).collect();
    lists.iter().map(list).collect()
}

/// The texts that are left, by `kept_documents` and by the tokenizer's reader, which must agree.
fn left(out: &Path, shards: usize) -> Vec<String> {
    let mut all = Vec::new();
    for shard in 0..shards {
        let kept: Vec<String> = kept_documents(out, shard)
            .unwrap()
            .map(|d| d.unwrap().text)
            .collect();
        let mut read = Vec::new();
        let mut reader = TextReader::shard(out, shard, true).unwrap();
        while reader.next(&mut |r| read.push(r.texts.concat())).unwrap() == Found::Document {}
        assert_eq!(kept, read);
        all.extend(kept);
    }
    all
}

fn run(config: &DedupConfig, lists: &[Vec<Value>]) -> (DedupReport, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let count = curated(folder.path(), lists);
    let out = folder.path().join("out");
    let report = dedup(config, &out, count, &Silent).unwrap();
    let sum = report.kept + report.exact + report.fuzzy + report.url + report.hollow;
    assert_eq!(report.documents, sum);
    let mut removed = RemovedCounts::default();
    let shards = report.kept_per_shard.iter().zip(&report.removed_per_shard);
    for ((kept, of), list) in shards.zip(lists) {
        assert_eq!(kept + of.total(), list.len() as u64);
        removed.add(of);
    }
    let wanted = RemovedCounts {
        exact: report.exact,
        fuzzy: report.fuzzy,
        url: report.url,
        hollow: report.hollow,
        ..RemovedCounts::default()
    };
    assert_eq!(removed, wanted);
    (report, left(&out, count))
}

fn lines(config: LinesConfig) -> DedupConfig {
    DedupConfig {
        lines: Some(config),
        ..DedupConfig::default()
    }
}

fn substring(min_bytes: usize) -> DedupConfig {
    DedupConfig {
        substring: Some(SubstringConfig {
            min_bytes,
            ..SubstringConfig::default()
        }),
        ..DedupConfig::default()
    }
}

#[test]
fn the_first_of_equal_lines_stays_across_shards() {
    let lists = texts(&[
        &["Menu\nOne text\nShare 12", "menu\nAnother text\n\nshare 99"],
        &["MENU\nShare 11", "Third text\nMenu"],
    ]);
    let (report, left) = run(&lines(LinesConfig::default()), &lists);
    assert_eq!(
        left,
        ["Menu\nOne text\nShare 12", "Another text\n", "Third text"]
    );
    let cut = &report.cuts[0];
    assert_eq!((cut.pieces, cut.documents, cut.hollow), (10, 2, 1));
    assert_eq!((report.kept, report.hollow), (3, 1));
    assert_eq!(report.kept_per_shard, [2, 1]);
    let hollow = report.removed_per_shard.iter().map(|of| of.hollow);
    assert_eq!(hollow.collect::<Vec<_>>(), [0, 1]);
    let unique = LinesConfig {
        keep: LineKeep::None,
        ..LinesConfig::default()
    };
    let (_, left) = run(&lines(unique), &lists);
    assert_eq!(left, ["One text", "Another text\n", "Third text"]);
}

#[test]
fn paragraphs_are_compared_whole() {
    let config = LinesConfig {
        unit: LineUnit::Paragraph,
        normalize: false,
        ..LinesConfig::default()
    };
    let lists = texts(&[&["a\nb\n\nc\n\n\nd", "x\n\na\nb\n\nc", "a\n\nc\nb\n\na"]]);
    let (_, left) = run(&lines(config), &lists);
    assert_eq!(left, ["a\nb\n\nc\n\n\nd", "x", "a\n\nc\nb"]);
}

#[test]
fn a_document_that_loses_more_than_its_share_is_dropped_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let lists = texts(&[&["one\ntwo\nsix", "one\ntwo\nten", "one\nand something else"]]);
    let count = curated(folder.path(), &lists);
    let out = folder.path().join("out");
    let config = lines(LinesConfig {
        max_removed_ratio: 0.5,
        ..LinesConfig::default()
    });
    let report = dedup(&config, &out, count, &Silent).unwrap();
    assert_eq!((report.kept, report.hollow), (2, 1));
    assert_eq!(left(&out, count), ["one\ntwo\nsix", "and something else"]);
    let message = std::fs::read_to_string(out.join("keep/dropped.jsonl")).unwrap();
    let message: Value = serde_json::from_str(&message).unwrap();
    assert_eq!(message["rule"], "lines.removed_ratio");
    assert_eq!(
        (&message["shard"], &message["document"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(message["value"], 6.0 / 9.0);
    assert_eq!(message["limit"], 0.5);
    let list = KeepList::read(&out.join("keep/00000.keep")).unwrap();
    assert_eq!(list.status(1), KeepStatus::Hollow);
    let file = out.join("keep/00000.edits");
    let message = inspect(&file).unwrap();
    assert_eq!(
        (&message["documents"], &message["cuts"]),
        (&json!(3), &json!(1))
    );
    for file in &report.outputs {
        assert_eq!(
            checksum(&out.join(&file.path)).unwrap().1,
            file.xxh3,
            "{}",
            file.path
        );
    }
    // a later job without this pass leaves nothing of it
    let plain = DedupConfig {
        exact: Some(curate::dedup::ExactConfig::default()),
        ..DedupConfig::default()
    };
    dedup(&plain, &out, count, &Silent).unwrap();
    assert!(!file.exists());
    assert_eq!(left(&out, count).len(), 3);
}

/// Texts that share pieces of one another, with characters of several bytes.
fn shared_pieces(documents: usize) -> Vec<String> {
    let mut state = 7u64;
    let mut next = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    let letters = ['a', 'b', 'c', ' ', '\u{e9}', '\u{4e2d}', '\u{1f600}', '\n'];
    let mut texts: Vec<String> = Vec::new();
    for i in 0..documents {
        let mut text = String::new();
        for _ in 0..=next(4) {
            if i > 0 && next(3) > 0 {
                let from: Vec<char> = texts[next(i)].chars().collect();
                let start = next(from.len());
                let length = (1 + next(90)).min(from.len() - start);
                text.extend(&from[start..start + length]);
            } else {
                text.extend((0..=next(60)).map(|_| letters[next(letters.len())]));
            }
        }
        if i % 10 == 3 {
            text.push_str(&"ab".repeat(next(60)));
        }
        texts.push(text);
    }
    texts
}

/// The definition, window by window.
fn naive_substring(texts: &[String], n: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut left = Vec::new();
    for text in texts {
        let bytes = text.as_bytes();
        let mut gone = vec![false; bytes.len()];
        for at in 0..(bytes.len() + 1).saturating_sub(n) {
            if seen.insert(bytes[at..at + n].to_vec()) {
                continue;
            }
            let (mut start, mut end) = (at, at + n);
            while !text.is_char_boundary(start) {
                start += 1;
            }
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            gone[start..end].fill(true);
        }
        let kept = text.char_indices().filter(|(i, _)| !gone[*i]);
        left.push(kept.map(|(_, c)| c).collect::<String>());
    }
    left.retain(|t| !t.is_empty());
    left
}

#[test]
fn every_repeated_stretch_is_found_and_nothing_else() {
    let all = shared_pieces(300);
    for n in [32, 33, 50, 100] {
        let lists: Vec<Vec<Value>> = all
            .chunks(70)
            .map(|c| c.iter().map(|t| json!({ "text": t })).collect())
            .collect();
        let (report, left) = run(&substring(n), &lists);
        assert_eq!(left, naive_substring(&all, n), "{n} bytes");
        assert!(
            report.cuts[0].bytes > 1000 && report.hollow > 2,
            "{report:?}"
        );
    }
}

/// The same in words: runs of letters, or single other characters.
fn naive_words(texts: &[String], n: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut left = Vec::new();
    for text in texts {
        let mut words: Vec<(usize, usize)> = Vec::new();
        for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            let end = at + c.len_utf8();
            let is_letter = |c: char| c.is_ascii_alphabetic() || c == '\u{e9}';
            match words.last_mut() {
                Some(last)
                    if last.1 == at && is_letter(c) && text[last.0..at].chars().all(is_letter) =>
                {
                    last.1 = end
                }
                _ => words.push((at, end)),
            }
        }
        let mut gone = vec![false; text.len()];
        for at in 0..(words.len() + 1).saturating_sub(n) {
            let window = &words[at..at + n];
            let key: Vec<&str> = window.iter().map(|w| &text[w.0..w.1]).collect();
            if !seen.insert(key.join(" ")) {
                // with the white space behind, and before the first word
                let start = if at == 0 { 0 } else { words[at].0 };
                let end = words.get(at + n).map_or(text.len(), |w| w.0);
                gone[start..end].fill(true);
            }
        }
        let kept = text.char_indices().filter(|(i, _)| !gone[*i]);
        left.push(kept.map(|(_, c)| c).collect::<String>());
    }
    left.retain(|t| !t.is_empty());
    left
}

#[test]
fn every_repeated_stretch_of_words_is_found_whatever_white_space_is_in_it() {
    let mut all = shared_pieces(300);
    // the same words with other white space
    for i in (0..all.len()).step_by(5) {
        all[i] = all[i - i % 7].replace(' ', "\n ");
    }
    for n in [8, 9, 20] {
        let lists: Vec<Vec<Value>> = all
            .chunks(70)
            .map(|c| c.iter().map(|t| json!({ "text": t })).collect())
            .collect();
        let config = SubstringConfig {
            unit: SubstringUnit::Word,
            min_words: n,
            ..SubstringConfig::default()
        };
        let config = DedupConfig {
            substring: Some(config),
            ..DedupConfig::default()
        };
        let (report, left) = run(&config, &lists);
        assert_eq!(left, naive_words(&all, n), "{n} words");
        assert!(report.cuts[0].bytes > 1000, "{report:?}");
    }
}

/// Bytes that occur twice in windows of n, first copies aside, by a suffix array of the whole corpus, its documents apart.
fn suffix_array_repeats(texts: &[String], n: usize) -> Vec<Vec<bool>> {
    let mut all = Vec::new();
    let mut place = Vec::new();
    for (d, text) in texts.iter().enumerate() {
        for i in 0..text.len() {
            place.push((d, i));
        }
        all.extend(text.bytes().map(u32::from));
        // ends are all different, so no match crosses one
        place.push((d, text.len()));
        all.push(256 + u32::try_from(d).unwrap());
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|a, b| all[*a..].cmp(&all[*b..]));
    let mut gone: Vec<Vec<bool>> = texts.iter().map(|t| vec![false; t.len()]).collect();
    let common = |a: usize, b: usize| {
        let pairs = all[a..].iter().zip(&all[b..]);
        pairs.take_while(|(x, y)| x == y).count()
    };
    let mut run: Vec<usize> = Vec::new();
    let mut finish = |run: &mut Vec<usize>| {
        run.sort_unstable();
        for at in run.iter().skip(1) {
            let (d, i) = place[*at];
            gone[d][i..i + n].fill(true);
        }
        run.clear();
    };
    for pair in order.windows(2) {
        if run.is_empty() {
            run.push(pair[0]);
        }
        if common(pair[0], pair[1]) < n {
            finish(&mut run);
            continue;
        }
        run.push(pair[1]);
    }
    finish(&mut run);
    gone
}

#[test]
fn what_is_cut_is_what_a_suffix_array_shows() {
    let all: Vec<String> = shared_pieces(150)
        .into_iter()
        .map(|t| t.chars().filter(char::is_ascii).collect::<String>())
        .filter(|t| !t.is_empty())
        .collect();
    let n = 32;
    let gone = suffix_array_repeats(&all, n);
    let mut want: Vec<String> = all
        .iter()
        .zip(&gone)
        .map(|(t, gone)| {
            let kept = t.chars().zip(gone).filter(|(_, gone)| !**gone);
            kept.map(|(c, _)| c).collect()
        })
        .collect();
    assert!(gone.iter().flatten().filter(|g| **g).count() > 500);
    want.retain(|t| !t.is_empty());
    let lists = [all.iter().map(|t| json!({ "text": t })).collect()];
    assert_eq!(run(&substring(n), &lists).1, want);
}

/// BFF's loop with a set in the filter's place.
fn naive_bloom(texts: &[String], config: &BloomConfig) -> Vec<String> {
    let mut filter: HashSet<Vec<String>> = HashSet::new();
    let mut left = Vec::new();
    for text in texts {
        let mut bounds = vec![0];
        if config.remove != BloomRemove::Document {
            bounds.extend(text.match_indices('\n').map(|(i, _)| i));
        }
        bounds.push(text.len());
        let (mut all, mut known, mut kept) = (0, 0, String::new());
        for bound in bounds.windows(2) {
            let paragraph = &text[bound[0]..bound[1]];
            // only letters and spaces here, so words are separated by white space
            let words: Vec<String> = paragraph.split_whitespace().map(str::to_string).collect();
            let mut ngrams: Vec<Vec<String>> = words
                .windows(config.ngram)
                .map(<[String]>::to_vec)
                .collect();
            if ngrams.is_empty() && words.len() >= config.min_ngram {
                ngrams.push(words);
            }
            let here = ngrams.iter().filter(|n| filter.contains(*n)).count();
            all += ngrams.len();
            known += here;
            if here as f64 > config.threshold * ngrams.len() as f64 {
                continue;
            }
            kept.push_str(paragraph);
            filter.extend(ngrams);
        }
        let mostly = all > 0 && known as f64 > config.threshold * all as f64;
        let is_gone = kept.is_empty() || (config.remove == BloomRemove::Both && mostly);
        if !is_gone {
            left.push(kept);
        }
    }
    left
}

#[test]
fn a_bloom_filter_without_false_positives_leaves_what_a_set_leaves() {
    let mut state = 3u64;
    let mut next = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % below
    };
    let words = ["a", "bee", "see", "dee", "ee", "ef", "gee"];
    let mut paragraphs: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for _ in 0..300 {
        let mut text = Vec::new();
        for _ in 0..=next(5) {
            let fresh: Vec<&str> = (0..next(30)).map(|_| words[next(words.len())]).collect();
            let mut paragraph = fresh.join(" ");
            if !paragraphs.is_empty() && next(2) == 0 {
                paragraph = paragraphs[next(paragraphs.len())].clone() + ["", " more"][next(2)];
            }
            paragraphs.push(paragraph.clone());
            text.push(paragraph);
        }
        let text = text.join("\n");
        if !text.trim().is_empty() {
            all.push(text);
        }
    }
    let lists: Vec<Vec<Value>> = all
        .chunks(80)
        .map(|c| c.iter().map(|t| json!({ "text": t })).collect())
        .collect();
    for remove in [
        BloomRemove::Both,
        BloomRemove::Paragraph,
        BloomRemove::Document,
    ] {
        for (ngram, min_ngram) in [(13, 13), (13, 4), (3, 1)] {
            let config = BloomConfig {
                remove,
                ngram,
                min_ngram,
                false_positive_rate: 1e-9,
                ..BloomConfig::default()
            };
            let (report, left) = run(
                &DedupConfig {
                    bloom: Some(config.clone()),
                    ..DedupConfig::default()
                },
                &lists,
            );
            let want = naive_bloom(&all, &config);
            assert!(want.len() > 20 && want.len() < all.len(), "{}", want.len());
            assert_eq!(left, want, "{config:?}");
            let bloom = report.cuts[0].bloom.clone().unwrap();
            assert!(bloom.ngrams <= bloom.expected_ngrams && bloom.false_positive_rate < 2e-9);
        }
    }
}

#[test]
fn one_document_an_address_stays() {
    let record = |url: &str, text: &str| json!({"url": url, "text": text});
    let lists = [
        vec![
            record("http://example.com/a", "short"),
            json!({"text": "no address"}),
            record("http://example.com/a?y=1&x=2", "query"),
        ],
        vec![
            record("https://www.example.com/a/#top", "a longer text"),
            record("http://example.com/a?x=2&y=1", "query turned"),
            json!({"text": "no address either"}),
        ],
    ];
    let url = |keep, sort_query| DedupConfig {
        url: Some(UrlDedupConfig { keep, sort_query }),
        ..DedupConfig::default()
    };
    let (report, left) = run(&url(UrlKeep::First, false), &lists);
    assert_eq!((report.kept, report.url), (5, 1));
    assert_eq!(
        left,
        [
            "short",
            "no address",
            "query",
            "query turned",
            "no address either"
        ]
    );
    let (report, left) = run(&url(UrlKeep::Longest, true), &lists);
    assert_eq!((report.kept, report.url), (4, 2));
    assert_eq!(
        left,
        [
            "no address",
            "a longer text",
            "query turned",
            "no address either"
        ]
    );
}

/// Every file below `keep`, with its checksum.
fn tree(out: &Path) -> HashMap<String, String> {
    let files = std::fs::read_dir(out.join("keep")).unwrap();
    let paths = files.map(|e| e.unwrap().path());
    paths
        .map(|p| {
            let name = p.file_name().unwrap().to_string_lossy().into_owned();
            (name, checksum(&p).unwrap().1)
        })
        .collect()
}

fn everything(memory_mb: u64) -> DedupConfig {
    DedupConfig {
        url: Some(UrlDedupConfig::default()),
        lines: Some(LinesConfig {
            max_removed_ratio: 0.9,
            ..LinesConfig::default()
        }),
        bloom: Some(BloomConfig {
            ngram: 3,
            min_ngram: 2,
            expected_ngrams: 10_000,
            ..BloomConfig::default()
        }),
        memory_mb,
        ..DedupConfig {
            exact: Some(curate::dedup::ExactConfig::default()),
            ..substring(40)
        }
    }
}

#[test]
fn cuts_depend_neither_on_threads_nor_on_memory_nor_on_an_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    let all = shared_pieces(400);
    let record = |(i, t): (usize, &String)| {
        let url = format!("http://example.com/{}", i % 350);
        json!({"text": t, "url": url})
    };
    let records: Vec<Value> = all.iter().enumerate().map(record).collect();
    let lists: Vec<Vec<Value>> = records.chunks(90).map(<[Value]>::to_vec).collect();
    let count = curated(folder.path(), &lists);
    let out = folder.path().join("out");
    let mut results = Vec::new();
    for (threads, memory) in [(1, 512), (2, 0), (7, 512)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let report = pool
            .unwrap()
            .install(|| dedup(&everything(memory), &out, count, &Silent).unwrap());
        results.push((report, tree(&out), left(&out, count)));
    }
    assert!(results[0].0.url > 10 && results[0].0.cuts.len() == 3);
    assert!(results.iter().all(|r| *r == results[0]));
    assert!(!out.join("tmp").exists());
}

#[test]
fn the_number_of_files_changes_no_text() {
    let all = shared_pieces(200);
    let records: Vec<Value> = all.iter().map(|t| json!({ "text": t })).collect();
    let mut results = Vec::new();
    for files in [1, 2, 7] {
        let lists: Vec<Vec<Value>> = records
            .chunks(200usize.div_ceil(files))
            .map(<[Value]>::to_vec)
            .collect();
        results.push(run(&everything(64), &lists).1);
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn an_edit_list_that_is_not_of_the_shard_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lists = texts(&[
        &["\u{e9}\u{e9}\u{e9}\u{e9}\nsame", "same\nx", "three"],
        &["same\nelse", "five"],
    ]);
    let count = curated(folder.path(), &lists);
    let out = folder.path().join("out");
    dedup(&lines(LinesConfig::default()), &out, count, &Silent).unwrap();
    let path = out.join("keep/00000.edits");
    let sound = std::fs::read(&path).unwrap();
    assert_eq!(EditList::read(&path).unwrap().of(1), [(0, 5)]);
    // another shard's
    std::fs::copy(out.join("keep/00001.edits"), &path).unwrap();
    let refused = |result: Option<Error>| matches!(result, Some(Error::Damaged { .. }));
    assert!(refused(kept_documents(&out, 0).err()));
    assert!(refused(TextReader::shard(&out, 0, true).err()));
    std::fs::write(&path, &sound[..30]).unwrap();
    assert!(refused(kept_documents(&out, 0).err()));
    // the right number of documents, but other texts
    std::fs::write(&path, &sound).unwrap();
    let (one, two) = (
        out.join("clean/00000.jsonl.zst"),
        out.join("clean/00001.jsonl.zst"),
    );
    std::fs::copy(&two, &one).unwrap();
    let found: Vec<_> = kept_documents(&out, 0).unwrap().collect();
    assert!(found.iter().any(Result::is_err));
    assert_eq!(documents(&out, 0).unwrap().count(), 2);
}

#[test]
fn settings_that_cannot_be_are_all_told() {
    let text = r#"{"lines":{"max_removed_ratio":2.0},"substring":{"min_bytes":8,"max_removed_ratio":-1.0},"memory_mb":1}"#;
    let config: DedupConfig = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(
        found,
        [
            "lines.max_removed_ratio",
            "substring.min_bytes",
            "substring.max_removed_ratio",
            "memory_mb"
        ]
    );
    for wrong in [r#"{"lines":{"unit":"word"}}"#, r#"{"url":{"sort":true}}"#] {
        assert!(
            serde_json::from_str::<DedupConfig>(wrong).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn ccnets_own_program_leaves_the_same_texts() {
    let golden: Value = serde_json::from_str(include_str!("../data/ccnet_dedup.json")).unwrap();
    let strings = |v: &Value| -> Vec<String> { serde_json::from_value(v.clone()).unwrap() };
    let files = golden["files"].as_array().unwrap();
    let lists: Vec<Vec<Value>> = files
        .iter()
        .map(|f| strings(f).iter().map(|t| json!({ "text": t })).collect())
        .collect();
    for (keep, want) in [(LineKeep::First, "first"), (LineKeep::None, "none")] {
        let config = LinesConfig {
            hash: LineHash::Sha1,
            keep,
            min_chars: 0,
            ..LinesConfig::default()
        };
        let (_, left) = run(&lines(config), &lists);
        let want = strings(&golden[want]);
        assert!(want.len() > 10);
        assert_eq!(left, want);
    }
}

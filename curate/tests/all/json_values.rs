//! JSON that is not one object per line: arrays of objects, and objects over several lines, whole, damaged, and in any pieces.

use curate::Silent;
use curate::corpus::{Found, TextReader, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Texts and reasons of bad records of a file.
fn read(path: &Path, config: &CurateConfig) -> (Vec<String>, ShardReport, Vec<String>) {
    let out = tempfile::tempdir().unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        ..config.clone()
    };
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let (mut texts, mut sum, mut whys) = (Vec::new(), ShardReport::default(), Vec::new());
    for shard in shards(&config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out.path(), &Silent).unwrap());
        let kept = documents(out.path(), shard.number).unwrap();
        texts.extend(kept.map(|document| document.unwrap().text));
        let errors = format!("errors/{:05}.jsonl", shard.number);
        let errors = std::fs::read_to_string(out.path().join(errors)).unwrap();
        whys.extend(errors.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["why"].as_str().unwrap().to_string()
        }));
    }
    assert!(sum.adds_up());
    (texts, sum, whys)
}

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn arrays_and_objects_over_several_lines_are_read_like_lines() {
    let records: Vec<Value> = (0..50)
        .map(|i| json!({"id": i, "text": format!("Words {i}, a \"]\" and\na \\ \u{e9}."), "in": {"list": [1, {}]}}))
        .collect();
    let lines: String = records.iter().map(|r| format!("{r}\n")).collect();
    let pretty: String = records
        .iter()
        .map(|r| serde_json::to_string_pretty(r).unwrap() + "\n")
        .collect();
    let (want, _, _) = read(written(lines.as_bytes()).path(), &CurateConfig::default());
    assert_eq!(want.len(), 50);
    let joined: Vec<String> = records.iter().map(Value::to_string).collect();
    for text in [
        serde_json::to_string(&records).unwrap(),
        serde_json::to_string_pretty(&records).unwrap(),
        format!("\u{feff}\r\n[\n{}\n]\n", joined.join(",\n")),
        pretty,
    ] {
        let utf_16 = || {
            let units = text.trim_start_matches('\u{feff}').encode_utf16();
            let units = units.flat_map(u16::to_le_bytes);
            [0xff, 0xfe].into_iter().chain(units).collect::<Vec<u8>>()
        };
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for bytes in [text.as_bytes().to_vec(), utf_16(), zstd] {
            let file = written(&bytes);
            let cut = CurateConfig {
                split_mb: 1,
                ..CurateConfig::default()
            };
            let (texts, report, _) = read(file.path(), &cut);
            assert_eq!((texts, report.quarantined), (want.clone(), 0), "{text}");
            // the tokenizer's reader
            let mut reader = TextReader::open(file.path(), Format::Jsonl, "text", 1 << 20).unwrap();
            let mut found = Vec::new();
            while reader
                .next(&mut |record| found.push(record.texts[0].to_string()))
                .unwrap()
                != Found::End
            {}
            assert_eq!(found, want);
        }
    }
}

#[test]
fn a_large_array_is_not_cut_and_is_read_with_little_memory_of_its_elements() {
    let record = json!({"text": "word ".repeat(200)}).to_string();
    let array = format!("[{}]", vec![record; 3000].join(","));
    let config = CurateConfig {
        split_mb: 1,
        max_record_bytes: 2000,
        ..CurateConfig::default()
    };
    let file = written(array.as_bytes());
    let input = Input {
        path: file.path().to_string_lossy().into_owned(),
        ..Input::default()
    };
    let cut = CurateConfig {
        inputs: vec![input],
        ..config.clone()
    };
    assert!(array.len() > 2 << 20);
    assert_eq!(shards(&cut).unwrap().len(), 1);
    let (texts, _, whys) = read(file.path(), &config);
    assert_eq!((texts.len(), whys.len()), (3000, 0));
}

#[test]
fn what_is_wrong_in_an_array_is_a_bad_record_of_its_own() {
    let long = json!({"text": "x".repeat(3000)});
    let array = format!(
        "[{{\"text\": \"one\"}}, 5, {{\"text\": broken}}, {long},\n \"two\", {{\"text\": \"three\"}}] tail\n{{\"text\": \"four\"}}\n"
    );
    let config = CurateConfig {
        max_record_bytes: 2000,
        ..CurateConfig::default()
    };
    let (texts, _, whys) = read(written(array.as_bytes()).path(), &config);
    assert_eq!(texts, ["one", "three", "four"]);
    let starts = [
        "broken JSON",
        "broken JSON",
        "record longer than 2000 bytes",
        "broken JSON",
        "broken JSON",
    ];
    assert_eq!(whys.len(), starts.len(), "{whys:?}");
    for (why, start) in whys.iter().zip(starts) {
        assert!(why.starts_with(start), "{why}");
    }
    // an array that ends too early, between its elements or inside one
    let whole = br#"[{"text": "one"}, {"text": "two"}, "#;
    let (texts, _, whys) = read(written(whole).path(), &config);
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(whys, ["the file ends inside a JSON array"]);
    let (texts, _, whys) = read(written(&whole[..25]).path(), &config);
    assert_eq!((texts.len(), whys.len()), (1, 1), "{whys:?}");
    // half a gzip file says so
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let records: Vec<Value> = (0..2000)
        .map(|i| json!({"text": format!("number {}", i * 7919)}))
        .collect();
    encoder
        .write_all(serde_json::to_string(&records).unwrap().as_bytes())
        .unwrap();
    let packed = encoder.finish().unwrap();
    let (texts, _, whys) = read(written(&packed[..packed.len() / 2]).path(), &config);
    assert!(texts.len() > 100 && texts.len() < 2000, "{}", texts.len());
    assert_eq!(whys.len(), 1, "{whys:?}");
    assert!(whys[0].contains("at file byte"), "{whys:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// serde_json writes the arrays, and reads each element that is passed on.
    #[test]
    fn every_array_that_serde_writes_is_read_back(
        texts in prop::collection::vec(".{1,40}", 1..20),
        is_pretty in any::<bool>(),
    ) {
        let records: Vec<Value> = texts.iter().map(|text| json!({"text": text, "n": [[text]]})).collect();
        let array = match is_pretty {
            true => serde_json::to_string_pretty(&records),
            false => serde_json::to_string(&records),
        };
        let (found, _, _) = read(written(array.unwrap().as_bytes()).path(), &CurateConfig::default());
        prop_assert_eq!(found, texts);
    }
}

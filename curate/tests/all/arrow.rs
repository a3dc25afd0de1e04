//! Arrow files and streams against the rows that pyarrow and Hugging Face's `datasets` put into them, parts, damage.
//!
//! The files and `rows.json` are made by `tests/oracles/arrow_samples.py`.

use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::{CleanDocument, Found, TextReader, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, inspect, shards};
use curate::read::{Format, Input, Keys, each_record};
use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/arrow")
        .join(name)
}

fn rows_of(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data("rows.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[name].as_array().unwrap().clone()
}

fn config(path: &Path, format: Format) -> CurateConfig {
    CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            format,
            source: "s".to_string(),
            ..Input::default()
        }],
        max_record_bytes: 1 << 20,
        ..CurateConfig::default()
    }
}

fn run(config: &CurateConfig, out: &Path) -> (Vec<CleanDocument>, ShardReport) {
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    let mut found = Vec::new();
    for shard in shards(config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out, &Silent).unwrap());
        found.extend(documents(out, shard.number).unwrap().map(Result::unwrap));
    }
    assert!(sum.adds_up());
    (found, sum)
}

/// The records of a file or a part of it as JSON, and the reasons of the bad ones.
fn records(path: &Path, part: Option<std::ops::Range<u64>>) -> (Vec<Value>, Vec<String>) {
    let input = Input {
        format: Format::Arrow,
        ..Input::default()
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    each_record(path, &input, part.as_ref(), 1 << 20, &mut |r| match r.bad {
        None => good.push(serde_json::from_slice(r.block).unwrap()),
        Some(why) => bad.push(why.to_string()),
    })
    .unwrap();
    (good, bad)
}

const SAMPLES: [&str; 5] = [
    "sample.arrow",
    "sample-stream.arrow",
    "sample-legacy.arrow",
    "sample-lz4.feather",
    "sample-zstd.feather",
];

#[test]
fn every_file_of_pyarrow_and_datasets_has_the_rows_that_were_put_into_it() {
    let others = [
        "kinds.arrow",
        "runs.arrow",
        "deltas.arrow",
        "datasets.arrow",
    ];
    for name in SAMPLES.into_iter().chain(others) {
        let (good, bad) = records(&data(name), None);
        assert_eq!(bad, Vec::<String>::new(), "{name}");
        assert_eq!(good, rows_of(name), "{name}");
    }
}

#[test]
fn a_table_gives_the_same_documents_from_arrow_and_from_parquet() {
    let dir = tempfile::tempdir().unwrap();
    let parquet = data("../archives/sample.parquet");
    let (want, _) = run(
        &config(&parquet, Format::Parquet),
        &dir.path().join("parquet"),
    );
    assert_eq!(want.len(), 9);
    for name in SAMPLES {
        let out = dir.path().join(name);
        let (found, report) = run(&config(&data(name), Format::Arrow), &out);
        assert_eq!((report.records, report.kept), (9, 9), "{name}");
        assert_eq!(found, want, "{name}");
        if name != "sample-legacy.arrow" {
            let (auto, _) = run(&config(&data(name), Format::Auto), &dir.path().join("auto"));
            assert_eq!(auto, want, "{name}");
        }
    }
    // times, decimal numbers, bytes and maps
    let parquet = data("kinds.parquet");
    let (want, _) = run(
        &config(&parquet, Format::Parquet),
        &dir.path().join("parquet"),
    );
    let mut arrow = config(&data("kinds.arrow"), Format::Arrow);
    let meta = want[0].meta.as_ref().unwrap().as_object().unwrap();
    assert!(meta.len() > 10);
    // Parquet has a number for a time without a zone
    let absent = [
        "millis", "view", "seen", "half", "nothing", "u64", "pair", "text",
    ];
    let names = |row: &Value| -> Vec<String> {
        let names = row.as_object().unwrap().keys();
        names
            .filter(|n| !absent.contains(&n.as_str()))
            .cloned()
            .collect()
    };
    arrow.inputs[0].keep_fields = Some(names(&rows_of("kinds.arrow")[0]));
    let (found, _) = run(&arrow, &dir.path().join("arrow"));
    assert_eq!((found.len(), want.len()), (4, 4));
    for (found, want) in found.iter().zip(&want) {
        let sorted = |d: &CleanDocument| {
            let meta = d.meta.as_ref().unwrap().as_object().unwrap();
            meta.iter()
                .filter(|(k, _)| *k != "millis")
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<std::collections::BTreeMap<_, _>>()
        };
        assert_eq!(sorted(found), sorted(want));
    }
}

#[test]
fn fields_are_chosen_and_files_are_named_tokenized_and_inspected() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&data("sample-stream.arrow"), Format::Arrow);
    config.inputs[0].text_key = Keys::One("url".to_string());
    config.inputs[0].id_key = Keys::One("content".to_string());
    config.inputs[0].keep_fields = Some(vec!["metadata.lang".to_string(), "score".to_string()]);
    let (found, report) = run(&config, dir.path());
    assert_eq!(report.dropped["read.empty"], 1);
    assert_eq!(found[0].text, "https://example.org/0");
    assert_eq!(found[0].id, "Text number 0: ");
    assert_eq!(found[1].meta, Some(json!({"score": 0.25})));
    // without an id the row's number
    let (found, _) = run(
        &self::config(&data("datasets.arrow"), Format::Auto),
        dir.path(),
    );
    assert_eq!(found[8].id, "s/datasets/8");
    assert_eq!(found[1].meta, Some(json!({"label": 1})));
    let path = data("sample.arrow");
    let mut reader = TextReader::open(&path, Format::Arrow, "content", 1 << 20).unwrap();
    let mut texts = Vec::new();
    while reader.next(&mut |r| texts.push(r.texts.concat())).unwrap() != Found::End {}
    let want: Vec<Value> = rows_of("sample.arrow")
        .iter()
        .map(|r| r["content"].clone())
        .collect();
    assert_eq!(json!(texts), json!(want));
    for name in ["sample.arrow", "sample-stream.arrow"] {
        let found = inspect(&data(name)).unwrap();
        assert_eq!(
            (&found["kind"], &found["records"]),
            (&json!("arrow"), &json!(9))
        );
        assert_eq!(found["fields"]["tags"], json!(9));
    }
}

#[test]
fn record_batches_go_to_the_part_that_they_start_in() {
    for name in SAMPLES.into_iter().chain(["kinds.arrow", "deltas.arrow"]) {
        let path = data(name);
        let size = std::fs::metadata(&path).unwrap().len();
        let want = rows_of(name);
        for cut in (0..=size).step_by(37) {
            let mut all = Vec::new();
            let mut each = Vec::new();
            for part in [0..cut, cut..size] {
                let (good, bad) = records(&path, Some(part));
                assert_eq!(bad, Vec::<String>::new(), "{name} cut at {cut}");
                each.push(good.len());
                all.extend(good);
            }
            assert_eq!(all, want, "{name} cut at {cut}: {each:?}");
        }
    }
}

#[test]
fn a_cut_file_loses_its_end_and_says_so_once_however_it_is_split() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    for name in ["sample.arrow", "sample-stream.arrow", "sample-lz4.feather"] {
        let whole = std::fs::read(data(name)).unwrap();
        let want = rows_of(name);
        let mut seen = [false; 4];
        for end in (1000..whole.len()).step_by(13) {
            std::fs::write(&path, &whole[..end]).unwrap();
            let (good, bad) = records(&path, None);
            assert_eq!(good[..], want[..good.len()], "{name} cut to {end}");
            assert_eq!(good.len() % 3, 0);
            seen[good.len() / 3] = true;
            // a stream may end between messages
            let is_reported = good.len() == 9 || !bad.is_empty() || name == "sample-stream.arrow";
            assert!(bad.len() <= 2 && is_reported, "{name} {end} {bad:?}");
            let half = end as u64 / 2;
            let (first, lost) = records(&path, Some(0..half));
            let (second, more) = records(&path, Some(half..end as u64));
            assert_eq!([first, second].concat(), good, "{name} cut to {end}");
            assert_eq!([lost, more].concat(), bad, "{name} cut to {end}");
        }
        assert_eq!(seen[1..], [true; 3], "{name}");
    }
}

#[test]
fn a_row_that_is_no_utf8_is_one_bad_record_and_its_batch_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    for name in ["sample.arrow", "sample-stream.arrow"] {
        let mut bytes = std::fs::read(data(name)).unwrap();
        // the second batch's first text loses its encoding; the first batch holds a copy of it that no row has
        let at = memchr::memmem::rfind(&bytes, b"Text number 3").unwrap();
        bytes[at] = 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let (good, bad) = records(&path, None);
        let rows = rows_of(name);
        assert_eq!(good, [&rows[..3], &rows[4..]].concat(), "{name}");
        assert_eq!(
            bad,
            ["invalid UTF-8 at byte 0 of the column \"content\""],
            "{name}"
        );
    }
}

#[test]
fn bytes_that_are_no_utf8_are_no_text_and_base64_in_other_columns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    let column = |values: [&'static [u8]; 3]| -> arrow_array::ArrayRef {
        std::sync::Arc::new(arrow_array::BinaryArray::from_iter_values(values))
    };
    let batch = arrow_array::RecordBatch::try_from_iter([
        ("text", column([b"one", b"tw\xff", b"three"])),
        ("content", column([b"\xff\xfe", b"x", b"y"])),
    ])
    .unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut config = config(&path, Format::Arrow);
    let (found, report) = run(&config, &dir.path().join("out"));
    assert_eq!((report.records, report.quarantined), (3, 1));
    assert_eq!(found[0].meta, Some(json!({ "content": "//4=" })));
    assert_eq!(
        (found[0].text.as_str(), found[1].text.as_str()),
        ("one", "three")
    );
    config.inputs[0].text_key = Keys::One("content".to_string());
    let (found, report) = run(&config, &dir.path().join("named"));
    assert_eq!((report.records, report.quarantined), (3, 1));
    assert_eq!((found[0].text.as_str(), found[1].text.as_str()), ("x", "y"));
}

#[test]
fn a_damaged_record_batch_is_one_bad_record_and_the_next_one_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    for name in ["sample.arrow", "sample-stream.arrow"] {
        let mut bytes = std::fs::read(data(name)).unwrap();
        // the second batch's first language, which is inside an object
        let text = memchr::memmem::rfind(&bytes, b"Text number 3").unwrap();
        let at = text + memchr::memmem::find(&bytes[text..], b"dede").unwrap();
        bytes[at] = 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let (good, bad) = records(&path, None);
        let rows = rows_of(name);
        assert_eq!(good, [&rows[..3], &rows[6..]].concat(), "{name}");
        assert_eq!(bad.len(), 1);
        assert!(bad[0].contains("3 rows are lost"), "{bad:?}");
    }
}

#[test]
fn lengths_that_the_file_does_not_explain_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    // a buffer that is said to hold 4 EiB or 300 MiB
    for declared in [1i64 << 62, 300 << 20, -7] {
        let mut bytes = std::fs::read(data("sample-lz4.feather")).unwrap();
        let frame = [0x04u8, 0x22, 0x4d, 0x18];
        let at = memchr::memmem::find(&bytes, &frame).unwrap();
        bytes[at - 8..at].copy_from_slice(&declared.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let (good, bad) = records(&path, None);
        assert_eq!((good.len(), bad.len()), (6, 1), "{declared}: {bad:?}");
        assert!(bad[0].contains("bytes"), "{bad:?}");
    }
}

#[test]
fn files_of_other_kinds_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    for (bytes, want) in [
        (&b"FEA1\0\0\0\0\0\0\0\0FEA1"[..], "is Feather 1"),
        (b"{\"text\":\"a\"}\n", "starts with"),
        (b"ARROW1", "no footer"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let config = config(&path, Format::Arrow);
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let shard = &shards(&config).unwrap()[0];
        let error = curator
            .run_shard(shard, &dir.path().join("out"), &Silent)
            .unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
    std::fs::write(&path, b"").unwrap();
    let (_, report) = run(&config(&path, Format::Arrow), &dir.path().join("out"));
    assert_eq!((report.records, report.quarantined), (1, 1));
}

#[test]
fn flipped_bytes_cost_records_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.arrow");
    let names = [
        "sample.arrow",
        "sample-lz4.feather",
        "kinds.arrow",
        "runs.arrow",
        "deltas.arrow",
    ];
    let mut lost = 0;
    for name in names {
        let whole = std::fs::read(data(name)).unwrap();
        let want = rows_of(name).len();
        for at in (0..whole.len()).step_by(3) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let input = Input {
                format: Format::Arrow,
                ..Input::default()
            };
            let mut count = 0;
            let read = each_record(&path, &input, None, 1 << 20, &mut |r| {
                count += 1;
                lost += usize::from(r.bad.is_some());
            });
            match read {
                Ok(()) => assert!(
                    count > 0 && count <= 4 * want + 8,
                    "{name} at {at}: {count}"
                ),
                Err(e) => assert!(
                    matches!(e, curate::Error::Format { .. }),
                    "{name} at {at}: {e}"
                ),
            }
        }
    }
    assert!(lost > 100, "{lost}");
}

//! Damaged inputs: counted, explained, survived.

use std::io::Write;
use std::path::Path;

use curate::Silent;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

const RECORDS: usize = 8;

/// One WARC response with a distinct page.
fn record(i: usize) -> Vec<u8> {
    let page = format!(
        "<html><body><p>Page number {i} says that the weather in town {i} will be fine, {}</p></body></html>",
        "with some wind from the west and a little rain in the evening. ".repeat(i + 1)
    );
    let http = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{page}");
    let head = format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://h{i}.org/\r\nContent-Length: {}\r\n\r\n",
        http.len()
    );
    [head.as_bytes(), http.as_bytes(), b"\r\n\r\n"].concat()
}

fn plain() -> Vec<u8> {
    (0..RECORDS).flat_map(record).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A member per record.
fn gzipped() -> Vec<u8> {
    (0..RECORDS).flat_map(|i| gzip(&record(i))).collect()
}

fn jsonl() -> Vec<u8> {
    let line = |i| format!("{{\"text\":\"document number {i} has these words\",\"id\":{i}}}\n");
    (0..RECORDS).flat_map(|i| line(i).into_bytes()).collect()
}

fn run(bytes: &[u8], format: Format, folder: &Path) -> ShardReport {
    try_run(bytes, format, folder).unwrap()
}

/// An error if the file is of another kind.
fn try_run(bytes: &[u8], format: Format, folder: &Path) -> curate::Result<ShardReport> {
    let path = folder.join("in");
    std::fs::write(&path, bytes).unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            format,
            source: "s".to_string(),
            ..Input::default()
        }],
        max_record_bytes: 1 << 16,
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let report = curator.run_shard(&shards(&config).unwrap()[0], &folder.join("out"), &Silent)?;
    assert!(report.adds_up());
    let errors = std::fs::read_to_string(folder.join("out/errors/00000.jsonl")).unwrap();
    let lost = errors.lines().filter(|l| !l.contains("\"repaired\":"));
    assert_eq!(lost.count() as u64, report.quarantined);
    Ok(report)
}

/// Any bytes are read, or refused as those of another kind of file.
fn run_or_refuse(bytes: &[u8], format: Format, folder: &Path) {
    if let Err(e) = try_run(bytes, format, folder) {
        assert!(matches!(e, curate::Error::Format { .. }), "{e}");
    }
}

#[test]
fn sound_files_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, format) in [
        (plain(), Format::Warc),
        (gzipped(), Format::Warc),
        (jsonl(), Format::Jsonl),
    ] {
        let report = run(&bytes, format, folder.path());
        assert_eq!(
            (report.kept, report.records),
            (RECORDS as u64, RECORDS as u64)
        );
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let folder = tempfile::tempdir().unwrap();
    let marked = [&b"\xef\xbb\xbf"[..], &jsonl()].concat();
    for bytes in [marked.clone(), gzip(&marked)] {
        for format in [Format::Jsonl, Format::Dolma, Format::Auto] {
            let report = run(&bytes, format, folder.path());
            assert_eq!(
                (report.kept, report.records),
                (RECORDS as u64, RECORDS as u64)
            );
        }
    }
    // a second mark is no white space, and a file of the mark alone is empty
    let report = run(
        &[b"\xef\xbb\xbf", &marked[..]].concat(),
        Format::Jsonl,
        folder.path(),
    );
    assert_eq!((report.kept, report.quarantined), (RECORDS as u64 - 1, 1));
    let report = run(b"\xef\xbb\xbf", Format::Jsonl, folder.path());
    assert_eq!((report.records, report.quarantined), (1, 1));
    let errors = std::fs::read_to_string(folder.path().join("out/errors/00000.jsonl")).unwrap();
    assert!(errors.contains("the file is empty"), "{errors}");
}

/// A text in UTF-16 with its byte order mark.
fn utf_16(text: &[u8], is_big: bool) -> Vec<u8> {
    let text = format!("\u{feff}{}", std::str::from_utf8(text).unwrap());
    let bytes = |unit: u16| match is_big {
        true => unit.to_be_bytes(),
        false => unit.to_le_bytes(),
    };
    text.encode_utf16().flat_map(bytes).collect()
}

#[test]
fn utf_16_with_its_mark_is_read_like_utf_8() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i| format!("{i},caf\u{e9} \u{1f600} number {i}\n");
    let csv = format!("id,text\n{}", (0..RECORDS).map(row).collect::<String>());
    let tsv = csv.replace(',', "\t");
    for is_big in [false, true] {
        for (text, format) in [
            (jsonl(), Format::Jsonl),
            (jsonl(), Format::Dolma),
            (jsonl(), Format::Auto),
            (csv.clone().into_bytes(), Format::Csv),
            (csv.clone().into_bytes(), Format::Auto),
            (tsv.clone().into_bytes(), Format::Tsv),
        ] {
            let bytes = utf_16(&text, is_big);
            for bytes in [gzip(&bytes), bytes] {
                let report = run(&bytes, format, folder.path());
                assert_eq!(
                    (report.kept, report.records),
                    (RECORDS as u64, RECORDS as u64),
                    "{format:?}"
                );
            }
        }
        let page = "<html><body><p>Page number 1 says that the weather in the town will be fine, with some wind from the west.</p>";
        for (text, format) in [
            (&b"A text of caf\xc3\xa9s."[..], Format::Text),
            (b"A text of caf\xc3\xa9s.", Format::Auto),
            (page.as_bytes(), Format::Html),
            (page.as_bytes(), Format::Auto),
        ] {
            let report = run(&utf_16(text, is_big), format, folder.path());
            assert_eq!((report.kept, report.records), (1, 1), "{format:?}");
        }
    }
    // half of a surrogate pair costs its line
    let mut half = utf_16(b"{\"text\":\"", false);
    half.extend([0x00, 0xd8]);
    half.extend(
        "\"}\n{\"text\":\"sound\"}\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes),
    );
    let report = run(&half, Format::Jsonl, folder.path());
    assert_eq!((report.kept, report.quarantined), (1, 1));
}

#[test]
fn a_parquet_file_that_was_cut_is_one_bad_record() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/archives/sample.parquet");
    let whole = std::fs::read(data).unwrap();
    for format in [Format::Parquet, Format::Auto] {
        for length in [16, whole.len() / 2, whole.len() - 1] {
            let report = run(&whole[..length], format, folder.path());
            assert_eq!((report.kept, report.quarantined), (0, 1), "{length}");
        }
    }
}

#[test]
fn a_wrong_content_length_costs_only_the_records_it_touches() {
    let folder = tempfile::tempdir().unwrap();
    for wrong in ["9", "9999", "999999", "-1", "x"] {
        let mut bytes = record(0);
        let text = String::from_utf8(record(1)).unwrap();
        let at = text.find("Content-Length: ").unwrap() + 16;
        let end = at + text[at..].find('\r').unwrap();
        bytes.extend([&text[..at], wrong, &text[end..]].concat().into_bytes());
        (2..RECORDS).for_each(|i| bytes.extend(record(i)));
        let report = run(&bytes, Format::Warc, folder.path());
        assert!(report.kept >= RECORDS as u64 - 1, "{wrong}: {report:?}");
        assert!(report.quarantined >= 1, "{wrong}: {report:?}");
    }
}

#[test]
fn a_truncated_gzip_file_loses_its_last_record_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = gzipped();
    bytes.truncate(bytes.len() - 20);
    let report = run(&bytes, Format::Warc, folder.path());
    assert_eq!((report.kept, report.quarantined), (RECORDS as u64 - 1, 1));
    let errors = std::fs::read_to_string(folder.path().join("out/errors/00000.jsonl")).unwrap();
    assert!(
        errors.contains("the file ends inside a gzip member"),
        "{errors}"
    );
}

#[test]
fn a_50_mb_line_is_quarantined_in_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = jsonl();
    bytes.extend(b"{\"text\":\"");
    bytes.resize(bytes.len() + (50 << 20), b'a');
    bytes.extend(b"\"}\n");
    bytes.extend(jsonl());
    let report = run(&bytes, Format::Jsonl, folder.path());
    assert_eq!((report.kept, report.quarantined), (2 * RECORDS as u64, 1));
    let report = run(&gzip(&bytes), Format::Jsonl, folder.path());
    assert_eq!((report.kept, report.quarantined), (2 * RECORDS as u64, 1));
}

#[test]
fn empty_files_are_one_bad_record_and_vanished_ones_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for format in [
        Format::Warc,
        Format::Jsonl,
        Format::Text,
        Format::Wet,
        Format::Dolma,
        Format::Parquet,
        Format::Wikipedia,
    ] {
        let report = run(b"", format, folder.path());
        assert_eq!((report.records, report.quarantined), (1, 1), "{format:?}");
    }
    let path = folder.path().join("gone");
    std::fs::write(&path, jsonl()).unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let list = shards(&config).unwrap();
    std::fs::remove_file(&path).unwrap();
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let result = curator.run_shard(&list[0], &folder.path().join("out2"), &Silent);
    let why = result.unwrap_err().to_string();
    assert!(
        why.contains("gone") && why.contains("No such file"),
        "{why}"
    );
    assert!(shards(&config).is_err());
}

/// Every format with the files of every other: an error with the found and the wanted kind.
#[test]
fn a_file_of_another_format_is_refused_with_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let dump = b"<mediawiki>\n<page><title>a</title><ns>0</ns><text>b</text></page>\n".repeat(50);
    let parquet = std::fs::read("data/archives/sample.parquet").unwrap();
    let csv = b"id,text\n1,some words\n2,more of them\n".repeat(40);
    let files = [
        ("warc", plain()),
        ("warc", gzipped()),
        ("jsonl", jsonl()),
        ("jsonl", gzip(&jsonl())),
        ("dump", dump),
        ("parquet", parquet),
        ("csv", csv),
        ("pdf", b"%PDF-1.7\n%\xff\xff\xff\xff\n1 0 obj\n".repeat(9)),
        ("zeros", vec![0; 100_000]),
    ];
    let formats = [
        (Format::Warc, "warc", "not a WARC file"),
        (Format::Wet, "warc", "not a WARC file"),
        (Format::Wat, "warc", "not a WARC file"),
        (Format::Jsonl, "jsonl", "not a JSONL file"),
        (Format::Dolma, "jsonl", "not a JSONL file"),
        (Format::Wikipedia, "dump", "not a MediaWiki XML dump"),
        (Format::Parquet, "parquet", "not a Parquet file"),
    ];
    for (format, own, wanted) in formats {
        for (kind, bytes) in &files {
            // a Parquet file is entered at both ends, so it is never compressed
            let result = try_run(bytes, format, folder.path());
            if *kind == own && !(own == "warc" && format != Format::Warc) {
                assert!(result.unwrap().records > 0, "{kind} as {format:?}");
            } else if *kind != own {
                let why = result.unwrap_err().to_string();
                let is_told = why.contains(wanted) && why.contains("starts with \"");
                assert!(
                    is_told && why.contains("/in: "),
                    "{kind} as {format:?}: {why}"
                );
            }
        }
    }
    let why = try_run(&jsonl(), Format::Warc, folder.path()).unwrap_err();
    let result = why.to_string();
    let (_, result) = result.split_once("/in: ").unwrap();
    assert_eq!(
        result,
        "not a WARC file: starts with \"{\\\"text\\\":\\\"document number 0 has t\"..., wanted \"WARC/1.\", or \"filedesc://\" of an ARC file"
    );
}

/// The system opens it and refuses every read.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_is_an_error_of_its_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
    for format in [Format::Warc, Format::Jsonl, Format::Text, Format::Wikipedia] {
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.to_string_lossy().into_owned(),
                format,
                ..Input::default()
            }],
            ..CurateConfig::default()
        };
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let out = folder.path().join("out");
        let result = curator.run_shard(&shards(&config).unwrap()[0], &out, &Silent);
        let why = result.unwrap_err().to_string();
        assert!(why.contains("/in: ") && why.contains("os error 5"), "{why}");
        assert!(!out.join("errors/00000.jsonl").exists());
    }
}

/// Every stage must be linear in the length of a text, for any content.
#[test]
fn megabytes_without_a_space_take_no_more_than_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = Vec::new();
    for piece in [
        "(", "a.", "...", "'s", "x-", "1+", "\u{4e2d}", "a.b/", "\u{2026}", "\n", "-\n", "9km",
        "@.", "a\u{300}",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        lines.extend(serde_json::to_vec(&serde_json::json!({ "text": text })).unwrap());
        lines.push(b'\n');
    }
    let path = folder.path().join("in.jsonl");
    std::fs::write(&path, lines).unwrap();
    let off = curate::filter::GopherQuality {
        min_doc_words: 0,
        ..curate::filter::GopherQuality::default()
    };
    let input = Input {
        path: path.to_string_lossy().into_owned(),
        ..Input::default()
    };
    for step in [
        curate::pipeline::Step::GopherRepetition(curate::filter::GopherRepetition::default()),
        curate::pipeline::Step::GopherQuality(off),
        curate::pipeline::Step::C4(curate::filter::C4Quality {
            max_word_length: 0,
            ..curate::filter::C4Quality::default()
        }),
        curate::pipeline::Step::Fineweb(curate::filter::FinewebQuality::default()),
        curate::pipeline::Step::Length(curate::filter::Length::default()),
    ] {
        let config = CurateConfig {
            inputs: vec![input.clone()],
            step: vec![step],
            ..CurateConfig::default()
        };
        let settings = crate::both();
        let curator = Curator::new(&config, None, Some(&settings), 0).unwrap();
        let start = std::time::Instant::now();
        let out = folder.path().join("out");
        let report = curator
            .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
            .unwrap();
        assert_eq!(report.records, 14);
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

/// A change to a file's bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), 1..=255u8).prop_map(|(at, x)| Damage::Flip(at, x)),
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), 1..300usize).prop_map(|(at, n)| Damage::Remove(at, n)),
        (
            any::<usize>(),
            proptest::collection::vec(any::<u8>(), 1..64)
        )
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len().max(1);
    match damage {
        Damage::Flip(at, x) if !bytes.is_empty() => bytes[at % len] ^= x,
        Damage::Flip(..) => {}
        Damage::Cut(at) => bytes.truncate(at % len),
        Damage::Remove(at, n) => {
            let from = (at % len).min(bytes.len());
            let to = (from + n).min(bytes.len());
            bytes.drain(from..to);
        }
        Damage::Insert(at, new) => {
            let at = (at % len).min(bytes.len());
            bytes.splice(at..at, new.iter().copied());
        }
    }
}

#[test]
fn flipping_any_third_byte_of_a_gzip_file_loses_at_most_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let sound = gzipped();
    for at in (0..sound.len()).step_by(3) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        let report = run(&bytes, Format::Warc, folder.path());
        let errors = std::fs::read_to_string(folder.path().join("out/errors/00000.jsonl")).unwrap();
        assert!(report.kept + 1 >= RECORDS as u64, "byte {at}: {errors}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_survived_and_counted(damages in proptest::collection::vec(damage(), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, format) in [
            (plain(), Format::Warc), (gzipped(), Format::Warc), (plain(), Format::Wet),
            (jsonl(), Format::Jsonl), (jsonl(), Format::Text), (gzip(&jsonl()), Format::Jsonl),
        ] {
            let mut bytes = bytes;
            damages.iter().for_each(|d| apply(&mut bytes, d));
            run_or_refuse(&bytes, format, folder.path());
        }
    }

    #[test]
    fn one_flipped_byte_costs_at_most_one_member_and_at_most_two_plain_records(
        at in any::<usize>(), x in 1..=255u8,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, lost) in [(gzipped(), 1), (plain(), 2)] {
            let mut bytes = bytes;
            apply(&mut bytes, &Damage::Flip(at, x));
            let report = run(&bytes, Format::Warc, folder.path());
            prop_assert!(report.kept + lost >= RECORDS as u64, "{:?}", report);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000), gz in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let bytes = if gz { [&[0x1f, 0x8b, 8, 0][..], &bytes].concat() } else { bytes };
        for format in [Format::Warc, Format::Wet, Format::Jsonl, Format::Text] {
            run_or_refuse(&bytes, format, folder.path());
        }
    }
}

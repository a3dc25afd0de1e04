//! WARC and ARC files: parity of records with FastWARC and warcio, named faults, compressions, parts.

use std::fmt::Write as _;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::documents;
use curate::pipeline::{CurateConfig, Curator, ShardReport, inspect, shards};
use curate::read::{Format, Input, each_record};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/archives")
        .join(name)
}

fn input(format: Format) -> Input {
    Input {
        format,
        ..Input::default()
    }
}

/// `offset kind bytes hash` of sound records, `bad why` of others.
fn records(path: &Path, part: Option<&Range<u64>>) -> Vec<String> {
    let mut lines = Vec::new();
    let read = each_record(path, &input(Format::Warc), part, 1 << 26, &mut |r| {
        lines.push(match r.bad {
            Some(why) => format!("bad {why}"),
            None => {
                let hash = xxh3_128(r.block);
                format!("{} {} {} {hash:032x}", r.offset, r.kind, r.block.len())
            }
        });
    });
    lines.extend(read.err().map(|e| format!("bad {e}")));
    lines
}

#[test]
fn records_are_those_of_fastwarc_and_warcio() {
    let golden = std::fs::read_to_string(data("records.txt")).unwrap();
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in golden.lines() {
        match line.strip_prefix("# ") {
            Some(name) => files.push((name, Vec::new())),
            None => files.last_mut().unwrap().1.push(line),
        }
    }
    assert!(files.len() >= 10, "{files:?}");
    for (name, want) in files {
        let mut found = records(&data(name), None);
        if name.contains(".arc") {
            // warcio consumes the block of the first record, and has its own types
            found.remove(0);
            for line in &mut found {
                let words: Vec<&str> = line.split(' ').collect();
                *line = [words[0], words[2], words[3]].join(" ");
            }
        }
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn every_malformed_file_is_quarantined_or_named() {
    for (name, why) in [
        ("bad.arc", "ARC header with length \"-1\""),
        ("example-space-in-url.arc", "ARC length 1591, but only 1579"),
        (
            "example-trunc.warc",
            "no record end after Content-Length 973",
        ),
        ("double-single-inflate-error.gz", "corrupt gzip member"),
        ("empty.gz", "the file is empty"),
    ] {
        let found = records(&data("malformed").join(name), None);
        let named = found.iter().any(|l| l.starts_with(&format!("bad {why}")));
        assert!(named, "{name}: {found:?}");
    }
    // not damaged, but of no archive
    for name in ["abcd.gz", "hi.gz", "hi-2.gz"] {
        let path = data("malformed").join(name);
        let read = each_record(&path, &input(Format::Warc), None, 1 << 20, &mut |_| {});
        let why = read.unwrap_err().to_string();
        assert!(why.contains("not a WARC file: starts with \""), "{why}");
    }
}

#[test]
fn a_record_read_in_spite_of_a_fault_is_kept_and_told_with_the_faults_name() {
    let dir = tempfile::tempdir().unwrap();
    // a response without a reason phrase
    let body = "HTTP/1.1 200\r\nContent-Type: text/plain\r\n\r\nsome words";
    let bare = format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://example.com/\r\n\
        Content-Length: {}\r\n\r\n{body}\r\n\r\n",
        body.len()
    );
    let without_reason = dir.path().join("bare.warc");
    std::fs::write(&without_reason, bare).unwrap();
    for (path, fault, kept) in [
        (
            data("malformed/example-wget-bad-target-uri.warc.gz"),
            "warc.uri_in_brackets",
            3,
        ),
        (
            data("malformed/example-bad.warc.gz.bad"),
            "warc.member_of_several_records",
            1,
        ),
        (without_reason, "http.status_without_reason", 1),
    ] {
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.to_string_lossy().into_owned(),
                ..input(Format::Warc)
            }],
            ..CurateConfig::default()
        };
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let out = dir.path().join("out");
        let shard = &shards(&config).unwrap()[0];
        let report = curator.run_shard(shard, &out, &Silent).unwrap();
        let errors = std::fs::read_to_string(out.join("errors/00000.jsonl")).unwrap();
        assert_eq!((report.quarantined, report.kept), (0, kept), "{errors}");
        assert!(report.adds_up(), "{report:?}");
        let name = format!("\"repaired\":\"{fault}\",\"why\":\"");
        let count = errors.lines().filter(|l| l.contains(&name)).count() as u64;
        assert!(count > 0 && count == report.repaired[fault], "{errors}");
        assert!(errors.contains("\"offset\":") && errors.contains("\"record\":"));
        let value = inspect(&path).unwrap();
        assert_eq!(value["bad"], 0, "{value}");
        assert_eq!(value["repaired"][fault], count, "{value}");
        assert_eq!(value["problems"][0]["repaired"], fault, "{value}");
    }
}

/// The records of a WARC file in pieces, as its gzip members hold them.
fn members(name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(data(name)).unwrap();
    let mut rest = &bytes[..];
    let mut members = Vec::new();
    while !rest.is_empty() {
        let mut decoder = flate2::bufread::GzDecoder::new(rest);
        let mut member = Vec::new();
        std::io::Read::read_to_end(&mut decoder, &mut member).unwrap();
        members.push(member);
        rest = decoder.into_inner();
    }
    members
}

/// The lines without their offsets.
fn without_offsets(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|l| l.split_once(' ').unwrap().1).collect()
}

/// A zstd WARC with its dictionary in front, as IIPC's draft has it.
fn with_dictionary(members: &[Vec<u8>], compressed: bool) -> Vec<u8> {
    let dictionary = members.concat();
    let stored = if compressed {
        zstd::encode_all(&dictionary[..], 3).unwrap()
    } else {
        dictionary.clone()
    };
    let mut file = vec![0x5d, 0x2a, 0x4d, 0x18];
    file.extend(u32::try_from(stored.len()).unwrap().to_le_bytes());
    file.extend(stored);
    for member in members {
        let mut encoder =
            zstd::stream::write::Encoder::with_dictionary(Vec::new(), 3, &dictionary).unwrap();
        encoder.write_all(member).unwrap();
        file.extend(encoder.finish().unwrap());
    }
    file
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_compression_gives_the_same_records() {
    let dir = tempfile::tempdir().unwrap();
    let members = members("example.warc.gz");
    let want = records(&data("example.warc.gz"), None);
    let zstd = |m: &Vec<u8>| zstd::encode_all(&m[..], 3).unwrap();
    let whole = members.concat();
    for (name, bytes) in [
        ("frames.zst", members.iter().flat_map(zstd).collect()),
        ("one.zst", zstd(&whole)),
        ("dictionary.zst", with_dictionary(&members, false)),
        ("dictionary-zstd.zst", with_dictionary(&members, true)),
        ("frames.lz4", members.iter().flat_map(|m| lz4(m)).collect()),
        ("one.lz4", lz4(&whole)),
        ("plain", whole),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let found = records(&path, None);
        assert_eq!(without_offsets(&found), without_offsets(&want), "{name}");
    }
}

#[test]
fn a_damaged_zstd_frame_costs_its_record_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.warc.zst");
    let frames: Vec<Vec<u8>> = members("example.warc.gz")
        .iter()
        .map(|m| {
            let mut e = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            e.include_checksum(true).unwrap();
            e.write_all(m).unwrap();
            e.finish().unwrap()
        })
        .collect();
    let want = records(&data("example.warc.gz"), None);
    for hurt in 0..frames.len() {
        let mut frames = frames.clone();
        let middle = frames[hurt].len() / 2;
        frames[hurt][middle] ^= 0x55;
        std::fs::write(&path, frames.concat()).unwrap();
        let found = records(&path, None);
        let sound: Vec<String> = found
            .iter()
            .filter(|l| !l.starts_with("bad"))
            .cloned()
            .collect();
        let mut want = want.clone();
        want.remove(hurt);
        assert_eq!(
            without_offsets(&sound),
            without_offsets(&want),
            "frame {hurt}"
        );
        assert!(found.iter().any(|l| l.contains("zstd frame")), "{found:?}");
    }
}

#[test]
fn bombs_are_given_up_with_a_name_and_without_their_memory() {
    let dir = tempfile::tempdir().unwrap();
    let zeros = vec![0u8; 8 << 20];
    let head = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 99999999999\r\n\r\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    gzip.write_all(head).unwrap();
    zstd.write_all(head).unwrap();
    for _ in 0..(512 / 8) {
        gzip.write_all(&zeros).unwrap();
        zstd.write_all(&zeros).unwrap();
    }
    let sound = std::fs::read(data("example.warc.gz")).unwrap();
    for (name, bomb) in [
        ("gz", gzip.finish().unwrap()),
        ("zst", zstd.finish().unwrap()),
    ] {
        let path = dir.path().join(name);
        let mut bytes = bomb;
        if name == "gz" {
            bytes.extend_from_slice(&sound);
        }
        std::fs::write(&path, bytes).unwrap();
        let found = records(&path, None);
        let bombs = found.iter().filter(|l| l.contains("bomb"));
        assert_eq!(bombs.count(), 1, "{name}: {found:?}");
        if name == "gz" {
            let sound = found.iter().filter(|l| !l.starts_with("bad")).count();
            assert_eq!(sound, 6, "what follows the bomb is read");
        }
    }
}

/// Cuts `0..size` at the given places.
fn parts(size: u64, cuts: &[u64]) -> Vec<Range<u64>> {
    let mut ends: Vec<u64> = cuts.iter().map(|c| c % (size + 1)).chain([size]).collect();
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter()
        .map(|end| std::mem::replace(&mut start, end)..end)
        .collect()
}

/// Files that can be cut: gzip, zstd, plain.
fn cuttable(dir: &Path) -> Vec<PathBuf> {
    let members = members("example.warc.gz");
    let zstd = |m: &Vec<u8>| zstd::encode_all(&m[..], 3).unwrap();
    let make = |name: &str, bytes: Vec<u8>| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    vec![
        data("example.warc.gz"),
        data("post-test.warc.gz"),
        make("plain.warc", members.concat()),
        make("frames.warc.zst", members.iter().flat_map(zstd).collect()),
        make("dict.warc.zst", with_dictionary(&members, true)),
        // one frame, one member: the first part has all of it
        make("one.warc.zst", zstd(&members.concat())),
    ]
}

#[test]
fn a_cut_at_any_byte_gives_every_record_once() {
    let dir = tempfile::tempdir().unwrap();
    for path in cuttable(dir.path()) {
        let whole = records(&path, None);
        let size = std::fs::metadata(&path).unwrap().len();
        for cut in 0..=size {
            let mut found = Vec::new();
            for part in [0..cut, cut..size] {
                found.extend(records(&path, Some(&part)));
            }
            assert_eq!(found, whole, "{} cut at {cut}", path.display());
        }
    }
}

/// The first frame of a file with a dictionary, damaged so that it decompresses to other bytes, which end with
/// `WARC/1.0`: a record that starts there would have the header and the body of the next frame's record.
#[test]
fn a_damaged_frame_does_not_take_the_record_of_the_next_one_whatever_the_parts() {
    let dir = tempfile::tempdir().unwrap();
    let sound = with_dictionary(&members("example.warc.gz"), true);
    let path = dir.path().join("x.warc.zst");
    std::fs::write(&path, &sound).unwrap();
    let want = records(&path, None).split_off(1);
    let first = 8 + u32::from_le_bytes(sound[4..8].try_into().unwrap()) as usize;
    let mut bytes = sound;
    bytes[first + 19] ^= 247;
    std::fs::write(&path, &bytes).unwrap();
    let whole = records(&path, None);
    assert!(whole.ends_with(&want), "{whole:?}");
    assert!(
        whole[..whole.len() - want.len()]
            .iter()
            .all(|l| l.starts_with("bad"))
    );
    let size = bytes.len() as u64;
    for cut in 0..=size {
        let parts = [0..cut, cut..size];
        let found: Vec<String> = parts
            .iter()
            .flat_map(|part| records(&path, Some(part)))
            .collect();
        assert_eq!(found, whole, "cut at {cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_of_damaged_files_end_and_lose_nothing_that_is_sound(
        cuts in proptest::collection::vec(any::<u64>(), 1..5), at in any::<usize>(), x in 1..=255u8,
    ) {
        let dir = tempfile::tempdir().unwrap();
        for (i, path) in cuttable(dir.path()).into_iter().enumerate() {
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= x;
            let path = dir.path().join(format!("damaged{i}"));
            std::fs::write(&path, &bytes).unwrap();
            let sound = |lines: Vec<String>| {
                lines.into_iter().filter(|l| !l.starts_with("bad")).collect::<Vec<_>>()
            };
            let whole = sound(records(&path, None));
            let mut found = Vec::new();
            for part in parts(bytes.len() as u64, &cuts) {
                found.extend(records(&path, Some(&part)));
            }
            let found = sound(found);
            // a plain file is cut at exact record starts only: its reader also continues at looser ones
            if !path.ends_with("damaged2") {
                prop_assert_eq!(&found, &whole, "{} byte {}", path.display(), at);
            }
        }
    }
}

#[test]
fn a_damaged_length_of_a_zstd_frame_does_not_swallow_the_next_frame() {
    let dir = tempfile::tempdir().unwrap();
    cuttable(dir.path());
    let path = dir.path().join("frames.warc.zst");
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = records(&path, None);
    let offset = |line: &String| line.split_once(' ').unwrap().0.parse::<usize>().unwrap();
    // the size of the second frame's first block: it now ends beyond the third frame's start
    bytes[offset(&whole[1]) + 6] ^= 20;
    std::fs::write(&path, &bytes).unwrap();
    let found = records(&path, None);
    assert!(found.ends_with(&whole[2..]), "{found:?}");
}

fn run(config: &CurateConfig, out: &Path) -> ShardReport {
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    for shard in shards(config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out, &Silent).unwrap());
    }
    assert!(sum.adds_up());
    sum
}

#[test]
fn a_split_file_gives_the_same_documents_whatever_the_size_of_its_parts() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for i in 0..60_000 {
        writeln!(
            lines,
            "{{\"text\":\"document number {i} {}\"}}",
            "word ".repeat(i % 40)
        )
        .unwrap();
    }
    let path = dir.path().join("a.jsonl");
    std::fs::write(&path, lines).unwrap();
    let mut all = Vec::new();
    for split_mb in [1, 2, 5, 1000] {
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.to_string_lossy().into_owned(),
                ..Input::default()
            }],
            split_mb,
            ..CurateConfig::default()
        };
        let out = dir.path().join(format!("out{split_mb}"));
        let report = run(&config, &out);
        assert_eq!((report.records, report.kept), (60_000, 60_000));
        let count = shards(&config).unwrap().len();
        assert_eq!(count > 1, split_mb < 1000);
        let found: Vec<(String, String)> = (0..count)
            .flat_map(|s| documents(&out, s).unwrap())
            .map(|d| d.map(|d| (d.id, d.text)).unwrap())
            .collect();
        all.push(found);
    }
    let ids: std::collections::BTreeSet<&String> = all[0].iter().map(|d| &d.0).collect();
    assert_eq!(ids.len(), 60_000, "ids are unique");
    assert!(all.iter().all(|found| *found == all[0]));
}

//! Dumps and dolma files in parts: every page and line once, for any cut, also in a damaged file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::documents;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input, each_record};
use proptest::prelude::*;

const HEAD: &str = "<mediawiki>\n  <siteinfo>\n    <base>https://en.wikipedia.org/wiki/Main_Page</base>\n  </siteinfo>\n";

fn page(i: usize, words: usize) -> String {
    let text = "word ".repeat(words);
    format!(
        "  <page>\n    <title>Page {i}</title>\n    <ns>0</ns>\n    <id>{i}</id>\n    <revision>\
        <model>wikitext</model><text>The text of page {i} is {text}here.</text></revision>\n  </page>\n"
    )
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One dump: plain, with streams of whole pages as the wikis have it, and cut anywhere as pbzip2 does.
fn dumps(folder: &Path) -> Vec<PathBuf> {
    let pages: Vec<String> = (0..9).map(|i| page(i, i * 7)).collect();
    let plain = format!("{HEAD}{}</mediawiki>\n", pages.concat());
    let mut of_pages = bzip2(HEAD.as_bytes());
    for pages in pages.chunks(2) {
        of_pages.extend(bzip2(pages.concat().as_bytes()));
    }
    of_pages.extend(bzip2(b"</mediawiki>\n"));
    let anywhere = plain.as_bytes().chunks(301).flat_map(bzip2).collect();
    let all = [
        ("dump.xml", plain.into_bytes()),
        ("pages.xml.bz2", of_pages),
        ("anywhere.xml.bz2", anywhere),
    ];
    let write = |(name, bytes): (&str, Vec<u8>)| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    all.into_iter().map(write).collect()
}

/// Offset and text of every record; a bad one is its reason.
fn records(path: &Path, part: &Range<u64>) -> Vec<(u64, String)> {
    let input = Input {
        format: Format::Wikipedia,
        ..Input::default()
    };
    let mut found = Vec::new();
    each_record(path, &input, Some(part), 1 << 20, &mut |r| {
        let text = r.bad.map_or_else(
            || String::from_utf8_lossy(r.block).into_owned(),
            |why| format!("bad {why}"),
        );
        found.push((r.offset, text));
    })
    .unwrap();
    found
}

#[test]
fn a_dump_cut_at_any_byte_gives_every_page_once() {
    let dir = tempfile::tempdir().unwrap();
    for path in dumps(dir.path()) {
        let size = std::fs::metadata(&path).unwrap().len();
        let whole = records(&path, &(0..size));
        assert_eq!(whole.len(), 9);
        for (i, (_, text)) in whole.iter().enumerate() {
            let want = page(i, i * 7);
            let base = "https://en.wikipedia.org/wiki/Main_Page";
            assert_eq!(*text, format!("{base}\n{}", want.trim()));
        }
        for cut in 0..=size {
            let mut found = records(&path, &(0..cut));
            found.extend(records(&path, &(cut..size)));
            assert!(found == whole, "{} cut at {cut}", path.display());
        }
    }
}

/// Places of the streams of a bzip2 file: `BZh`, a level, and the magic of a block or of the end.
fn streams(bytes: &[u8]) -> Vec<u64> {
    let is_start = |at: &usize| {
        let magics = [
            [0x31, 0x41, 0x59, 0x26, 0x53, 0x59],
            [0x17, 0x72, 0x45, 0x38, 0x50, 0x90],
        ];
        bytes[*at..].starts_with(b"BZh") && magics.iter().any(|m| bytes[at + 4..].starts_with(m))
    };
    let starts = (0..bytes.len().saturating_sub(10)).filter(is_start);
    starts.map(|at| at as u64).collect()
}

/// Every byte damaged, of streams of whole pages and of streams cut anywhere; parts that end around the damaged stream and
/// around the damage, and empty ones between them.
#[test]
fn a_damaged_stream_costs_the_same_pages_whatever_the_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.xml.bz2");
    let pages: Vec<String> = (0..4).map(|i| page(i, i)).collect();
    // the address of the wiki is in the second stream
    let mut of_pages = [&HEAD[..12], &HEAD[12..]]
        .map(|head| bzip2(head.as_bytes()))
        .concat();
    for pages in [&pages[..2], &pages[2..3], &pages[3..]] {
        of_pages.extend(bzip2(pages.concat().as_bytes()));
    }
    let plain = [HEAD, &pages.concat(), "</mediawiki>\n"].concat();
    let anywhere: Vec<u8> = plain.as_bytes().chunks(233).flat_map(bzip2).collect();
    for (sound, step) in [(of_pages, 1), (anywhere, 3)] {
        let size = sound.len() as u64;
        let starts = streams(&sound);
        assert!(starts.len() >= 4);
        // the first six bytes decide the kind of file
        for at in (6..sound.len()).step_by(step) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&path, &bytes).unwrap();
            let whole = records(&path, &(0..size));
            for place in [0, at as u64, size] {
                assert_eq!(records(&path, &(place..place)), [], "byte {at}");
            }
            let next = starts.partition_point(|start| *start <= at as u64);
            let (own, next) = (starts[next - 1], starts.get(next).copied().unwrap_or(size));
            for cut in [own, own + 1, at as u64 + 1, next, next + 1] {
                let cut = cut.min(size);
                let mut found = records(&path, &(0..cut));
                found.extend(records(&path, &(cut..size)));
                assert_eq!(found, whole, "byte {at}, cut at {cut} of {size}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_of_a_damaged_dump_give_what_the_whole_gives(
        cuts in proptest::collection::vec(any::<u64>(), 1..4), at in any::<usize>(), x in 1..=255u8,
    ) {
        let dir = tempfile::tempdir().unwrap();
        for path in dumps(dir.path()) {
            let mut bytes = std::fs::read(&path).unwrap();
            // the first bytes decide the kind of file
            let at = 10 + at % (bytes.len() - 10);
            bytes[at] ^= x;
            std::fs::write(&path, &bytes).unwrap();
            let size = bytes.len() as u64;
            let mut ends: Vec<u64> = cuts.iter().map(|c| c % size).chain([size]).collect();
            ends.sort_unstable();
            let (mut start, mut found) = (0, Vec::new());
            for end in ends {
                found.extend(records(&path, &(start..end)));
                start = end;
            }
            let whole = records(&path, &(0..size));
            prop_assert!(whole.len() >= 6, "{} byte {at}: {} records", path.display(), whole.len());
            prop_assert_eq!(&found, &whole, "{} byte {}", path.display(), at);
        }
    }
}

#[test]
fn a_page_without_an_end_costs_that_page_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.xml");
    let cut = page(1, 3).replace("</page>", "");
    std::fs::write(&path, [HEAD, &page(0, 3), &cut, &page(2, 3)].concat()).unwrap();
    let found = records(&path, &(0..u64::MAX));
    let bad: Vec<bool> = found.iter().map(|r| r.1.starts_with("bad ")).collect();
    assert_eq!(bad, [false, true, false]);
    assert!(found[1].1.contains("does not end before the next one"));
}

fn run(config: &CurateConfig, out: &Path) -> (ShardReport, Vec<(String, String)>) {
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    let list = shards(config).unwrap();
    for shard in &list {
        sum.merge(&curator.run_shard(shard, out, &Silent).unwrap());
    }
    assert!(sum.adds_up());
    let found = (0..list.len()).flat_map(|s| documents(out, s).unwrap());
    let found = found.map(|d| d.map(|d| (d.id, d.text)).unwrap()).collect();
    (sum, found)
}

#[test]
fn dolma_files_and_dumps_give_the_same_documents_whatever_the_size_of_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("documents");
    std::fs::create_dir_all(&folder).unwrap();
    let lines: String = (0..30_000).fold(String::new(), |mut lines, i| {
        let words = "word ".repeat(i % 40);
        writeln!(
            lines,
            "{{\"text\":\"number {i} {words}\",\"source\":\"x\"}}"
        )
        .unwrap();
        lines
    });
    let pages: Vec<String> = (0..2_400).map(|i| page(i, i % 400)).collect();
    let plain = format!("{HEAD}{}</mediawiki>\n", pages.concat());
    let mut streams = bzip2(HEAD.as_bytes());
    // different content per page keeps the streams from compressing to nothing
    for (i, pages) in pages.chunks(2).enumerate() {
        let noise = (0..400u64).fold(String::new(), |mut noise, k| {
            let word = (i as u64 * 400 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            write!(noise, "<!-- {word:x} -->").unwrap();
            noise
        });
        streams.extend(bzip2(format!("{}{noise}", pages.concat()).as_bytes()));
    }
    for (name, bytes, format, count) in [
        (
            "documents/a.jsonl",
            lines.into_bytes(),
            Format::Dolma,
            30_000,
        ),
        ("a.xml", plain.into_bytes(), Format::Wikipedia, 2_400),
        ("a.xml.bz2", streams, Format::Wikipedia, 2_400),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut all = Vec::new();
        for split_mb in [1, 2, 1000] {
            let config = CurateConfig {
                inputs: vec![Input {
                    path: path.to_string_lossy().into_owned(),
                    format,
                    ..Input::default()
                }],
                split_mb,
                ..CurateConfig::default()
            };
            let parts = shards(&config).unwrap().len();
            assert_eq!(parts > 1, split_mb < 1000, "{name} {split_mb}");
            let (report, found) = run(&config, &dir.path().join(format!("out{split_mb}")));
            assert_eq!((report.records, report.kept), (count, count), "{name}");
            all.push(found);
        }
        let ids: std::collections::BTreeSet<&String> = all[0].iter().map(|d| &d.0).collect();
        assert_eq!(ids.len() as u64, count, "{name}: ids are unique");
        assert!(all.iter().all(|found| *found == all[0]), "{name}");
    }
}

#[test]
fn attributes_and_single_streams_are_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("documents");
    std::fs::create_dir_all(&folder).unwrap();
    let line = "{\"text\":\"the words of a line that is long enough to fill a file\"}\n";
    std::fs::write(folder.join("a.jsonl"), line.repeat(40_000)).unwrap();
    // as many bytes again, but of one stream
    let noise: Vec<u8> = (0..2_000_000u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    std::fs::write(dir.path().join("a.xml.bz2"), bzip2(&noise)).unwrap();
    for (name, format, attributes) in [
        (
            "documents/a.jsonl",
            Format::Dolma,
            vec!["length".to_string()],
        ),
        ("a.xml.bz2", Format::Wikipedia, Vec::new()),
    ] {
        let config = CurateConfig {
            inputs: vec![Input {
                path: dir.path().join(name).to_string_lossy().into_owned(),
                format,
                attributes,
                ..Input::default()
            }],
            split_mb: 1,
            ..CurateConfig::default()
        };
        let parts = shards(&config).unwrap();
        assert!(parts.len() == 1 && parts[0].part.is_none(), "{name}");
    }
}

//! WACZ files, and WET beside WARC of the same pages.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::{CleanDocument, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/archives")
        .join(name)
}

fn run(path: &Path, format: Format, out: &Path) -> (Vec<CleanDocument>, ShardReport, Vec<String>) {
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            format,
            source: "s".to_string(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let shard = &shards(&config).unwrap()[0];
    let report = curator.run_shard(shard, out, &Silent).unwrap();
    assert!(report.adds_up());
    let found = documents(out, 0).unwrap().map(Result::unwrap).collect();
    let errors = std::fs::read_to_string(out.join("errors/00000.jsonl")).unwrap();
    let bad = errors
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line.get("repaired").is_none())
        .map(|line| line["why"].as_str().unwrap().to_string());
    (found, report, bad.collect())
}

/// A WACZ file of these entries; with false, an entry is compressed once more.
fn wacz(entries: &[(&str, Vec<u8>, bool)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes, is_stored) in entries {
        let method = match is_stored {
            true => CompressionMethod::Stored,
            false => CompressionMethod::Deflated,
        };
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const ARCHIVES: [&str; 2] = ["example.warc.gz", "whirlwind.warc.gz"];

fn whole() -> Vec<u8> {
    let archive = |i: usize| std::fs::read(data(ARCHIVES[i])).unwrap();
    wacz(&[
        (
            "pages/pages.jsonl",
            b"{\"format\":\"json-pages-1.0\"}\n".to_vec(),
            false,
        ),
        ("archive/b.warc.gz", archive(1), true),
        ("indexes/index.cdx", b"x".to_vec(), false),
        ("archive/a.warc.gz", archive(0), true),
        ("datapackage.json", b"{}".to_vec(), false),
    ])
}

#[test]
fn documents_of_a_wacz_file_are_those_of_its_warc_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crawl.wacz");
    let bytes = whole();
    std::fs::write(&path, &bytes).unwrap();
    let (found, report, bad) = run(&path, Format::Auto, &dir.path().join("out"));
    assert!(bad.is_empty(), "{bad:?}");
    let mut want = Vec::new();
    let mut records = 0;
    for name in ARCHIVES {
        let (documents, report, _) = run(&data(name), Format::Warc, &dir.path().join(name));
        records += report.records;
        want.extend(documents);
    }
    assert_eq!(report.records, records);
    assert!(!found.is_empty());
    let texts = |all: &[CleanDocument]| -> Vec<(Option<String>, String)> {
        all.iter()
            .map(|d| (d.url.clone(), d.text.clone()))
            .collect()
    };
    assert_eq!(texts(&found), texts(&want));
    for document in &found {
        // the offset is that of the record's gzip member in the WACZ file
        let warc = &document.meta.as_ref().unwrap()["warc"];
        assert_eq!(warc["file"], "crawl.wacz");
        let at = usize::try_from(warc["offset"].as_u64().unwrap()).unwrap();
        assert!(bytes[at..].starts_with(&[0x1f, 0x8b]), "{at}");
        assert!(document.id.starts_with("s/crawl/"), "{}", document.id);
    }
}

#[test]
fn broken_archives_inside_are_quarantined_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let read = |bytes: &[u8], format: Format| {
        let path = dir.path().join("crawl.wacz");
        std::fs::write(&path, bytes).unwrap();
        run(&path, format, &dir.path().join("out"))
    };
    let sound = std::fs::read(data(ARCHIVES[1])).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let bytes = wacz(&[
        ("archive/a.warc.gz", sound.clone(), false),
        ("archive/b.warc.gz", damaged, true),
        (
            "archive/c.warc",
            b"no archive at all, but some text".to_vec(),
            true,
        ),
        ("archive/d.warc.gz", sound, true),
    ]);
    let (found, report, bad) = read(&bytes, Format::Wacz);
    assert_eq!(found.len(), 1);
    assert_eq!(report.quarantined, 3, "{bad:?}");
    assert_eq!(bad[0], "archive/a.warc.gz: compressed inside the archive");
    assert!(
        bad[2].starts_with("archive/c.warc: not a WARC file: starts with"),
        "{bad:?}"
    );

    let bytes = whole();
    for cut in (8..bytes.len()).step_by(bytes.len() / 37) {
        let (found, report, bad) = read(&bytes[..cut], Format::Wacz);
        assert!(found.is_empty() && report.quarantined == 1, "{cut}");
        assert!(bad[0].starts_with("ZIP archive: "), "{bad:?}");
    }
    for at in (4..bytes.len()).step_by(bytes.len() / 37) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        let (_, report, _) = read(&flipped, Format::Wacz);
        assert!(report.records > 0, "{at}");
    }
    let (_, _, bad) = read(&wacz(&[("a.txt", b"a".to_vec(), true)]), Format::Wacz);
    assert_eq!(bad, ["no WARC file in archive/"]);
    assert_eq!(read(b"", Format::Wacz).2, ["the file is empty"]);
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Common Crawl's own text of a page has the page's main text, in its order, and more.
#[test]
fn wet_beside_warc_of_the_same_pages_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    let (pages, ..) = run(&data("whirlwind.warc.gz"), Format::Warc, &out("warc"));
    let (texts, ..) = run(&data("whirlwind.warc.wet.gz"), Format::Wet, &out("wet"));
    assert_eq!((pages.len(), texts.len()), (1, 1));
    for (page, text) in pages.iter().zip(&texts) {
        assert_eq!(page.url, text.url);
        let warc = |d: &CleanDocument, key: &str| d.meta.as_ref().unwrap()["warc"][key].clone();
        assert_eq!(warc(page, "record_id"), warc(text, "refers_to"));
        let (page, text) = (words(&page.text), words(&text.text));
        assert!(page.len() > 50, "{page:?}");
        // the longest common subsequence, by a table of its lengths
        let mut lengths = vec![0usize; text.len() + 1];
        for word in &page {
            let mut before = 0;
            for (i, other) in text.iter().enumerate() {
                let above = lengths[i + 1];
                lengths[i + 1] = if word == other {
                    before + 1
                } else {
                    above.max(lengths[i])
                };
                before = above;
            }
        }
        let common = lengths[text.len()];
        let share = common as f64 / page.len() as f64;
        assert!(share > 0.97, "{common} of {} words", page.len());
    }
}

#[test]
fn pages_of_a_zim_file_are_read_and_its_broken_clusters_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/documents/sample.zim");
    let (found, report, bad) = run(&path, Format::Auto, &dir.path().join("out"));
    assert_eq!((report.records, report.kept), (2, 2), "{bad:?} {report:?}");
    let mut texts: Vec<&str> = found.iter().map(|d| d.text.as_str()).collect();
    texts.sort_unstable();
    assert!(
        texts[0].contains("The first page of a wiki has some sentences"),
        "{texts:?}"
    );
    assert!(texts[0].contains("a caf\u{e9} and an end."), "{texts:?}");
    assert!(
        texts[1].starts_with("The second page is longer"),
        "{texts:?}"
    );
    let meta = found.iter().map(|d| d.meta.as_ref().unwrap());
    let mut paths: Vec<&str> = meta.map(|m| m["zim"]["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["A_page", "B_page"]);
    let whole = std::fs::read(&path).unwrap();
    let broken = dir.path().join("broken.zim");
    let read = |bytes: &[u8]| {
        std::fs::write(&broken, bytes).unwrap();
        run(&broken, Format::Zim, &dir.path().join("out"))
    };
    for cut in (8..whole.len()).step_by(whole.len() / 61) {
        let (found, report, _) = read(&whole[..cut]);
        assert!(
            report.quarantined > 0 || found.len() == 2,
            "{cut}: {report:?}"
        );
    }
    for at in (4..whole.len()).step_by(whole.len() / 211) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        assert!(read(&flipped).1.records > 0, "{at}");
    }
    assert_eq!(read(b"").2, ["the file is empty"]);
}

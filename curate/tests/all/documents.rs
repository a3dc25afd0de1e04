//! Documents in packages and pages: EPUB, DOCX, ODT, read like the programs that made them do, and quarantined in parts.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::{CleanDocument, documents};
use curate::extract::{ExtractConfig, TextForm};
use curate::pipeline::{CurateConfig, Curator, ShardReport, Step, shards};
use curate::read::{Format, Input, Split};
use serde_json::json;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/documents")
        .join(name)
}

pub(crate) fn config(path: &Path, format: Format) -> CurateConfig {
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

/// Runs a config; its documents in order, the sum of its reports, and the reasons of bad records.
pub(crate) fn run(
    config: &CurateConfig,
    out: &Path,
) -> (Vec<CleanDocument>, ShardReport, Vec<String>) {
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    for shard in shards(config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out, &Silent).unwrap());
        found.extend(documents(out, shard.number).unwrap().map(Result::unwrap));
        let errors = out.join(format!("errors/{:05}.jsonl", shard.number));
        for line in std::fs::read_to_string(errors).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            bad.push(line["why"].as_str().unwrap().to_string());
        }
    }
    assert!(sum.adds_up());
    (found, sum, bad)
}

/// Reads bytes as a file of a format.
fn read(bytes: &[u8], format: Format) -> (Vec<CleanDocument>, ShardReport, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    run(&config(&path, format), &dir.path().join("out"))
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect()
}

/// An archive of these entries.
pub(crate) fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        let method = match *name {
            "mimetype" => CompressionMethod::Stored,
            _ => CompressionMethod::Deflated,
        };
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A book of chapters, some of which may be missing from it.
pub(crate) fn book(chapters: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    let items: String = chapters
        .iter()
        .map(|(name, _)| {
            format!("<item id='{name}' href='{name}.xhtml' media-type='application/xhtml+xml'/>")
        })
        .collect();
    let spine: String = chapters
        .iter()
        .map(|(name, _)| format!("<itemref idref='{name}'/>"))
        .collect();
    let package = format!(
        "<package><metadata><dc:title>T</dc:title></metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    );
    let container = b"<container><rootfiles><rootfile full-path='a.opf'/></rootfiles></container>";
    let names: Vec<String> = chapters.iter().map(|(n, _)| format!("{n}.xhtml")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", container),
        ("a.opf", package.as_bytes()),
    ];
    for ((_, content), name) in chapters.iter().zip(&names) {
        if let Some(content) = content {
            entries.push((name, content));
        }
    }
    archive(&entries)
}

#[test]
fn words_of_documents_are_those_that_outside_programs_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(data("words.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, format) in [
        ("book.epub", Format::Epub),
        ("report.docx", Format::Docx),
        ("report.odt", Format::Odt),
        ("tracked.docx", Format::Docx),
        ("two_columns.pdf", Format::Pdf),
        ("story.pdf", Format::Pdf),
        ("paper.tar.xz", Format::Latex),
    ] {
        let (found, report, bad) = run(&config(&data(name), format), dir.path());
        assert_eq!((report.records, report.kept), (1, 1), "{name}: {bad:?}");
        let want: Vec<&str> = golden[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        let have = words(&found[0].text);
        let at = have.iter().zip(&want).position(|(a, b)| a != b);
        if let Some(at) = at {
            let until = |n: usize| (at + 8).min(n);
            panic!(
                "{name}, word {at}: {:?}, wanted {:?}",
                &have[at.saturating_sub(5)..until(have.len())],
                &want[at.saturating_sub(5)..until(want.len())]
            );
        }
        assert_eq!(have.len(), want.len(), "{name}");
        let by_content = run(&config(&data(name), Format::Auto), dir.path()).0;
        assert_eq!(by_content, found, "{name}");
    }
}

#[test]
fn heads_and_page_numbers_of_a_pdf_are_counted_and_kept_if_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, pages, head) in [
        ("two_columns.pdf", 6, "Annual Messages"),
        ("story.pdf", 4, "Running head of a story"),
    ] {
        let mut config = config(&data(name), Format::Pdf);
        let (found, report, _) = run(&config, &dir.path().join("out"));
        let own = &found[0].meta.as_ref().unwrap()["pdf"];
        assert_eq!(own["pages"], json!(pages), "{name}");
        let lines = own["running_lines"].as_u64().unwrap();
        assert_eq!(report.running.get("documents"), Some(&1));
        assert_eq!(report.running.get("lines"), Some(&lines));
        assert!(!found[0].text.contains(head), "{name}");
        config.inputs[0].running_lines = true;
        let (found, report, _) = run(&config, &dir.path().join("kept"));
        assert!(
            found[0].text.contains(head) && report.running.is_empty(),
            "{name}"
        );
    }
}

#[test]
fn paragraphs_of_columns_and_pages_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (found, ..) = run(&config(&data("two_columns.pdf"), Format::Pdf), dir.path());
    let text = &found[0].text;
    let first = text.split("\n\n").next().unwrap();
    assert!(
        first.starts_with("At the same time, it is clear that the budgetary program"),
        "{first}"
    );
    assert!(
        first.ends_with("the annual work program of the Government."),
        "{first}"
    );
    // every paragraph of the speeches ends a sentence
    let whole = text
        .split("\n\n")
        .filter(|p| p.ends_with(['.', ':', '?', ';']))
        .count();
    assert!(whole * 10 >= text.split("\n\n").count() * 9, "{text}");
}

#[test]
fn metadata_and_form_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for (name, format) in [
        ("book.epub", Format::Epub),
        ("report.docx", Format::Docx),
        ("report.odt", Format::Odt),
        ("paper.tar.xz", Format::Latex),
    ] {
        let mut config = config(&data(name), format);
        config.step = vec![Step::Extract(ExtractConfig {
            format: TextForm::Markdown,
            ..ExtractConfig::default()
        })];
        let document = run(&config, dir.path()).0.remove(0);
        let meta = document.meta.unwrap();
        assert_eq!(meta["title"], json!("Speeches & words"), "{name}: {meta}");
        assert!(
            meta["author"]
                .as_str()
                .unwrap()
                .contains("Dwight Eisenhower"),
            "{name}: {meta}"
        );
        assert_eq!(meta["file"], json!(name));
        // headings keep the type of single words, but those of LaTeX are plain
        let heading = match format {
            Format::Latex => "# Of the first part\n",
            _ => "# Of the *first* part\n",
        };
        for form in [
            " Chapter 1\n",
            heading,
            "- Only yesterday, we\n- laid to\n  1. rest the mortal\n  2. remains of\n- our beloved\n",
            "| President, | Franklin | Delano |\n| --- | --- | --- |\n| Roosevelt. | At | a |\n",
        ] {
            assert!(
                document.text.contains(form),
                "{name}: {form:?} in {}",
                document.text
            );
        }
        assert_eq!(
            document.id,
            format!("s/{}/0", name.split('.').next().unwrap())
        );
    }
}

#[test]
fn a_broken_chapter_is_quarantined_and_the_others_are_kept() {
    let (a, b) = (
        &b"<html><head><title/></head><body><p>one</p></body></html>"[..],
        &b"<p>two</p>"[..],
    );
    let sound = book(&[("a", Some(a)), ("b", Some(b))]);
    let (found, report, _) = read(&sound, Format::Epub);
    assert_eq!((report.kept, report.quarantined), (1, 0));
    assert_eq!(found[0].text, "one\n\ntwo");

    let (found, report, bad) = read(
        &book(&[("a", Some(a)), ("x", None), ("b", Some(b))]),
        Format::Epub,
    );
    assert_eq!((report.records, report.kept, report.quarantined), (2, 1, 1));
    assert_eq!(found[0].text, "one\n\ntwo");
    assert_eq!(bad, ["chapter x.xhtml: not in the archive"]);

    // the deflated bytes of the first chapter
    let mut damaged = sound.clone();
    let at = memchr::memmem::find(&damaged, b"a.xhtml").unwrap() + 7;
    damaged[at + 9] ^= 0xff;
    let (found, report, bad) = read(&damaged, Format::Epub);
    assert_eq!((report.kept, report.quarantined), (1, 1), "{bad:?}");
    assert_eq!(found[0].text, "two");
    assert!(bad[0].starts_with("chapter a.xhtml: "), "{bad:?}");

    // without any chapter there is no document
    let (_, report, bad) = read(&book(&[("x", None)]), Format::Epub);
    assert_eq!((report.records, report.quarantined), (1, 1), "{bad:?}");
}

#[test]
fn files_cut_short_or_with_flipped_bytes_never_panic_and_are_counted() {
    for (name, format) in [
        ("book.epub", Format::Epub),
        ("report.docx", Format::Docx),
        ("report.odt", Format::Odt),
        ("two_columns.pdf", Format::Pdf),
        ("story.pdf", Format::Pdf),
        ("paper.tar.xz", Format::Latex),
    ] {
        let whole = std::fs::read(data(name)).unwrap();
        let step = whole.len() / 41;
        for cut in (8..whole.len()).step_by(step) {
            let (found, report, bad) = read(&whole[..cut], format);
            // what is left of a PDF may be a document
            let is_counted = report.quarantined >= 1 || format == Format::Pdf;
            assert!(is_counted, "{name} {cut}: {report:?}");
            if format == Format::Pdf {
                continue;
            }
            assert!(found.is_empty() && report.quarantined == 1, "{name} {cut}");
            let wanted = ["ZIP archive: ", "the file ends inside its xz data"];
            assert!(wanted.iter().any(|why| bad[0].starts_with(why)), "{bad:?}");
        }
        let clean = read(&whole, format).0.remove(0).text;
        let mut changed = 0;
        for at in (0..whole.len()).step_by(step) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x55;
            // another first byte is another format
            if at == 0 {
                continue;
            }
            let (found, report, _) = read(&flipped, format);
            assert_eq!(report.records, report.kept + report.quarantined);
            // checksums tell damaged text from sound one; not all of a PDF has one
            let is_same = found.first().is_some_and(|d| d.text == clean);
            changed += usize::from(!is_same);
            let is_package = !matches!(format, Format::Pdf | Format::Latex);
            assert!(
                is_same || report.quarantined > 0 || !is_package,
                "{name} {at}: {report:?}"
            );
        }
        assert!(changed > 5, "{name}: {changed}");
    }
}

#[test]
fn archives_that_expand_past_a_record_are_quarantined() {
    let zeros = vec![b' '; 8 << 20];
    let bomb = book(&[("a", Some(&zeros)), ("b", Some(b"<p>two</p>"))]);
    assert!(bomb.len() < 20_000);
    let (found, report, bad) = read(&bomb, Format::Epub);
    assert_eq!((report.kept, report.quarantined), (1, 1));
    assert_eq!(found[0].text, "two");
    assert_eq!(
        bad,
        ["chapter a.xhtml: the archive's texts expand past 1048576 bytes"]
    );

    // many entries that are short each
    let part = vec![b'a'; 100_000];
    let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
    let chapters: Vec<(&str, Option<&[u8]>)> = names
        .iter()
        .map(|n| (n.as_str(), Some(&part[..])))
        .collect();
    let (_, report, bad) = read(&book(&chapters), Format::Epub);
    assert!(report.quarantined >= 30, "{bad:?}");

    let document = archive(&[("word/document.xml", &zeros)]);
    let (_, report, bad) = read(&document, Format::Docx);
    assert_eq!(report.quarantined, 1);
    assert_eq!(
        bad,
        ["word/document.xml: the archive's texts expand past 1048576 bytes"]
    );
}

#[test]
fn encrypted_books_and_texts_are_dropped_and_counted() {
    let container = b"<container><rootfiles><rootfile full-path='a.opf'/></rootfiles></container>";
    let package = b"<package><manifest><item id='a' href='a.xhtml' media-type='application/xhtml+xml'/></manifest>\
        <spine><itemref idref='a'/></spine></package>";
    let encryption = b"<encryption><EncryptedData><EncryptionMethod Algorithm='aes'/><CipherData>\
        <CipherReference URI='a.xhtml'/></CipherData></EncryptedData></encryption>";
    let bytes = archive(&[
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", container),
        ("META-INF/encryption.xml", encryption),
        ("a.opf", package),
        ("a.xhtml", b"\x01\x02\x03"),
    ]);
    let odt = archive(&[
        ("mimetype", b"application/vnd.oasis.opendocument.text"),
        (
            "META-INF/manifest.xml",
            b"<manifest><file-entry><encryption-data/></file-entry></manifest>",
        ),
        ("content.xml", b"\x01\x02\x03"),
    ]);
    for (bytes, format) in [(bytes, Format::Epub), (odt, Format::Odt)] {
        for format in [format, Format::Auto] {
            let (_, report, _) = read(&bytes, format);
            assert_eq!(report.records, 1);
            assert_eq!(report.dropped.get("read.encrypted"), Some(&1), "{format:?}");
        }
    }
}

#[test]
fn broken_parts_beside_the_text_are_bad_records_of_their_own() {
    let document = b"<w:document><w:body><w:p><w:r><w:t>text</w:t><w:footnoteReference w:id='1'/></w:r></w:p></w:body></w:document>";
    let bytes = archive(&[
        ("word/document.xml", document),
        ("word/footnotes.xml", b"<w:footnotes><w:footnote w:id='1'>"),
        ("word/styles.xml", b"<w:styles><a></b>"),
    ]);
    let (found, report, bad) = read(&bytes, Format::Docx);
    assert_eq!((report.kept, report.quarantined), (1, 2), "{bad:?}");
    assert_eq!(found[0].text, "text[1]\n\n[1]");
    assert!(bad[0].starts_with("word/styles.xml: XML: "), "{bad:?}");
    assert_eq!(bad[1], "word/footnotes.xml: XML: ends inside an element");
}

#[test]
fn other_archives_are_named_and_other_files_refused() {
    let other = archive(&[("a.txt", b"text")]);
    let (_, report, bad) = read(&other, Format::Auto);
    assert_eq!(report.quarantined, 1);
    assert_eq!(bad, ["a ZIP archive: no format reads it"]);
    for format in [
        Format::Epub,
        Format::Docx,
        Format::Odt,
        Format::Pdf,
        Format::Latex,
    ] {
        assert_eq!(read(b"", format).2, ["the file is empty"]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        std::fs::write(&path, b"{\"text\": \"a\"}\n").unwrap();
        let config = config(&path, format);
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let shard = &shards(&config).unwrap()[0];
        let why = curator
            .run_shard(shard, &dir.path().join("out"), &Silent)
            .unwrap_err();
        assert!(why.to_string().contains("starts with \"{"), "{why}");
    }
}

#[test]
fn a_compressed_book_is_read_like_a_plain_one() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(data("book.epub")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&bytes).unwrap();
    let path = dir.path().join("book.epub.gz");
    std::fs::write(&path, encoder.finish().unwrap()).unwrap();
    let (found, ..) = run(&config(&path, Format::Auto), &dir.path().join("out"));
    let (plain, ..) = run(
        &config(&data("book.epub"), Format::Epub),
        &dir.path().join("out"),
    );
    assert_eq!(found[0].text, plain[0].text);
}

/// A tar archive of these files.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn papers_with_cyclic_includes_and_macros_are_quarantined() {
    let head = "\\documentclass{article}\\begin{document}";
    for (main, other, want) in [
        (
            "\\input{b}",
            "\\input{main}",
            "file main.tex includes itself",
        ),
        ("\\newcommand\\a{\\a\\a}\\a", "", "macros expand past"),
        ("", "", ""),
    ] {
        let bytes = tar(&[("main.tex", &format!("{head}{main}")), ("b.tex", other)]);
        let (_, report, bad) = read(&bytes, Format::Auto);
        if want.is_empty() {
            assert_eq!(report.dropped.get("read.empty"), Some(&1), "{report:?}");
        } else {
            assert_eq!((report.records, report.quarantined), (1, 1), "{bad:?}");
            assert!(bad[0].starts_with(want), "{bad:?}");
        }
    }
    let (_, report, bad) = read(&tar(&[("a.txt", "x")]), Format::Auto);
    assert_eq!(
        (report.quarantined, bad[0].as_str()),
        (1, "a tar archive: no format reads it")
    );
    let (_, _, bad) = read(&tar(&[("a.tex", "plain")]), Format::Auto);
    assert_eq!(bad, ["no file states a class of documents"]);
}

#[test]
fn a_pdf_bomb_is_quarantined_within_bounded_memory() {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..300 {
        encoder.write_all(&zeros).unwrap();
    }
    let content = encoder.finish().unwrap();
    let mut bytes = b"%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Count 1/Kids[3 0 R]>>\nendobj\n\
        3 0 obj\n<</Type/Page/Parent 2 0 R/Contents 4 0 R>>\nendobj\n"
        .to_vec();
    bytes.extend(
        format!(
            "4 0 obj\n<</Filter/FlateDecode/Length {}>>\nstream\n",
            content.len()
        )
        .bytes(),
    );
    bytes.extend(content);
    bytes.extend(b"\nendstream\nendobj\ntrailer\n<</Root 1 0 R>>\n");
    let (_, report, bad) = read(&bytes, Format::Pdf);
    assert_eq!((report.records, report.quarantined), (1, 1), "{report:?}");
    assert!(bad[0].starts_with("page 1: "), "{bad:?}");
}

/// Words and title of each encrypted file, as PDFium reads them.
fn encrypted() -> serde_json::Map<String, serde_json::Value> {
    let text = std::fs::read_to_string(data("encrypted/text.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn pdfs_that_open_without_a_password_are_read_as_their_plain_twin() {
    let dir = tempfile::tempdir().unwrap();
    let plain = run(
        &config(&data("encrypted/plain.pdf"), Format::Pdf),
        dir.path(),
    )
    .0;
    let all = encrypted();
    assert_eq!(all.len(), 8);
    for (name, want) in &all {
        let path = data("encrypted").join(name);
        let (found, report, bad) = run(&config(&path, Format::Auto), dir.path());
        assert_eq!(
            (found.len(), bad.len()),
            (1, 0),
            "{name}: {report:?} {bad:?}"
        );
        let pages = want["pages"].as_array().unwrap().iter();
        let want_words: Vec<&str> = pages
            .flat_map(|page| page.as_array().unwrap())
            .map(|word| word.as_str().unwrap())
            .collect();
        let words: Vec<&str> = found[0].text.split_whitespace().collect();
        assert_eq!(words, want_words, "{name}");
        let meta = found[0].meta.as_ref().unwrap();
        assert_eq!(meta["title"], want["title"], "{name}");
        let mut twin = plain[0].meta.clone().unwrap();
        // qpdf writes no producer of its own, but leaves the rest
        twin["file"] = json!(name);
        assert_eq!(meta, &twin, "{name}");
        assert_eq!(found[0].text, plain[0].text, "{name}");
    }
    let (found, report, bad) = run(
        &config(&data("encrypted/locked.pdf"), Format::Pdf),
        dir.path(),
    );
    assert_eq!((found.len(), bad.len()), (0, 0));
    assert_eq!(report.dropped["read.encrypted"], 1);
}

#[test]
fn damage_of_an_encrypted_pdf_is_survived_and_counted() {
    for name in ["aes_256_packed.pdf", "rc4_128.pdf"] {
        let whole = std::fs::read(data("encrypted").join(name)).unwrap();
        let mut lost = 0;
        for at in (0..whole.len()).step_by(11) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let (found, report, _) = read_or_none(&bytes);
            lost += usize::from(found.is_empty());
            assert!(
                report.is_none_or(|report| report.records > 0),
                "{name} at {at}"
            );
        }
        assert!(lost > 0, "{name}");
        let (found, _, bad) = read(&whole[..whole.len() / 2], Format::Pdf);
        assert!(found.is_empty() || !bad.is_empty(), "{name}: {found:?}");
    }
}

/// Like [`read`], of a PDF; no report if it is not one any more.
fn read_or_none(bytes: &[u8]) -> (Vec<CleanDocument>, Option<ShardReport>, Vec<String>) {
    if !bytes.windows(5).take(1024).any(|head| head == b"%PDF-") {
        return (Vec::new(), None, Vec::new());
    }
    let (found, report, bad) = read(bytes, Format::Pdf);
    (found, Some(report), bad)
}

#[test]
fn pages_and_chapters_are_documents_with_ids_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = data("encrypted/aes_256.pdf");
    let mut by_page = config(&path, Format::Pdf);
    by_page.inputs[0].split = Split::Page;
    let (found, report, _) = run(&by_page, dir.path());
    assert_eq!((report.records, report.kept), (3, 3));
    let want = encrypted()["aes_256.pdf"]["pages"].clone();
    for (i, document) in found.iter().enumerate() {
        assert_eq!(document.id, format!("s/aes_256/page-{}", i + 1));
        let words: Vec<&str> = document.text.split_whitespace().collect();
        assert_eq!(json!(words), want[i]);
        let meta = document.meta.as_ref().unwrap();
        assert_eq!(
            (&meta["pdf"]["page"], &meta["pdf"]["pages"]),
            (&json!(i + 1), &json!(3))
        );
        assert_eq!(meta["title"], "The light (a story)");
    }
    // a sample takes the same documents, of which the ids are known once they are read
    let mut most = 0;
    for twentieths in 1..20_u8 {
        by_page.sample = f64::from(twentieths) / 20.0;
        let (sampled, report, _) = run(&by_page, dir.path());
        assert_eq!(report.records, 3);
        assert!(sampled.iter().all(|d| found.contains(d)));
        assert!(
            sampled.len() >= most,
            "a larger sample has all of a smaller one"
        );
        assert!(twentieths > 1 || sampled.len() < 3);
        most = sampled.len();
    }
    assert!(most > 0);

    let whole = run(&config(&data("book.epub"), Format::Epub), dir.path()).0;
    let mut by_chapter = config(&data("book.epub"), Format::Auto);
    by_chapter.inputs[0].split = Split::Chapter;
    let (chapters, report, _) = run(&by_chapter, dir.path());
    let count = whole[0].meta.as_ref().unwrap()["epub"]["chapters"]
        .as_u64()
        .unwrap();
    assert!(count > 1 && report.records == count, "{report:?}");
    let mut texts = Vec::new();
    for document in &chapters {
        let own = &document.meta.as_ref().unwrap()["epub"];
        assert_eq!(document.id, format!("s/book/chapter-{}", own["chapter"]));
        assert!(own["path"].as_str().unwrap().ends_with("html"), "{own}");
        texts.push(document.text.as_str());
    }
    assert_eq!(texts.join("\n\n"), whole[0].text);
}

#[test]
fn an_encrypted_chapter_is_dropped_by_its_name_and_the_others_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.epub");
    let encryption = b"<encryption><EncryptedData><EncryptionMethod Algorithm='aes'/><CipherData>\
        <CipherReference URI='a.xhtml'/></CipherData></EncryptedData></encryption>";
    let container: &[u8] =
        b"<container><rootfiles><rootfile full-path='c.opf'/></rootfiles></container>";
    let package: &[u8] =
        b"<package><manifest><item id='a' href='a.xhtml' media-type='application/xhtml+xml'/>\
        <item id='b' href='b.xhtml' media-type='application/xhtml+xml'/></manifest>\
        <spine><itemref idref='a'/><itemref idref='b'/></spine></package>";
    let bytes = archive(&[
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", container),
        ("META-INF/encryption.xml", encryption),
        ("c.opf", package),
        ("a.xhtml", b"0123456789"),
        ("b.xhtml", b"<html><body><p>Some words.</p></body></html>"),
    ]);
    std::fs::write(&path, bytes).unwrap();
    let mut config = config(&path, Format::Epub);
    config.inputs[0].split = Split::Chapter;
    let (found, report, bad) = run(&config, &dir.path().join("out"));
    assert_eq!((report.records, bad.len()), (2, 0));
    assert_eq!(report.dropped["read.encrypted"], 1);
    assert_eq!(
        (found[0].id.as_str(), found[0].text.as_str()),
        ("s/x/chapter-2", "Some words.")
    );
}

#[test]
fn splits_of_other_formats_are_refused() {
    for (format, split, wrong) in [
        (Format::Pdf, Split::Page, false),
        (Format::Epub, Split::Chapter, false),
        (Format::Auto, Split::Page, false),
        (Format::Epub, Split::Page, true),
        (Format::Jsonl, Split::Chapter, true),
    ] {
        let mut config = config(Path::new("x"), format);
        config.inputs[0].split = split;
        let mut keys = Vec::new();
        config.check(&mut |key, _, _| keys.push(key.to_string()));
        assert_eq!(
            keys.contains(&"inputs[0].split".to_string()),
            wrong,
            "{format:?} {split:?}"
        );
    }
}

#[test]
fn inspect_names_the_format_of_every_file_and_what_is_in_it() {
    let about = |path: &Path| curate::pipeline::inspect(path).unwrap();
    for (name, kind) in [
        ("book.epub", "epub"),
        ("report.docx", "docx"),
        ("report.odt", "odt"),
        ("story.pdf", "pdf"),
        ("paper.tar.xz", "latex"),
    ] {
        let found = about(&data(name));
        assert_eq!(found["kind"], kind, "{name}");
        assert_eq!(found["format"], kind, "{name}");
        assert_eq!(
            (&found["documents"], &found["bad"]),
            (&json!(1), &json!(0)),
            "{name}"
        );
        // as a job has it
        let format: Format = serde_json::from_value(json!(kind)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (documents, ..) = run(&config(&data(name), format), &dir.path().join("out"));
        let mut meta = documents[0].meta.clone().unwrap();
        for of_job in ["file", "is_cut"] {
            meta.as_object_mut().unwrap().remove(of_job);
        }
        assert_eq!(found["meta"], meta, "{name}");
    }
    assert_eq!(about(&data("sample.zim"))["kind"], "zim");
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let page = b"<!DOCTYPE html><title>A title</title><body><p>Words of a page that has some more of them, so that it is a page.</p>";
    let found = about(&file("page", page));
    assert_eq!(
        (&found["kind"], &found["title"]),
        (&json!("html"), &json!("A title"))
    );
    let found = about(&file("table.csv", b"a,b\n1,2\n3,4\n"));
    assert_eq!(found["kind"], "csv");
    assert_eq!(
        (&found["records"], &found["fields"]),
        (&json!(2), &json!({"a": 2, "b": 2}))
    );
    assert_eq!(found["delimiter"], ",");
    // whatever separates the fields, and whatever the name says
    for (name, delimiter) in [
        ("semicolons.csv", ';'),
        ("bars.csv", '|'),
        ("commas.tsv", ','),
        ("tabs.csv", '\t'),
        ("tabs.tsv", '\t'),
    ] {
        let rows = "a~b\n1~\"x, y; z | \t\"\n3~4\n".replace('~', &delimiter.to_string());
        let found = about(&file(name, rows.as_bytes()));
        let kind = if delimiter == '\t' { "tsv" } else { "csv" };
        assert_eq!(
            (&found["kind"], &found["format"]),
            (&json!(kind), &json!(kind)),
            "{name}"
        );
        assert_eq!(
            (&found["records"], &found["bad"], &found["fields"]),
            (&json!(2), &json!(0), &json!({"a": 2, "b": 2})),
            "{name}"
        );
        let shown = (kind == "csv").then(|| delimiter.to_string());
        assert_eq!(found["delimiter"], json!(shown), "{name}");
    }
    for (name, kind) in [("one.csv", "csv"), ("one.tsv", "tsv")] {
        let found = about(&file(name, b"text\none\ntwo\n"));
        assert_eq!(
            (&found["kind"], &found["records"], &found["fields"]),
            (&json!(kind), &json!(2), &json!({"text": 2})),
            "{name}"
        );
    }
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_cksum();
    archive
        .append_data(&mut header, "notes.txt", &b"ab"[..])
        .unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&archive.into_inner().unwrap()).unwrap();
    let path = file("notes.tar.gz", &encoder.finish().unwrap());
    let why = curate::pipeline::inspect(&path).unwrap_err().to_string();
    assert!(
        why.contains("found a tar archive, which no format reads"),
        "{why}"
    );
}

//! Every parser of foreign bytes, each as work on a text.

use std::io;

use crate::decontaminate::Decontaminator;
use crate::dedup::{MinhashConfig, MinhashScratch, Minhasher, words_digest};
use crate::extract::{ExtractConfig, PageSource, TextForm, extract_page};
use crate::language::{identify, script_shares};
use crate::quality::code::identify_code;
use crate::read::hostile::{parse_http_body, read_records};
use crate::read::{Format, Input, JsonScratch, parse_record, parse_response, read_fields};
use crate::statistics::measure;
use crate::text::words::{Splitter, Word};
use crate::text::{Scratch, json};

type Work = Box<dyn FnMut(&str)>;

/// Uses a result, so that the compiler keeps the computation.
fn keep<T>(found: &T) {
    std::hint::black_box(found);
}

/// The text without characters that would end its line or element.
fn inline(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn page(bytes: &[u8], content_type: Option<&str>, form: TextForm) {
    let config = ExtractConfig {
        format: form,
        ..ExtractConfig::default()
    };
    let source = PageSource {
        bytes,
        content_type,
        robots: None,
        url: Some("http://example.org/2020/01/02/a"),
    };
    extract_page(&source, &config);
}

fn fields(format: Format) -> impl FnMut(&[u8]) {
    let input = Input {
        format,
        ..Input::default()
    };
    let mut scratch = JsonScratch::default();
    move |bytes| drop(read_fields(&input, bytes, &mut scratch))
}

fn archive_record(kind: &str, body: &str) -> String {
    let length = body.len();
    format!("WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}\r\n\r\n")
}

/// All parsers with their names.
pub(super) fn parsers() -> Vec<(&'static str, Work)> {
    let mut all: Vec<(&'static str, Work)> = Vec::new();
    html(&mut all);
    http(&mut all);
    files(&mut all);
    records(&mut all);
    texts(&mut all);
    all
}

fn html(all: &mut Vec<(&'static str, Work)>) {
    all.push((
        "html",
        Box::new(|t| page(t.as_bytes(), None, TextForm::Text)),
    ));
    all.push((
        "html, a body, as Markdown",
        Box::new(|t| {
            let text = format!("<html><head><title>a</title></head><body><p>words</p>{t}");
            page(
                text.as_bytes(),
                Some("text/html; charset=utf-8"),
                TextForm::Markdown,
            );
        }),
    ));
    all.push((
        "html, an attribute and a JSON-LD script",
        Box::new(|t| {
            let quoted = inline(t).replace('"', "'");
            let text = format!(
                "<meta name=author content=\"{quoted}\"><meta name=date content=\"{quoted}\"><p class=\"byline\">{t}</p>\
                 <script type=\"application/ld+json\">{{\"@type\":\"Article\",\"headline\":\"{quoted}\"}}</script>"
            );
            page(text.as_bytes(), None, TextForm::Text);
        }),
    ));
    for charset in ["utf-16le", "gb18030", "iso-2022-jp", "windows-1252"] {
        let kind = format!("text/html; charset={charset}");
        all.push((
            "html of another charset",
            Box::new(move |t| page(t.as_bytes(), Some(&kind), TextForm::Text)),
        ));
    }
    all.push((
        "the charset of a Content-Type",
        Box::new(|t| page(b"<p>\xe9", Some(&inline(t)), TextForm::Text)),
    ));
}

fn http(all: &mut Vec<(&'static str, Work)>) {
    let response = |text: String| drop(parse_response(text.as_bytes(), 1 << 24));
    all.push((
        "http headers",
        Box::new(move |t| response(format!("HTTP/1.1 200 OK\r\n{t}\r\n\r\nbody"))),
    ));
    all.push((
        "Content-Encoding",
        Box::new(move |t| {
            let coding = inline(t);
            response(format!(
                "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n\x01{t}"
            ));
        }),
    ));
    all.push((
        "X-Robots-Tag",
        Box::new(|t| {
            let tag = inline(t);
            let source = PageSource {
                bytes: b"<p>a</p>",
                content_type: None,
                robots: Some(&tag),
                url: None,
            };
            extract_page(&source, &ExtractConfig::default());
        }),
    ));
    all.push((
        "a chunked body",
        Box::new(move |t| {
            response(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{t}"
            ));
        }),
    ));
    for coding in ["gzip", "deflate", "br", "zstd"] {
        all.push((
            "a body of a coding",
            Box::new(move |t| parse_http_body(coding, t.as_bytes())),
        ));
    }
}

fn files(all: &mut Vec<(&'static str, Work)>) {
    let all_of = |format, name, head: &'static str| -> (&'static str, Work) {
        (
            name,
            Box::new(move |t| read_records(format, &format!("{head}{t}")).expect("memory")),
        )
    };
    all.push(all_of(
        Format::Warc,
        "a WARC file",
        "WARC/1.0\r\nContent-Length: 0\r\n\r\n\r\n\r\n",
    ));
    all.push(all_of(
        Format::Warc,
        "an ARC file",
        "filedesc://x 0.0.0.0 20200101000000 text/plain 0\n\n",
    ));
    all.push(all_of(Format::Jsonl, "a JSONL file", "{\"text\":\"a\"}\n"));
    all.push(all_of(Format::Text, "a text file", ""));
    all.push(all_of(Format::Csv, "a CSV file", "id,text\n"));
    all.push(all_of(Format::Tsv, "a TSV file", "id\ttext\n"));
    all.push(all_of(
        Format::Wikipedia,
        "a wiki's dump",
        "<mediawiki>\n<page>",
    ));
    all.push(all_of(Format::Arrow, "an Arrow file", "ARROW1\0\0"));
    all.push(all_of(Format::Pdf, "a PDF", "%PDF-1.4\n"));
    all.push(all_of(
        Format::Pdf,
        "an encrypted PDF",
        "%PDF-1.4\n1 0 obj <</Filter/Standard/V 1/R 2/P 0/O()/U()>> endobj\n\
         trailer <</Root 2 0 R/Encrypt 1 0 R>>\n",
    ));
    all.push(all_of(
        Format::Latex,
        "a LaTeX source",
        "\\documentclass{a}\n\\begin{document}\n",
    ));
    all.push((
        "the content of a PDF's page",
        Box::new(|t| {
            let length = t.len();
            let bytes = format!(
                "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n\
                 2 0 obj <</Type/Pages/Count 1/Kids[3 0 R]>> endobj\n\
                 3 0 obj <</Type/Page/Parent 2 0 R/Resources<</Font<</F 5 0 R>>>>/Contents 4 0 R>> endobj\n\
                 5 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj\n\
                 4 0 obj <</Length {length}>>\nstream\n/F 9 Tf {t}\nendstream endobj\ntrailer <</Root 1 0 R>>\n"
            );
            read_records(Format::Pdf, &bytes).expect("memory");
        }),
    ));
    for (format, name, path) in [
        (Format::Docx, "a Word document", "word/document.xml"),
        (Format::Odt, "an OpenDocument text", "content.xml"),
        (
            Format::Epub,
            "the container of a book",
            "META-INF/container.xml",
        ),
    ] {
        all.push((
            name,
            Box::new(move |t| {
                let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
                let options = zip::write::SimpleFileOptions::default()
                    .compression_method(zip::CompressionMethod::Stored);
                writer.start_file(path, options).expect("memory");
                io::Write::write_all(&mut writer, t.as_bytes()).expect("memory");
                let bytes = writer.finish().expect("memory").into_inner();
                crate::read::hostile::read_bytes(format, bytes).expect("memory");
            }),
        ));
    }
    all.push((
        "a WARC file of a member for every line",
        Box::new(|t| {
            let gzip = |bytes: &[u8]| -> io::Result<Vec<u8>> {
                let level = flate2::Compression::none();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                io::Write::write_all(&mut encoder, bytes)?;
                encoder.finish()
            };
            let head = b"WARC/1.0\r\nContent-Length: 0\r\n\r\n\r\n\r\n";
            let mut bytes = gzip(head).expect("memory");
            for line in t.as_bytes().chunks(64) {
                bytes.extend(gzip(line).expect("memory"));
            }
            crate::read::hostile::read_bytes(Format::Warc, bytes).expect("memory");
        }),
    ));
}

fn records(all: &mut Vec<(&'static str, Work)>) {
    let mut json = fields(Format::Jsonl);
    all.push(("a JSON line", Box::new(move |t| json(t.as_bytes()))));
    let mut json = fields(Format::Jsonl);
    all.push((
        "a JSON line with a tail",
        Box::new(move |t| json(format!("{{\"text\":\"a\",\"x\":[{t}").as_bytes())),
    ));
    let mut dolma = fields(Format::Dolma);
    all.push((
        "a document of dolma",
        Box::new(move |t| {
            let text = serde_json::json!({"text": "a", "metadata": {"x": t}});
            dolma(text.to_string().replace("}}", ",\"n\":NaN}}").as_bytes());
        }),
    ));
    all.push((
        "JSON with numbers of Python",
        Box::new(|t| drop(json::from_slice::<serde_json::Value>(t.as_bytes()))),
    ));
    let mut wat = fields(Format::Wat);
    all.push((
        "a WAT record",
        Box::new(move |t| wat(archive_record("metadata", t).as_bytes())),
    ));
    all.push((
        "the header of a WARC record",
        Box::new(|t| drop(parse_record(format!("WARC/1.0\r\n{t}\r\n\r\n").as_bytes()))),
    ));
    all.push((
        "the header of an ARC record",
        Box::new(|t| drop(parse_record(format!("{}\n", inline(t)).as_bytes()))),
    ));
    for escaped in [true, false] {
        let mut dump = fields(Format::Wikipedia);
        all.push((
            "wikitext",
            Box::new(move |t| {
                let text = match escaped {
                    true => t.replace('&', "&amp;").replace('<', "&lt;"),
                    false => t.to_string(),
                };
                let page = format!(
                    "http://x.org/wiki/Main\n<page><title>a</title><ns>0</ns><text>{text}</text></page>"
                );
                dump(page.as_bytes());
            }),
        ));
    }
    let mut dump = fields(Format::Wikipedia);
    all.push((
        "a page of a dump",
        Box::new(move |t| {
            dump(format!("http://x.org/wiki/Main\n<page><title>{t}</page>").as_bytes())
        }),
    ));
}

fn texts(all: &mut Vec<(&'static str, Work)>) {
    all.push(("language", Box::new(|t| keep(&identify(t)))));
    all.push(("scripts", Box::new(|t| drop(script_shares(t)))));
    all.push((
        "code",
        Box::new(|t| keep(&identify_code(t, Some(&inline(t))))),
    ));
    let mut splitter = Splitter::new();
    let mut words: Vec<Word> = Vec::new();
    all.push(("words", Box::new(move |t| splitter.split(t, &mut words))));
    let mut scratch = Scratch::new();
    all.push((
        "statistics",
        Box::new(move |t| keep(&measure(t, &mut scratch))),
    ));
    all.push(("exact signature", Box::new(|t| keep(&words_digest(t)))));
    let minhasher = Minhasher::new(&MinhashConfig::default());
    let (mut scratch, mut splitter) = (MinhashScratch::default(), Splitter::new());
    let mut keys = Vec::new();
    all.push((
        "MinHash",
        Box::new(move |t| {
            keys.clear();
            minhasher.keys(t, &mut splitter, &mut scratch, &mut keys);
        }),
    ));
    all.push((
        "an address",
        Box::new(|t| drop(url::Url::parse(&format!("http://{}", inline(t))))),
    ));
    // read when they are opened, before the folder is removed
    let folder = tempfile::tempdir().unwrap();
    for config in crate::hostile::evaluation_sets(folder.path()) {
        let sets = Decontaminator::new(&config).expect("a set that was written");
        all.push(("decontamination", Box::new(move |t| drop(sets.judge(t)))));
    }
}

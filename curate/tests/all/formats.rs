//! Formats other than web archives, and output formats: every codec, Parquet, dolma, dumps, fuzz.

use std::io::Write;
use std::path::{Path, PathBuf};

use curate::Silent;
use curate::corpus::CleanDocument;
use curate::corpus::{Found, TextReader, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input, each_record, missing_inputs};
use curate::write::OutputFormat;
use proptest::prelude::*;
use serde_json::json;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/archives")
        .join(name)
}

fn input(path: &Path, format: Format) -> Input {
    Input {
        path: path.to_string_lossy().into_owned(),
        format,
        source: "s".to_string(),
        ..Input::default()
    }
}

fn config(input: Input) -> CurateConfig {
    CurateConfig {
        inputs: vec![input],
        max_record_bytes: 1 << 20,
        ..CurateConfig::default()
    }
}

/// Runs a config; its documents in order, and the sum of its reports.
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

fn texts(documents: &[CleanDocument]) -> Vec<&str> {
    documents.iter().map(|d| d.text.as_str()).collect()
}

const LINES: &str =
    "{\"text\":\"one\",\"id\":\"a\",\"meta\":{\"pile_set_name\":\"ArXiv\"}}\n{\"text\":\"two\"}\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// `LINES` as liblzma 5.4 (Python's lzma) compresses it.
const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a3e0004700415d003d888a86948813e0f3894a79c19c92196357a6aabee8713b6e95d97984649a84fc06b5ff48070b804ba6394d9b5e91790b1be48cd19914245feeed37bd24408c8000000000f67b22faeac6cc6200015d48905f94571fb6f37d010000000004595a";

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn json_lines_are_read_in_every_codec() {
    let dir = tempfile::tempdir().unwrap();
    let lz4 = |bytes: &[u8]| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let plain = LINES.as_bytes();
    let half = plain.len() / 2;
    // two concatenated streams, cut inside a line
    let two = |f: &dyn Fn(&[u8]) -> Vec<u8>| [f(&plain[..half]), f(&plain[half..])].concat();
    for (name, bytes) in [
        ("plain", plain.to_vec()),
        ("gz", two(&gzip)),
        ("zst", two(&|b| zstd::encode_all(b, 3).unwrap())),
        ("bz2", two(&bzip2)),
        ("xz", from_hex(XZ)),
        ("lz4", two(&lz4)),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let (found, _) = run(
            &config(input(&path, Format::Jsonl)),
            &dir.path().join("out"),
        );
        assert_eq!(texts(&found), ["one", "two"], "{name}");
        assert_eq!(found[0].subset.as_deref(), Some("ArXiv"));
        let ids: Vec<&str> = found.iter().map(|d| d.id.as_str()).collect();
        assert_eq!(ids[0], "a");
        if name == "plain" {
            continue;
        }
        // truncated: everything before is read, and the end is reported
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let (_, report) = run(
            &config(input(&path, Format::Jsonl)),
            &dir.path().join("out"),
        );
        assert!(report.quarantined >= 1, "{name}: {report:?}");
    }
}

#[test]
fn parquet_of_pyarrow_is_read_with_ids_urls_and_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = data("sample.parquet");
    let (found, report) = run(&config(input(&path, Format::Parquet)), dir.path());
    assert_eq!((report.records, report.kept), (9, 9));
    for (i, document) in found.iter().enumerate() {
        let want = format!("Text number {i}: {}", "gr\u{fc}\u{df}e ".repeat(i));
        assert_eq!(document.text, want);
        assert_eq!(document.id, i.to_string());
        let url = format!("https://example.org/{i}");
        assert_eq!(document.url, (i != 4).then_some(url));
        let meta = document.meta.as_ref().unwrap();
        assert_eq!((&meta["lang"], &meta["n"]), (&json!("de"), &json!(i)));
        assert_eq!(meta["score"], json!(i as f64 / 4.0));
        let tags: Vec<&str> = ["a", "b"][..i % 3].to_vec();
        assert_eq!(meta["tags"], json!(tags), "{meta}");
    }
    // row groups go to the part that they start in
    let size = std::fs::metadata(&path).unwrap().len();
    for cut in (0..=size).step_by(61) {
        let mut rows = Vec::new();
        for part in [0..cut, cut..size] {
            let input = input(&path, Format::Parquet);
            each_record(&path, &input, Some(&part), 1 << 20, &mut |r| {
                assert!(r.bad.is_none(), "{:?}", r.bad);
                rows.push(r.number);
            })
            .unwrap();
        }
        assert_eq!(rows, (0..9).collect::<Vec<u64>>(), "cut at {cut}");
    }
    let mut reader = TextReader::open(&path, Format::Parquet, "content", 1 << 20).unwrap();
    let mut count = 0;
    while reader.next(&mut |_| count += 1).unwrap() != Found::End {}
    assert_eq!(count, 9);
}

#[test]
fn a_damaged_row_group_is_named_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(data("sample.parquet")).unwrap();
    bytes[8..40].fill(0xff);
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, &bytes).unwrap();
    let (found, report) = run(
        &config(input(&path, Format::Parquet)),
        &dir.path().join("out"),
    );
    assert!(found.len() >= 6 && report.quarantined >= 1, "{report:?}");
    let errors = std::fs::read_to_string(dir.path().join("out/errors/00000.jsonl")).unwrap();
    assert!(errors.contains("row group 0: "), "{errors}");
}

/// A Parquet file of one row group with columns of bytes: name, whether the file calls them text, values.
fn parquet_of(path: &Path, columns: &[(&str, bool, &[&[u8]])]) {
    parquet_in(parquet::basic::Compression::UNCOMPRESSED, path, columns);
}

/// The same, compressed.
fn parquet_in(codec: parquet::basic::Compression, path: &Path, columns: &[(&str, bool, &[&[u8]])]) {
    use parquet::data_type::{ByteArray, ByteArrayType};
    let fields = columns.iter().map(|(name, is_text, _)| {
        let kind = if *is_text { " (UTF8)" } else { "" };
        format!("required binary {name}{kind};")
    });
    let schema = format!("message m {{ {} }}", fields.collect::<String>());
    let schema = parquet::schema::parser::parse_message_type(&schema).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let properties = parquet::file::properties::WriterProperties::builder();
    let properties = properties.set_compression(codec).build();
    let mut writer =
        parquet::file::writer::SerializedFileWriter::new(file, schema.into(), properties.into())
            .unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, _, values) in columns {
        let values: Vec<ByteArray> = values.iter().map(|v| v.to_vec().into()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_of_pyarrow_is_read_in_every_codec() {
    let dir = tempfile::tempdir().unwrap();
    let input = input(&data("codecs.parquet"), Format::Parquet);
    let (found, report) = run(&config(input), dir.path());
    assert_eq!((report.records, report.kept), (9, 9));
    for (i, document) in found.iter().enumerate() {
        let want = format!("Text number {i}: {}", "gr\u{fc}\u{df}e ".repeat(i));
        assert_eq!(document.text, want);
        let meta = document.meta.as_ref().unwrap();
        for codec in ["snappy", "gzip", "zstd", "lz4", "brotli"] {
            assert_eq!(meta[codec], json!(want), "{codec}");
        }
    }
}

/// Hadoop's framing of LZ4, which pyarrow reads and does not write.
#[test]
fn parquet_in_hadoops_lz4_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let texts = ["one ".repeat(99), "two".to_string()];
    let values = texts.each_ref().map(|text| text.as_bytes());
    let codec = parquet::basic::Compression::LZ4;
    parquet_in(codec, &path, &[("text", true, &values)]);
    let (found, _) = run(&config(input(&path, Format::Parquet)), dir.path());
    assert_eq!(self::texts(&found), texts);
}

#[test]
fn columns_of_a_codec_that_is_not_read_are_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    parquet_of(&path, &[("text", true, &[b"one", b"two"])]);
    let mut bytes = std::fs::read(&path).unwrap();
    // Thrift's compact protocol: the path of the column, a list of one text, then its codec, field 4, an i32; 3 is LZO
    let path_and_codec = b"\x19\x18\x04text\x15\x00";
    let at = memchr::memmem::rfind(&bytes, path_and_codec).unwrap();
    bytes[at + path_and_codec.len() - 1] = 3 << 1;
    std::fs::write(&path, &bytes).unwrap();
    let out = dir.path().join("out");
    let (found, report) = run(&config(input(&path, Format::Parquet)), &out);
    assert_eq!((found.len(), report.quarantined), (0, 1));
    let errors = std::fs::read_to_string(out.join("errors/00000.jsonl")).unwrap();
    for wanted in [
        "row group 0: columns compressed with LZO, which is not read",
        "zstd, snappy, gzip, lz4, brotli or none",
        "2 rows are lost",
    ] {
        assert!(errors.contains(wanted), "{errors}");
    }
}

#[test]
fn a_row_of_parquet_that_is_no_utf8_is_one_bad_record_and_its_group_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let words: &[&[u8]] = &[b"one", b"tw\xff", b"three", b"four"];
    let ids: &[&[u8]] = &[b"a", b"b", b"c\xff", b"d"];
    let raw: &[&[u8]] = &[b"\xff\xfe", b"x", b"y", b"z"];
    // whether or not the file calls the text's column one
    for is_text in [true, false] {
        parquet_of(
            &path,
            &[
                ("text", is_text, words),
                ("id", true, ids),
                ("content", false, raw),
            ],
        );
        let (found, report) = run(
            &config(input(&path, Format::Parquet)),
            &dir.path().join("out"),
        );
        assert_eq!((report.records, report.quarantined), (4, 2));
        assert_eq!(texts(&found), ["one", "four"]);
        // bytes of another column are base64
        assert_eq!(found[0].meta, Some(json!({ "content": "//4=" })));
        let errors = std::fs::read_to_string(dir.path().join("out/errors/00000.jsonl")).unwrap();
        for (number, at, name) in [(1, 2, "text"), (2, 1, "id")] {
            let want = format!("invalid UTF-8 at byte {at} of the column \\\"{name}\\\"");
            let line = errors.lines().find(|line| line.contains(&want));
            let line = line.unwrap_or_else(|| panic!("{want}: {errors}"));
            assert!(line.contains(&format!("\"record\":{number},")), "{line}");
        }
    }
    // the column that the job names
    let mut named = input(&path, Format::Parquet);
    named.text_key = curate::read::Keys::One("content".to_string());
    let (found, report) = run(&config(named), &dir.path().join("named"));
    assert_eq!(texts(&found), ["x", "z"]);
    assert_eq!((report.records, report.quarantined), (4, 2));
}

#[test]
fn what_is_written_is_read_back_in_every_output_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = data("sample.parquet");
    let mut all = Vec::new();
    for (output, name) in [
        (OutputFormat::JsonlZst, "00000.jsonl.zst"),
        (OutputFormat::JsonlGz, "00000.jsonl.gz"),
        (OutputFormat::Parquet, "00000.parquet"),
    ] {
        let mut config = config(input(&path, Format::Parquet));
        config.output = output;
        // the same folder: the file of the format before must go
        let (found, _) = run(&config, dir.path());
        let clean: Vec<String> = std::fs::read_dir(dir.path().join("clean"))
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|n| !n.ends_with(".sig"))
            .collect();
        assert_eq!(clean, [name]);
        let first = std::fs::read(dir.path().join("clean").join(name)).unwrap();
        run(&config, dir.path());
        let second = std::fs::read(dir.path().join("clean").join(name)).unwrap();
        assert_eq!(first, second, "{name} is the same every time");
        let mut reader = TextReader::shard(dir.path(), 0, false).unwrap();
        let mut lines = Vec::new();
        while reader.next(&mut |r| lines.push(r.texts.concat())).unwrap() != Found::End {}
        assert_eq!(lines, texts(&found));
        all.push(found);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn dolma_attributes_are_read_beside_the_documents() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, gzip(text.as_bytes())).unwrap();
    };
    write(
        "v1/documents/x.jsonl.gz",
        "{\"id\":\"a\",\"text\":\"one\",\"source\":\"cc\",\"added\":\"2024\",\"metadata\":{\"k\":1}}\n{\"id\":\"b\",\"text\":\"two\"}\n{\"id\":\"c\",\"text\":\"three\"}\n",
    );
    write(
        "v1/attributes/len/x.jsonl.gz",
        "{\"id\":\"a\",\"attributes\":{\"n\":[[0,3,3.0]]}}\n{\"id\":\"X\",\"attributes\":{}}\n",
    );
    let mut input = input(&dir.path().join("v1/documents"), Format::Dolma);
    input.attributes = vec!["len".to_string()];
    let (found, report) = run(&config(input), &dir.path().join("out"));
    assert_eq!(texts(&found), ["one"]);
    let meta = json!({"k": 1, "source": "cc", "added": "2024", "attributes": {"n": [[0, 3, 3.0]]}});
    assert_eq!(found[0].meta, Some(meta));
    assert_eq!(report.quarantined, 2);
    let errors = std::fs::read_to_string(dir.path().join("out/errors/00000.jsonl")).unwrap();
    assert!(errors.contains("beside document"), "{errors}");
    assert!(errors.contains("attributes len end before it"), "{errors}");
}

#[test]
fn wat_records_give_titles_and_others_are_dropped_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = data("whirlwind.warc.wat.gz");
    let (_, report) = run(&config(input(&path, Format::Wat)), dir.path());
    assert_eq!(report.records, 2);
    assert_eq!(report.dropped["read.record_type"], 1, "{report:?}");
    assert_eq!(report.dropped["read.content_type"], 1, "{report:?}");
}

/// Two articles, a talk page, a redirect, a module.
const DUMP: &str = r#"<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
  </siteinfo>
  <page>
    <title>Kingfisher</title>
    <ns>0</ns>
    <id>12</id>
    <revision>
      <id>1</id>
      <model>wikitext</model>
      <text bytes="99" xml:space="preserve">{{Short description|Bird}}
{{Infobox bird
| name = Kingfisher {{nowrap|(common)}}
| image = [[File:K.jpg|thumb|A [[bird]] ]]
}}
&lt;!-- a comment --&gt;'''Kingfishers''' ({{IPAc-en|k}}; {{lang|la|Alcedinidae}}) are a [[family (biology)|family]] of small to medium-sized, brightly coloured [[bird]]s.&lt;ref name="a"&gt;{{cite book|title=Birds|url=http://x.y/}}&lt;/ref&gt; They weigh {{convert|10|to|40|g|oz}} and live to {{circa|6}}&amp;nbsp;years.&lt;ref name="a" /&gt;

[[File:Map.svg|thumb|200px|The range of ''Alcedo'' [[Europe]]]]
== Behaviour ==
They [[Diving (bird)|dive]] for fish; see [http://example.org/ a ''new'' {{nowrap|study}}&amp;nbsp;of [[fish]]] or [http://example.org/2].
* '''Nest''': a tunnel
** in river banks
# Eggs

{| class="wikitable"
! A !! B
|-
| 1 || {{x|2}}
|}

=== Voice ===
==References==
{{reflist}}
== See also ==
* [[Halcyon]]
[[Category:Birds]]
[[de:Eisvogel]]
__NOTOC__</text>
    </revision>
  </page>
  <page>
    <title>Talk:Kingfisher</title>
    <ns>1</ns>
    <id>13</id>
    <revision><text>words</text></revision>
  </page>
  <page>
    <title>Halcyon</title>
    <ns>0</ns>
    <id>14</id>
    <redirect title="Kingfisher" />
    <revision><text>#REDIRECT [[Kingfisher]]</text></revision>
  </page>
  <page>
    <title>Broken &amp; open</title>
    <ns>0</ns>
    <id>15</id>
    <revision><model>wikitext</model><text>An [[open link and {{an open template that goes on.

Next paragraph &amp;mdash; with x &lt; y and &lt;math&gt;a^2&lt;/math&gt; and &lt;nowiki&gt;[[no link]]&lt;/nowiki&gt;.</text></revision>
  </page>
  <page>
    <title>Module:X</title>
    <ns>0</ns>
    <id>16</id>
    <revision><model>Scribunto</model><text>return 1</text></revision>
  </page>
</mediawiki>
"#;

const KINGFISHER: &str = "Kingfishers (Alcedinidae) are a family of small to medium-sized, brightly coloured birds. They weigh 10\u{2013}40 g and live to c. 6 years.

Behaviour

They dive for fish; see a new study of fish or.
- Nest: a tunnel
- in river banks
- Eggs

See also

- Halcyon";

#[test]
fn a_wiki_dump_comes_out_readable() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("plain.xml", DUMP.as_bytes().to_vec()),
        (
            "multi.xml.bz2",
            [
                bzip2(&DUMP.as_bytes()[..700]),
                bzip2(&DUMP.as_bytes()[700..]),
            ]
            .concat(),
        ),
        ("x.xml.gz", gzip(DUMP.as_bytes())),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let (found, report) = run(
            &config(input(&path, Format::Wikipedia)),
            &dir.path().join("out"),
        );
        assert_eq!(report.records, 5, "{report:?}");
        assert_eq!(found.len(), 2, "{report:?}");
        assert_eq!(found[0].text, KINGFISHER);
        let url = "https://en.wikipedia.org/wiki/Kingfisher";
        assert_eq!(found[0].url.as_deref(), Some(url));
        assert_eq!(
            found[0].meta,
            Some(json!({"title": "Kingfisher", "page": "12"}))
        );
        assert_eq!(
            found[1].text,
            "An [[open link and an open template that goes on.\n\nNext paragraph \u{2014} with x < y and $a^2$ and [[no link]]."
        );
        for rule in ["read.namespace", "read.redirect", "read.model"] {
            assert_eq!(report.dropped[rule], 1, "{rule}");
        }
    }
    let mut talk = input(&dir.path().join("plain.xml"), Format::Wikipedia);
    talk.namespaces = vec![1];
    let (found, _) = run(&config(talk), &dir.path().join("out"));
    assert_eq!(texts(&found), ["words"]);
    let cut = dir.path().join("cut.xml");
    std::fs::write(&cut, &DUMP[..DUMP.len() - 100]).unwrap();
    let (_, report) = run(
        &config(input(&cut, Format::Wikipedia)),
        &dir.path().join("out"),
    );
    assert_eq!((report.records, report.quarantined), (5, 1));
}

#[test]
fn brackets_without_end_take_linear_time() {
    let dir = tempfile::tempdir().unwrap();
    for piece in [
        "{{",
        "[[",
        "{|",
        "{{a|",
        "[[a|",
        "<ref>",
        "<!--",
        "[http://x ",
        "''",
        "\n==",
        "{{{",
        "&",
        "<a \"",
        "\n{|\n|",
        "}}",
        "__A",
    ] {
        let text = piece.repeat((900 << 10) / piece.len());
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
        let page = format!(
            "<page><title>T</title><ns>0</ns><revision><text>{escaped}</text></revision></page>"
        );
        let path = dir.path().join("x.xml");
        std::fs::write(&path, page).unwrap();
        let mut config = config(input(&path, Format::Wikipedia));
        config.max_record_bytes = 16 << 20;
        let start = std::time::Instant::now();
        run(&config, &dir.path().join("out"));
        assert!(
            start.elapsed().as_secs() < 5,
            "{piece:?}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn inputs_that_are_not_there_are_all_told() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("a.jsonl");
    std::fs::write(&there, LINES).unwrap();
    let inputs = [
        input(&dir.path().join("gone.jsonl"), Format::Jsonl),
        input(&there, Format::Jsonl),
        input(&dir.path().join("*.zst"), Format::Jsonl),
    ];
    let missing = missing_inputs(&inputs);
    let numbers: Vec<usize> = missing.iter().map(|m| m.0).collect();
    assert_eq!(numbers, [0, 2], "{missing:?}");
    assert!(missing[1].1.contains("pattern"), "{missing:?}");
}

/// Cut, flipped and spliced bytes of one sound file of each format.
fn damaged() -> impl Strategy<Value = (usize, Vec<u8>, Format)> {
    let sound: Vec<(Vec<u8>, Format)> = vec![
        (
            std::fs::read(data("sample.parquet")).unwrap(),
            Format::Parquet,
        ),
        (std::fs::read(data("example.arc")).unwrap(), Format::Warc),
        (std::fs::read(data("example.arc.gz")).unwrap(), Format::Warc),
        (
            std::fs::read(data("whirlwind.warc.wat.gz")).unwrap(),
            Format::Wat,
        ),
        (
            std::fs::read(data("whirlwind.warc.wet.gz")).unwrap(),
            Format::Wet,
        ),
        (
            zstd::encode_all(&std::fs::read(data("example.warc")).unwrap()[..], 3).unwrap(),
            Format::Warc,
        ),
        (DUMP.as_bytes().to_vec(), Format::Wikipedia),
        (bzip2(DUMP.as_bytes()), Format::Wikipedia),
        (from_hex(XZ), Format::Jsonl),
        (LINES.as_bytes().to_vec(), Format::Dolma),
    ];
    let kinds = sound.len();
    (
        0..kinds,
        any::<usize>(),
        any::<usize>(),
        0..4u8,
        any::<u8>(),
    )
        .prop_map(move |(kind, a, b, how, x)| {
            let (mut bytes, format) = sound[kind].clone();
            let (a, b) = (a % bytes.len(), b % bytes.len());
            match how {
                0 => bytes.truncate(a),
                1 => bytes[a] ^= x | 1,
                2 => drop(bytes.drain(a.min(b)..a.max(b))),
                _ => {
                    let piece = bytes[a.min(b)..a.max(b)].to_vec();
                    bytes.splice(b..b, piece);
                }
            }
            (kind, bytes, format)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_of_any_format_is_survived_and_counted((kind, bytes, format) in damaged()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        let start = std::time::Instant::now();
        let config = config(input(&path, format));
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let result = curator.run_shard(&shards(&config).unwrap()[0], &dir.path().join("out"), &Silent);
        match result {
            Ok(report) => prop_assert!(report.adds_up()),
            // nothing of its kind is left of it
            Err(e) => prop_assert!(matches!(e, curate::Error::Format { .. }), "{e}"),
        }
        prop_assert!(start.elapsed().as_secs() < 10, "file {kind} took {:?}", start.elapsed());
    }
}

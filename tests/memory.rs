//! Tests that reading foreign files takes bounded memory, at most 50 times the file plus 256 MB, whatever their
//! headers claim, and that converting a model takes that of a few of its tensors.
//!
//! Counted by the allocator: requested bytes count, touched or not. Memory of C libraries (zstd's windows) does
//! not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curate::Silent;
use curate::corpus::documents;
use curate::dedup::{DedupConfig, ExactConfig, LinesConfig, MinhashConfig};
use curate::pipeline::{CurateConfig, Curator, inspect, shards};
use curate::quality::dsir::Dsir;
use curate::quality::fasttext::FastText;
use curate::quality::ngram::NgramModel;
use curate::read::{Format, Input};
use curate::write::OutputFormat;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn more(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn less(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every method passes its arguments on to `System` unchanged and returns its result, so `System`'s
// guarantees hold.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size, which is all that `System.alloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size, which is all that `System.alloc_zeroed` requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // both are there while bytes are moved
        more(size);
        less(layout.size());
        // SAFETY: the caller guarantees that `at` came from this allocator, that is from `System`, with `layout`,
        // and that `size` is valid.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        less(layout.size());
        // SAFETY: the caller guarantees that `at` came from this allocator, that is from `System`, with `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak of the bytes that `work` has allocated at a time.
fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

fn check(name: &str, bytes: usize, work: impl FnOnce()) {
    let (found, most) = (peak(work), 50 * bytes + 256_000_000);
    assert!(
        found <= most,
        "{name}: {found} bytes of memory for {bytes}, at most {most}"
    );
}

fn data(name: &str) -> Vec<u8> {
    let path = Path::new("../curate/tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn curate_one(path: &Path, format: Format, out: &Path) {
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.display().to_string(),
            format,
            ..Input::default()
        }],
        max_bad_records: u64::MAX,
        ..CurateConfig::default()
    };
    // a refused file has been read
    if let Ok(list) = shards(&config) {
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let _ = curator.run_shard(&list[0], out, &Silent);
    }
}

const FORMATS: [Format; 16] = [
    Format::Warc,
    Format::Wet,
    Format::Wat,
    Format::Jsonl,
    Format::Dolma,
    Format::Parquet,
    Format::Arrow,
    Format::Wikipedia,
    Format::Epub,
    Format::Docx,
    Format::Odt,
    Format::Pdf,
    Format::Latex,
    Format::Wacz,
    Format::Zim,
    Format::Text,
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A Parquet file of one row with a text and a list of `elements` nulls, which take some hundred bytes.
fn list_of_nulls(elements: usize) -> Vec<u8> {
    let schema = "message m { required binary text (UTF8); optional group list (LIST) { repeated group list { optional int32 element; } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default()))
            .unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let text = ByteArray::from("some words of a document");
    let texts = column.typed::<ByteArrayType>();
    texts.write_batch(&[text], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // all in one row, which the first element begins
    let definition = vec![2i16; elements];
    let mut repetition = vec![1i16; elements];
    repetition[0] = 0;
    let list = column.typed::<Int32Type>();
    list.write_batch(&[], Some(&definition), Some(&repetition))
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A small valid file of every record format.
fn sound_files() -> Vec<(&'static str, Format, Vec<u8>)> {
    let http = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>some words of a page";
    let warc = |kind: &str, body: &str| {
        let length = body.len();
        format!("WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}\r\n\r\n")
            .into_bytes()
    };
    let wat = r#"{"Envelope":{"Payload-Metadata":{"HTTP-Response-Metadata":{"HTML-Metadata":{"Head":{"Title":"a"}}}}}}"#;
    let arc = format!(
        "filedesc://x 0.0.0.0 20200101000000 text/plain 3\nabc\n\nhttp://a.b/ 1.2.3.4 20200101000000 text/html {}\n{http}\n",
        http.len()
    );
    let json = b"{\"text\":\"some words of a document\",\"id\":7}\n".to_vec();
    let dump =
        b"<mediawiki>\n<page><title>a</title><ns>0</ns><text>some words</text></page>\n".to_vec();
    vec![
        ("warc", Format::Warc, warc("response", http).repeat(3)),
        ("arc", Format::Warc, arc.into_bytes()),
        (
            "wet",
            Format::Wet,
            warc("conversion", "some words").repeat(3),
        ),
        ("wat", Format::Wat, warc("metadata", wat).repeat(3)),
        ("jsonl", Format::Jsonl, json.repeat(3)),
        ("dolma", Format::Dolma, json.repeat(3)),
        ("parquet", Format::Parquet, data("archives/sample.parquet")),
        ("arrow", Format::Arrow, data("arrow/sample.arrow")),
        ("arrow stream", Format::Arrow, data("arrow/deltas.arrow")),
        ("feather", Format::Arrow, data("arrow/sample-zstd.feather")),
        ("dump", Format::Wikipedia, dump),
        ("text", Format::Text, b"some words".to_vec()),
        ("epub", Format::Epub, data("documents/book.epub")),
        ("docx", Format::Docx, data("documents/report.docx")),
        ("odt", Format::Odt, data("documents/report.odt")),
        ("pdf", Format::Pdf, data("documents/two_columns.pdf")),
        (
            "encrypted pdf",
            Format::Pdf,
            data("documents/encrypted/aes_256_packed.pdf"),
        ),
        ("zim", Format::Zim, data("documents/sample.zim")),
        ("latex", Format::Latex, data("documents/paper.tar.xz")),
    ]
}

/// Implausibly large numbers for headers.
const LARGE: [&[u8]; 5] = [
    &[0xff; 4],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    b"99999999999",
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
];

/// Copies of a file with a large number at each of `places` positions.
fn damaged(bytes: &[u8], places: usize) -> impl Iterator<Item = Vec<u8>> {
    let step = (bytes.len() / places).max(1);
    let places = (0..bytes.len()).step_by(step);
    places.flat_map(move |at| {
        LARGE.iter().map(move |large| {
            let end = (at + large.len()).min(bytes.len());
            let mut copy = bytes.to_vec();
            copy[at..end].copy_from_slice(&large[..end - at]);
            copy
        })
    })
}

/// A reader under test.
type Open = fn(&Path);

fn readers_of_records(folder: &Path) {
    let (path, out) = (folder.join("in"), folder.join("out"));
    let run = |name: &str, format, bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        check(name, bytes.len(), || curate_one(&path, format, &out));
    };
    for (name, format, bytes) in sound_files() {
        run(name, format, &bytes);
        for copy in damaged(&bytes, 40) {
            run(name, format, &copy);
        }
        for (codec, packed) in [
            ("gzip", gzip(&bytes)),
            ("zstd", zstd::encode_all(&bytes[..], 3).unwrap()),
            ("bzip2", bzip2(&bytes)),
            ("lz4", lz4(&bytes)),
        ] {
            for copy in damaged(&packed, 12) {
                run(&format!("{name} {codec}"), format, &copy);
            }
        }
    }
    let record = |length: &str| {
        format!(
            "WARC/1.0\r\nWARC-Type: response\r\nContent-Length: {length}\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc\r\n\r\n"
        )
    };
    for length in ["33554432", "33554433", "4294967295", "18446744073709551615"] {
        run(
            "Content-Length",
            Format::Warc,
            record(length).repeat(4).as_bytes(),
        );
        let arc = format!("filedesc://x 0.0.0.0 20200101000000 text/plain {length}\nabc\n\n");
        run("ARC length", Format::Warc, arc.as_bytes());
    }
    run(
        "a page of 500 MiB",
        Format::Parquet,
        &data("hostile/page_of_500_mib.parquet"),
    );
    let lists = list_of_nulls(40_000_000);
    assert!(lists.len() < 100_000, "{} bytes", lists.len());
    run("a list of 40 million", Format::Parquet, &lists);
    run(
        "a dictionary of 4 GiB",
        Format::Jsonl,
        &data("hostile/dictionary_of_4_gib.xz"),
    );
}

/// A PDF of pages that all show this deflated content.
fn pdf(content: &[u8], pages: usize) -> Vec<u8> {
    let kids = "3 0 R ".to_string()
        + &(5..4 + pages)
            .map(|i| format!("{i} 0 R "))
            .collect::<String>();
    let page = "<</Type/Page/Parent 2 0 R/Contents 4 0 R>>\nendobj\n";
    let mut bytes = format!(
        "%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Count {pages}/Kids[{kids}]>>\nendobj\n3 0 obj\n{page}"
    );
    for i in 5..4 + pages {
        bytes += &format!("{i} 0 obj\n{page}");
    }
    bytes += &format!(
        "4 0 obj\n<</Filter/FlateDecode/Length {}>>\nstream\n",
        content.len()
    );
    let end = b"\nendstream\nendobj\ntrailer\n<</Root 1 0 R>>\n";
    [bytes.as_bytes(), content, end].concat()
}

/// A ZIP archive of one deflated entry.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let packed = deflate(content);
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
    fields.extend(crc.sum().to_le_bytes());
    fields.extend(number(packed.len()));
    fields.extend(number(content.len()));
    fields.extend(&number(name.len())[..2]);
    fields.extend([0, 0]);
    let local = [b"PK\x03\x04", &fields[..], name.as_bytes(), &packed].concat();
    let central = [b"PK\x01\x02\x14\0", &fields[..], &[0; 14], name.as_bytes()].concat();
    let end = [
        b"PK\x05\x06\0\0\0\0\x01\0\x01\0",
        &number(central.len())[..],
        &number(local.len()),
        &[0, 0],
    ];
    [&local[..], &central, &end.concat()].concat()
}

fn bombs(folder: &Path) {
    let (path, out) = (folder.join("in"), folder.join("out"));
    let zeros = vec![b' '; 96 << 20];
    let (gzipped, zstd) = (gzip(&zeros), zstd::encode_all(&zeros[..], 19).unwrap());
    for (name, packed) in [
        ("gzip", gzipped.clone()),
        ("zstd", zstd.clone()),
        ("bzip2", bzip2(&zeros)),
        ("lz4", lz4(&zeros)),
        ("xz", data("hostile/zeros.xz")),
    ] {
        std::fs::write(&path, &packed).unwrap();
        for format in FORMATS {
            check(&format!("{name} as {format:?}"), packed.len(), || {
                curate_one(&path, format, &out);
            });
        }
    }
    // parts of documents
    for (name, format, bytes) in [
        ("a PDF", Format::Pdf, pdf(&zlib(&zeros), 1)),
        (
            "a PDF of a content that pages share",
            Format::Pdf,
            pdf(&zlib(&zeros[..30 << 20]), 500),
        ),
        (
            "a book",
            Format::Epub,
            archive("META-INF/container.xml", &zeros),
        ),
        (
            "a Word document",
            Format::Docx,
            archive("word/document.xml", &zeros),
        ),
        (
            "an OpenDocument text",
            Format::Odt,
            archive("content.xml", &zeros),
        ),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        check(name, bytes.len(), || curate_one(&path, format, &out));
    }
    let tex = "\\documentclass{a}\n\\newcommand\\a[1]{#1#1#1#1#1#1#1#1#1#1}\\begin{document}\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{x}}}}}}}}}";
    std::fs::write(&path, tex).unwrap();
    check("macros", tex.len(), || {
        curate_one(&path, Format::Latex, &out)
    });
    // bodies of pages
    for (coding, body) in [
        ("gzip", gzipped),
        ("zstd", zstd),
        ("deflate", zlib(&zeros)),
        ("deflate", deflate(&zeros)),
        ("br", data("hostile/zeros.br")),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: {coding}\r\n\r\n"
        );
        let length = head.len() + body.len();
        let warc =
            format!("WARC/1.0\r\nWARC-Type: response\r\nContent-Length: {length}\r\n\r\n{head}");
        let bytes = [warc.as_bytes(), &body, b"\r\n\r\n"].concat();
        std::fs::write(&path, &bytes).unwrap();
        check(&format!("a body of {coding}"), bytes.len(), || {
            curate_one(&path, Format::Warc, &out);
        });
    }
}

/// Signatures, keep lists and edits as a run writes them.
fn our_files(folder: &Path) -> Vec<PathBuf> {
    let path = folder.join("in.jsonl");
    // each document twice, with unique words and a line common to all
    let line = |i: usize| {
        // in letters: the pass over lines treats all digits as equal
        let letter = |n: usize| char::from(b"abcdefghijklmnopqrstuvwxyz"[n % 26]);
        let word =
            |at: usize| format!("{}{}{} ", letter(i / 2), letter(at), letter(7 * at + i / 2));
        let own: String = (0..30).map(word).collect();
        format!("{{\"text\":\"{own}\\nA line that all of them have\"}}\n")
    };
    std::fs::write(&path, (0..40).map(line).collect::<String>()).unwrap();
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.display().to_string(),
            ..Input::default()
        }],
        output: OutputFormat::JsonlZst,
        ..CurateConfig::default()
    };
    let dedup = DedupConfig {
        exact: Some(ExactConfig::default()),
        minhash: Some(MinhashConfig::default()),
        lines: Some(LinesConfig::default()),
        index: Some(folder.join("indexes")),
        ..DedupConfig::default()
    };
    std::fs::create_dir_all(folder.join("indexes")).unwrap();
    let out = folder.join("ours");
    let curator = Curator::new(&config, None, Some(&dedup), 0).unwrap();
    curator
        .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
        .unwrap();
    curate::dedup::dedup(&dedup, &out, 1, &Silent).unwrap();
    assert!(documents(&out, 0).unwrap().count() > 0);
    let names = [
        "clean/00000.sig",
        "keep/00000.keep",
        "keep/00000.edits",
        "keep/kept.index",
    ];
    names.map(|name| out.join(name)).into()
}

fn models_and_our_files(folder: &Path) {
    let path = folder.join("model");
    let run = |name: &str, bytes: &[u8], open: Open| {
        std::fs::write(&path, bytes).unwrap();
        check(name, bytes.len(), || open(&path));
    };
    let inspected: Open = |path| drop(inspect(path));
    for file in our_files(folder) {
        let bytes = std::fs::read(&file).unwrap();
        for copy in damaged(&bytes, 60) {
            run(&file.display().to_string(), &copy, inspected);
        }
    }
    let fasttext: Open = |path| drop(FastText::open(path));
    for name in ["ova.bin.zst", "hs.bin.zst", "hs-pruned.ftz.zst"] {
        let packed = data(&format!("fasttext/{name}"));
        let bytes = zstd::decode_all(&packed[..]).unwrap();
        // the decisive numbers are at the start
        let head = &bytes[..bytes.len().min(160)];
        for copy in damaged(head, 160) {
            run(name, &[&copy[..], &bytes[head.len()..]].concat(), fasttext);
        }
    }
    let ngram: Open = |path| drop(NgramModel::open(path));
    for counts in [
        "1=99999999999",
        "1=4294967295",
        "1=18446744073709551615",
        "9=9",
    ] {
        let text = format!("\\data\\\nngram {counts}\n\n\\1-grams:\n-1 a\n\\end\\\n");
        run("an ARPA file", text.as_bytes(), ngram);
        run("an ARPA file of gzip", &gzip(text.as_bytes()), ngram);
    }
    let mut binary = b"mmap lm http://kheafield.com/code format version 5\n\0".to_vec();
    binary.resize(400, 0);
    for copy in damaged(&binary, 100) {
        run("a binary of KenLM", &copy, ngram);
    }
    let dsir: Open = |path| drop(Dsir::open(path));
    for buckets in ["16777216", "18446744073709551615", "0"] {
        let side = r#"{"documents":1,"bytes":1,"bad":0,"words":1,"features":1}"#;
        let text = format!(
            r#"{{"kind":"dsir","report":{{"settings":{{"ngrams":2,"buckets":{buckets},"hash":"xxh3"}},"target":{side},"raw":{side},"divergence":0.0}},"weights":[0.1]}}"#
        );
        run("a model of dsir", text.as_bytes(), dsir);
    }
}

/// A Hugging Face folder of a LLaMA of zeros; returns bytes of the model and of its largest tensor.
fn llama_of_zeros(folder: &Path) -> [usize; 2] {
    let (layers, d, f, vocab) = (24, 256, 1024, 2048);
    let config = format!(
        r#"{{"model_type": "llama", "vocab_size": {vocab}, "hidden_size": {d}, "intermediate_size": {f}, "num_hidden_layers": {layers}, "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false}}"#
    );
    std::fs::write(folder.join("config.json"), config).unwrap();
    let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
    for layer in 0..layers {
        let mut add = |name: &str, dims: &[usize]| {
            let name = format!("model.layers.{layer}.{name}.weight");
            tensors.push((name, dims.to_vec()));
        };
        add("input_layernorm", &[d]);
        add("post_attention_layernorm", &[d]);
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            add(&format!("self_attn.{name}"), &[d, d]);
        }
        add("mlp.gate_proj", &[f, d]);
        add("mlp.up_proj", &[f, d]);
        add("mlp.down_proj", &[d, f]);
    }
    tensors.push(("model.norm.weight".into(), vec![d]));
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        tensors.push((name.into(), vec![vocab, d]));
    }
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, dims) in &tensors {
        let (start, bytes) = (end, 4 * dims.iter().product::<usize>());
        end += bytes;
        let entry =
            serde_json::json!({"dtype": "F32", "shape": dims, "data_offsets": [start, end]});
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = std::fs::File::create(folder.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(&header).unwrap();
    file.set_len((8 + header.len() + end) as u64).unwrap();
    // gate and up are one of ours
    [end, 4 * 2 * f * d]
}

/// Tensors pass through one at a time: each is in memory a few times, as it is read, rearranged and encoded.
fn conversions(folder: &Path) {
    use train::checkpoint::{
        FileType, GgufOptions, TorchDtype, export_gguf, export_hf, export_megatron,
    };
    let [model, largest] = llama_of_zeros(folder);
    let out = |name: &str| folder.join(name);
    let as_gguf = GgufOptions {
        file_type: FileType::F32,
        name: None,
        tokenizer: None,
        pre: None,
    };
    let works: [(&str, &dyn Fn()); 4] = [
        ("hf", &|| export_hf(folder, &out("hf")).unwrap()),
        ("gguf", &|| {
            export_gguf(folder, &out("model.gguf"), &as_gguf).unwrap();
        }),
        ("megatron", &|| {
            export_megatron(folder, &out("f32"), TorchDtype::F32).unwrap();
        }),
        ("megatron bf16", &|| {
            export_megatron(folder, &out("bf16"), TorchDtype::Bf16).unwrap();
        }),
    ];
    for (name, work) in works {
        let (found, most) = (peak(work), 5 * largest + 4_000_000);
        assert!(
            found <= most && most < model / 5,
            "{name}: {found} bytes of memory for tensors of up to {largest}, at most {most}"
        );
    }
}

/// A folder for thousands of small files that are synced: in memory that is fast.
fn folder() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => folder,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

#[test]
#[ignore = "run by hostile_files_and_conversions_take_a_bounded_memory in a process of its own: bytes are counted per process"]
fn part_records() {
    readers_of_records(folder().path());
}

#[test]
#[ignore = "run by hostile_files_and_conversions_take_a_bounded_memory in a process of its own: bytes are counted per process"]
fn part_bombs() {
    bombs(folder().path());
}

#[test]
#[ignore = "run by hostile_files_and_conversions_take_a_bounded_memory in a process of its own: bytes are counted per process"]
fn part_models() {
    models_and_our_files(folder().path());
}

#[test]
#[ignore = "run by hostile_files_and_conversions_take_a_bounded_memory in a process of its own: bytes are counted per process"]
fn part_conversions() {
    conversions(folder().path());
}

#[test]
fn hostile_files_and_conversions_take_a_bounded_memory() {
    let parts = [
        "part_records",
        "part_bombs",
        "part_models",
        "part_conversions",
    ];
    let started = parts.map(|part| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--ignored", "--exact", part]);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        (part, program.spawn().unwrap())
    });
    for (part, process) in started {
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{part}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // the counter itself: a large request is seen
    assert!(peak(|| drop(vec![1u8; 300_000_000])) >= 300_000_000);
}

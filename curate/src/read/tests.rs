//! Tests that a failed read of the system is never a bad record, at any position and in any format.

use std::io::{self, Read, Write};

use super::compression::Source;
use super::lines::LineReader;
use super::pages::PageReader;
use super::storage::Blob;
use super::warc::WarcReader;
use super::{Batch, Kind, Reader};

/// Bytes of which those from `fails_at` on cannot be read.
struct Failing {
    bytes: Vec<u8>,
    at: usize,
    fails_at: usize,
}

impl Read for Failing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // as small as reads of a network are
        let end = (self.at + 700).min(self.bytes.len()).min(self.fails_at);
        let n = out.len().min(end.saturating_sub(self.at));
        if n == 0 && self.at < self.bytes.len() {
            return Err(io::Error::from_raw_os_error(5));
        }
        out[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

impl Blob for Failing {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.at = usize::try_from(offset).unwrap().min(self.bytes.len());
        Ok(())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(self.bytes.len() as u64))
    }
}

/// Numbers that a compressor cannot make much of.
fn noise(i: u64) -> String {
    (0..20).fold(String::new(), |text, j| {
        let x = (i * 20 + j + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text + &format!("{x:x} ")
    })
}

fn warc() -> Vec<Vec<u8>> {
    let record = |i| {
        let body = noise(i);
        let length = body.len();
        format!("WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: {length}\r\n\r\n{body}\r\n\r\n")
    };
    (0..60).map(|i| record(i).into_bytes()).collect()
}

fn jsonl() -> Vec<Vec<u8>> {
    let line = |i| format!("{{\"text\":\"{}\"}}\n", noise(i));
    (0..60).map(|i| line(i).into_bytes()).collect()
}

fn pages() -> Vec<Vec<u8>> {
    let page = |i| format!("<page>{}</page>\n", noise(i));
    let pages = (0..60).map(|i| page(i).into_bytes());
    std::iter::once(b"<mediawiki>\n".to_vec())
        .chain(pages)
        .collect()
}

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

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Records found before the end, or the error.
fn count(blob: Failing, format: &str) -> io::Result<(usize, usize)> {
    let blob = Box::new(blob);
    let kind = match format {
        "warc" => {
            let mut reader = WarcReader::open(Source::open(blob, true)?, 1 << 20);
            assert!(reader.expect_records()?.is_none());
            Kind::Warc(Box::new(reader))
        }
        "jsonl" => {
            let mut reader = LineReader::open(blob, 1 << 20, false)?;
            assert!(reader.expect_objects()?.is_none());
            Kind::Lines(Box::new(reader))
        }
        _ => {
            let mut reader = PageReader::open(blob, 1 << 20)?;
            assert!(reader.expect_pages()?.is_none());
            Kind::Pages(Box::new(reader))
        }
    };
    let mut reader = Reader::new(std::path::Path::new("x"), kind);
    let mut batch = Batch::default();
    let (mut sound, mut bad) = (0, 0);
    loop {
        match reader.fill(&mut batch) {
            Ok(false) => return Ok((sound, bad)),
            Ok(true) => {
                let lost = batch.records.iter().filter(|raw| raw.bad.is_some()).count();
                sound += batch.records.len() - lost;
                bad += lost;
            }
            Err(crate::Error::Io { source, .. }) => return Err(source),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_refused_read_is_an_error_in_every_format_and_compression() {
    type Codec = fn(&[u8]) -> Vec<u8>;
    let codecs: [(&str, Codec); 5] = [
        ("plain", |bytes| bytes.to_vec()),
        ("gzip", gzip),
        ("zstd", |bytes| zstd::encode_all(bytes, 3).unwrap()),
        ("bzip2", bzip2),
        ("lz4", lz4),
    ];
    for (format, pieces) in [("warc", warc()), ("jsonl", jsonl()), ("pages", pages())] {
        for (codec, pack) in codecs {
            let whole = pack(&pieces.concat());
            let members: Vec<u8> = pieces.iter().flat_map(|piece| pack(piece)).collect();
            for bytes in [whole, members] {
                fails_wherever_it_is_cut(format, codec, &bytes, 60);
            }
        }
    }
    let xz: Vec<u8> = (0..XZ.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&XZ[i..i + 2], 16).unwrap())
        .collect();
    fails_wherever_it_is_cut("jsonl", "xz", &xz, 2);
}

fn fails_wherever_it_is_cut(format: &str, codec: &str, bytes: &[u8], records: usize) {
    let failing = |fails_at| Failing {
        bytes: bytes.to_vec(),
        at: 0,
        fails_at,
    };
    let whole = count(failing(usize::MAX), format).unwrap();
    assert_eq!(whole, (records, 0), "{format} {codec}");
    for fails_at in (0..bytes.len()).step_by(bytes.len() / 23) {
        let why = count(failing(fails_at), format).unwrap_err();
        let name = format!("{format} {codec} at {fails_at}: {why}");
        assert!(why.to_string().contains("os error 5"), "{name}");
    }
}

/// Two JSON lines as liblzma 5.4 (Python's lzma) compresses them.
const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a3e0004700415d003d888a86948813e0f3894a79c19c92196357a6aabee8713b6e95d97984649a84fc06b5ff48070b804ba6394d9b5e91790b1be48cd19914245feeed37bd24408c8000000000f67b22faeac6cc6200015d48905f94571fb6f37d010000000004595a";

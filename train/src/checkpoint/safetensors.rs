//! The safetensors format, streamed in both directions: f32 written and read; shorter numbers of other programs' files read and
//! widened, and written as bytes.
//!
//! Bytes: u64 header length h, little-endian | h bytes of JSON, padded with spaces to a multiple of
//! 8 | data. JSON: name -> {"dtype", "shape", "data_offsets": [begin, end)} relative to the data,
//! and optionally "__metadata__", a map of strings. Tensors follow each other without gaps or overlaps.
//! Source: the format's description at huggingface/safetensors. We differ: a writer that never
//! holds more than one row block, and errors that name the byte.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::error::{At, Error, Result};

// values are written to disk as they are in memory
const _: () = assert!(
    cfg!(target_endian = "little"),
    "safetensors data is little-endian"
);

/// Longest header read; the reference implementation's limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Name and dims of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub name: String,
    pub dims: Vec<usize>,
}

impl Entry {
    /// Numbers in the tensor.
    pub(crate) fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    fn bytes(&self) -> u64 {
        4 * self.elements() as u64
    }
}

/// Number format of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    /// 1 sign, 4 exponent, 3 fraction bits, no infinities (Micikevicius et al. 2022, arXiv:2209.05433).
    F8E4m3,
    I8,
    /// Words that other files pack numbers into.
    I32,
    I64,
    /// Masks that older classes saved beside their weights; so is U8.
    Bool,
    U8,
}

impl Format {
    fn of(name: &str) -> Option<Format> {
        match name {
            "F32" => Some(Format::F32),
            "F16" => Some(Format::F16),
            "BF16" => Some(Format::Bf16),
            "F8_E4M3" => Some(Format::F8E4m3),
            "I8" => Some(Format::I8),
            "I32" => Some(Format::I32),
            "I64" => Some(Format::I64),
            "BOOL" => Some(Format::Bool),
            "U8" => Some(Format::U8),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            Format::F8E4m3 => "F8_E4M3",
            Format::I8 => "I8",
            Format::I32 => "I32",
            Format::I64 => "I64",
            Format::Bool => "BOOL",
            Format::U8 => "U8",
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        match self {
            Format::I64 => 8,
            Format::F32 | Format::I32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::F8E4m3 | Format::I8 | Format::Bool | Format::U8 => 1,
        }
    }

    /// Whether it is read as numbers, not as words or masks.
    pub(crate) fn is_numbers(self) -> bool {
        !matches!(self, Format::I32 | Format::I64 | Format::Bool | Format::U8)
    }

    /// Whether its numbers are the factors of scales in another tensor.
    pub(crate) fn is_coded(self) -> bool {
        matches!(self, Format::F8E4m3 | Format::I8)
    }

    /// Widens a number of 8 or 16 bits, which f32 represents exactly.
    pub(crate) fn widened(self, bits: u16) -> f32 {
        match self {
            Format::F16 => half(bits),
            Format::F32 | Format::Bf16 | Format::I32 | Format::I64 | Format::Bool | Format::U8 => {
                f32::from_bits(u32::from(bits) << 16)
            }
            Format::F8E4m3 => e4m3(bits),
            Format::I8 => f32::from(bits.to_le_bytes()[0].cast_signed()),
        }
    }
}

/// An 8-bit float of 4 exponent bits.
fn e4m3(bits: u16) -> f32 {
    let sign = if bits & 128 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        // 2^-9 each
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * 2.0f32.powi(exponent - 7),
    };
    sign * magnitude
}

/// IEEE half precision: 1 sign, 5 exponent, 10 fraction bits.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exponent {
        // 2^-24 each: exact in f32
        0 => return f32::from_bits((fraction as f32 / 16_777_216.0).to_bits() | sign),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(magnitude | sign)
}

/// Checksums of a written file, which `verify` compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Digest {
    pub bytes: u64,
    /// XXH3 of length field and header.
    pub header: u64,
    /// XXH3 of each tensor's bytes, in order.
    pub tensors: Vec<(String, u64)>,
}

/// Writes tensors in the order in which they were announced.
pub(crate) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    entries: std::vec::IntoIter<(Entry, Format)>,
    /// Name and bytes of the tensor that is written, and bytes written.
    current: Option<(String, [u64; 2], Box<Xxh3Default>)>,
    digest: Digest,
}

impl Writer {
    /// Creates the file and writes its header.
    pub(crate) fn create(
        path: &Path,
        entries: Vec<Entry>,
        metadata: Option<Value>,
    ) -> Result<Self> {
        let entries = entries.into_iter().map(|entry| (entry, Format::F32));
        Writer::create_in(path, entries.collect(), metadata)
    }

    /// Like `create`, for tensors of these formats.
    pub(crate) fn create_in(
        path: &Path,
        entries: Vec<(Entry, Format)>,
        metadata: Option<Value>,
    ) -> Result<Self> {
        let mut header = Map::new();
        if let Some(metadata) = metadata {
            header.insert("__metadata__".into(), metadata);
        }
        let mut end = 0;
        for (entry, format) in &entries {
            let begin = end;
            end += format.bytes() * entry.elements() as u64;
            let value =
                json!({"dtype": format.name(), "shape": entry.dims, "data_offsets": [begin, end]});
            header.insert(entry.name.clone(), value);
        }
        let mut bytes = Value::Object(header).to_string().into_bytes();
        bytes.resize(bytes.len().next_multiple_of(8), b' ');
        let mut start = (bytes.len() as u64).to_le_bytes().to_vec();
        start.append(&mut bytes);

        let file = File::create(path).at("create", path)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&start).at("write", path)?;
        let bytes = start.len() as u64 + end;
        let digest = Digest {
            bytes,
            header: xxh3_64(&start),
            tensors: Vec::new(),
        };
        let path = path.to_owned();
        Ok(Writer {
            path,
            file,
            entries: entries.into_iter(),
            current: None,
            digest,
        })
    }

    /// Appends values to the current tensor, or starts the next one.
    pub(crate) fn write(&mut self, values: &[f32]) -> Result<()> {
        self.write_bytes(bytemuck::cast_slice(values))
    }

    /// Like `write`, of values as they are stored.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if self.current.is_none() {
            let (entry, format) = self.entries.next().expect("no more values than announced");
            let all = format.bytes() * entry.elements() as u64;
            self.current = Some((entry.name, [all, 0], Box::default()));
        }
        let (_, [all, written], hash) = self.current.as_mut().expect("just set");
        self.file.write_all(bytes).at("write", &self.path)?;
        hash.update(bytes);
        *written += bytes.len() as u64;
        assert!(*written <= *all, "no more values than announced");
        if written == all
            && let Some((name, _, hash)) = self.current.take()
        {
            self.digest.tensors.push((name, hash.digest()));
        }
        Ok(())
    }

    /// Flushes and syncs the file.
    pub(crate) fn finish(mut self) -> Result<Digest> {
        assert!(
            self.current.is_none() && self.entries.next().is_none(),
            "all tensors are written"
        );
        self.file.flush().at("write", &self.path)?;
        self.file.get_ref().sync_all().at("sync", &self.path)?;
        Ok(self.digest)
    }
}

/// An opened file whose header is consistent.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    /// Closed between uses where many files are read in turns.
    file: Option<File>,
    /// In file order, with the first byte of each.
    entries: Vec<(Entry, u64)>,
    formats: Vec<Format>,
    by_name: HashMap<String, usize>,
    /// Metadata in the header beside the tensors.
    metadata: Map<String, Value>,
    header: u64,
    bytes: u64,
}

impl Reader {
    /// Reads and checks the header of a file of ours: f32 only.
    pub(crate) fn open(path: &Path) -> Result<Reader> {
        Reader::open_any(path, &["F32"])
    }

    /// Reads and checks the header of a file with numbers stored as one of `formats`.
    pub(crate) fn open_any(path: &Path, formats: &[&str]) -> Result<Reader> {
        let mut file = File::open(path).at("open", path)?;
        let bytes = file.metadata().at("read", path)?.len();
        let damaged = |offset, (what, found, wanted): (String, String, String)| Error::Damaged {
            path: path.to_owned(),
            offset,
            what,
            found,
            wanted,
        };
        if bytes < 8 {
            let found = format!("{bytes} bytes");
            return Err(damaged(
                0,
                ("file".into(), found, "at least 8 bytes".into()),
            ));
        }
        let mut start = vec![0; 8];
        file.read_exact(&mut start).at("read", path)?;
        let length = u64::from_le_bytes(start[..].try_into().expect("8 bytes"));
        let most = MAX_HEADER_BYTES.min(bytes - 8);
        if length > most {
            let (what, wanted) = ("header length".to_owned(), format!("at most {most}"));
            return Err(damaged(0, (what, length.to_string(), wanted)));
        }
        start.resize(8 + usize::try_from(length).expect("limited above"), 0);
        file.read_exact(&mut start[8..]).at("read", path)?;
        let json: Map<String, Value> = serde_json::from_slice(&start[8..]).map_err(|error| {
            let offset = 8 + error.column().saturating_sub(1) as u64;
            damaged(
                offset,
                ("header".into(), error.to_string(), "a JSON object".into()),
            )
        })?;
        let parsed = parse_entries(&json, 8 + length, formats);
        let (stored, end) = parsed.map_err(|wrong| damaged(8, wrong))?;
        let (entries, formats): (Vec<(Entry, u64)>, Vec<Format>) = stored.into_iter().unzip();
        if end != bytes {
            let (found, wanted) = (
                format!("{bytes} bytes"),
                format!("{end} bytes by the header"),
            );
            return Err(damaged(bytes.min(end), ("file".into(), found, wanted)));
        }
        let by_name = entries
            .iter()
            .enumerate()
            .map(|(i, (entry, _))| (entry.name.clone(), i))
            .collect();
        let header = xxh3_64(&start);
        let metadata = json.get("__metadata__").and_then(Value::as_object);
        Ok(Reader {
            path: path.to_owned(),
            file: Some(file),
            entries,
            formats,
            by_name,
            metadata: metadata.cloned().unwrap_or_default(),
            header,
            bytes,
        })
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Text under `key` of the header's metadata.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).and_then(Value::as_str)
    }

    /// Closes the file until it is read again.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// The file at byte `at`.
    fn seek(&mut self, at: u64) -> Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path).at("open", &self.path)?,
        };
        let file = self.file.insert(file);
        file.seek(SeekFrom::Start(at)).at("seek in", &self.path)?;
        Ok(file)
    }

    /// Names and dims in file order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// Compares every byte with the checksums taken when the file was written.
    pub(crate) fn verify(&mut self, digest: &Digest) -> Result<()> {
        let header = (self.bytes, self.header);
        if header != (digest.bytes, digest.header) {
            let show =
                |(bytes, hash): (u64, u64)| format!("{bytes} bytes, header xxh3 {hash:016x}");
            let wanted = show((digest.bytes, digest.header));
            return Err(self.damaged(0, "file".into(), show(header), wanted));
        }
        let mut buffer = vec![0; 1 << 20];
        for (i, (name, wanted)) in digest.tensors.iter().enumerate() {
            let Some((entry, begin)) = self.entries.get(i).filter(|(e, _)| e.name == *name) else {
                return Err(self.damaged(8, "header".into(), "other tensors".into(), name.clone()));
            };
            let (begin, mut left) = (*begin, entry.bytes());
            let what = format!("tensor {name} ({left} bytes)");
            let mut hash = Xxh3Default::new();
            self.seek(begin)?;
            while left > 0 {
                let part = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(buffer.len());
                let mut file = self.file.as_ref().expect("just sought in");
                let read = file.read_exact(&mut buffer[..part]);
                read.at("read", &self.path)?;
                hash.update(&buffer[..part]);
                left -= part as u64;
            }
            let found = hash.digest();
            if found != *wanted {
                let show = |hash: u64| format!("xxh3 {hash:016x}");
                return Err(self.damaged(begin, what, show(found), show(*wanted)));
            }
        }
        Ok(())
    }

    /// Fills `out` with elements of a tensor, from element `first` on. `dims`: the dims that the tensor must have.
    pub(crate) fn read_part(
        &mut self,
        name: &str,
        dims: &[usize],
        first: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let (begin, format) = self.found(name, dims)?;
        if !format.is_numbers() {
            let what = format!("dtype of tensor {name}");
            return Err(self.damaged(8, what, format.name().into(), "numbers".into()));
        }
        let at = begin + format.bytes() * first as u64;
        if format == Format::F32 {
            let read = self.seek(at)?.read_exact(bytemuck::cast_slice_mut(out));
            return read.at("read", &self.path);
        }
        if format.bytes() == 1 {
            let mut bytes = vec![0u8; out.len()];
            let read = self.seek(at)?.read_exact(&mut bytes);
            read.at("read", &self.path)?;
            for (out, byte) in out.iter_mut().zip(bytes) {
                *out = format.widened(u16::from(byte));
            }
            return Ok(());
        }
        let mut bits = vec![0u16; out.len()];
        let bytes = bytemuck::cast_slice_mut(&mut bits);
        let read = self.seek(at)?.read_exact(bytes);
        read.at("read", &self.path)?;
        for (out, bits) in out.iter_mut().zip(bits) {
            *out = format.widened(bits);
        }
        Ok(())
    }

    /// First byte and format of a tensor, which must have these dims.
    fn found(&self, name: &str, dims: &[usize]) -> Result<(u64, Format)> {
        let Some(&index) = self.by_name.get(name) else {
            let what = format!("tensor {name}");
            return Err(self.damaged(8, what, "nothing".into(), format!("shape {dims:?}")));
        };
        let (entry, begin) = &self.entries[index];
        if entry.dims != dims {
            let (found, wanted) = (format!("shape {:?}", entry.dims), format!("shape {dims:?}"));
            return Err(self.damaged(8, format!("tensor {name}"), found, wanted));
        }
        Ok((*begin, self.formats[index]))
    }

    /// The stored bytes of a tensor, which must have these dims and this format.
    pub(crate) fn read_stored(
        &mut self,
        name: &str,
        dims: &[usize],
        wanted: Format,
    ) -> Result<Vec<u8>> {
        let (begin, format) = self.found(name, dims)?;
        if format != wanted {
            let what = format!("dtype of tensor {name}");
            let [found, wanted] = [format, wanted].map(|format| format.name().to_owned());
            return Err(self.damaged(8, what, found, wanted));
        }
        // the header's sizes are those of the file
        let elements: usize = dims.iter().product();
        let size = usize::try_from(format.bytes()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; elements.saturating_mul(size)];
        let read = self.seek(begin)?.read_exact(&mut bytes);
        read.at("read", &self.path)?;
        Ok(bytes)
    }

    /// Some of the bytes of a tensor of bytes, which must have these dims.
    pub(crate) fn read_bytes(
        &mut self,
        name: &str,
        dims: &[usize],
        range: Range<usize>,
    ) -> Result<Vec<u8>> {
        let (begin, format) = self.found(name, dims)?;
        if format != Format::U8 {
            let what = format!("dtype of tensor {name}");
            return Err(self.damaged(8, what, format.name().into(), "U8".into()));
        }
        let mut bytes = vec![0; range.len()];
        let at = begin + range.start as u64;
        let read = self.seek(at)?.read_exact(&mut bytes);
        read.at("read", &self.path)?;
        Ok(bytes)
    }

    /// Names, dims and formats in file order.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (&Entry, Format)> {
        self.entries().zip(self.formats.iter().copied())
    }

    pub(crate) fn damaged(
        &self,
        offset: u64,
        what: String,
        found: String,
        wanted: String,
    ) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            offset,
            what,
            found,
            wanted,
        }
    }
}

/// Name of the field, found, wanted.
type Wrong = (String, String, String);

/// Tensors with the first byte of each, in file order, and the first byte after them. `data` is
/// where the data starts.
type Stored = ((Entry, u64), Format);

fn parse_entries(
    json: &Map<String, Value>,
    data: u64,
    formats: &[&str],
) -> Result<(Vec<Stored>, u64), Wrong> {
    let mut entries = Vec::new();
    for (name, value) in json.iter().filter(|(name, _)| *name != "__metadata__") {
        let (entry, begin, end, format) = parse_entry(name, value, formats)?;
        let bytes = entry.bytes() / 4 * format.bytes();
        if end.checked_sub(begin) != Some(bytes) {
            let found = format!("data_offsets [{begin}, {end})");
            return Err((
                format!("tensor {name}"),
                found,
                format!("{bytes} bytes for its shape"),
            ));
        }
        entries.push(((entry, begin), format));
    }
    entries.sort_by_key(|&((_, begin), _)| begin);
    let mut end = 0u64;
    for ((entry, begin), format) in &mut entries {
        if *begin != end {
            let found = format!("data_offsets from {begin}");
            return Err((
                format!("tensor {}", entry.name),
                found,
                format!("from {end}"),
            ));
        }
        end = end.saturating_add(entry.bytes() / 4 * format.bytes());
        *begin = begin.saturating_add(data);
    }
    Ok((entries, end.saturating_add(data)))
}

fn parse_entry(
    name: &str,
    value: &Value,
    formats: &[&str],
) -> Result<(Entry, u64, u64, Format), Wrong> {
    let wrong = |field: &str, wanted: &str| {
        let found = value.get(field).map_or("nothing".into(), Value::to_string);
        (
            format!("{field} of tensor {name}"),
            found,
            wanted.to_owned(),
        )
    };
    let format = value.get("dtype").and_then(Value::as_str);
    let format = format.filter(|name| formats.contains(name));
    let Some(format) = format.and_then(Format::of) else {
        return Err(wrong("dtype", &format!("one of {formats:?}")));
    };
    let numbers = |field| -> Option<Vec<u64>> {
        value
            .get(field)?
            .as_array()?
            .iter()
            .map(Value::as_u64)
            .collect()
    };
    let shape = numbers("shape").filter(|shape| shape.len() <= 4);
    let mut shape = shape.ok_or_else(|| wrong("shape", "at most 4 counts"))?;
    if shape.is_empty() {
        // a single number
        shape.push(1);
    }
    let elements = shape
        .iter()
        .try_fold(8u64, |bytes, &dim| bytes.checked_mul(dim));
    let dims = shape
        .iter()
        .map(|&dim| usize::try_from(dim).ok())
        .collect::<Option<_>>();
    let (Some(_), Some(dims)) = (elements, dims) else {
        return Err(wrong("shape", "a size that fits into memory"));
    };
    match numbers("data_offsets").as_deref() {
        Some(&[begin, end]) => Ok((
            Entry {
                name: name.to_owned(),
                dims,
            },
            begin,
            end,
            format,
        )),
        _ => Err(wrong("data_offsets", "[begin, end]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, dims: &[usize]) -> Entry {
        Entry {
            name: name.into(),
            dims: dims.to_vec(),
        }
    }

    fn sample(folder: &Path) -> (PathBuf, Digest) {
        let path = folder.join("x.safetensors");
        let entries = vec![entry("a", &[3, 2]), entry("b", &[4])];
        let mut writer = Writer::create(&path, entries, Some(json!({"format": "pt"}))).unwrap();
        writer.write(&[0.0, 1.0]).unwrap();
        writer.write(&[2.0, 3.0, 4.0, 5.0]).unwrap();
        writer.write(&[-1.0; 4]).unwrap();
        (path.clone(), writer.finish().unwrap())
    }

    fn message(path: &Path, digest: &Digest) -> String {
        let result = Reader::open(path).and_then(|mut reader| reader.verify(digest));
        result.unwrap_err().to_string()
    }

    /// Values and bits by the standards' definitions.
    #[test]
    fn sixteen_bit_numbers_are_widened_exactly() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65504.0),
            (0x0400, 0.000_061_035_156),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -0.000_060_975_55),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(Format::F16.widened(bits), value, "{bits:x}");
        }
        assert!(Format::F16.widened(0x7e00).is_nan());
        assert!(Format::F16.widened(0x8000).is_sign_negative());
        assert_eq!(Format::Bf16.widened(0x3fc0), 1.5);
        assert_eq!(Format::Bf16.widened(0xc049), -3.140_625);
    }

    #[test]
    fn rows_come_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, digest) = sample(folder.path());
        let mut reader = Reader::open(&path).unwrap();
        reader.verify(&digest).unwrap();
        let mut rows = [0.0; 4];
        reader.read_part("a", &[3, 2], 2, &mut rows).unwrap();
        assert_eq!(rows, [2.0, 3.0, 4.0, 5.0]);
        let wrong = reader
            .read_part("a", &[2, 3], 0, &mut rows)
            .unwrap_err()
            .to_string();
        assert!(
            wrong.contains("found shape [3, 2], want shape [2, 3]"),
            "{wrong}"
        );
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, digest) = sample(folder.path());
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            let text = message(&path, &digest);
            assert!(text.contains(" at byte "), "byte {at}: {text}");
        }
    }

    #[test]
    fn every_truncation_is_refused_with_an_offset() {
        let folder = tempfile::tempdir().unwrap();
        let (path, digest) = sample(folder.path());
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let text = message(&path, &digest);
            assert!(text.contains(" at byte "), "{length} bytes: {text}");
        }
    }

    #[test]
    fn a_changed_value_is_located_at_its_tensor() {
        let folder = tempfile::tempdir().unwrap();
        let (path, digest) = sample(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let text = message(&path, &digest);
        let want = format!(
            "at byte {}: tensor b (16 bytes): found xxh3 ",
            bytes.len() - 16
        );
        assert!(text.contains(&want), "{text}");
    }

    #[test]
    fn hostile_headers_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for header in [
            r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#,
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#,
            r#"{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}"#,
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}}"#,
            r#"{"a":{"dtype":"F32","shape":[4611686018427387903],"data_offsets":[0,18446744073709551612]}}"#,
            r#"{"a":[]}"#,
            r#"[]"#,
        ] {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header.as_bytes());
            bytes.extend([0; 4]);
            std::fs::write(&path, &bytes).unwrap();
            assert!(
                matches!(Reader::open(&path), Err(Error::Damaged { .. })),
                "{header}"
            );
        }
    }
}

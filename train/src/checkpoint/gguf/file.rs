//! Container of GGUF, version 3: metadata, a table of tensors, and their data at multiples of the alignment.
//!
//! Read with every count and offset compared with the file's length first, so that a damaged file costs no memory.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::checkpoint::gguf::kind::Kind;
use crate::checkpoint::gguf::value::{List, Metadata, Value};
use crate::error::{At, Error, Result};

const MAGIC: [u8; 4] = *b"GGUF";
const VERSION: u32 = 3;
/// Data begins at multiples of it, unless the metadata has another.
const ALIGNMENT: usize = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
const MOST_DIMS: u32 = 4;
/// Lists within lists are not in any known file.
const LIST: u32 = 9;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// Outermost first, as torch has them; the file has them in the other order.
    pub dims: Vec<usize>,
    pub kind: Kind,
}

impl Entry {
    /// Numbers of a row.
    pub(crate) fn cols(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    fn bytes(&self) -> Option<usize> {
        let mut numbers: usize = 1;
        for &dim in &self.dims {
            numbers = numbers.checked_mul(dim)?;
        }
        self.kind.bytes(self.cols())?;
        self.kind.bytes(numbers)
    }
}

/// Writes tensors in the order in which they were announced.
pub(crate) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    sizes: std::vec::IntoIter<usize>,
    /// Bytes of the current tensor that are not written yet.
    left: usize,
    /// Bytes of the data so far.
    written: usize,
}

impl Writer {
    /// Creates the file and writes everything before the data.
    pub(crate) fn create(path: &Path, metadata: &Metadata, entries: &[Entry]) -> Result<Writer> {
        let mut head = Vec::new();
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend((entries.len() as u64).to_le_bytes());
        head.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            put_text(&mut head, key);
            put_value(&mut head, value);
        }
        let (mut at, mut sizes) = (0_u64, Vec::new());
        for entry in entries {
            put_text(&mut head, &entry.name);
            let dims = u32::try_from(entry.dims.len()).unwrap_or(u32::MAX);
            head.extend(dims.to_le_bytes());
            for &dim in entry.dims.iter().rev() {
                head.extend((dim as u64).to_le_bytes());
            }
            head.extend(entry.kind.code().to_le_bytes());
            head.extend(at.to_le_bytes());
            let bytes = entry.bytes().ok_or_else(|| Error::Request {
                what: "tensor to write",
                found: format!("{} {:?} as {}", entry.name, entry.dims, entry.kind.name()),
                wanted: format!("rows of multiples of {} numbers", entry.kind.numbers()),
            })?;
            sizes.push(bytes);
            at += bytes.next_multiple_of(ALIGNMENT) as u64;
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
        let file = File::create(path).at("create", path)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&head).at("write", path)?;
        Ok(Writer {
            path: path.to_owned(),
            file,
            sizes: sizes.into_iter(),
            left: 0,
            written: 0,
        })
    }

    /// Writes the rest of the current tensor or a part of it, or begins the next.
    ///
    /// # Panics
    /// If tensors have other sizes than announced.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<()> {
        if self.left == 0 {
            self.left = self.sizes.next().unwrap_or(0);
        }
        assert!(data.len() <= self.left, "tensors as announced");
        self.file.write_all(data).at("write", &self.path)?;
        self.left -= data.len();
        self.written += data.len();
        if self.left == 0 {
            let end = self.written.next_multiple_of(ALIGNMENT);
            let zeros = [0; ALIGNMENT];
            let padding = &zeros[..end - self.written];
            self.file.write_all(padding).at("write", &self.path)?;
            self.written = end;
        }
        Ok(())
    }

    /// Flushes and syncs the file.
    pub(crate) fn finish(mut self) -> Result<()> {
        assert!(
            self.left == 0 && self.sizes.next().is_none(),
            "all tensors are written"
        );
        self.file.flush().at("write", &self.path)?;
        self.file.get_ref().sync_all().at("sync", &self.path)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "metadata that is written has 32 bits"
)]
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let kind = |out: &mut Vec<u8>, kind: u32| out.extend(kind.to_le_bytes());
    let list = |out: &mut Vec<u8>, of: u32, len: usize| {
        kind(out, LIST);
        kind(out, of);
        out.extend((len as u64).to_le_bytes());
    };
    match value {
        Value::Bool(on) => {
            kind(out, 7);
            out.push(u8::from(*on));
        }
        Value::Whole(number) => match (u32::try_from(*number), i32::try_from(*number)) {
            (Ok(number), _) => {
                kind(out, 4);
                out.extend(number.to_le_bytes());
            }
            (_, Ok(number)) => {
                kind(out, 5);
                out.extend(number.to_le_bytes());
            }
            _ if *number < 0 => {
                kind(out, 11);
                out.extend((*number as i64).to_le_bytes());
            }
            _ => {
                kind(out, 10);
                out.extend((*number as u64).to_le_bytes());
            }
        },
        Value::Real(number) => {
            kind(out, 6);
            out.extend((*number as f32).to_le_bytes());
        }
        Value::Text(text) => {
            kind(out, 8);
            put_text(out, text);
        }
        Value::List(List::Bools(all)) => {
            list(out, 7, all.len());
            out.extend(all.iter().map(|&on| u8::from(on)));
        }
        Value::List(List::Bytes(all)) => {
            list(out, 0, all.len());
            out.extend(all);
        }
        Value::List(List::Whole(all)) => {
            list(out, 5, all.len());
            out.extend(all.iter().flat_map(|&number| (number as i32).to_le_bytes()));
        }
        Value::List(List::Reals(all)) => {
            list(out, 6, all.len());
            out.extend(all.iter().flat_map(|&number| (number as f32).to_le_bytes()));
        }
        Value::List(List::Texts(all)) => {
            list(out, 8, all.len());
            all.iter().for_each(|text| put_text(out, text));
        }
    }
}

/// A tensor, its first byte in the file and the number of its bytes.
type Stored = (Entry, u64, usize);

/// An opened file whose table of tensors is consistent.
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    pub(crate) metadata: Metadata,
    entries: Vec<Stored>,
}

impl Reader {
    /// Reads and checks everything before the data.
    pub(crate) fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path).at("open", path)?;
        let bytes = file.metadata().at("read", path)?.len();
        let mut head = Head {
            path,
            from: BufReader::with_capacity(1 << 16, file),
            at: 0,
            bytes,
            is_lossy: false,
        };
        let (metadata, entries) = head.all()?;
        let file = head.from.into_inner();
        Ok(Reader {
            path: path.to_owned(),
            file,
            metadata,
            entries,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _, _)| entry)
    }

    /// Numbers of a tensor of the file.
    pub(crate) fn read(&mut self, name: &str) -> Result<Vec<f32>> {
        let found = self.entries.iter().find(|(entry, _, _)| entry.name == name);
        let Some((entry, first, bytes)) = found else {
            return Err(Error::Foreign {
                path: self.path.clone(),
                problems: vec![format!("{name}: found nothing")],
            });
        };
        let mut stored = vec![0; *bytes];
        self.file
            .seek(SeekFrom::Start(*first))
            .at("seek in", &self.path)?;
        self.file.read_exact(&mut stored).at("read", &self.path)?;
        Ok(entry.kind.decode(&stored, entry.cols()))
    }
}

/// Reads what is before the data.
struct Head<'a> {
    path: &'a Path,
    from: BufReader<File>,
    at: u64,
    bytes: u64,
    /// Whether a text was not UTF-8 since this was last cleared.
    is_lossy: bool,
}

impl Head<'_> {
    fn damaged(&self, what: &str, found: impl ToString, wanted: impl ToString) -> Error {
        Error::Damaged {
            path: self.path.to_owned(),
            offset: self.at,
            what: what.to_owned(),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }
    }

    /// Refuses more items than the rest of the file can hold.
    fn count(&self, what: &str, count: u64, each: u64) -> Result<usize> {
        let most = (self.bytes - self.at) / each;
        match usize::try_from(count) {
            Ok(whole) if count <= most => Ok(whole),
            _ => Err(self.damaged(
                what,
                count,
                format!("at most {most} in the rest of the file"),
            )),
        }
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        if self.bytes - self.at < N as u64 {
            return Err(self.damaged(what, "the file's end", format!("{N} bytes")));
        }
        let mut taken = [0; N];
        self.from.read_exact(&mut taken).at("read", self.path)?;
        self.at += N as u64;
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(what)?))
    }

    fn text(&mut self, what: &str) -> Result<String> {
        let length = self.u64(what)?;
        let length = self.count(what, length, 1)?;
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).at("read", self.path)?;
        self.at += length as u64;
        // some vocabularies have pieces of characters
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) => {
                self.is_lossy = true;
                Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
            }
        }
    }

    fn whole(&mut self, kind: u32, key: &str) -> Result<Option<i128>> {
        Ok(Some(match kind {
            0 => u8::from_le_bytes(self.take(key)?).into(),
            1 => i8::from_le_bytes(self.take(key)?).into(),
            2 => u16::from_le_bytes(self.take(key)?).into(),
            3 => i16::from_le_bytes(self.take(key)?).into(),
            4 => u32::from_le_bytes(self.take(key)?).into(),
            5 => i32::from_le_bytes(self.take(key)?).into(),
            10 => u64::from_le_bytes(self.take(key)?).into(),
            11 => i64::from_le_bytes(self.take(key)?).into(),
            _ => return Ok(None),
        }))
    }

    fn real(&mut self, kind: u32, key: &str) -> Result<Option<f64>> {
        Ok(Some(match kind {
            6 => f32::from_le_bytes(self.take(key)?).into(),
            12 => f64::from_le_bytes(self.take(key)?),
            _ => return Ok(None),
        }))
    }

    fn value(&mut self, kind: u32, key: &str) -> Result<Value> {
        if let Some(number) = self.whole(kind, key)? {
            return Ok(Value::Whole(number));
        }
        if let Some(number) = self.real(kind, key)? {
            return Ok(Value::Real(number));
        }
        match kind {
            7 => Ok(Value::Bool(self.take::<1>(key)? != [0])),
            8 => Ok(Value::Text(self.text(key)?)),
            LIST => Ok(Value::List(self.list(key)?)),
            _ => Err(self.damaged(key, format!("type {kind}"), "a type of 0 to 12")),
        }
    }

    fn list(&mut self, key: &str) -> Result<List> {
        let kind = self.u32(key)?;
        let count = self.u64(key)?;
        let each = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            _ => {
                return Err(self.damaged(
                    key,
                    format!("a list of type {kind}"),
                    "of type 0 to 12 but 9",
                ));
            }
        };
        let count = self.count(key, count, each)?;
        Ok(match kind {
            0 => {
                let mut all = vec![0; count];
                self.from.read_exact(&mut all).at("read", self.path)?;
                self.at += count as u64;
                List::Bytes(all)
            }
            7 => {
                let all = (0..count).map(|_| Ok(self.take::<1>(key)? != [0]));
                List::Bools(all.collect::<Result<_>>()?)
            }
            8 => List::Texts((0..count).map(|_| self.text(key)).collect::<Result<_>>()?),
            6 | 12 => {
                let all = (0..count).filter_map(|_| self.real(kind, key).transpose());
                List::Reals(all.collect::<Result<_>>()?)
            }
            _ => {
                let all = (0..count).filter_map(|_| self.whole(kind, key).transpose());
                List::Whole(all.collect::<Result<_>>()?)
            }
        })
    }

    fn all(&mut self) -> Result<(Metadata, Vec<Stored>)> {
        let magic = self.take("magic")?;
        if magic != MAGIC {
            return Err(self.damaged("magic", format!("{magic:?}"), "GGUF"));
        }
        let version = self.u32("version")?;
        if version != VERSION && version != 2 {
            return Err(self.damaged("version", version, "2 or 3"));
        }
        // a tensor's row in the table has at least a name's length, a count of dims, a type and an offset
        let tensors = self.u64("number of tensors")?;
        let tensors = self.count("number of tensors", tensors, 24)?;
        let pairs = self.u64("number of metadata pairs")?;
        let pairs = self.count("number of metadata pairs", pairs, 13)?;
        let mut metadata = Metadata::default();
        for _ in 0..pairs {
            let key = self.text("metadata key")?;
            let kind = self.u32(&key)?;
            self.is_lossy = false;
            let value = self.value(kind, &key)?;
            if self.is_lossy {
                metadata.set_lossy(&key);
            }
            metadata.set(key, value);
        }
        let alignment = match metadata.get(ALIGNMENT_KEY) {
            None => ALIGNMENT as u64,
            Some(_) => metadata.whole(ALIGNMENT_KEY).unwrap_or(0),
        };
        if !alignment.is_power_of_two() {
            return Err(self.damaged(ALIGNMENT_KEY, alignment, "a power of two"));
        }
        let mut table = Vec::new();
        for _ in 0..tensors {
            table.push(self.entry()?);
        }
        let start = self.at.next_multiple_of(alignment);
        let mut entries: Vec<Stored> = Vec::new();
        // llama.cpp's `gguf.cpp`: tensors follow each other in the order of the table, each padded
        let mut expected = 0u64;
        for (entry, offset) in table {
            let bytes = entry.bytes();
            let first = start.checked_add(offset);
            let end = bytes.and_then(|bytes| first?.checked_add(bytes as u64));
            let fits = end.is_some_and(|end| end <= self.bytes);
            let is_next = offset == expected;
            match (bytes, first) {
                (Some(bytes), Some(first)) if fits && is_next => {
                    entries.push((entry, first, bytes));
                    let next = offset.checked_add(bytes as u64);
                    let next = next.and_then(|end| end.checked_next_multiple_of(alignment));
                    expected = next.unwrap_or(u64::MAX);
                }
                _ => {
                    let found = format!(
                        "{:?} of {} at offset {offset}",
                        entry.dims,
                        entry.kind.name()
                    );
                    let wanted = format!(
                        "whole blocks within {} bytes, at offset {expected}, behind the tensor before",
                        self.bytes
                    );
                    return Err(self.damaged(&entry.name, found, wanted));
                }
            }
        }
        let mut names: Vec<&str> = entries.iter().map(|(entry, _, _)| &*entry.name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.damaged(
                "tensors",
                format!("{} twice", twice[0]),
                "names of one tensor each",
            ));
        }
        Ok((metadata, entries))
    }

    /// A row of the table of tensors, and its offset.
    fn entry(&mut self) -> Result<(Entry, u64)> {
        let name = self.text("tensor's name")?;
        let count = self.u32(&name)?;
        if count > MOST_DIMS {
            return Err(self.damaged(
                &name,
                format!("{count} dims"),
                format!("at most {MOST_DIMS}"),
            ));
        }
        let mut dims = Vec::new();
        for _ in 0..count {
            let dim = self.u64(&name)?;
            let dim = usize::try_from(dim);
            dims.push(
                dim.map_err(|_| self.damaged(&name, "a huge dim", "one that fits in memory"))?,
            );
        }
        dims.reverse();
        let code = self.u32(&name)?;
        let kind = Kind::of_code(code).ok_or_else(|| {
            let known = Kind::CODES.map(|(code, kind)| format!("{} ({code})", kind.name()));
            self.damaged(&name, format!("type {code}"), known.join(", "))
        })?;
        let offset = self.u64(&name)?;
        Ok((Entry { name, dims, kind }, offset))
    }
}

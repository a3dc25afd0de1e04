//! Reader for tensors written by `torch.save`: the single tensor of an archive (a chunk of a distributed
//! checkpoint), and the table of tensors of a `pytorch_model.bin`.
//!
//! Since torch 1.6 a file is a zip archive of stored entries: `data.pkl`, whose tensors refer to entries `data/KEY`
//! with their numbers. Older files are a sequence of pickles: a magic number, the protocol, facts about the
//! machine, the object, the keys of its storages in order; then each storage, a count of 8 bytes and its numbers.
//! Source: torch/serialization.py of torch 2.15 (`_save`, `_legacy_load`).
//!
//! Nothing in a pickle is executed (`pickle.rs`). 16-bit numbers are widened. Views of a storage are read by their
//! strides; tensors of other number types, such as masks, have a name and dims but no values.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::checkpoint::safetensors::Format;
use crate::checkpoint::torch::pickle::{Pickle, Ref, Value};
use crate::checkpoint::torch::zip::{self, Archive, Extent};
use crate::error::{At, Error, Result};

/// Longest pickle of one tensor, which holds its type, sizes and strides.
const MAX_TENSOR_PICKLE: u64 = 1 << 20;
/// Longest pickle of a table of tensors: about 200 bytes per tensor.
const MAX_TABLE_PICKLE: u64 = 1 << 26;

/// The magic number of files before torch 1.6, as a pickled integer of 10 bytes.
const MAGIC: [u8; 15] = *b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";

/// A tensor as its pickle describes it.
#[derive(Clone, Debug)]
struct View {
    /// None: not a type of weights.
    format: Option<Format>,
    key: String,
    /// Element of the storage that is its first.
    first: usize,
    dims: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    fn of(pickle: &Pickle, at: Ref) -> Option<View> {
        // a parameter holds its tensor
        let at = match pickle.object(at, ["torch._utils", "_rebuild_parameter"]) {
            Some((&[tensor, ..], _)) => tensor,
            _ => at,
        };
        let (args, _) = pickle.object(at, ["torch._utils", "_rebuild_tensor_v2"])?;
        let &[storage, first, dims, strides, ..] = args else {
            return None;
        };
        let Value::Persistent(storage) = pickle.value(storage) else {
            return None;
        };
        let Value::Tuple(storage) = pickle.value(*storage) else {
            return None;
        };
        let &[kind, class, key, ..] = storage.as_slice() else {
            return None;
        };
        let Value::Class(module, name) = pickle.value(class) else {
            return None;
        };
        let format = match name.as_str() {
            "FloatStorage" => Some(Format::F32),
            "HalfStorage" => Some(Format::F16),
            "BFloat16Storage" => Some(Format::Bf16),
            _ => None,
        };
        let is_known = module == "torch" && pickle.text(kind) == Some("storage");
        is_known.then_some(View {
            format,
            key: pickle.text(key)?.to_owned(),
            first: pickle.count(first)?,
            dims: pickle.counts(dims)?,
            strides: pickle.counts(strides)?,
        })
    }

    /// Numbers in order, out of the bytes of the storage, if it has them.
    fn values(&self, bytes: &[u8]) -> Option<Vec<f32>> {
        let format = self.format?;
        let width = usize::try_from(format.bytes()).ok()?;
        let count = elements(&self.dims)?;
        // no more than the storage has: a stride of 0 would expand it without limit
        if self.strides.len() != self.dims.len() || count > bytes.len() / width {
            return None;
        }
        let number = |at: usize| -> Option<f32> {
            let bytes = bytes.get(at.checked_mul(width)?..)?;
            Some(match format {
                Format::F32 => f32::from_le_bytes(bytes.get(..4)?.try_into().ok()?),
                short => short.widened(u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?)),
            })
        };
        let mut values = Vec::with_capacity(count);
        let mut index = vec![0usize; self.dims.len()];
        for _ in 0..count {
            let steps = index.iter().zip(&self.strides);
            let at = steps
                .map(|(i, stride)| i.checked_mul(*stride))
                .try_fold(self.first, |at, step| at.checked_add(step?));
            values.push(number(at?)?);
            // the last axis varies fastest
            for (i, dim) in index.iter_mut().zip(&self.dims).rev() {
                *i += 1;
                if *i < *dim {
                    break;
                }
                *i = 0;
            }
        }
        Some(values)
    }
}

fn elements(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))
}

/// The only tensor of an archive of `torch.save`, which must have these dims.
///
/// # Errors
/// `Damaged`; `Io`.
pub(super) fn tensor(archive: &mut Archive<'_>, dims: &[usize]) -> Result<Vec<f32>> {
    check_byte_order(archive)?;
    let entry = archive.find("data.pkl")?;
    let bytes = archive.read(&entry, MAX_TENSOR_PICKLE)?;
    let pickle = Pickle::read(&bytes)
        .map_err(|(_, found, wanted)| archive.damaged(0, "pickle", found, wanted.into()))?;
    let view = View::of(&pickle, pickle.root()).filter(|view| view.format.is_some());
    let Some(view) = view else {
        let wanted = "a tensor of f32, f16 or bf16 on the CPU".into();
        return Err(archive.damaged(0, "pickle", "something else".into(), wanted));
    };
    if view.dims != dims {
        let (found, wanted) = (format!("shape {:?}", view.dims), format!("shape {dims:?}"));
        return Err(archive.damaged(0, "tensor", found, wanted));
    }
    let entry = archive.find(&format!("data/{}", view.key))?;
    let bytes = archive.read(&entry, entry.bytes)?;
    let values = view.values(&bytes);
    values.ok_or_else(|| archive.damaged(0, "tensor", few(&bytes), enough(&view)))
}

fn check_byte_order(archive: &mut Archive<'_>) -> Result<()> {
    // archives before torch 1.13 do not have it
    let Ok(entry) = archive.find("byteorder") else {
        return Ok(());
    };
    if archive.read(&entry, 16)? != b"little" {
        return Err(archive.damaged(0, "byte order", "another".into(), "little".into()));
    }
    Ok(())
}

fn few(bytes: &[u8]) -> String {
    format!("{} bytes of numbers", bytes.len())
}

fn enough(view: &View) -> String {
    format!("those of shape {:?}, strides {:?}", view.dims, view.strides)
}

/// First byte and count of bytes of a storage in a file.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    bytes: u64,
}

/// Locations of a file's storages.
#[derive(Debug)]
enum Storages {
    /// Entries of a zip archive.
    Archive(Vec<zip::Entry>),
    /// Byte ranges by key, in files before torch 1.6.
    Plain(BTreeMap<String, Range>),
}

/// An opened `pytorch_model.bin`.
#[derive(Debug)]
pub(crate) struct TorchFile {
    path: PathBuf,
    views: BTreeMap<String, View>,
    storages: Storages,
}

impl TorchFile {
    /// Reads the table of tensors, not their numbers.
    ///
    /// # Errors
    /// `Damaged` if the file is not one of `torch.save`'s with a table of tensors; `Io`.
    pub(crate) fn open(path: &Path) -> Result<TorchFile> {
        let mut file = File::open(path).at("open", path)?;
        let mut start = [0; 4];
        file.read_exact(&mut start).at("read", path)?;
        if start == *b"PK\x03\x04" {
            return TorchFile::open_archive(&mut file, path);
        }
        TorchFile::open_plain(&mut file, path)
    }

    fn open_archive(file: &mut File, path: &Path) -> Result<TorchFile> {
        let bytes = file.metadata().at("read", path)?.len();
        let mut archive = Archive::open(file, path, Extent::whole(bytes))?;
        check_byte_order(&mut archive)?;
        let entry = archive.find("data.pkl")?;
        let text = archive.read(&entry, MAX_TABLE_PICKLE)?;
        let pickle = Pickle::read(&text).map_err(|(at, found, wanted)| {
            archive.damaged(at as u64, "pickle", found, wanted.into())
        })?;
        let views = views_of(&pickle, pickle.root()).ok_or_else(|| not_a_table(path))?;
        Ok(TorchFile {
            path: path.to_owned(),
            views,
            storages: Storages::Archive(archive.entries),
        })
    }

    fn open_plain(file: &mut File, path: &Path) -> Result<TorchFile> {
        let whole = file.metadata().at("read", path)?.len();
        file.seek(SeekFrom::Start(0)).at("seek in", path)?;
        let mut bytes = Vec::new();
        file.take(MAX_TABLE_PICKLE)
            .read_to_end(&mut bytes)
            .at("read", path)?;
        let damaged = |offset: usize, what: &str, found: String, wanted: &str| Error::Damaged {
            path: path.to_owned(),
            offset: offset as u64,
            what: what.to_owned(),
            found,
            wanted: wanted.to_owned(),
        };
        if !bytes.starts_with(&MAGIC) {
            let found = format!("{:02x?}", &bytes[..bytes.len().min(MAGIC.len())]);
            return Err(damaged(0, "file", found, "a file of torch.save"));
        }
        let mut at = 0;
        let mut next = || -> Result<Pickle> {
            let (pickle, length) = Pickle::read_first(&bytes[at..])
                .map_err(|(byte, found, wanted)| damaged(at + byte, "pickle", found, wanted))?;
            at += length;
            Ok(pickle)
        };
        let [_magic, _protocol, machine, table, keys] =
            [next()?, next()?, next()?, next()?, next()?];
        let is_little = machine
            .get(machine.root(), "little_endian")
            .map(|at| machine.value(at) == &Value::Bool(true));
        if is_little == Some(false) {
            return Err(damaged(0, "byte order", "big".into(), "little"));
        }
        let views = views_of(&table, table.root()).ok_or_else(|| not_a_table(path))?;
        let widths = widths_of(&table);
        let Value::List(keys_in_order) = keys.value(keys.root()) else {
            return Err(not_a_table(path));
        };
        let mut storages = BTreeMap::new();
        let mut start = at as u64;
        for key in keys_in_order {
            let key = keys.text(*key).ok_or_else(|| not_a_table(path))?;
            let mut count = [0; 8];
            file.seek(SeekFrom::Start(start)).at("seek in", path)?;
            file.read_exact(&mut count).at("read", path)?;
            let width = widths.get(key).copied().unwrap_or(4);
            let bytes = u64::from_le_bytes(count).checked_mul(width);
            let end = bytes.and_then(|bytes| (start + 8).checked_add(bytes));
            let (Some(bytes), Some(end)) = (bytes, end.filter(|end| *end <= whole)) else {
                let found = format!("{} numbers", u64::from_le_bytes(count));
                let wanted = format!("as many as a file of {whole} bytes has");
                let at = usize::try_from(start).unwrap_or(usize::MAX);
                return Err(damaged(at, "storage", found, &wanted));
            };
            let range = Range {
                start: start + 8,
                bytes,
            };
            storages.insert(key.to_owned(), range);
            start = end;
        }
        Ok(TorchFile {
            path: path.to_owned(),
            views,
            storages: Storages::Plain(storages),
        })
    }

    /// Names and dims.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.views
            .iter()
            .map(|(name, view)| (name.as_str(), view.dims.as_slice()))
    }

    /// Numbers of a tensor in order. Its whole storage is in memory during the call.
    ///
    /// # Errors
    /// `Damaged` if the tensor is absent, of another number type, or its storage is too short; `Io`.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<f32>> {
        let path = &self.path;
        let damaged = |offset: u64, found: String, wanted: String| Error::Damaged {
            path: path.clone(),
            offset,
            what: format!("tensor {name}"),
            found,
            wanted,
        };
        let view = self.views.get(name);
        let view = view.ok_or_else(|| damaged(0, "nothing".into(), "a tensor".into()))?;
        if view.format.is_none() {
            let found = "another type of numbers".into();
            return Err(damaged(0, found, "f32, f16 or bf16".into()));
        }
        let mut file = File::open(path).at("open", path)?;
        let (start, bytes) = match &self.storages {
            Storages::Archive(entries) => {
                let length = file.metadata().at("read", path)?.len();
                let entries = entries.clone();
                let mut archive = Archive::of_entries(&mut file, path, length, entries);
                let entry = archive.find(&format!("data/{}", view.key))?;
                (0, archive.read(&entry, entry.bytes)?)
            }
            Storages::Plain(ranges) => {
                let range = ranges.get(&view.key);
                let range = range.ok_or_else(|| damaged(0, "no storage".into(), enough(view)))?;
                file.seek(SeekFrom::Start(range.start))
                    .at("seek in", path)?;
                let mut bytes = vec![0; usize::try_from(range.bytes).unwrap_or(usize::MAX)];
                file.read_exact(&mut bytes).at("read", path)?;
                (range.start, bytes)
            }
        };
        let values = view.values(&bytes);
        values.ok_or_else(|| damaged(start, few(&bytes), enough(view)))
    }
}

fn not_a_table(path: &Path) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        offset: 0,
        what: "pickle".into(),
        found: "something else".into(),
        wanted: "a table of tensors by name, as torch.save(model.state_dict()) writes".into(),
    }
}

/// The tensors of a table; other entries, such as a version, are left out. None if it is not a table.
fn views_of(pickle: &Pickle, table: Ref) -> Option<BTreeMap<String, View>> {
    let Value::Dict(pairs) = pickle.value(table) else {
        return None;
    };
    let mut views = BTreeMap::new();
    for (name, value) in pairs {
        if let Some(view) = View::of(pickle, *value) {
            views.insert(pickle.text(*name)?.to_owned(), view);
        }
    }
    Some(views)
}

/// Bytes of a number of each storage, by key, from the classes of all storages that a pickle names.
fn widths_of(pickle: &Pickle) -> BTreeMap<String, u64> {
    let mut widths = BTreeMap::new();
    for value in pickle.values() {
        let Value::Persistent(storage) = value else {
            continue;
        };
        let Value::Tuple(storage) = pickle.value(*storage) else {
            continue;
        };
        if let &[_, class, key, ..] = storage.as_slice()
            && let (Value::Class(_, name), Some(key)) = (pickle.value(class), pickle.text(key))
        {
            let width = match name.as_str() {
                "DoubleStorage" | "LongStorage" => 8,
                "HalfStorage" | "BFloat16Storage" | "ShortStorage" => 2,
                "ByteStorage" | "CharStorage" | "BoolStorage" => 1,
                _ => 4,
            };
            widths.insert(key.to_owned(), width);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn oracle(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/oracles")
            .join(name)
    }

    /// `tests/oracles/torch_save.py`.
    #[test]
    fn tables_of_today_and_of_before_torch_1_6_have_the_values_that_python_reads() {
        let text = std::fs::read(oracle("torch_save.json")).unwrap();
        let record: Json = serde_json::from_slice(&text).unwrap();
        for name in ["torch_save_zip.bin", "torch_save_legacy.bin"] {
            let file = TorchFile::open(&oracle(name)).unwrap();
            let wanted = record["tensors"].as_object().unwrap();
            let names: Vec<&str> = file.entries().map(|(name, _)| name).collect();
            let mut all: Vec<&str> = wanted.keys().map(String::as_str).collect();
            all.sort_unstable();
            assert_eq!(names, all, "{name}");
            for (tensor, dims) in file.entries() {
                assert_eq!(serde_json::json!(dims), wanted[tensor]["dims"], "{tensor}");
                let found = file.read(tensor);
                match wanted[tensor]["values"].as_array() {
                    Some(values) => {
                        // in f32, as the parser of JSON may be off by the last bit of an f64
                        let values = values.iter().map(|value| value.to_string().parse());
                        let values: Vec<f32> = values.map(Result::unwrap).collect();
                        assert_eq!(found.unwrap(), values, "{name} {tensor}");
                    }
                    None => {
                        let error = found.unwrap_err().to_string();
                        assert!(error.contains("another type of numbers"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn cut_and_flipped_files_are_errors_and_never_more_memory_than_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.bin");
        let mut refused = 0;
        for name in ["torch_save_zip.bin", "torch_save_legacy.bin"] {
            let bytes = std::fs::read(oracle(name)).unwrap();
            let ends = (0..bytes.len()).step_by(7).map(|end| bytes[..end].to_vec());
            let flips = (0..bytes.len()).step_by(3).map(|at| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 0xff;
                bytes
            });
            for broken in ends.chain(flips) {
                std::fs::write(&path, broken).unwrap();
                let Ok(file) = TorchFile::open(&path) else {
                    refused += 1;
                    continue;
                };
                let names: Vec<String> = file.entries().map(|(name, _)| name.into()).collect();
                for name in names {
                    refused += usize::from(file.read(&name).is_err());
                }
            }
        }
        assert!(refused > 300, "{refused}");
    }
}

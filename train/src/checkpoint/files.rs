//! The tensors of one kind (weights, optimizer state, averages): whole in one file, or in shards.
//!
//! Whole: `model.safetensors` holds every tensor under its name with its dims. Sharded: every rank that owns
//! elements has a file `model.rank-NNNNN.safetensors` with them. A piece is contiguous in its tensor (row-major);
//! it is stored under the tensor's name, as `[rows, ..]` if it is whole rows and as `[elements]` if not, and the
//! header's metadata says where it belongs: `"NAME": "[96, 32] from 1536"`, the dims of the whole and its first
//! element. The pieces of a tensor must cover it once: a gap or an overlap is refused with the names of files and
//! tensor. Any layout reads its elements piece by piece, with one file open at a time.

use std::collections::BTreeMap;
use std::path::Path;

use crate::checkpoint::STATE;
use crate::checkpoint::safetensors::{Entry, Reader};
use crate::checkpoint::state::Digests;
use crate::error::{Error, Result};

/// A rank's file of a kind, which is named by its whole file.
pub(crate) fn shard_name(kind: &str, rank: usize) -> String {
    format!("{}.rank-{rank:05}.safetensors", stem(kind))
}

fn stem(kind: &str) -> &str {
    kind.strip_suffix(".safetensors").unwrap_or(kind)
}

/// Whether a file is a shard of a kind.
fn is_shard(file: &str, kind: &str) -> bool {
    let rest = file.strip_prefix(stem(kind));
    let number = rest.and_then(|rest| rest.strip_prefix(".rank-"));
    let number = number.and_then(|rest| rest.strip_suffix(".safetensors"));
    number.is_some_and(|digits| digits.len() >= 5 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The files of a kind, in order: one, or its shards.
pub(crate) fn names_of<'a>(digests: &'a Digests, kind: &str) -> Vec<&'a str> {
    let names = digests.0.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| *name == kind || is_shard(name, kind))
        .collect()
}

/// Text of a shard's metadata about a piece: its tensor's dims, its first element.
pub(crate) fn slice_text(dims: &[usize], first: usize) -> String {
    format!("{dims:?} from {first}")
}

fn parse_slice(text: &str) -> Option<(Vec<usize>, usize)> {
    let (dims, first) = text.strip_prefix('[')?.split_once("] from ")?;
    let dims: Option<Vec<usize>> = dims.split(", ").map(|dim| dim.parse().ok()).collect();
    let dims = dims.filter(|dims| elements_of(dims).is_some())?;
    Some((dims, first.parse().ok()?))
}

fn elements_of(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))
}

/// Dims under which a piece is stored.
pub(crate) fn piece_dims(whole: &[usize], first: usize, elements: usize) -> Vec<usize> {
    let row: usize = whole[1..].iter().product();
    if first.is_multiple_of(row) && elements.is_multiple_of(row) {
        [&[elements / row], &whole[1..]].concat()
    } else {
        vec![elements]
    }
}

/// A piece of a tensor in one of the files.
struct Stored {
    first: usize,
    elements: usize,
    /// As in its file.
    dims: Vec<usize>,
    reader: usize,
}

/// A tensor in pieces.
struct Whole {
    dims: Vec<usize>,
    pieces: Vec<Stored>,
}

/// An opened kind.
pub(crate) struct Tensors {
    readers: Vec<Reader>,
    /// By name; None if one file has them whole.
    pieces: Option<BTreeMap<String, Whole>>,
    /// The reader that has its file open.
    current: usize,
}

impl Tensors {
    /// Opens the files of `kind` in a checkpoint's folder and puts their pieces together.
    ///
    /// # Errors
    /// `Damaged` if the kind has no files or its pieces do not cover every tensor once; files that are missing.
    pub(crate) fn open(folder: &Path, digests: &Digests, kind: &str) -> Result<Tensors> {
        let names = names_of(digests, kind);
        let mut readers = Vec::new();
        for name in &names {
            let mut reader = Reader::open(&folder.join(name))?;
            if names.len() > 1 {
                reader.close();
            }
            readers.push(reader);
        }
        let pieces = match names[..] {
            [] => {
                return Err(Error::Damaged {
                    path: folder.join(STATE),
                    offset: 0,
                    what: "files".into(),
                    found: format!("no checksums of {kind}"),
                    wanted: "checksums of every file that is needed".into(),
                });
            }
            [name] if name == kind => None,
            _ => Some(put_together(&readers)?),
        };
        Ok(Tensors {
            readers,
            pieces,
            current: 0,
        })
    }

    /// Names and dims of the whole tensors.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let Some(pieces) = &self.pieces else {
            return self.readers[0].entries().cloned().collect();
        };
        let entry = |(name, whole): (&String, &Whole)| Entry {
            name: name.clone(),
            dims: whole.dims.clone(),
        };
        pieces.iter().map(entry).collect()
    }

    /// Fills `out` with elements of a tensor, from element `first` on. `dims`: the dims that the tensor must have.
    pub(crate) fn read_part(
        &mut self,
        name: &str,
        dims: &[usize],
        first: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let Some(pieces) = &self.pieces else {
            return self.readers[0].read_part(name, dims, first, out);
        };
        let found = pieces.get(name);
        let Some(whole) = found.filter(|whole| whole.dims == dims) else {
            let found = found.map_or("nothing".into(), |whole| format!("shape {:?}", whole.dims));
            let wanted = format!("shape {dims:?}");
            return Err(self.readers[0].damaged(8, format!("tensor {name}"), found, wanted));
        };
        let end = first + out.len();
        let after = whole
            .pieces
            .partition_point(|p| p.first + p.elements <= first);
        for piece in &whole.pieces[after..] {
            let (from, to) = (
                piece.first.max(first),
                end.min(piece.first + piece.elements),
            );
            if from >= to {
                break;
            }
            if self.current != piece.reader {
                self.readers[self.current].close();
                self.current = piece.reader;
            }
            let part = &mut out[from - first..to - first];
            let at = from - piece.first;
            self.readers[piece.reader].read_part(name, &piece.dims, at, part)?;
        }
        Ok(())
    }
}

/// All pieces by tensor, in order.
fn put_together(readers: &[Reader]) -> Result<BTreeMap<String, Whole>> {
    let mut tensors: BTreeMap<String, Whole> = BTreeMap::new();
    for (number, reader) in readers.iter().enumerate() {
        for entry in reader.entries() {
            let told = reader.metadata(&entry.name).and_then(parse_slice);
            let Some((dims, first)) = told else {
                let found = reader.metadata(&entry.name).unwrap_or("nothing").to_owned();
                let what = format!("slice of tensor {}", entry.name);
                let wanted = "\"[dims] from element\"".into();
                return Err(reader.damaged(8, what, found, wanted));
            };
            let piece = Stored {
                first,
                elements: entry.dims.iter().product(),
                dims: entry.dims.clone(),
                reader: number,
            };
            let whole = tensors.entry(entry.name.clone()).or_insert_with(|| Whole {
                dims: dims.clone(),
                pieces: Vec::new(),
            });
            if whole.dims != dims {
                let other = readers[whole.pieces[0].reader].path().display();
                let what = format!("slice of tensor {}", entry.name);
                let wanted = format!("of {:?} as in {other}", whole.dims);
                return Err(reader.damaged(8, what, format!("of {dims:?}"), wanted));
            }
            whole.pieces.push(piece);
        }
    }
    for (name, whole) in &mut tensors {
        whole.pieces.sort_by_key(|piece| piece.first);
        check_cover(readers, name, whole)?;
    }
    Ok(tensors)
}

/// Every element of the tensor is in one piece.
fn check_cover(readers: &[Reader], name: &str, whole: &Whole) -> Result<()> {
    let wrong = |piece: &Stored, found: String, wanted: String| {
        let what = format!("slice of tensor {name}");
        Err(readers[piece.reader].damaged(8, what, found, wanted))
    };
    let mut end = 0;
    let mut before: Option<&Stored> = None;
    for piece in &whole.pieces {
        let found = format!("elements from {}", piece.first);
        if let Some(before) = before.filter(|_| piece.first < end) {
            let other = readers[before.reader].path().display();
            return wrong(
                piece,
                found,
                format!("from {end} on: {other} has those before"),
            );
        }
        if piece.first > end {
            return wrong(piece, found, format!("from {end} on: no shard has those"));
        }
        end = piece.first.saturating_add(piece.elements);
        before = Some(piece);
    }
    let elements = elements_of(&whole.dims).unwrap_or(usize::MAX);
    match whole.pieces.last() {
        Some(last) if end != elements => {
            let found = format!("elements to {end}, the last of all shards");
            wrong(last, found, format!("to {elements}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::safetensors::{Digest, Writer};
    use serde_json::json;

    /// Shards of one tensor `w` of `[4, 2]`, each of these elements with the value of their number.
    fn shards(folder: &Path, slices: &[(usize, usize)]) -> Digests {
        let file = |(rank, &(first, end)): (usize, &(usize, usize))| {
            let name = shard_name("model.safetensors", rank);
            let entry = Entry {
                name: "w".into(),
                dims: piece_dims(&[4, 2], first, end - first),
            };
            let metadata = json!({"w": slice_text(&[4, 2], first)});
            let mut writer =
                Writer::create(&folder.join(&name), vec![entry], Some(metadata)).unwrap();
            let values: Vec<f32> = (first..end).map(|at| at as f32).collect();
            writer.write(&values).unwrap();
            (name, writer.finish().unwrap())
        };
        Digests(slices.iter().enumerate().map(file).collect())
    }

    fn open(folder: &Path, digests: &Digests) -> Result<Tensors> {
        Tensors::open(folder, digests, "model.safetensors")
    }

    #[test]
    fn pieces_of_any_order_and_length_read_as_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let digests = shards(folder.path(), &[(3, 4), (4, 8), (0, 3)]);
        let mut tensors = open(folder.path(), &digests).unwrap();
        for first in 0..8 {
            for end in first + 1..=8 {
                let mut out = vec![-1.0; end - first];
                tensors.read_part("w", &[4, 2], first, &mut out).unwrap();
                let want: Vec<f32> = (first..end).map(|at| at as f32).collect();
                assert_eq!(out, want);
            }
        }
        let error = tensors.read_part("w", &[8], 0, &mut [0.0; 8]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("found shape [4, 2], want shape [8]")
        );
    }

    #[test]
    fn gaps_and_overlaps_name_files_and_tensor() {
        for (slices, wanted) in [
            (
                &[(0, 4), (3, 8)][..],
                "rank-00001.safetensors at byte 8: slice of tensor w: found elements from 3, want from 4 on: ",
            ),
            (&[(0, 4), (0, 8)], "found elements from 0, want from 4 on: "),
            (
                &[(0, 3), (4, 8)],
                "found elements from 4, want from 3 on: no shard has those",
            ),
            (
                &[(2, 8)],
                "found elements from 2, want from 0 on: no shard has those",
            ),
            (
                &[(0, 6)],
                "found elements to 6, the last of all shards, want to 8",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let digests = shards(folder.path(), slices);
            let error = open(folder.path(), &digests).err().unwrap().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn slices_that_make_no_sense_are_errors() {
        for text in [
            "",
            "[4, 2]",
            "[4, x] from 0",
            "[4, 2] from -1",
            "[18446744073709551615, 2] from 0",
            "[] from 0",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let name = shard_name("model.safetensors", 0);
            let entry = Entry {
                name: "w".into(),
                dims: vec![2],
            };
            let path = folder.path().join(&name);
            let mut writer = Writer::create(&path, vec![entry], Some(json!({"w": text}))).unwrap();
            writer.write(&[0.0; 2]).unwrap();
            let digest: Digest = writer.finish().unwrap();
            let opened = open(folder.path(), &Digests(vec![(name, digest)]));
            let error = opened.err().unwrap().to_string();
            assert!(
                error.contains("slice of tensor w: found "),
                "{text}: {error}"
            );
        }
    }
}

//! Reader for PyTorch's sharded checkpoints (`torch.distributed.checkpoint`; Megatron's torch_dist): `.metadata`, a
//! pickle that lists the tensors and the location of their chunks, and `__R_N.distcp` files, sequences of zip
//! archives of `torch.save` with one chunk each. A chunk is a box of the tensor: offsets and sizes. 16-bit numbers
//! are widened. Source: the classes in torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.15.
//!
//! Nothing in a pickle is executed (`pickle.rs`), allocations are bounded by the files' sizes, every element must
//! come from exactly one chunk, and each archive's CRCs are checked.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checkpoint::torch::pickle::{Pickle, Ref, Value};
use crate::checkpoint::torch::save;
use crate::checkpoint::torch::zip::{Archive, Extent};
use crate::error::{At, Error, Result};

/// The file that says where everything is.
pub(crate) const METADATA: &str = ".metadata";

/// A box of a tensor, and the archive that has it.
#[derive(Clone, Debug)]
struct Chunk {
    offsets: Vec<usize>,
    sizes: Vec<usize>,
    file: String,
    /// Where the archive is in it.
    extent: Extent,
}

#[derive(Clone, Debug)]
struct Stored {
    dims: Vec<usize>,
    chunks: Vec<Chunk>,
}

/// An opened checkpoint.
#[derive(Debug)]
pub(crate) struct TorchDist {
    folder: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

impl TorchDist {
    pub(crate) fn open(folder: &Path) -> Result<TorchDist> {
        let path = folder.join(METADATA);
        let bytes = fs::read(&path).at("read", &path)?;
        let tensors = parse(&path, &bytes)?;
        Ok(TorchDist {
            folder: folder.to_owned(),
            tensors,
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn dims(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|stored| stored.dims.as_slice())
    }

    /// Bytes of the files that have the chunks.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.folder).at("read", &self.folder)? {
            let entry = entry.at("read", &self.folder)?;
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "distcp") {
                bytes += fs::metadata(&path).at("read", &path)?.len();
            }
        }
        Ok(bytes)
    }

    /// Elements of a tensor of rank 1 or 2, the first rows of it if `dims` has fewer; `stacks` is its place in those that
    /// it is in, outermost first: of all layers, of a layer's experts.
    ///
    /// # Errors
    /// `Damaged` if the tensor is not there, or its chunks do not cover what is wanted once; `Io`.
    pub(crate) fn read(&self, name: &str, stacks: &[usize], dims: &[usize]) -> Result<Vec<f32>> {
        let path = self.folder.join(METADATA);
        let wrong = |found: String| Error::Damaged {
            path: path.clone(),
            offset: 0,
            what: format!("tensor {name}"),
            found,
            wanted: format!("chunks that cover {dims:?} of it once"),
        };
        let stored = self.tensors.get(name);
        let stored = stored.ok_or_else(|| wrong("nothing".into()))?;
        let (Some(whole), Some([rows, cols])) =
            (Grid::of(&stored.dims, stacks.len(), 1), matrix(dims, 1))
        else {
            return Err(wrong(format!("{:?}", stored.dims)));
        };
        let is_in = stacks.iter().zip(whole.stacks).all(|(at, of)| at < of);
        if !is_in || rows > whole.rows || cols != whole.cols {
            return Err(wrong(format!("{:?}", stored.dims)));
        }
        let mut out = vec![0.0; rows * cols];
        let mut is_filled = vec![false; rows * cols];
        for chunk in &stored.chunks {
            let (Some(from), Some(size)) = (
                Grid::of(&chunk.offsets, stacks.len(), 0),
                Grid::of(&chunk.sizes, stacks.len(), 1),
            ) else {
                return Err(wrong(format!("a chunk of {:?}", chunk.sizes)));
            };
            let mut ends = chunk.offsets.iter().zip(&chunk.sizes).zip(&stored.dims);
            let is_within = |((from, size), whole): ((&usize, &usize), &usize)| {
                from.checked_add(*size).is_some_and(|end| end <= *whole)
            };
            let is_box = chunk.offsets.len() == stored.dims.len() && ends.all(is_within);
            if !is_box || chunk.sizes.len() != stored.dims.len() {
                return Err(wrong(format!(
                    "a chunk from {:?} of {:?}",
                    chunk.offsets, chunk.sizes
                )));
            }
            let Some(slab) = from.slab(&size, stacks).filter(|_| from.rows < rows) else {
                continue;
            };
            let values = self.chunk(chunk)?;
            let values = &values[slab * size.rows * size.cols..];
            for row in 0..size.rows.min(rows - from.rows) {
                let at = (from.rows + row) * cols + from.cols;
                let to = at..at + size.cols;
                if is_filled[to.clone()].contains(&true) {
                    return Err(wrong("two chunks with the same elements".into()));
                }
                is_filled[to.clone()].fill(true);
                out[to].copy_from_slice(&values[row * size.cols..][..size.cols]);
            }
        }
        if is_filled.contains(&false) {
            return Err(wrong("elements that no chunk has".into()));
        }
        Ok(out)
    }

    /// Numbers of a chunk in order.
    fn chunk(&self, chunk: &Chunk) -> Result<Vec<f32>> {
        let path = self.folder.join(&chunk.file);
        let mut file = File::open(&path).at("open", &path)?;
        let mut archive = Archive::open(&mut file, &path, chunk.extent)?;
        save::tensor(&mut archive, &chunk.sizes)
    }
}

/// Dims (or offsets) of matrices in stacks; an absent column is the filling.
struct Grid<'d> {
    stacks: &'d [usize],
    rows: usize,
    cols: usize,
}

impl<'d> Grid<'d> {
    fn of(dims: &'d [usize], stacks: usize, fill: usize) -> Option<Grid<'d>> {
        let (stacks, rest) = dims.split_at_checked(stacks)?;
        let [rows, cols] = matrix(rest, fill)?;
        Some(Grid { stacks, rows, cols })
    }

    /// Number of the matrix at this place among those of a chunk that begins here, if it has it.
    fn slab(&self, size: &Grid<'_>, at: &[usize]) -> Option<usize> {
        let mut slab = 0;
        for ((first, count), at) in self.stacks.iter().zip(size.stacks).zip(at) {
            let within = at.checked_sub(*first).filter(|within| within < count)?;
            slab = slab * count + within;
        }
        Some(slab)
    }
}

/// Rows and columns.
fn matrix(dims: &[usize], fill: usize) -> Option<[usize; 2]> {
    match *dims {
        [rows] => Some([rows, fill]),
        [rows, cols] => Some([rows, cols]),
        _ => None,
    }
}

pub(super) const MODULE: &str = "torch.distributed.checkpoint.metadata";
/// Class of a chunk's location.
pub(super) const FILESYSTEM: [&str; 2] =
    ["torch.distributed.checkpoint.filesystem", "_StorageInfo"];

/// The tensors that `.metadata` lists, with the locations of their chunks.
fn parse(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, Stored>> {
    let damaged = |offset: usize, what: &str, found: String, wanted: &str| Error::Damaged {
        path: path.to_owned(),
        offset: offset as u64,
        what: what.to_owned(),
        found,
        wanted: wanted.to_owned(),
    };
    let pickle =
        Pickle::read(bytes).map_err(|(at, found, wanted)| damaged(at, "pickle", found, wanted))?;
    let table = |key: &str| {
        let (_, state) = pickle.object(pickle.root(), [MODULE, "Metadata"])?;
        match pickle.value(pickle.get(state?, key)?) {
            Value::Dict(pairs) => Some(pairs),
            _ => None,
        }
    };
    let (Some(tensors), Some(places)) = (table("state_dict_metadata"), table("storage_data"))
    else {
        let wanted = "the metadata of torch.distributed.checkpoint";
        return Err(damaged(0, "pickle", "something else".into(), wanted));
    };
    let mut known = HashMap::new();
    for (index, info) in places {
        // only tensors have offsets
        if let (Some(index), Some(info)) = (index_of(&pickle, *index), info_of(&pickle, *info)) {
            known.insert(index, info);
        }
    }
    let mut found = BTreeMap::new();
    for (name, about) in tensors {
        let Some(name) = pickle.text(*name) else {
            return Err(damaged(
                0,
                "name of a tensor",
                "something else".into(),
                "a text",
            ));
        };
        let class = [MODULE, "TensorStorageMetadata"];
        let Some((_, Some(state))) = pickle.object(*about, class) else {
            continue;
        };
        let stored = stored(&pickle, state, |offsets| {
            known.get(&(name.to_owned(), offsets))
        });
        let what = format!("tensor {name}");
        let stored = stored.map_err(|found| {
            damaged(
                0,
                &what,
                found.into(),
                "its size and the locations of its chunks",
            )
        })?;
        found.insert(name.to_owned(), stored);
    }
    Ok(found)
}

type ChunkFile = (String, Extent);

/// One tensor, with `place` of the chunk at some offsets.
fn stored<'p>(
    pickle: &Pickle,
    state: Ref,
    place: impl Fn(Vec<usize>) -> Option<&'p ChunkFile>,
) -> Result<Stored, &'static str> {
    let dims = pickle
        .get(state, "size")
        .and_then(|size| size_of(pickle, size));
    let dims = dims.ok_or("no size")?;
    let chunks = pickle.get(state, "chunks").ok_or("no chunks")?;
    let Value::List(list) = pickle.value(chunks) else {
        return Err("no list of chunks");
    };
    let mut chunks = Vec::new();
    for chunk in list {
        let chunk = pickle.object(*chunk, [MODULE, "ChunkStorageMetadata"]);
        let state = chunk
            .and_then(|(_, state)| state)
            .ok_or("another kind of chunk")?;
        let of = |key| size_of(pickle, pickle.get(state, key)?);
        let (offsets, sizes) = (
            of("offsets").ok_or("no offsets")?,
            of("sizes").ok_or("no sizes")?,
        );
        let (file, extent) = place(offsets.clone()).ok_or("a chunk without a location")?;
        chunks.push(Chunk {
            offsets,
            sizes,
            file: file.clone(),
            extent: *extent,
        });
    }
    Ok(Stored { dims, chunks })
}

/// `torch.Size`.
fn size_of(pickle: &Pickle, at: Ref) -> Option<Vec<usize>> {
    let (args, _) = pickle.object(at, ["torch", "Size"])?;
    pickle.counts(*args.first()?)
}

/// Tensor and offsets of a chunk.
fn index_of(pickle: &Pickle, at: Ref) -> Option<(String, Vec<usize>)> {
    let (_, state) = pickle.object(at, [MODULE, "MetadataIndex"])?;
    let name = pickle.text(pickle.get(state?, "fqn")?)?;
    let offsets = size_of(pickle, pickle.get(state?, "offset")?)?;
    Some((name.to_owned(), offsets))
}

/// File of a chunk, first byte and length.
fn info_of(pickle: &Pickle, at: Ref) -> Option<ChunkFile> {
    let (_, state) = pickle.object(at, FILESYSTEM)?;
    let get = |key| pickle.get(state?, key);
    let file = pickle.text(get("relative_path")?)?;
    // a plain file name: in the metadata's folder and nowhere else
    let is_plain = file.ends_with(".distcp") && !file.contains(['/', '\\', '\0']);
    let transformed = get("transform_descriptors").map(|value| pickle.value(value));
    if !is_plain || transformed.is_some_and(|value| *value != Value::None) {
        return None;
    }
    let number = |key| u64::try_from(pickle.count(get(key)?)?).ok();
    let extent = Extent {
        start: number("offset")?,
        length: number("length")?,
    };
    Some((file.to_owned(), extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles");
        folder.join("megatron_dist_gpt_tp2")
    }

    #[test]
    fn every_cut_and_flip_of_the_metadata_ends_in_tensors_or_errors() {
        let path = golden().join(METADATA);
        let whole = fs::read(&path).unwrap();
        let want = parse(&path, &whole).unwrap();
        assert!(want.contains_key("decoder.layers.mlp.linear_fc2.weight"));
        for at in (0..whole.len()).step_by(37) {
            assert!(parse(&path, &whole[..at]).is_err());
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let Ok(tensors) = parse(&path, &bytes) else {
                continue;
            };
            let opened = TorchDist {
                folder: golden(),
                tensors,
            };
            if at % 16 == 0 {
                for name in opened.names() {
                    let dims = opened.dims(name).unwrap();
                    let (layer, rest) = match dims.len() {
                        1 => (&[][..], dims),
                        _ => (&[0][..], &dims[1..]),
                    };
                    if dims.iter().product::<usize>() < 10_000 {
                        let _ = opened.read(name, layer, rest);
                    }
                }
            }
        }
    }

    #[test]
    fn every_cut_and_flip_of_a_tensor_is_noticed_or_does_not_matter() {
        let opened = TorchDist::open(&golden()).unwrap();
        let name = "decoder.layers.mlp.linear_fc2.weight";
        let dims = [16, 64];
        let want = opened.read(name, &[1], &dims).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut broken = opened.tensors[name].clone();
        let chunk = broken.chunks[1].clone();
        for entry in fs::read_dir(golden()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
        let path = dir.path().join(&chunk.file);
        let whole = fs::read(&path).unwrap();
        broken
            .chunks
            .retain(|other| other.file == chunk.file && other.offsets == chunk.offsets);
        let opened = TorchDist {
            folder: dir.path().to_owned(),
            tensors: opened.tensors.clone(),
        };
        let start = usize::try_from(chunk.extent.start).unwrap();
        let end = start + usize::try_from(chunk.extent.length).unwrap();
        for at in start..end {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            if let Ok(found) = opened.read(name, &[1], &dims) {
                assert!(found == want, "byte {at}");
            }
        }
        for at in (0..whole.len()).step_by(997) {
            fs::write(&path, &whole[..at]).unwrap();
            let _ = opened.read(name, &[1], &dims);
        }
        fs::write(&path, &whole[..start]).unwrap();
        let error = opened.read(name, &[chunk.offsets[0]], &dims).unwrap_err();
        assert!(error.to_string().contains(&chunk.file), "{error}");
    }

    #[test]
    fn gaps_and_overlaps_are_refused_with_the_tensors_name() {
        let mut opened = TorchDist::open(&golden()).unwrap();
        let name = "decoder.layers.mlp.linear_fc2.weight";
        let all = opened.tensors[name].chunks.clone();
        let mut told = |chunks: Vec<Chunk>| {
            opened.tensors.get_mut(name).unwrap().chunks = chunks;
            let error = opened.read(name, &[0], &[16, 64]).unwrap_err();
            error.to_string()
        };
        let gap = told(all[1..].to_vec());
        assert!(
            gap.contains(name) && gap.contains("elements that no chunk has"),
            "{gap}"
        );
        let twice = told([all.clone(), all].concat());
        assert!(
            twice.contains("two chunks with the same elements"),
            "{twice}"
        );
    }

    #[test]
    fn matrices_of_two_stacks_come_from_the_chunks_that_have_them() {
        let folder = golden().with_file_name("megatron_dist_mixture_ep2");
        let mut opened = TorchDist::open(&folder).unwrap();
        let name = "decoder.layers.mlp.experts.experts.linear_fc2.weight";
        let dims = [16, 24];
        let read = |of: &TorchDist, at: &[usize]| of.read(name, at, &dims);
        let mut all = Vec::new();
        for at in [[0, 0], [0, 1], [0, 3], [1, 0], [1, 3]] {
            all.push(read(&opened, &at).unwrap());
        }
        all.sort_by(|a, b| a[0].total_cmp(&b[0]));
        all.dedup();
        assert_eq!(all.len(), 5, "no two experts are alike");
        for at in [&[2, 0][..], &[0, 4], &[0], &[0, 0, 0], &[]] {
            let error = read(&opened, at).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("[2, 4, 16, 24]"),
                "{error}"
            );
        }
        // without its chunk an expert has no numbers, and the others have theirs
        let chunks = opened.tensors[name].chunks.clone();
        let others = chunks.iter().filter(|chunk| chunk.offsets != [1, 2, 0, 0]);
        opened.tensors.get_mut(name).unwrap().chunks = others.cloned().collect();
        read(&opened, &[1, 1]).unwrap();
        let gap = read(&opened, &[1, 2]).unwrap_err().to_string();
        assert!(gap.contains("elements that no chunk has"), "{gap}");
        // a box that is larger than its tensor, or of another rank
        for (offsets, sizes) in [
            (vec![1, 3, 0, 0], vec![1, 2, 16, 24]),
            (vec![1, 3, 0], vec![1, 1, 16]),
            (vec![0, 0, 0, 0, 0], vec![1, 1, 16, 24, 1]),
            (vec![usize::MAX, 0, 0, 0], vec![2, 1, 16, 24]),
        ] {
            let mut chunks = chunks.clone();
            (chunks[0].offsets, chunks[0].sizes) = (offsets, sizes);
            opened.tensors.get_mut(name).unwrap().chunks = chunks;
            let error = read(&opened, &[1, 3]).unwrap_err().to_string();
            assert!(error.contains("a chunk"), "{error}");
        }
    }
}

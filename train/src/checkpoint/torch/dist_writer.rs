//! Writes PyTorch's sharded checkpoints (`torch.distributed.checkpoint`; Megatron's torch_dist), as `dist.rs` reads them: one file
//! `__0_0.distcp`, an archive of `torch.save` after the other, and `.metadata`, which lists them and is written last. Numbers pass
//! through in blocks. Source: the classes in torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.15.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::checkpoint::torch::dist::{FILESYSTEM, METADATA, MODULE};
use crate::checkpoint::torch::pickle_writer::Object;
use crate::checkpoint::torch::save_writer::{TorchDtype, write_object, write_tensor};
use crate::checkpoint::torch::zip::Extent;
use crate::error::{At, Result};

/// The file of the first rank's first thread: there is one of each.
const FILE: &str = "__0_0.distcp";

/// A box of a tensor that is written as one archive.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// Its tensor's name.
    pub tensor: String,
    /// Dims of the whole tensor.
    pub dims: Vec<usize>,
    /// Its first element in the tensor.
    pub offsets: Vec<usize>,
    pub sizes: Vec<usize>,
    /// Number type, the same of all boxes of the tensor.
    pub dtype: TorchDtype,
}

/// Something that was written.
struct Written {
    extent: Extent,
    /// Of a tensor; other objects have none.
    chunk: Option<Chunk>,
}

/// A checkpoint that is being written.
pub(crate) struct DistWriter {
    folder: PathBuf,
    path: PathBuf,
    out: BufWriter<File>,
    at: u64,
    /// Names in the order of their first chunks.
    names: Vec<String>,
    written: HashMap<String, Vec<Written>>,
}

impl DistWriter {
    /// Begins the file in an existing folder.
    pub(crate) fn create(folder: &Path) -> Result<DistWriter> {
        let path = folder.join(FILE);
        let file = File::create(&path).at("create", &path)?;
        Ok(DistWriter {
            folder: folder.to_owned(),
            path,
            out: BufWriter::with_capacity(1 << 20, file),
            at: 0,
            names: Vec::new(),
            written: HashMap::new(),
        })
    }

    /// Writes a chunk with these numbers, in order.
    pub(crate) fn chunk(
        &mut self,
        chunk: Chunk,
        values: impl IntoIterator<Item = f32>,
    ) -> Result<()> {
        let length = write_tensor(&mut self.out, &chunk.sizes, chunk.dtype, values);
        let name = chunk.tensor.clone();
        self.add(name, length, Some(chunk))
    }

    /// Writes an object that is no tensor under a name of its own.
    pub(crate) fn object(&mut self, name: String, object: &Object) -> Result<()> {
        let length = write_object(&mut self.out, "archive", object);
        self.add(name, length, None)
    }

    fn add(&mut self, name: String, length: io::Result<u64>, chunk: Option<Chunk>) -> Result<()> {
        let length = length.at("write", &self.path)?;
        let extent = Extent {
            start: self.at,
            length,
        };
        self.at += length;
        if !self.written.contains_key(&name) {
            self.names.push(name.clone());
        }
        let all = self.written.entry(name).or_default();
        all.push(Written { extent, chunk });
        Ok(())
    }

    /// Puts everything on disk, `.metadata` last.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.out.flush().at("write", &self.path)?;
        self.out.get_ref().sync_all().at("sync", &self.path)?;
        let path = self.folder.join(METADATA);
        let mut file = File::create(&path).at("create", &path)?;
        let bytes = self.metadata().pickled();
        file.write_all(&bytes).at("write", &path)?;
        file.sync_all().at("sync", &path)
    }

    fn metadata(&self) -> Object {
        let (mut about, mut places) = (Vec::new(), Vec::new());
        for name in &self.names {
            let written = self.written.get(name).map_or(&[][..], Vec::as_slice);
            let chunks: Vec<&Chunk> = written
                .iter()
                .filter_map(|one| one.chunk.as_ref())
                .collect();
            about.push((name.as_str(), storage(&chunks)));
            places.extend(written.iter().map(|one| place(name, one)));
        }
        Object::with(
            [MODULE, "Metadata"],
            [
                ("state_dict_metadata", Object::dict(about)),
                ("planner_data", Object::None),
                ("storage_data", Object::Dict(places)),
                ("storage_meta", Object::None),
                ("version", Object::text("1.0.0")),
            ],
        )
    }
}

/// The metadata of a name: of a tensor in these chunks, or of an object if there are none.
fn storage(chunks: &[&Chunk]) -> Object {
    let Some(first) = chunks.first() else {
        return Object::New([MODULE, "BytesStorageMetadata"], None);
    };
    let boxes = chunks.iter().map(|chunk| {
        let attributes = [("offsets", &chunk.offsets), ("sizes", &chunk.sizes)];
        let attributes = attributes.map(|(key, dims)| (key, size(dims)));
        Object::with([MODULE, "ChunkStorageMetadata"], attributes)
    });
    Object::with(
        [MODULE, "TensorStorageMetadata"],
        [
            ("properties", properties(first.dtype)),
            ("size", size(&first.dims)),
            ("chunks", Object::List(boxes.collect())),
        ],
    )
}

/// Number type; layout, whether gradients are wanted, memory format and whether memory is pinned are the defaults. Strides
/// behind them, which this torch writes and older ones refuse, may be absent.
fn properties(dtype: TorchDtype) -> Object {
    let layout = vec![Object::text("torch.strided")];
    let state = Object::Tuple(vec![
        dtype.object(),
        Object::Call(["torch.serialization", "_get_layout"], layout),
        Object::Bool(false),
        Object::Call([MODULE, "_MEM_FORMAT_ENCODING"], vec![Object::Int(0)]),
        Object::Bool(false),
    ]);
    Object::New([MODULE, "TensorProperties"], Some(Box::new(state)))
}

/// Key and value of a location: which box of which tensor is where.
fn place(name: &str, written: &Written) -> (Object, Object) {
    let offset = written.chunk.as_ref();
    let offset = offset.map(|chunk| ("offset", size(&chunk.offsets)));
    let attributes = [("fqn", Object::text(name)), ("index", Object::None)];
    let index = Object::with(
        [MODULE, "MetadataIndex"],
        attributes.into_iter().chain(offset),
    );
    let number = |number: u64| Object::count(usize::try_from(number).unwrap_or(usize::MAX));
    let info = Object::with(
        FILESYSTEM,
        [
            ("relative_path", Object::text(FILE)),
            ("offset", number(written.extent.start)),
            ("length", number(written.extent.length)),
        ],
    );
    (index, info)
}

/// `torch.Size`.
fn size(dims: &[usize]) -> Object {
    Object::Call(["torch", "Size"], vec![Object::counts(dims)])
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;

    use super::*;
    use crate::checkpoint::torch::dist::TorchDist;
    use crate::checkpoint::torch::pickle::{Pickle, Ref, Value};

    fn golden(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles");
        folder.join(format!("megatron_dist_{name}"))
    }

    /// A stored name: number type, dims and boxes of a tensor; nothing of an object.
    #[derive(Debug, Default, PartialEq)]
    struct Entry {
        dtype: String,
        dims: Vec<usize>,
        boxes: BTreeSet<[Vec<usize>; 2]>,
    }

    /// What `.metadata` says, read as data.
    struct Listed {
        entries: BTreeMap<String, Entry>,
        /// Bytes of each archive by name and first element; of objects without the latter.
        archives: BTreeMap<(String, Option<Vec<usize>>), Vec<u8>>,
    }

    fn listed(folder: &Path) -> Listed {
        let pickle = Pickle::read(&fs::read(folder.join(METADATA)).unwrap()).unwrap();
        let state = |at: Ref, class| pickle.object(at, class).unwrap().1.unwrap();
        let get = |at: Ref, key: &str| pickle.get(at, key).unwrap();
        let dims = |at: Ref| {
            let (args, _) = pickle.object(at, ["torch", "Size"]).unwrap();
            pickle.counts(args[0]).unwrap()
        };
        let pairs = |key| {
            let root = state(pickle.root(), [MODULE, "Metadata"]);
            match pickle.value(get(root, key)) {
                Value::Dict(pairs) => pairs.clone(),
                other => panic!("{other:?}"),
            }
        };
        let mut entries = BTreeMap::new();
        for (name, about) in pairs("state_dict_metadata") {
            let name = pickle.text(name).unwrap().to_owned();
            if pickle
                .object(about, [MODULE, "BytesStorageMetadata"])
                .is_some()
            {
                entries.insert(name, Entry::default());
                continue;
            }
            let about = state(about, [MODULE, "TensorStorageMetadata"]);
            let properties = state(get(about, "properties"), [MODULE, "TensorProperties"]);
            let Value::Tuple(properties) = pickle.value(properties) else {
                panic!("no tuple");
            };
            let Value::Class(_, dtype) = pickle.value(properties[0]) else {
                panic!("no class");
            };
            // layout, whether gradients are wanted, memory format, whether memory is pinned
            let of = |at: usize| pickle.value(properties[at]);
            assert_eq!((of(2), of(4)), (&Value::Bool(false), &Value::Bool(false)));
            let layout = ["torch.serialization", "_get_layout"];
            let (layout, _) = pickle.object(properties[1], layout).unwrap();
            assert_eq!(pickle.text(layout[0]), Some("torch.strided"));
            let format = [MODULE, "_MEM_FORMAT_ENCODING"];
            let (format, _) = pickle.object(properties[3], format).unwrap();
            assert_eq!(pickle.count(format[0]), Some(0));
            let Value::List(chunks) = pickle.value(get(about, "chunks")) else {
                panic!("no list");
            };
            let chunks = chunks.iter().map(|chunk| {
                let chunk = state(*chunk, [MODULE, "ChunkStorageMetadata"]);
                [dims(get(chunk, "offsets")), dims(get(chunk, "sizes"))]
            });
            let entry = Entry {
                dtype: dtype.clone(),
                dims: dims(get(about, "size")),
                boxes: chunks.collect(),
            };
            entries.insert(name, entry);
        }
        let mut archives = BTreeMap::new();
        for (index, info) in pairs("storage_data") {
            let index = state(index, [MODULE, "MetadataIndex"]);
            let info = state(info, FILESYSTEM);
            let offset = pickle.get(index, "offset").map(dims);
            let name = pickle.text(get(index, "fqn")).unwrap().to_owned();
            let file = pickle.text(get(info, "relative_path")).unwrap();
            let bytes = fs::read(folder.join(file)).unwrap();
            let number = |key| pickle.count(get(info, key)).unwrap();
            let bytes = &bytes[number("offset")..][..number("length")];
            archives.insert((name, offset), bytes.to_vec());
        }
        Listed { entries, archives }
    }

    /// Writes a checkpoint of Megatron's anew, a layer per chunk.
    fn rewritten(from: &Path, to: &Path, dtype: TorchDtype) {
        let opened = TorchDist::open(from).unwrap();
        let mut writer = DistWriter::create(to).unwrap();
        for name in opened.names() {
            let dims = opened.dims(name).unwrap().to_vec();
            let is_stacked = name.starts_with("decoder.layers.");
            for layer in 0..if is_stacked { dims[0] } else { 1 } {
                let layer: Vec<usize> = is_stacked.then_some(layer).into_iter().collect();
                let rest = if is_stacked { &dims[1..] } else { &dims };
                let values = opened.read(name, &layer, rest).unwrap();
                let mut chunk = Chunk {
                    tensor: name.to_owned(),
                    dims: dims.clone(),
                    offsets: vec![0; dims.len()],
                    sizes: dims.clone(),
                    dtype,
                };
                if let [layer] = layer[..] {
                    (chunk.offsets[0], chunk.sizes[0]) = (layer, 1);
                }
                writer.chunk(chunk, values).unwrap();
            }
        }
        let nothing = Object::List(vec![Object::None]);
        for (name, entry) in listed(from).entries {
            if entry == Entry::default() {
                writer.object(name, &nothing).unwrap();
            }
        }
        writer.finish().unwrap();
    }

    /// Everything in an archive but torch's last entry, its fingerprint, and the directory.
    fn before_fingerprint(archive: &[u8]) -> &[u8] {
        let name: &[u8] = b"archive/.data/serialization_id";
        let at = archive.windows(name.len()).position(|part| part == name);
        &archive[..at.unwrap() - 30]
    }

    #[test]
    fn a_rewritten_checkpoint_of_megatrons_has_its_structure_and_the_bytes_of_its_archives() {
        let (from, to) = (golden("gpt_tp1"), tempfile::tempdir().unwrap());
        rewritten(&from, to.path(), TorchDtype::F32);
        let (want, found) = (listed(&from), listed(to.path()));
        assert_eq!(found.entries, want.entries);
        let keys = |listed: &Listed| listed.archives.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&found), keys(&want));
        assert!(found.archives.len() > 30);
        for (key, archive) in &found.archives {
            let want = before_fingerprint(&want.archives[key]);
            assert!(archive.starts_with(want), "{key:?}");
            assert!(archive[want.len()..].starts_with(b"PK\x01\x02"), "{key:?}");
        }
    }

    #[test]
    fn sixteen_bits_of_two_ranks_come_back_as_the_same_tensors() {
        let (from, to) = (golden("llama_tp2"), tempfile::tempdir().unwrap());
        rewritten(&from, to.path(), TorchDtype::Bf16);
        let whole = |listed: Listed| -> Vec<(String, String, Vec<usize>)> {
            let entries = listed.entries.into_iter();
            let all = entries.map(|(name, entry)| (name, entry.dtype, entry.dims));
            all.collect()
        };
        assert_eq!(whole(listed(to.path())), whole(listed(&from)));
        let [theirs, ours] = [&from, to.path()].map(|path| TorchDist::open(path).unwrap());
        for name in theirs.names() {
            let dims = theirs.dims(name).unwrap();
            let (layer, rest) = match name.starts_with("decoder.layers.") {
                true => (&[1][..], &dims[1..]),
                false => (&[][..], dims),
            };
            let read = |of: &TorchDist| of.read(name, layer, rest).unwrap();
            assert!(read(&theirs) == read(&ours), "{name}");
        }
    }
}

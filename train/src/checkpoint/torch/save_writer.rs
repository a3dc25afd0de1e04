//! Writes archives of `torch.save`, which `torch.load` reads with `weights_only`: one object without tensors, or one tensor on the
//! CPU. They have torch's entries, in its order, but for `.data/serialization_id`, a fingerprint of hashes of the C++ library
//! that nothing reads on loading. Source: torch/serialization.py (`_save`) and archives of torch 2.15.

use std::io::{self, Write};

use half::bf16;

use crate::checkpoint::torch::pickle_writer::Object;
use crate::checkpoint::torch::zip_writer::ArchiveWriter;

/// Number format of tensors that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorchDtype {
    /// f32, the numbers as they are.
    F32,
    /// bf16, each number rounded to the nearest, ties to even.
    Bf16,
}

impl TorchDtype {
    pub(crate) fn is_bf16(self) -> bool {
        self == TorchDtype::Bf16
    }

    /// Bytes per number.
    fn width(self) -> u64 {
        match self {
            TorchDtype::F32 => 4,
            TorchDtype::Bf16 => 2,
        }
    }

    /// torch's object.
    pub(crate) fn object(self) -> Object {
        let name = match self {
            TorchDtype::F32 => "float32",
            TorchDtype::Bf16 => "bfloat16",
        };
        Object::Global(["torch", name])
    }

    /// Class of the numbers' memory.
    fn storage(self) -> Object {
        let name = match self {
            TorchDtype::F32 => "FloatStorage",
            TorchDtype::Bf16 => "BFloat16Storage",
        };
        Object::Global(["torch", name])
    }

    fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        bytes.clear();
        match self {
            TorchDtype::F32 => bytes.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            TorchDtype::Bf16 => {
                let halves = values.iter().map(|x| bf16::from_f32(*x));
                bytes.extend(halves.flat_map(bf16::to_le_bytes));
            }
        }
    }
}

/// Numbers that are encoded at a time.
const BLOCK: usize = 1 << 16;

/// Writes an object; `top` is the folder in the archive, torch's stem of the file's name. Returns the archive's length.
pub(crate) fn write_object(
    out: &mut impl Write,
    top: &'static str,
    object: &Object,
) -> io::Result<u64> {
    let mut archive = begin(out, top, object)?;
    archive.entry("version", b"3\n")?;
    archive.finish()
}

/// Writes a tensor, contiguous, whose numbers are encoded block by block. Returns the archive's length.
pub(crate) fn write_tensor(
    out: &mut impl Write,
    dims: &[usize],
    dtype: TorchDtype,
    values: impl IntoIterator<Item = f32>,
) -> io::Result<u64> {
    let count: usize = dims.iter().product();
    let mut archive = begin(out, "archive", &tensor(dims, dtype))?;
    archive.entry_of("data/0", count as u64 * dtype.width(), |put| {
        let mut values = values.into_iter();
        let (mut block, mut bytes) = (Vec::new(), Vec::new());
        loop {
            block.clear();
            block.extend(values.by_ref().take(BLOCK));
            if block.is_empty() {
                return Ok(());
            }
            dtype.encode(&block, &mut bytes);
            put(&bytes)?;
        }
    })?;
    archive.entry("version", b"3\n")?;
    archive.finish()
}

/// The entries before the numbers.
fn begin<'w, W: Write>(
    out: &'w mut W,
    top: &'static str,
    object: &Object,
) -> io::Result<ArchiveWriter<'w, W>> {
    let mut archive = ArchiveWriter::new(out, top);
    archive.entry("data.pkl", &object.pickled())?;
    archive.entry(".format_version", b"1")?;
    archive.entry(".storage_alignment", b"64")?;
    archive.entry("byteorder", b"little")?;
    Ok(archive)
}

/// The call that makes the tensor of the storage `data/0`.
fn tensor(dims: &[usize], dtype: TorchDtype) -> Object {
    let count = dims.iter().product();
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    let storage = Object::Persistent(Box::new(Object::Tuple(vec![
        Object::text("storage"),
        dtype.storage(),
        Object::text("0"),
        Object::text("cpu"),
        Object::count(count),
    ])));
    let hooks = Object::Call(["collections", "OrderedDict"], Vec::new());
    Object::Call(
        ["torch._utils", "_rebuild_tensor_v2"],
        vec![
            storage,
            Object::Int(0),
            Object::counts(dims),
            Object::counts(&strides),
            Object::Bool(false),
            hooks,
        ],
    )
}

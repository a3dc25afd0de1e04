//! Sizes and arguments of a launch.

use super::Address;

/// Blocks, threads per block and bytes of dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub blocks: [u32; 3],
    pub threads: u32,
    pub shared: u32,
}

impl Grid {
    /// Threads per block of ops on single elements.
    pub(crate) const THREADS: u32 = 256;

    /// At least one thread per element, up to a number of blocks that fills any device: kernels loop over the rest
    /// (grid-stride loop).
    pub(crate) fn over(elements: usize) -> Grid {
        let blocks = elements.div_ceil(Grid::THREADS as usize).clamp(1, 1 << 16);
        Grid::blocks(blocks, Grid::THREADS)
    }

    /// `blocks` blocks of `threads` threads.
    pub(crate) fn blocks(blocks: usize, threads: u32) -> Grid {
        let blocks = u32::try_from(blocks.max(1)).unwrap_or(u32::MAX);
        Grid {
            blocks: [blocks, 1, 1],
            threads,
            shared: 0,
        }
    }

    /// The same with more blocks along y.
    pub(crate) fn by(mut self, y: usize) -> Grid {
        self.blocks[1] = u32::try_from(y.max(1)).unwrap_or(u32::MAX);
        self
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    /// A pointer; null if there is no tensor.
    Pointer(Address),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
}

impl Arg {
    /// No tensor.
    pub(crate) const NULL: Arg = Arg::Pointer(Address(0));

    /// The argument's bytes, first ones first (little-endian, as both host and device are).
    pub(super) fn word(&self) -> u64 {
        match *self {
            Arg::Pointer(Address(word)) | Arg::U64(word) => word,
            Arg::U32(word) => u64::from(word),
            Arg::F32(number) => u64::from(number.to_bits()),
            Arg::F64(number) => number.to_bits(),
        }
    }
}

impl From<Address> for Arg {
    fn from(address: Address) -> Arg {
        Arg::Pointer(address)
    }
}

/// Sizes are u64 in kernels: no product of dims overflows.
impl From<usize> for Arg {
    fn from(size: usize) -> Arg {
        Arg::U64(size as u64)
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Arg {
        Arg::U32(number)
    }
}

impl From<f32> for Arg {
    fn from(number: f32) -> Arg {
        Arg::F32(number)
    }
}

impl From<bool> for Arg {
    fn from(is: bool) -> Arg {
        Arg::U32(u32::from(is))
    }
}

//! The state between one part of the keys and the next, on any device.

use crate::descriptor::attention::Call;
use crate::descriptor::numbers::Numbers;
use crate::{DType, Device, Result, Tensor};

/// Query rows per tile.
pub(super) const TILE: usize = 32;

/// Query rows per block of threads on tensor cores, which is a leaf, so that sums by distance need no atomics.
pub(super) const TENSOR_CORE_ROWS: usize = 64;

/// Online-softmax state of query rows, transposed: lanes are rows.
pub(super) struct Running {
    /// Weighted values, `[b, heads, tiles, width, 32]`.
    pub(super) values: Tensor,
    /// Largest score and sum of exponentials, `[b, heads, tiles, 2, 32]`.
    pub(super) sums: Tensor,
}

impl Running {
    /// Room for a call; `sums` are still to be set (`begin` of each backend).
    pub(super) fn new(call: &Call<'_>, device: &Device) -> Result<Running> {
        let tiles = call.b * call.heads.heads * call.t.div_ceil(TILE);
        Ok(Running {
            values: Tensor::zeros(&[tiles * call.heads.width * TILE], DType::F32, device)?,
            sums: Tensor::zeros(&[tiles * 2 * TILE], DType::F32, device)?,
        })
    }

    pub(super) fn device(&self) -> &Device {
        self.sums.device()
    }
}

/// Gradients of query rows, accumulated over the keys.
pub(super) struct Slopes {
    /// Transposed: `[b, heads, tiles, width, 32]`, tiles leaf by leaf.
    pub(super) dq: Tensor,
    /// Sums of score gradients by distance, `[b, kv_heads, leaves, heads of a group, distances]`.
    pub(super) by_distance: Tensor,
    pub(super) plan: Plan,
}

impl Slopes {
    /// `leaf` query rows per leaf; 0: one leaf.
    pub(super) fn new(call: &Call<'_>, leaf: usize, device: &Device) -> Result<Slopes> {
        let plan = Plan::new(call, leaf);
        let heads = call.b * call.heads.heads;
        let dq = heads * plan.tiles() * call.heads.width * TILE;
        let by_distance = heads * plan.leaves() * plan.distances;
        Ok(Slopes {
            dq: Tensor::zeros(&[dq], DType::F32, device)?,
            by_distance: Tensor::zeros(&[by_distance], DType::F32, device)?,
            plan,
        })
    }
}

/// Split of the query rows.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) t: usize,
    pub(super) leaf: usize,
    /// Distances of the bias, 0 without one.
    pub(super) distances: usize,
}

impl Plan {
    /// `leaf` query rows per leaf; 0: one leaf. Sums on tensor cores have no leaves but those of their own.
    pub(super) fn new(call: &Call<'_>, leaf: usize) -> Plan {
        let leaf = match call.numbers {
            Numbers::Bf16Mma | Numbers::F16Mma => TENSOR_CORE_ROWS,
            Numbers::F32 | Numbers::Bf16 | Numbers::Bf16Tiles if leaf == 0 => call.t,
            Numbers::F32 | Numbers::Bf16 | Numbers::Bf16Tiles => leaf.min(call.t),
        };
        Plan {
            t: call.t,
            leaf,
            distances: call.bias.map_or(0, |_| distances(call.t, call.total())),
        }
    }

    pub(super) fn leaves(self) -> usize {
        self.t.div_ceil(self.leaf)
    }

    pub(super) fn tiles_per_leaf(self) -> usize {
        self.leaf.div_ceil(TILE)
    }

    pub(super) fn tiles(self) -> usize {
        self.leaves() * self.tiles_per_leaf()
    }

    /// The tiles of a leaf: their numbers, first rows and counts.
    pub(super) fn of_leaf(self, leaf: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (first, end) = (leaf * self.leaf, self.t.min((leaf + 1) * self.leaf));
        let tiles = (first..end).step_by(TILE).enumerate();
        tiles.map(move |(i, from)| {
            let number = leaf * self.tiles_per_leaf() + i;
            (number, from, TILE.min(end - from))
        })
    }
}

/// Values of a bias per head, and number of sums by distance, for `rows` query rows and `keys` keys.
pub(super) fn distances(rows: usize, keys: usize) -> usize {
    rows + keys - 1 + TILE
}

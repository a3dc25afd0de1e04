//! Prepacked weights: copies in the layout that products read, packed when a product first needs them and kept for the
//! other micro-batches of a step, or for a model's lifetime in inference, where a product of few rows reads each weight
//! once. They are packed anew for each step, so that no copy outlives the weights it was made from.
//!
//! In training only tile products have copies: bf16, of op(W) in each direction, 4 bytes more per weight. In inference
//! all formats have them in one direction, and a weight that nothing but such products reads, experts' included, is its copy alone: 2 bytes
//! per weight in bf16 or where all numbers equal a bf16, 4 in f32, 0.56 to 1.25 where they are codes times scales.

use std::sync::OnceLock;

use kernels::matmul::{Numbers, Op, Packed};
use kernels::{DType, Device, Tensor, Use};

use crate::config::numbers;
use crate::config::plan::{FEATURE_CHUNKS, Plan};
use crate::dist::mesh::RankCoord;
use crate::model::param::{self, Spec};
use crate::model::slots::Slot;

/// Packed copies of a rank's weights, by slot; empty at first.
pub(crate) struct PrepackedWeights {
    /// Transposed and plain.
    by_slot: Vec<[OnceLock<Packed>; 2]>,
    /// Dims of the weights that are held as copies alone.
    alone: Vec<Option<Vec<usize>>>,
    /// Format of the products that read them.
    numbers: Numbers,
    /// Whether products with codes round rows of activations to 8 bits.
    rounds_rows: bool,
    device: Device,
}

impl PrepackedWeights {
    pub(crate) fn new(slots: usize, numbers: Numbers, device: &Device) -> PrepackedWeights {
        let none = |_| [OnceLock::new(), OnceLock::new()];
        PrepackedWeights {
            by_slot: (0..slots).map(none).collect(),
            alone: vec![None; slots],
            numbers,
            rounds_rows: false,
            device: device.for_use(Use::Weights),
        }
    }

    /// The same for products in f32 that round rows of activations to 8 bits where weights are codes times scales, or not.
    pub(crate) fn with_rounded_rows(self, rounds_rows: bool) -> PrepackedWeights {
        PrepackedWeights {
            rounds_rows: rounds_rows && self.numbers == Numbers::F32,
            ..self
        }
    }

    /// op(weight) for products with these leaves; a weight has one leaf size in each direction. None if k is
    /// too long to pack.
    pub(crate) fn of(
        &self,
        slot: Slot,
        (weight, op): (&Tensor, Op),
        leaf: usize,
    ) -> kernels::Result<Option<&Packed>> {
        let packed = &self.by_slot[slot][usize::from(op == Op::Plain)];
        if packed.get().is_none() {
            let made = match self.rounds_rows {
                true => Packed::with_rounded_rows((weight, op), leaf, &self.device)?,
                false => Packed::new(self.numbers, (weight, op), leaf, &self.device)?,
            };
            if let Some(made) = made {
                return Ok(Some(packed.get_or_init(|| made)));
            }
        }
        Ok(packed.get())
    }

    /// Packs a weight in its place, and returns what is left of it: one element, or the weight itself where products
    /// read no packed copy of it.
    pub(crate) fn replace(
        &mut self,
        slot: Slot,
        weight: Tensor,
        read_as: ReadAs,
    ) -> kernels::Result<Tensor> {
        let ReadAs { op, leaf } = read_as;
        if self.of(slot, (&weight, op), leaf)?.is_none() {
            return Ok(weight);
        }
        self.alone[slot] = Some(weight.dims().to_vec());
        Tensor::empty(&[1], DType::F32, weight.device())
    }

    /// Dims of a weight that is held as its copy alone.
    pub(crate) fn dims_alone(&self, slot: Slot) -> Option<&[usize]> {
        self.alone[slot].as_deref()
    }

    /// Whether products with some of the weights round rows of activations.
    pub(crate) fn rounds_rows(&self) -> bool {
        let packs = self.by_slot.iter().flatten().filter_map(OnceLock::get);
        packs.into_iter().any(Packed::rounds_rows)
    }

    pub(crate) fn bytes(&self) -> usize {
        (0..self.by_slot.len())
            .map(|slot| self.bytes_of(slot))
            .sum()
    }

    /// Bytes of a weight's copies.
    pub(crate) fn bytes_of(&self, slot: Slot) -> usize {
        let own = self.by_slot[slot].iter().filter_map(OnceLock::get);
        own.map(Packed::bytes).sum()
    }
}

/// How forward products read a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAs {
    pub op: Op,
    /// Leaf size of their sums.
    pub leaf: usize,
}

impl ReadAs {
    /// Of a weight that nothing but a linear layer's or an expert's forward product reads in inference; `None`: it is an
    /// embedding too, or no linear layer's.
    pub(crate) fn alone(plan: &Plan, spec: &Spec) -> Option<ReadAs> {
        let name = layer_of(spec);
        // slices of the head's matrix are factors of their own
        let is_head = spec.name == "head.weight" && !plan.train.chunked_cross_entropy;
        let is_linear = is_head || COLUMN.contains(&name) || FULL.contains(&name);
        if ROW.contains(&name) {
            let leaf = match plan.sum_order().is_tree() {
                true => spec.rows() / FEATURE_CHUNKS,
                false => 0,
            };
            let op = Op::Plain;
            Some(ReadAs { op, leaf })
        } else {
            let op = Op::Transposed;
            is_linear.then_some(ReadAs { op, leaf: 0 })
        }
    }

    /// Whether tile products of this weight have packed copies.
    pub(crate) fn packs_in_tiles(self, spec: &Spec, place: &RankCoord) -> bool {
        let (rows, cols) = (spec.share(0, place.tp).1, spec.row_elements());
        let (k, n) = match self.op {
            Op::Plain => (rows, cols),
            Op::Transposed => (cols, rows),
        };
        Packed::bytes_in_tiles(k, n, self.leaf) > 0
    }
}

/// Name of the layer whose weight this is.
fn layer_of(spec: &Spec) -> &str {
    let name = spec.name.strip_suffix(".weight").unwrap_or_default();
    name.rsplit('.').next().unwrap_or_default()
}

/// Whether a rank keeps packed weights over a step of this many micro-batches: a single one uses each of them once.
pub(crate) fn are_kept(plan: &Plan, micro_batches: usize) -> bool {
    let is_whole = plan.parallel.zero < 3;
    plan.train.keep_packed && numbers::is_in_tiles(plan) && is_whole && micro_batches > 1
}

/// Linear layers whose output features are rows of their weights, and whose input features are.
const COLUMN: [&str; 8] = [
    "qkv", "cross_q", "cross_kv", "fc1", "q_proj", "q_up", "kv_up", "eh_proj",
];
const ROW: [&str; 3] = ["out", "cross_out", "fc2"];
/// Layers that every rank has whole.
const FULL: [&str; 6] = [
    "transform",
    "pooler",
    "order",
    "classes",
    "q_down",
    "kv_down",
];

/// Bytes of a rank's packed weights once every product of a step of this many micro-batches has run.
pub(crate) fn bytes_of(
    plan: &Plan,
    place: &RankCoord,
    specs: &[Spec],
    micro_batches: usize,
) -> usize {
    if !are_kept(plan, micro_batches) {
        return 0;
    }
    let here = specs.iter().filter(|spec| spec.is_on(place));
    here.map(|spec| of_weight(plan, place, spec)).sum()
}

/// Bytes of the packed copies of a weight, one for each direction in which products read it; 0 if none of a linear layer does.
fn of_weight(plan: &Plan, place: &RankCoord, spec: &Spec) -> usize {
    let name = layer_of(spec);
    // in slices the head's matrix is packed slice by slice
    let is_head = plan.model.classify.is_none()
        && spec.name == param::head_name(plan)
        && place.is_last_stage()
        && !plan.train.chunked_cross_entropy;
    let is_split = is_head || COLUMN.contains(&name) || ROW.contains(&name);
    if spec.expert.is_some() || !(is_split || FULL.contains(&name)) {
        return 0;
    }
    let (split, whole) = (spec.share(0, place.tp).1, spec.row_elements());
    let leaf = if plan.sum_order().is_tree() && is_split {
        spec.rows() / FEATURE_CHUNKS
    } else {
        0
    };
    // sums over the split width have leaves: backward where outputs are split, else forward
    let bytes = |k, n, leaf| Packed::bytes_in_tiles(k, n, leaf);
    let is_first = name == "qkv"
        && spec
            .name
            .starts_with(&format!("{}.", plan.model.block_name(0)));
    match is_first && plan.leaves_out_first_gradient() {
        true => bytes(whole, split, 0),
        false => bytes(whole, split, 0) + bytes(split, whole, leaf),
    }
}

//! What a layer may know of the run: its rank's weights, its tensor-parallel group, the leaf sizes
//! of sums. Layers never see the mesh.

use kernels::Tensor;
use kernels::comm::Collective;

use crate::mesh::{Groups, Place};
use crate::model::param::Spec;
use crate::plan::{FEATURE_CHUNKS, Plan, TOKEN_CHUNKS};

/// Index into the rank's list of weights; the list of gradients has the same order.
pub(crate) type Slot = usize;

/// Passed to every layer's forward and backward.
pub(crate) struct Context<'a> {
    pub weights: &'a [Tensor],
    pub tp: &'a dyn Collective,
    /// Tokens of a sequence.
    pub time: usize,
    /// Tokens per leaf of a weight gradient; 0: one chain over the micro-batch.
    pub token_leaf: usize,
    /// Slices per row-parallel sum over the whole width; 0: one chain over the local width.
    pub feature_chunks: usize,
}

impl<'a> Context<'a> {
    pub(crate) fn of(plan: &Plan, weights: &'a [Tensor], groups: &'a Groups) -> Context<'a> {
        let (token_leaf, feature_chunks) = if plan.is_exact() {
            (plan.seq_length / TOKEN_CHUNKS, FEATURE_CHUNKS)
        } else {
            (0, 0)
        };
        let time = plan.seq_length;
        Context {
            weights,
            tp: groups.tp.as_ref(),
            time,
            token_leaf,
            feature_chunks,
        }
    }

    /// Leaf size for a sum over a dim of `whole` elements that tensor parallelism splits.
    pub(crate) fn feature_leaf(&self, whole: usize) -> usize {
        whole.checked_div(self.feature_chunks).unwrap_or(0)
    }

    /// Finishes a sum of which every tensor-parallel rank holds its aligned part.
    pub(crate) fn sum_over_tp(&self, mut x: Tensor) -> kernels::Result<Tensor> {
        if self.tp.size() > 1 {
            self.tp.all_reduce_sum(x.f32_mut())?;
        }
        Ok(x)
    }
}

/// Names of the tensors on one rank, in slot order.
pub(crate) struct Slots<'a> {
    specs: Vec<&'a Spec>,
}

impl<'a> Slots<'a> {
    pub(crate) fn on(place: &Place, specs: &'a [Spec]) -> Slots<'a> {
        Slots {
            specs: specs
                .iter()
                .filter(|spec| spec.is_on(place.pp_rank))
                .collect(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Slot> {
        self.specs.iter().position(|spec| spec.name == name)
    }

    pub(crate) fn get(&self, name: &str) -> Slot {
        self.find(name)
            .expect("the list of tensors and the layers are made from one plan")
    }
}

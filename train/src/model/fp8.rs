//! fp8 in a block's linear layers: which blocks use it, and the scales of the `delayed` recipe.

use std::ops::Range;

use kernels::Tensor;
use kernels::cast::{self, Observed, Stored};

use crate::config::numbers::fp8_blocks;
use crate::config::plan::Plan;
use crate::config::precision::{Fp8Config, Precision, Role};
use crate::model::fp8_delayed::Delayed;
use crate::model::slots::Slot;

/// fp8 state for a block's linear layers.
#[derive(Clone, Copy)]
pub(crate) struct Fp8<'a> {
    pub config: Fp8Config,
    /// Blocks that are not in bf16.
    pub blocks: (usize, usize),
    /// The current block.
    pub block: Option<usize>,
    /// The weight of the layer that runs.
    pub weight: Option<Slot>,
    /// Scales of `delayed`, and whether this pass records amax.
    pub scales: Option<(&'a Delayed, bool)>,
}

impl Fp8<'_> {
    /// None if the plan does not use fp8.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let blocks = fp8_blocks(plan);
        (plan.train.precision == Precision::Fp8).then_some(Fp8 {
            config: plan.train.fp8,
            blocks: (blocks.start, blocks.end),
            block: None,
            weight: None,
            scales: None,
        })
    }

    /// Blocks that are not in bf16.
    pub(crate) fn blocks(&self) -> Range<usize> {
        self.blocks.0..self.blocks.1
    }

    /// x scaled and rounded with the scale from earlier steps.
    pub(crate) fn by_history(&self, x: &Tensor, role: Role) -> kernels::Result<Tensor> {
        let (delayed, observes) = self.scales.expect("plans with this recipe have scales");
        let weight = self.weight.expect("a linear layer names its weight");
        if observes {
            delayed.observe(weight, role, x)?;
        }
        let format = self.config.format_of(role);
        cast::scaled(x, format, delayed.scale(weight, role))
    }

    /// The same in 8 bits: x is read once.
    pub(crate) fn stored_by_history(&self, x: &Tensor, role: Role) -> kernels::Result<Stored> {
        let (delayed, observes) = self.scales.expect("plans with this recipe have scales");
        let weight = self.weight.expect("a linear layer names its weight");
        let scale = delayed.scale(weight, role);
        let Observed { codes, amax } = cast::stored_scaled(x, self.config.format_of(role), scale)?;
        if observes {
            delayed.observe_amax(weight, role, &amax)?;
        }
        let back = Tensor::from_f32(&[1], &[1.0 / scale], x.device())?;
        Ok(Stored { codes, back })
    }
}

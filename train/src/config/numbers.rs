//! Number formats of a plan's matrix products.

use std::ops::Range;

use kernels::Isa;
use kernels::matmul::Numbers;

use crate::config::plan::Plan;
use crate::config::precision::{Bf16Sums, Precision};

/// The plan with `bf16_sums` resolved for ops that use `isa`; a plan without bf16 products keeps `auto`.
pub(crate) fn with_sums_on(plan: &Plan, isa: Isa) -> Plan {
    let mut plan = plan.clone();
    if plan.train.precision.has_bf16() {
        plan.train.bf16_sums = plan.train.bf16_sums.on(isa);
    }
    plan
}

/// Whether the linear layers of a block compute in bf16.
pub(crate) fn has_bf16_layers(plan: &Plan, block: usize) -> bool {
    let is_fp8 = fp8_blocks(plan).contains(&block);
    plan.train.precision.has_bf16() && !is_fp8
}

/// Format in which the blocks' products receive their factors, for a plan whose order of sums is decided: emulated
/// formats are multiplied in f32.
pub(crate) fn numbers_of(plan: &Plan) -> Numbers {
    match (plan.train.precision, plan.train.bf16_sums) {
        (Precision::Bf16, Bf16Sums::Tiles) => Numbers::Bf16Tiles,
        (Precision::Bf16, Bf16Sums::Pairs | Bf16Sums::Auto) => Numbers::Bf16,
        (Precision::F32 | Precision::Fp16 | Precision::Fp8, _) => Numbers::F32,
    }
}

/// Whether all linear layers compute in bf16 with tile-order sums.
pub(crate) fn is_in_tiles(plan: &Plan) -> bool {
    plan.train.precision == Precision::Bf16 && plan.train.bf16_sums == Bf16Sums::Tiles
}

/// Blocks whose linear layers compute in fp8; none without `precision = "fp8"`.
pub(crate) fn fp8_blocks(plan: &Plan) -> Range<usize> {
    let (config, blocks) = (plan.train.fp8, plan.model.blocks());
    if plan.train.precision != Precision::Fp8 {
        return 0..0;
    }
    let end = blocks.saturating_sub(config.num_layers_at_end_in_bf16);
    config.num_layers_at_start_in_bf16..end
}

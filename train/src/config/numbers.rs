//! Number formats of a plan's matrix products.

use std::ops::Range;

use kernels::matmul::Numbers;

use crate::config::plan::Plan;
use crate::config::precision::{Bf16Sums, Precision, Units};

/// The plan with `bf16_sums` resolved for ops on these units; a plan without products that have a choice keeps `auto`.
pub(crate) fn with_sums_on(plan: &Plan, units: Units) -> Plan {
    let mut plan = plan.clone();
    let sums = plan.train.bf16_sums.on(units, plan.sum_order().is_tree());
    let has_choice = match plan.train.precision {
        Precision::F32 => false,
        // halves are multiplied in f32 elsewhere
        Precision::Fp16 => sums == Bf16Sums::Mma,
        Precision::Bf16 | Precision::Fp8 => true,
    };
    if has_choice {
        plan.train.bf16_sums = sums;
    }
    plan
}

/// The plan of a checkpoint for evaluation on these units: sums as it says, or, where the units have no such order, those
/// of `pairs`.
pub(crate) fn with_sums_known_to(plan: &Plan, units: Units) -> Plan {
    let mut plan = plan.clone();
    if !plan.train.bf16_sums.is_of(units) {
        plan.train.bf16_sums = match plan.train.precision.has_bf16() {
            true => Bf16Sums::Pairs,
            false => Bf16Sums::Auto,
        };
    }
    plan
}

/// The plan with products in another number format on these units, in the order of sums that `auto` selects there.
pub(crate) fn in_precision(plan: &Plan, precision: Precision, units: Units) -> Plan {
    let mut plan = plan.clone();
    plan.train.precision = precision;
    plan.train.bf16_sums = Bf16Sums::Auto;
    with_sums_on(&plan, units)
}

/// Whether the linear layers of a block compute in bf16.
pub(crate) fn has_bf16_layers(plan: &Plan, block: usize) -> bool {
    let is_fp8 = fp8_blocks(plan).contains(&block);
    plan.train.precision.has_bf16() && !is_fp8
}

/// Whether activations between a block's linear layers are stored in bf16: adapters add to them in f32.
pub(crate) fn has_bf16_between(plan: &Plan, block: usize) -> bool {
    has_bf16_layers(plan, block) && plan.model.lora.is_none()
}

/// Format in which the blocks' products receive their factors, for a plan whose order of sums is decided: emulated
/// formats are multiplied in f32.
pub(crate) fn numbers_of(plan: &Plan) -> Numbers {
    match (plan.train.precision, plan.train.bf16_sums) {
        (Precision::Bf16, Bf16Sums::Tiles) => Numbers::Bf16Tiles,
        (Precision::Bf16, Bf16Sums::Pairs | Bf16Sums::Auto) => Numbers::Bf16,
        (Precision::Bf16, Bf16Sums::Mma) => Numbers::Bf16Mma,
        (Precision::Fp16, Bf16Sums::Mma) => Numbers::F16Mma,
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

//! Memory of routing on a GPU. On the CPU these numbers are lists of the host, outside the formulas.

use kernels::Device;

use super::Rank;
use crate::config::moe::RouterScope;
use crate::config::plan::TOKEN_CHUNKS;
use crate::data::micro_batches::micro_batches;

impl Rank<'_> {
    /// Bytes of the orders of experts that layers keep for backward, and of all reports of a step's routers, which wait for
    /// its end.
    pub(super) fn routing(&self) -> usize {
        let (plan, place) = (self.plan, &self.place);
        let Some(moe) = &plan.model.moe else { return 0 };
        let chunks = plan.model_chunks();
        let here = (0..chunks.len()).filter(|chunk| chunk % place.pp == place.pp_rank);
        let blocks = here.flat_map(|chunk| chunks[chunk].clone());
        let layers = blocks.filter(|&block| plan.model.moe_at(block).is_some());
        let depths = match place.is_last_stage() {
            true => plan.model.layers..plan.model.layers + plan.model.mtp_num_layers,
            false => 0..0,
        };
        let further = depths.filter(|&block| plan.model.moe_at(block).is_some());
        let layers = layers.count() + further.count();
        let micro = micro_batches(plan, place);
        let b = micro.iter().map(|block| block.size).max().unwrap_or(1);
        let choices = b * plan.sample_tokens() / place.cp * moe.top_k;
        let order = 2 * Device::bytes_of(choices)
            + Device::bytes_of(moe.experts + 1)
            + Device::bytes_of(moe.experts * b * TOKEN_CHUNKS);
        let groups = match moe.scope {
            RouterScope::Sequence => b,
            RouterScope::MicroBatch => 1,
        };
        let statistics = 2 * (3 * moe.experts + 5);
        let group = Device::bytes_of(statistics) + Device::bytes_of(moe.experts);
        let report = Device::bytes_of(4) + groups * group;
        // without a pipeline one micro-batch is in flight
        let in_flight = if place.pp > 1 { micro.len() } else { 1 };
        layers * (in_flight * order + micro.len() * report)
    }
}

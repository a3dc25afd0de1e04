//! How the sums of a run are made, as its checkpoints record it; `checkpoint/changes.rs` compares.

use serde::{Deserialize, Serialize};

use crate::config::plan::Plan;

/// Everything besides the plan's numbers that the bits of sums depend on, as checkpoints record it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SumsRecord {
    /// `any`, `fixed` or `tree`, from `determinism`.
    pub order: String,
    /// Order within bf16 products; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<String>,
    /// Backend of the ops: `cpu` or `cuda`.
    pub backend: String,
}

impl SumsRecord {
    /// The record of a run whose `bf16_sums` are decided; `backend`: `cpu` or `cuda`.
    pub(crate) fn of(plan: &Plan, backend: &str) -> SumsRecord {
        let bf16 = plan.train.precision.has_bf16();
        SumsRecord {
            order: plan.sum_order().name().to_owned(),
            bf16: bf16.then(|| plan.train.bf16_sums.name().to_owned()),
            backend: backend.to_owned(),
        }
    }
}

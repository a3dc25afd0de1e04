//! `train.loss_mean`: the mean that a step's loss is.

use serde::{Deserialize, Serialize};

/// The mean over a batch's predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossMean {
    /// Every prediction that counts has the same weight.
    #[default]
    Token,
    /// Every text has the same weight, and within it every prediction that counts. A sequence is one text, or several
    /// where its samples say so.
    Text,
}

impl LossMean {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn is_token(&self) -> bool {
        *self == LossMean::Token
    }
}

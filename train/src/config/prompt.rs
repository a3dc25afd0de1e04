//! `[model.prompt]`: trained vectors in front of every text, before a frozen model: prompt tuning (Lester et al. 2021,
//! arXiv:2104.08691). `[finetune]` of a job fills it in with `method = "prompt"`.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Id of the first virtual token in samples; no vocabulary of a model with virtual tokens reaches it.
pub(crate) const FIRST_VIRTUAL: u32 = 1 << 30;

/// Virtual tokens: rows `[virtual_tokens, d_model]` of a table of their own take the place of the first embeddings of every text.
/// All other weights are frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptConfig {
    /// Virtual tokens in front of every text, PEFT's `num_virtual_tokens`. They count in the length of the sequences. Default: 20.
    pub virtual_tokens: usize,
    /// Ids whose embeddings the rows start from, again and again until all have one: PEFT's initialization from a text. Empty, the
    /// default: normal values with the deviation `init_std`.
    pub init_ids: Vec<u32>,
}

impl Default for PromptConfig {
    fn default() -> Self {
        PromptConfig {
            virtual_tokens: 20,
            init_ids: Vec::new(),
        }
    }
}

impl PromptConfig {
    /// The id whose embedding the row of a virtual token starts from, if there are such ids.
    pub(crate) fn init_id(&self, row: usize) -> Option<u32> {
        let at = row.checked_rem(self.init_ids.len())?;
        self.init_ids.get(at).copied()
    }

    pub(crate) fn check(&self, problem: Problem<'_>) {
        if self.virtual_tokens == 0 {
            problem("virtual_tokens", "0".into(), "at least 1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_ids_of_a_text_in_turn() {
        let mut prompt = PromptConfig {
            virtual_tokens: 5,
            init_ids: vec![7, 8],
        };
        let ids = |prompt: &PromptConfig| (0..5).map(|row| prompt.init_id(row)).collect::<Vec<_>>();
        assert_eq!(ids(&prompt), [7, 8, 7, 8, 7].map(Some));
        prompt.init_ids = (0..9).collect();
        assert_eq!(ids(&prompt), [0, 1, 2, 3, 4].map(Some));
        prompt.init_ids.clear();
        assert_eq!(ids(&prompt), [None; 5]);
    }
}

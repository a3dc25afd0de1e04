//! Ids of virtual tokens in samples: they stand for the rows of `[model.prompt]`, beyond all ids of vocabularies.

use crate::config::plan::Plan;
use crate::config::prompt::FIRST_VIRTUAL;

/// Ids of the first `count` virtual tokens, in order, which a source of samples puts in front of every text of a model with
/// `[model.prompt]`.
pub fn virtual_tokens(count: usize) -> impl ExactSizeIterator<Item = u32> + Clone {
    let count = u32::try_from(count).unwrap_or(FIRST_VIRTUAL);
    (0..count.min(FIRST_VIRTUAL)).map(|number| FIRST_VIRTUAL + number)
}

/// Whether an id is one of the vocabulary or one of the model's virtual tokens.
pub(crate) fn is_known(plan: &Plan, id: u32) -> bool {
    match id.checked_sub(FIRST_VIRTUAL) {
        Some(number) if plan.model.prompt.is_some() => {
            (number as usize) < plan.model.virtual_tokens()
        }
        _ => (id as usize) < plan.vocab,
    }
}

/// The id as a target, which a virtual token is none of: its prediction does not count.
pub(crate) fn as_target(plan: &Plan, id: u32) -> u32 {
    match plan.model.prompt.is_some() && id >= FIRST_VIRTUAL {
        true => 0,
        false => id,
    }
}

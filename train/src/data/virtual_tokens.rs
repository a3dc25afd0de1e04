//! Ids of virtual tokens in samples: they stand for the rows of `[model.prompt]`, beyond all ids of vocabularies.

use crate::config::plan::Plan;
use crate::config::prompt::FIRST_VIRTUAL;
use crate::config::{PromptConfig, PromptTask, TaskMarkers};
use crate::error::{Error, Result};

/// Ids of the first `count` virtual tokens, in order, which a source of samples puts in front of every text of a model with
/// `[model.prompt]`, or at the markers of its task template.
pub fn virtual_tokens(count: usize) -> impl ExactSizeIterator<Item = u32> + Clone {
    let count = u32::try_from(count).unwrap_or(FIRST_VIRTUAL);
    (0..count.min(FIRST_VIRTUAL)).map(|number| FIRST_VIRTUAL + number)
}

/// Virtual tokens of a text at most; with several tasks, those of the one that has the most.
pub(crate) fn most_of_text(plan: &Plan) -> usize {
    (plan.model.prompt.as_ref()).map_or(0, PromptConfig::most_of_text)
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

/// A text as a model with virtual tokens reads it.
pub(crate) struct Prompted {
    pub ids: Vec<u32>,
    /// Virtual tokens that were put in front of it; 0 of a text that has its own.
    pub in_front: usize,
}

/// Whether an id is that of a virtual token, of any model with such.
pub fn is_virtual(id: u32) -> bool {
    id >= FIRST_VIRTUAL
}

/// Whether a text places virtual tokens itself.
pub(crate) fn has_own(text: &[u32]) -> bool {
    text.iter().any(|&id| is_virtual(id))
}

/// The text with the virtual tokens of the model, if that has some: those in the text, or else all of them in front.
///
/// # Errors
/// As `in_front`.
pub(crate) fn prompted(plan: &Plan, text: &[u32]) -> Result<Prompted> {
    let in_front = in_front(plan, text)?;
    let before = virtual_tokens(in_front);
    Ok(Prompted {
        ids: before.chain(text.iter().copied()).collect(),
        in_front,
    })
}

/// Names of the tasks, for messages.
fn names(prompt: &PromptConfig) -> String {
    let names = prompt.tasks.iter().map(|task| task.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// Virtual tokens that stand in front of a text: none if it has its own, or the model has none.
///
/// # Errors
/// `Request` for a text without virtual tokens of a model that has markers, and for one whose virtual tokens are not all of the model's, or
/// of one of its tasks, in order. Other ids are not looked at.
pub(crate) fn in_front(plan: &Plan, text: &[u32]) -> Result<usize> {
    let Some(prompt) = &plan.model.prompt else {
        return Ok(0);
    };
    if has_own(text) {
        let own = text.iter().copied().filter(|&id| is_virtual(id));
        let is_of = |markers: &TaskMarkers| {
            let before = virtual_tokens(markers.first).len();
            own.clone().eq(virtual_tokens(markers.end()).skip(before))
        };
        if prompt.markers().iter().any(is_of) {
            return Ok(0);
        }
        let all = match prompt.tasks.is_empty() {
            true => format!("all {} of the model", prompt.virtual_tokens),
            false => format!("all of one of the tasks {}", names(prompt)),
        };
        return Err(Error::Request {
            what: "virtual tokens of a prompt",
            found: format!("{} of them", own.count()),
            wanted: format!("{all}, each once and in order"),
        });
    }
    if prompt.are_in_front() {
        return Ok(prompt.virtual_tokens);
    }
    let template = match (prompt.template.as_str(), prompt.tasks.as_slice()) {
        ("", []) => "none is recorded".into(),
        (template, []) => format!("{template:?}"),
        (_, tasks) => {
            let all = tasks.iter().map(|task| {
                let PromptTask { name, template, .. } = task;
                format!("{name} {template:?}")
            });
            all.collect::<Vec<_>>().join(", ")
        }
    };
    let wanted = match prompt.splits.len() {
        0 => format!("the markers of the template of one of the tasks in it: {template}"),
        markers => format!("the {markers} markers of the task template in it: {template}"),
    };
    Err(Error::Request {
        what: "prompt",
        found: "a text without virtual tokens".into(),
        wanted,
    })
}

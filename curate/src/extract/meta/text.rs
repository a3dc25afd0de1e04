//! Texts below a node, and the best of several candidates.

use crate::extract::html::{Id, Tree};
use crate::text::entity::push_decoded;

/// A value and how explicit its source is; the greatest rank wins, the first of equals.
#[derive(Default)]
pub(crate) struct Best(pub(super) Option<(u8, String)>);

impl Best {
    pub(crate) fn offer(&mut self, rank: u8, value: Option<String>) {
        let value = value
            .map(|v| squeeze(&v))
            .filter(|v| !v.is_empty() && v.len() <= MAX_BYTES);
        if let Some(value) = value
            && self.0.as_ref().is_none_or(|have| have.0 < rank)
        {
            self.0 = Some((rank, value));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn take(self) -> Option<String> {
        self.0.map(|v| v.1)
    }
}

/// Text of an element, references resolved, white space squeezed.
pub(crate) fn text_of(tree: &Tree<'_>, id: Id) -> Option<String> {
    let mut text = String::new();
    for raw in tree.texts_below(id) {
        push_decoded(&mut text, raw, false);
        text.push(' ');
        if text.len() > 2 * MAX_BYTES {
            return None;
        }
    }
    Some(text)
}

pub(crate) fn squeeze(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Texts longer than this (bytes) are no metadata.
const MAX_BYTES: usize = 2000;

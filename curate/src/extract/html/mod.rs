//! HTML to a tree, in one pass and without copies.
//!
//! names.rs tags and attributes as numbers; token.rs cuts the page; entity.rs resolves character
//! references; tree.rs nests. Browsers build a tree that scripts may change later, which costs most
//! of a parser's time; nothing changes ours, so it is one vector in the order of the page.

mod names;
#[cfg(test)]
mod oracle;
mod token;
mod tree;

pub(super) use names::BLOCK;
pub(super) use names::HEADING;
pub(super) use names::SKIPPED;
pub(super) use names::{Key, Tag};
pub(super) use tree::{Id, Node, Tree, parse};

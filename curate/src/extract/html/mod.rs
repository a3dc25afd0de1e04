//! HTML parser: a page to a tree, in one pass and without copies.
//!
//! names.rs tags and attributes as numbers; token.rs cuts the page; entity.rs resolves character references;
//! tree.rs nests. Browsers build a mutable tree for scripts, which takes most of a parser's time; ours is
//! immutable, so it is one vector in document order.

mod names;
#[cfg(test)]
mod oracle;
mod token;
mod tree;

pub(super) use names::BLOCK;
pub(super) use names::HEADING;
pub(super) use names::SKIPPED;
pub(super) use names::{Key, Tag};
pub(super) use token::{Token, Tokenizer};
pub(super) use tree::{Format, Id, Node, Tree, parse, parse_without_scripts};

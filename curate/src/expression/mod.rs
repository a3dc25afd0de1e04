//! Conditions, numbers and texts of a job file: `gopher_quality.short_doc >= 80 and meta.domain in ["a.org", "b.org"]`.
//!
//! Grammar, loosest first: `or`, `and`, `not`, one comparison (`< <= > >= == != in`), `+ -`, `* /`, `-`, then a number, a quoted
//! text, `true`, `false`, a name, a function, or brackets. A name is a metric (`filter.rule`), one of the document's own
//! (`chars`, `language`), or a path into its metadata: `meta.a.b`, `meta["odd name"]`, `attributes.X[0][2]`, `[-1]` from
//! the end. `in` looks for a value in `[1, 2]` or in a list of the metadata, for a text in a text, and for a name in an object.
//!
//! Functions: `min max` of numbers; `min max sum mean count any all` of a list's elements, of which each is `it` in the
//! second argument (`sum(attributes.X, it[2] * (it[1] - it[0]))`); `length` (characters, elements or names), `bytes`, `trim`,
//! `lower`, `matches(text, "pattern")`, `has`, `type` (`"null"` if absent), `default(value, other)`, `same(value, constant)` (1 and 1.0 are not
//! the same), `ln`.
//!
//! A value that is absent, null or of another kind than asked for is not a number: every comparison with it is false, `!=`
//! and `in` included; `has` tells whether a value is there. Time is linear in the document: the second argument of a list's function
//! sees constants and the element alone.

mod document;
mod eval;
mod kinds;
mod node;
mod parse;
mod parsed;
#[cfg(test)]
mod tests;

pub(crate) use document::{DocumentMetrics, MetaPath, check, open, own_names, report, unknown};
pub use eval::Value;
pub use kinds::{Kind, Metrics, Scope, Wrong};
pub use parsed::Expression;

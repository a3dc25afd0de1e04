//! The figures that filters measured, put to use: expressions over them, and what other limits would keep.

mod expression;
mod file;
mod what_if;

pub use expression::{Expression, Signals};
pub(crate) use file::FiguresWriter;
pub use file::read_figures;
pub use what_if::{Candidates, Choice, Refilter, WhatIf};

//! The metrics that filters measured: their files, and expressions over them.

mod expression;
mod file;

pub use expression::{Expression, Signals};
pub(crate) use file::FiguresWriter;
pub use file::read_figures;

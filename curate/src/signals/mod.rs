//! The figures that filters measured, put to use: expressions over them, and what other limits would keep.

mod expression;
mod what_if;

pub use expression::{Expression, Signals};
pub use what_if::{Choice, WhatIf};

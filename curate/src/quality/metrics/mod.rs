//! The metrics that filters measured: their files, and expressions over them.

mod expression;
mod file;

pub use expression::{Expression, Metrics};
pub(crate) use file::MetricsWriter;
pub use file::read_metrics;

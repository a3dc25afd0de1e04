//! The file of the metrics that filters measured.

mod file;

pub(crate) use file::MetricsWriter;
pub use file::read_metrics;

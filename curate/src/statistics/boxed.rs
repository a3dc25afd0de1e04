//! Serialization of text metrics for the journal: serde does not support arrays of their length.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::measure::TextMetrics;

pub(crate) fn serialize<S: Serializer>(
    metrics: &Option<Box<TextMetrics>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    metrics.as_ref().map(|f| f.as_slice()).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Box<TextMetrics>>, D::Error> {
    let metrics = Option::<Vec<f64>>::deserialize(from)?;
    let whole = |f: Vec<f64>| f.try_into().map_err(|_| Error::custom("too few metrics"));
    metrics.map(whole).transpose().map(|f| f.map(Box::new))
}

//! Numbers that survive a round trip through text: an f64 stored exactly, and an f64 rounded to the f32 of weights.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number stored as text, so that reading returns the written number to the last bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exact(pub f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Exact).map_err(serde::de::Error::custom)
    }
}

/// Rounds to f32, the type of weights.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, where weights live"
)]
pub(crate) fn narrow(x: f64) -> f32 {
    x as f32
}

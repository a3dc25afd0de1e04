//! Options of `generate`.

use crate::error::{Error, Result};

/// Sampling options and limits for the continuation of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of tokens to add.
    pub max_tokens: usize,
    /// Divides the logits; 0: always the likeliest token, the lowest id among equals.
    pub temperature: f64,
    /// Choose among the `top_k` likeliest; 0: all.
    pub top_k: usize,
    /// Choose among the likeliest whose probabilities add up to this; 1: all.
    pub top_p: f64,
    /// The same seed gives the same tokens.
    pub seed: u64,
    /// Token after which to stop, included in the result.
    pub stop: Option<u32>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 100,
            temperature: 0.8,
            top_k: 0,
            top_p: 0.95,
            seed: 0,
            stop: None,
        }
    }
}

impl GenerateOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let request = |what, found: f64, wanted: &str| {
            Err(Error::Request {
                what,
                found: found.to_string(),
                wanted: wanted.to_owned(),
            })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return request(
                "temperature",
                self.temperature,
                "a finite number, 0 or more",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return request("top_p", self.top_p, "above 0, at most 1");
        }
        Ok(())
    }
}

//! Length filter: bounds on a text's length in characters.

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::chars;
use crate::verdict::{Judge, KEEP, Verdict};

/// Bounds on a text's length, both ends allowed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Length {
    /// Minimum number of characters.
    pub min_chars: usize,
    /// Maximum number of characters.
    pub max_chars: usize,
}

impl Default for Length {
    fn default() -> Self {
        Length {
            min_chars: 1,
            max_chars: 100_000_000,
        }
    }
}

impl Length {
    /// Judges a text.
    pub fn judge(&self, text: &str) -> Verdict {
        self.measure(text, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text.
    pub fn measure(&self, text: &str, judge: &mut Judge) -> Verdict {
        let n = chars(text) as f64;
        judge.at_least("length.min_chars", n, self.min_chars as f64)?;
        judge.at_most("length.max_chars", n, self.max_chars as f64)?;
        KEEP
    }
}

impl StepConfig for Length {
    fn name(&self) -> &'static str {
        "length"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.min_chars > self.max_chars {
            problem(
                "min_chars",
                format!("{} above max_chars {}", self.min_chars, self.max_chars),
                "at most max_chars",
            );
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Length {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, judge)
    }
}

//! The step `normalize`: repairs texts (`text/repair/`) and counts the repairs.

use serde_json::{Map, Value};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::repair::NormalizeConfig;
use crate::verdict::{Judge, KEEP, Verdict};

impl StepConfig for NormalizeConfig {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn check(&self, problem: Problem<'_>) {
        if *self == NormalizeConfig::NOTHING {
            problem(
                "form",
                "none, and everything else off".to_string(),
                "something to normalize, or no normalize step",
            );
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for NormalizeConfig {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, _: &mut Judge) -> Verdict {
        draft.repairs = self.repair(&draft.text, &mut scratch.rewritten);
        if !draft.repairs.is_empty() {
            std::mem::swap(&mut draft.text, &mut scratch.rewritten);
            let made: Map<String, Value> = draft
                .repairs
                .made()
                .map(|(name, lines)| (name.to_string(), lines.into()))
                .collect();
            draft.note("normalized", Value::Object(made));
        }
        KEEP
    }
}

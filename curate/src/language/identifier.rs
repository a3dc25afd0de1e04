//! The language identifier that a job names: the built-in one, or a fastText model's file.

use std::path::Path;

use super::{Buffers, UNDETERMINED, best};
use crate::error::Result;
use crate::quality::fasttext::{FastText, FastTextScratch};

/// Identifies languages with the built-in model or a fastText model.
pub struct Identifier {
    model: Option<FastText>,
}

/// Buffers of one thread.
#[derive(Default)]
pub struct LanguageScratch {
    pub(super) own: Buffers,
    fasttext: FastTextScratch,
    found: Vec<(usize, f32)>,
}

/// Name of the built-in model in job files.
pub(crate) const BUILT_IN: &str = "builtin";

impl Identifier {
    /// The built-in model.
    pub fn built_in() -> Identifier {
        Identifier { model: None }
    }

    /// `builtin`, or the path of a fastText model.
    ///
    /// # Errors
    /// Those of [`FastText::open`].
    pub fn open(model: &str) -> Result<Identifier> {
        if model == BUILT_IN {
            return Ok(Identifier::built_in());
        }
        Ok(Identifier {
            model: Some(FastText::open(Path::new(model))?),
        })
    }

    /// True if the identifier can answer `code`.
    pub fn knows(&self, code: &str) -> bool {
        match &self.model {
            Some(model) => code == UNDETERMINED || model.labels().iter().any(|l| l == code),
            None => super::is_known(code),
        }
    }

    /// The language of a text and the confidence, 0 to 1; (`und`, 0) if it cannot be determined.
    pub fn identify<'a>(&'a self, text: &str, scratch: &mut LanguageScratch) -> (&'a str, f64) {
        let Some(model) = &self.model else {
            let guess = best(text, &mut scratch.own);
            return (guess.code, guess.confidence);
        };
        model.predict(text, 1, &mut scratch.fasttext, &mut scratch.found);
        match scratch.found.first() {
            // fastText adds 1e-5 to its probabilities
            Some(&(label, p)) => (&model.labels()[label], f64::from(p).min(1.0)),
            None => (UNDETERMINED, 0.0),
        }
    }
}

//! Settings of main-content extraction.

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict};

/// Settings of main-content extraction.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractConfig {
    /// Output format of the text.
    pub format: TextForm,
    /// Treatment of doubtful blocks.
    pub favour: Favour,
    /// Readers' comments after the text. Default: left out.
    pub comments: bool,
    /// Second copies of the text, as pages have them for small screens and for printing.
    pub copies: Copies,
    /// Pages are read up to this many bytes. Default: browsers show such pages, no reader does.
    pub max_page_bytes: usize,
}

impl Default for ExtractConfig {
    fn default() -> Self {
        ExtractConfig {
            format: TextForm::Text,
            favour: Favour::Balance,
            comments: false,
            copies: Copies::Drop,
            max_page_bytes: 16 << 20,
        }
    }
}

/// Output format of extracted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TextForm {
    /// Plain text: blank lines between paragraphs, "- " before list items.
    Text,
    /// Markdown: also marks of headings, code, quotes, tables, ordered lists.
    Markdown,
}

/// Treatment of blocks that may or may not be main text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Favour {
    /// Only likely text: less boilerplate, some text lost.
    Precision,
    /// The best expected F1.
    Balance,
    /// Also less likely text: little text lost, some boilerplate.
    Recall,
}

/// Treatment of second copies of a page's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Copies {
    /// Left out and counted (`copies` of the report): paragraphs of 40 words or more in another element than the
    /// text, which repeat at least a tenth of it, and those that quote the page itself. Repetitions inside the text
    /// stay.
    Drop,
    /// Every paragraph is kept.
    Keep,
}

/// Pages are converted to text when records are read, before all steps; this step has nothing left to do.
struct Extracted;

impl StepConfig for ExtractConfig {
    fn name(&self) -> &'static str {
        "extract"
    }

    fn check(&self, problem: Problem<'_>) {
        range(
            problem,
            "max_page_bytes",
            self.max_page_bytes as f64,
            1024.0,
            1e9,
        );
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(Extracted))
    }

    fn is_first(&self) -> bool {
        true
    }
}

impl Filter for Extracted {
    fn apply(&self, _draft: &mut Draft, _scratch: &mut StepScratch, _judge: &mut Judge) -> Verdict {
        KEEP
    }
}

//! `plan --html`: the answer as a page of its own.

use super::plan_answer::Answer;
use crate::job::WrongUse;
use crate::machine::write_atomically;
use crate::report::{PlanPage, serving_page};
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file that becomes the page.
pub(super) struct Page {
    file: PathBuf,
    /// Day of the answer, `2026-01-31`.
    date: String,
}

impl Page {
    /// A page in `file`.
    ///
    /// # Errors
    /// `WrongUse` for a file that exists.
    pub(super) fn new(file: &Path) -> Result<Page, WrongUse> {
        if file.exists() {
            let message = format!("--html: {} exists; name another file", file.display());
            return Err(WrongUse::new(message));
        }
        Ok(Page {
            file: file.into(),
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
        })
    }

    /// Writes the page of a training's plan and returns the figures on it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn plan(&self, answer: &Answer<'_>) -> Result<Value> {
        let summary = answer.summary();
        self.write(answer, &summary)?;
        Ok(summary)
    }

    /// Writes it again with the layouts that were run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn with_trials(
        &self,
        answer: &Answer<'_>,
        mut summary: Value,
        run: &Value,
    ) -> Result<()> {
        summary["run"] = run.clone();
        self.write(answer, &summary)
    }

    fn write(&self, answer: &Answer<'_>, figures: &Value) -> Result<()> {
        let gantt = answer.gantt();
        let page = PlanPage {
            figures,
            passes: gantt.as_ref().map_or(&[], |gantt| gantt.passes()),
            date: &self.date,
        };
        write_atomically(&self.file, page.render().as_bytes())
    }

    /// Writes the page of a server's plan.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn serving(&self, figures: &Value) -> Result<()> {
        write_atomically(&self.file, serving_page(figures, &self.date).as_bytes())
    }
}

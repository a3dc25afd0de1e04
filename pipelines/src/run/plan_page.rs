//! `plan --html`: the answer as a page of its own.

use super::new_outputs::NewFile;
use super::plan_answer::Answer;
use crate::machine::write_atomically;
use crate::report::{PlanPage, serving_page};
use anyhow::Result;
use serde_json::Value;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// A file that becomes the page.
pub(super) struct Page {
    file: PathBuf,
    /// Until the page is written first.
    reserved: RefCell<Option<NewFile>>,
    /// Day of the answer, `2026-01-31`.
    date: String,
}

impl Page {
    /// A page in `file`. Whether it can be written is known here, before a search or runs that take long.
    ///
    /// # Errors
    /// `WrongUse` for a file that exists, and for a folder that does not, or in which no file can be made.
    pub(super) fn new(file: &Path) -> Result<Page> {
        let reserved = NewFile::reserve("--html", file)?;
        Ok(Page {
            file: file.into(),
            reserved: RefCell::new(Some(reserved)),
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
        self.put(&page.render())
    }

    /// The first time no other file is replaced, later only the page itself.
    fn put(&self, page: &str) -> Result<()> {
        match self.reserved.take() {
            Some(reserved) => reserved.write(page.as_bytes()),
            None => write_atomically(&self.file, page.as_bytes()),
        }
    }

    /// Writes the page of a server's plan.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn serving(&self, figures: &Value) -> Result<()> {
        self.put(&serving_page(figures, &self.date))
    }
}

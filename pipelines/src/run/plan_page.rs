//! `plan --html`: the answer as a page of its own.

use super::plan_answer::Answer;
use crate::job::WrongUse;
use crate::machine::{temporary_in, write_atomically};
use crate::report::{PlanPage, serving_page};
use anyhow::{Context, Result};
use serde_json::Value;
use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that becomes the page.
pub(super) struct Page {
    file: PathBuf,
    /// Until the page is written first: its place in the folder.
    reserved: RefCell<Option<NamedTempFile>>,
    /// Day of the answer, `2026-01-31`.
    date: String,
}

impl Page {
    /// A page in `file`. Whether it can be written is known here, before a search or runs that take long.
    ///
    /// # Errors
    /// `WrongUse` for a file that exists, and for a folder that does not, or in which no file can be made.
    pub(super) fn new(file: &Path) -> Result<Page> {
        if file.symlink_metadata().is_ok() {
            let message = format!("--html: {} exists; name another file", file.display());
            return Err(WrongUse::new(message).into());
        }
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let reserved = temporary_in(folder).map_err(|error| {
            WrongUse::new(format!(
                "--html: cannot write {}: {error:#}",
                file.display()
            ))
        })?;
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
        let Some(mut reserved) = self.reserved.take() else {
            return write_atomically(&self.file, page.as_bytes());
        };
        let write = || -> std::io::Result<()> {
            reserved.write_all(page.as_bytes())?;
            reserved.as_file().sync_all()?;
            reserved.persist_noclobber(&self.file)?;
            Ok(())
        };
        write().with_context(|| format!("--html: cannot write {}", self.file.display()))
    }

    /// Writes the page of a server's plan.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn serving(&self, figures: &Value) -> Result<()> {
        self.put(&serving_page(figures, &self.date))
    }
}

//! `mixer`: a configuration of dolma's mixer as a job.

use super::new_outputs::expect_new_file;
use crate::job;
use crate::log::print;
use anyhow::{Context as _, Result};
use std::path::Path;

/// The verb: the job goes to stdout, or to `out`; what has no counterpart in a job is told.
pub(crate) fn mixer(config: &Path, out: Option<&Path>) -> Result<()> {
    if let Some(out) = out {
        expect_new_file("--out", out)?;
    }
    let translation = curate::mixer::translate(config)?;
    let table = toml::Table::try_from(&translation.job).context("the job as TOML")?;
    let text = format!(
        "# made of {} by millrace mixer\n{}",
        config.display(),
        toml::to_string(&table).context("the job as TOML")?
    );
    for note in &translation.notes {
        log!("no part of the job: {note}");
    }
    match out {
        None => print(&text),
        Some(out) => {
            std::fs::write(out, &text)
                .with_context(|| format!("cannot write {}", out.display()))?;
            // a job that cannot be read back would be found only when it is run
            job::load(out, &[])?;
            log!("job: {}", out.display());
            Ok(())
        }
    }
}

//! `mixer`: a configuration of dolma's mixer as a job.

use crate::job::{self, WrongUse};
use crate::log::print;
use anyhow::{Context as _, Result};
use std::path::Path;

/// The verb: the job goes to stdout, or to `out`; what has no counterpart in a job is told.
pub(crate) fn mixer(config: &Path, out: Option<&Path>) -> Result<()> {
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
        Some(out) if out.exists() => {
            let message = format!(
                "{} exists; name another file, or remove it first",
                out.display()
            );
            Err(WrongUse::new(message).into())
        }
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

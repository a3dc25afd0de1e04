//! `report`: writes the page, every time since it takes milliseconds; with `--compare`, beside another run; with `--limit`, counts
//! what the filters would keep.

use super::job_at::job_at;
use crate::context::Context;
use crate::job::Job;
use crate::log::print;
use crate::machine::{grouped, megabytes, write_atomically};
use crate::report::{Material, each_figure, render};
use anyhow::{Result, anyhow, bail};
use std::path::Path;

/// The page, with a comparison if there is another run.
///
/// # Errors
/// Nothing has run in the job's folder; the page cannot be written.
pub(super) fn run(job: &Job, out: &Path, other: Option<&Material>) -> Result<()> {
    if !out.join("manifest.json").exists() {
        bail!(
            "nothing has run in {} yet; run `millrace run` first",
            out.display()
        );
    }
    for part in job.of_adapters() {
        run(&part, &part.out, None)?;
    }
    let page = render(&Material::read(job, out), other);
    let path = out.join("report.html");
    write_atomically(&path, page.as_bytes())?;
    log!(
        "report: {} ({})",
        path.display(),
        megabytes(page.len() as u64)
    );
    Ok(())
}

/// The files of the run in the folder `out`.
///
/// # Errors
/// A folder in which nothing has run.
pub(super) fn of_folder(out: &Path) -> Result<Material> {
    let job = job_at(out, &[])?;
    if !job.out.join("manifest.json").exists() {
        bail!("--compare: nothing has run in {} yet", job.out.display());
    }
    Ok(Material::read(&job, &job.out))
}

/// Documents that the filters would keep with these limits, from the recorded figures of every document.
pub(crate) fn refilter(cx: &Context, limits: &[(String, f64)]) -> Result<()> {
    if !cx.job.curate.as_ref().is_some_and(|c| c.figures) {
        bail!("the job keeps no figures; set curate.figures = true and run `millrace curate`");
    }
    let ask = |changes: &[(String, f64)]| {
        let mut refilter = curate::statistics::Refilter::new(changes.iter().cloned().collect());
        each_figure(&cx.job, &cx.out, |measures, lost| {
            refilter.add(measures, lost)
        })
        .map_err(|e| anyhow!(e))?;
        Ok::<_, anyhow::Error>(refilter)
    };
    let (now, then) = (ask(&[])?, ask(limits)?);
    if let Some((rule, _)) = limits
        .iter()
        .find(|(rule, _)| !now.known().contains_key(rule))
    {
        let known: Vec<&str> = now.known().keys().map(String::as_str).collect();
        bail!(
            "no figures of a rule {rule:?}; there are those of: {}",
            known.join(" ")
        );
    }
    let mut text = format!("{:<48} {:>12} {:>12}\n", "", "now", "then");
    let mut line = |name: &str, now: u64, then: u64| {
        text += &format!("{name:<48} {:>12} {:>12}\n", grouped(now), grouped(then));
    };
    line("kept", now.kept, then.kept);
    for rule in now.known().keys() {
        let of = |refilter: &curate::statistics::Refilter| {
            refilter.dropped.get(rule).copied().unwrap_or(0)
        };
        if of(&now) + of(&then) > 0 {
            line(rule, of(&now), of(&then));
        }
    }
    line("dropped by rules without a limit", now.lost, then.lost);
    line("documents", now.documents, then.documents);
    print(&text)
}

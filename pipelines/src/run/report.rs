//! `report`: the page, always written anew since it costs milliseconds.

use super::Context;
use crate::machine::{megabytes, write_atomically};
use crate::report::{Material, render};
use anyhow::{Result, bail};

pub(super) fn run(cx: &Context) -> Result<()> {
    if !cx.out.join("manifest.json").exists() {
        bail!(
            "nothing has run in {} yet; run `millrace run` first",
            cx.out.display()
        );
    }
    let page = render(&Material::read(&cx.job, &cx.out));
    let path = cx.out.join("report.html");
    write_atomically(&path, page.as_bytes())?;
    eprintln!(
        "report: {} ({})",
        path.display(),
        megabytes(page.len() as u64)
    );
    Ok(())
}

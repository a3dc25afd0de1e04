//! `report`: the page, always written anew since it costs milliseconds.

use super::Context;
use crate::machine::{megabytes, write_atomically};
use crate::report::{Material, render};
use anyhow::Result;

pub(super) fn run(cx: &Context) -> Result<()> {
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

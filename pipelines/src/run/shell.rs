//! `completions` and `man`: the command line described to shells and to `man`, from the program's own definition.

use anyhow::{Context as _, Result};
use clap_complete::{Shell, generate};
use std::path::Path;

use crate::log::print;

/// Prints the script that completes verbs and options in a shell.
///
/// # Errors
/// If stdout is closed.
pub(crate) fn completions(shell: Shell, mut program: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    generate(shell, &mut program, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a manual page of the program and of each verb (section 1), such as `millrace-run.1`.
///
/// # Errors
/// A folder that cannot be written.
pub(crate) fn man(folder: &Path, program: clap::Command) -> Result<()> {
    let at = || folder.display().to_string();
    std::fs::create_dir_all(folder).with_context(at)?;
    let before = pages(folder)?;
    clap_mangen::generate_to(program, folder).with_context(at)?;
    let after = pages(folder)?;
    log!(
        "man: {after} pages in {} ({} new); `man -l {}` shows one",
        folder.display(),
        after - before.min(after),
        folder.join("millrace.1").display()
    );
    Ok(())
}

/// Number of manual pages in a folder.
fn pages(folder: &Path) -> Result<usize> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let names = entries.flatten().map(|entry| entry.path());
    Ok(names
        .filter(|path| path.extension().is_some_and(|kind| kind == "1"))
        .count())
}

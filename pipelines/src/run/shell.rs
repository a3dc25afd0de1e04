//! `completions` and `man`: what shells and `man` know of the command line, made from its parser.

use crate::log::print;
use crate::machine::write_atomically;
use anyhow::{Context as _, Result};
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use std::path::Path;

/// Argument of `completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that the script is for.
    #[arg(value_enum)]
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShellName {
    /// Bash 4.4 or later.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}

/// Prints the script of a shell.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<()> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "millrace", &mut script);
    print(&String::from_utf8(script)?)
}

/// Writes `millrace.1` and a page for every verb (`millrace-train.1`) in `folder`.
///
/// # Errors
/// If they cannot be written.
pub(crate) fn man(folder: &Path, program: Command) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let mut program = program.disable_help_subcommand(true);
    program.build();
    pages(folder, &program, "millrace")
}

/// The page of a command, and those of its verbs under `NAME-VERB`.
fn pages(folder: &Path, command: &Command, name: &str) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    write_atomically(&folder.join(format!("{name}.1")), &page)?;
    for verb in command.get_subcommands() {
        pages(folder, verb, &format!("{name}-{}", verb.get_name()))?;
    }
    Ok(())
}

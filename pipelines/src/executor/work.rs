//! Command lines of a curation's tasks, as executors run them: argument lists and quoted lines of shell.

use crate::context::Context;
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;

/// A curation divided into tasks, and the command of each.
pub(crate) struct Work<'a> {
    pub(super) cx: &'a Context,
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    /// Number of tasks that the shards are distributed over.
    pub tasks: usize,
    /// Tasks with shards left to do.
    pub todo: Vec<usize>,
}

impl<'a> Work<'a> {
    pub(super) fn new(cx: &'a Context, tasks: usize) -> Result<Work<'a>> {
        let shards = cx.shards()?;
        let tasks = match tasks {
            0 => shards.len(),
            n => n.min(shards.len()),
        };
        let left = crate::run::shards_left(cx)?;
        let mut todo: Vec<usize> = left.iter().map(|shard| shard % tasks).collect();
        todo.sort_unstable();
        todo.dedup();
        let program = std::env::current_exe().context("the path of this program")?;
        let folder = std::env::current_dir().context("the working directory")?;
        for path in [&program, &folder] {
            if path.to_string_lossy().chars().any(char::is_control) {
                bail!("{path:?}: a path with control characters cannot be handed to a cluster");
            }
        }
        Ok(Work {
            cx,
            program,
            folder,
            tasks,
            todo,
        })
    }

    pub(super) fn name(&self) -> String {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        };
        let mut name = format!(
            "millrace-{}",
            self.cx.job.name.chars().map(plain).collect::<String>()
        );
        // with the stage's suffix it is a Kubernetes name: at most 63 characters, no dash at the end
        name.truncate(NAME_CHARS);
        name.truncate(name.trim_end_matches('-').len());
        name
    }

    pub(super) fn out(&self) -> PathBuf {
        self.folder.join(&self.cx.out)
    }

    /// Arguments of `millrace task`, without the task's number.
    pub(super) fn task(&self, threads: usize) -> Vec<String> {
        let mut args = self.verb("task", threads);
        args.extend(["--stage".into(), "curate".into()]);
        args.extend(["--of".into(), self.tasks.to_string()]);
        args
    }

    /// A task as a line of shell; `index` is a shell expression for its number, everything else is quoted.
    pub(super) fn task_line(&self, args: &[String], index: &str) -> String {
        format!("{} --index {index}", shell(args))
    }

    /// Arguments of the process that runs the remaining stages after the tasks.
    pub(super) fn rest(&self, threads: usize) -> Vec<String> {
        let mut args = self.verb("run", threads);
        args.extend(["--set".into(), "executor=\"local\"".into()]);
        args
    }

    pub(super) fn verb(&self, verb: &str, threads: usize) -> Vec<String> {
        let local = || self.out().join("job.toml").to_string_lossy().into_owned();
        let mut args = vec![
            self.program.to_string_lossy().into_owned(),
            verb.to_string(),
            self.cx.manifest.url("job.toml").unwrap_or_else(local),
        ];
        if threads > 0 {
            args.extend(["--set".into(), format!("threads={threads}")]);
        }
        args
    }
}

/// Characters of a job's name at an executor.
const NAME_CHARS: usize = 50;

/// Words as a line of shell.
pub(super) fn shell(args: &[String]) -> String {
    args.iter().map(|a| quoted(a)).collect::<Vec<_>>().join(" ")
}

/// A word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Numbers as `0-3,7,9-12`.
pub(super) fn ranges(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let shown = runs.iter().map(|(a, b)| match a == b {
        true => a.to_string(),
        false => format!("{a}-{b}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_slurm_reads_them() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn a_shell_reads_quoted_words_as_they_are() {
        for word in [
            "a b",
            "it's",
            "$HOME",
            "",
            "plain-1.toml",
            "x\"y",
            "`id`",
            "a\nb",
        ] {
            let out = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }
}

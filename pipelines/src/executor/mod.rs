//! Who runs the tasks of a curation: this process, or a cluster that is told to run `millrace task`.
//!
//! A task is "shards I, I + N, I + 2N, ... of the job"; it needs nothing but the job file, the list of shards and the job's
//! folder, writes its files atomically and leaves a record of each shard. So an executor only has to run argument lists: an
//! array of tasks, and when all of them have succeeded one process that adds their records up and goes on with the job.
//! Anything may be run again at any time; what is recorded is skipped.

mod kubernetes;
mod ray;
mod slurm;

pub(crate) use kubernetes::Kubernetes;
pub(crate) use ray::Ray;
pub(crate) use slurm::Slurm;

use crate::job::{Executor, Problem};
use crate::machine::write_atomically;
use crate::run::{Context, SHARDS, print};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What an executor was told to run, in `executor.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// `slurm` or `ray`.
    pub executor: String,
    /// Their names at the executor.
    pub jobs: Vec<SubmittedJob>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubmittedJob {
    /// Name at the executor.
    pub id: String,
    /// The tasks it runs; empty for what comes behind them.
    pub tasks: Vec<usize>,
}

impl Submission {
    pub(crate) const FILE: &'static str = "executor.json";

    /// The last one of the job in `out`.
    pub(crate) fn read(out: &Path) -> Option<Submission> {
        let text = std::fs::read_to_string(out.join(Submission::FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn write(&self, cx: &Context) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        write_atomically(&cx.out.join(Submission::FILE), text.as_bytes())?;
        cx.manifest.share(Submission::FILE)
    }
}

/// The tasks of a curation and what each of them runs.
pub(crate) struct Work<'a> {
    cx: &'a Context,
    program: PathBuf,
    folder: PathBuf,
    /// Number of tasks the shards are dealt to.
    pub tasks: usize,
    /// Those with something left to do.
    pub todo: Vec<usize>,
}

impl<'a> Work<'a> {
    fn new(cx: &'a Context, tasks: usize) -> Result<Work<'a>> {
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

    fn name(&self) -> String {
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
        // with the stage behind it a name of Kubernetes, which has at most 63 characters and ends with no dash
        name.truncate(NAME_CHARS);
        name.truncate(name.trim_end_matches('-').len());
        name
    }

    fn out(&self) -> PathBuf {
        self.folder.join(&self.cx.out)
    }

    /// Arguments of a task, without those of its number.
    fn task(&self, threads: usize) -> Vec<String> {
        let mut args = self.verb("task", threads);
        args.extend(["--stage".into(), "curate".into()]);
        args.extend(["--of".into(), self.tasks.to_string()]);
        args
    }

    /// A task as a line of shell; `index` is an expression of the shell, everything else is quoted.
    fn task_line(&self, args: &[String], index: &str) -> String {
        format!("{} --index {index}", shell(args))
    }

    /// Arguments of what comes behind the tasks.
    fn rest(&self, threads: usize) -> Vec<String> {
        let mut args = self.verb("run", threads);
        args.extend(["--set".into(), "executor=\"local\"".into()]);
        args
    }

    fn verb(&self, verb: &str, threads: usize) -> Vec<String> {
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
fn shell(args: &[String]) -> String {
    args.iter().map(|a| quoted(a)).collect::<Vec<_>>().join(" ")
}

/// Reports a setting that would not be one line of a script.
fn check_line(key: &str, value: &str, problems: &mut Vec<Problem>) {
    if value.chars().any(char::is_control) {
        problems.push(Problem {
            key: key.into(),
            found: format!("{value:?}"),
            wanted: "one line without control characters".into(),
        });
    }
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Numbers as `0-3,7,9-12`.
fn ranges(numbers: &[usize]) -> String {
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

/// Hands the job to its executor; with `dry_run` only prints what would be handed over.
pub(crate) fn submit(cx: &Context, dry_run: bool) -> Result<()> {
    let job = &cx.job;
    if job.curate.is_none() {
        bail!(
            "the job has no [curate] table, whose shards are the tasks of a cluster; use executor = \"local\""
        );
    }
    if !dry_run {
        let mut list = serde_json::to_string(cx.shards()?)?;
        list.push('\n');
        write_atomically(&cx.out.join(SHARDS), list.as_bytes())?;
        cx.manifest.share(SHARDS)?;
    }
    let wanted = match job.executor {
        Executor::Local => 0,
        Executor::Slurm => job.slurm.clone().unwrap_or_default().tasks,
        Executor::Ray => job.ray.clone().unwrap_or_default().tasks,
        Executor::Kubernetes => job.kubernetes.clone().unwrap_or_default().tasks,
    };
    let work = Work::new(cx, wanted)?;
    match job.executor {
        Executor::Local => bail!("the job is run here"),
        Executor::Slurm => job.slurm.clone().unwrap_or_default().submit(&work, dry_run),
        Executor::Ray => job.ray.clone().unwrap_or_default().submit(&work, dry_run),
        Executor::Kubernetes => {
            let kubernetes = job.kubernetes.clone().unwrap_or_default();
            print(&kubernetes.render(&work, dry_run)?)
        }
    }
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

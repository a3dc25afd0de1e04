//! Command lines of a curation's tasks and of a training, as executors run them: argument lists and quoted lines of shell.

use crate::context::Context;
use crate::job::{LoadError, Nodes, Problem};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;

/// The submitted job, from which a launch starts all stages.
pub(super) const SUBMITTED: &str = "records/submitted.toml";

/// A training that the executor starts.
pub(super) struct Training {
    pub nodes: Nodes,
    pub environment: Vec<Variable>,
}

/// A variable of the training's processes.
pub(super) struct Variable {
    pub name: String,
    pub value: String,
}

impl Training {
    /// That of the job; None if it has none.
    ///
    /// # Errors
    /// Variables that are not set here, all of them at once.
    pub(super) fn of(cx: &Context) -> Result<Option<Training>> {
        let Some(nodes) = cx.job.training_nodes() else {
            return Ok(None);
        };
        let mut problems = Vec::new();
        let mut environment = Vec::new();
        for (at, entry) in nodes.environment.iter().enumerate() {
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (entry.as_str(), std::env::var(entry).ok()),
            };
            match value.filter(|value| !value.chars().any(char::is_control)) {
                Some(value) => environment.push(Variable {
                    name: name.to_owned(),
                    value,
                }),
                None => problems.push(Problem {
                    key: format!("nodes.environment[{at}]"),
                    found: format!("{name}, which is not set here to one line"),
                    wanted: "a variable of this environment, or NAME=VALUE".into(),
                }),
            }
        }
        match problems.is_empty() {
            true => Ok(Some(Training { nodes, environment })),
            false => Err(LoadError::problems(cx.out.join("job.toml"), problems).into()),
        }
    }
}

/// A curation divided into tasks, the command of each, and what follows it.
pub(crate) struct Work<'a> {
    pub(super) cx: &'a Context,
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    /// Number of tasks that the shards are distributed over.
    pub tasks: usize,
    /// Tasks with shards left to do.
    pub todo: Vec<usize>,
    /// The training after them.
    pub(super) training: Option<Training>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        cx: &'a Context,
        tasks: usize,
        training: Option<Training>,
    ) -> Result<Work<'a>> {
        let (shards, left) = match cx.job.curate {
            Some(_) => (cx.shards()?.len(), crate::run::shards_left(cx)?),
            None => (0, Vec::new()),
        };
        let tasks = match tasks {
            0 => shards,
            n => n.min(shards),
        };
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
            training,
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

    /// Arguments of the process that trains on the nodes of its allocation, with the stages around.
    pub(super) fn launch(&self) -> Vec<String> {
        let submitted = self.out().join(SUBMITTED);
        vec![
            self.program.to_string_lossy().into_owned(),
            "launch".into(),
            submitted.to_string_lossy().into_owned(),
        ]
    }

    /// Arguments of one of the processes that train, where the cluster starts them itself.
    pub(super) fn train(&self) -> Vec<String> {
        let submitted = self.out().join(SUBMITTED);
        vec![
            self.program.to_string_lossy().into_owned(),
            "train".into(),
            submitted.to_string_lossy().into_owned(),
            "--set".into(),
            "executor=\"local\"".into(),
        ]
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
pub(crate) fn quoted(word: &str) -> String {
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

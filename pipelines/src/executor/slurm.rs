//! Slurm executor: a job array of tasks and, depending on it (`afterok`), one job for the remaining stages.
//!
//! Arrays longer than the site's `MaxArraySize` are split into several. Only unfinished tasks are submitted, so the
//! same command after a failure runs what is missing. Uses `sbatch --parsable` and environment variables that Slurm
//! 22.05 and later share.

use super::work::{Work, quoted, ranges, shell};
use crate::job::Slurm;
use crate::log::print;
use crate::machine::write_atomically;
use crate::submission::{Submission, SubmittedJob};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// `MaxArraySize` if the site's value is unknown: Slurm's own default.
const MAX_ARRAY: usize = 1001;

impl Slurm {
    pub(super) fn submit(&self, work: &Work, dry_run: bool) -> Result<()> {
        let out = work.out();
        if !dry_run {
            self.refuse_twice(&out)?;
            std::fs::create_dir_all(out.join("slurm"))?;
        }
        let longest = match self.max_array {
            0 => site_limit(),
            n => n,
        };
        let mut answer = Submission {
            executor: "slurm".into(),
            jobs: Vec::new(),
        };
        let mut before: Option<String> = None;
        for (number, first) in (0..work.tasks).step_by(longest).enumerate() {
            let own = |t: &&usize| (first..first + longest).contains(*t);
            let tasks: Vec<usize> = work.todo.iter().filter(own).copied().collect();
            if tasks.is_empty() {
                continue;
            }
            let script = self.array(work, first, &tasks);
            let file = out.join(format!("slurm/curate-{number}.sh"));
            // `at_once` is a limit per array, so with several arrays each waits for the previous one
            let wait = match (self.at_once, &before) {
                (1.., Some(id)) => vec![format!("--dependency=afterany:{id}")],
                _ => Vec::new(),
            };
            let id = hand_over(&file, &script, &wait, dry_run)?;
            before = Some(id.clone().unwrap_or_else(|| "ARRAY-BEFORE".into()));
            if let Some(id) = id {
                answer.jobs.push(SubmittedJob { id, tasks });
                answer.write(work.cx)?;
            }
        }
        let mut after = Vec::new();
        if !answer.jobs.is_empty() {
            let ids: Vec<&str> = answer.jobs.iter().map(|j| j.id.as_str()).collect();
            after.push(format!("--dependency=afterok:{}", ids.join(":")));
            // a job whose dependency can never be met would wait for ever
            after.push("--kill-on-invalid-dep=yes".to_string());
        }
        let script = self.script(work, "rest", &[], &shell(&work.rest(self.cpus_per_task)));
        let file = out.join("slurm/rest.sh");
        if let Some(id) = hand_over(&file, &script, &after, dry_run)? {
            answer.jobs.push(SubmittedJob {
                id,
                tasks: Vec::new(),
            });
            answer.write(work.cx)?;
            let ids: Vec<&str> = answer.jobs.iter().map(|j| j.id.as_str()).collect();
            log!(
                "slurm: {} of {} tasks in jobs {}; `millrace status` shows their progress",
                work.todo.len(),
                work.tasks,
                ids.join(" ")
            );
        }
        Ok(())
    }

    /// The script of an array: `tasks` of those from `first` on.
    fn array(&self, work: &Work, first: usize, tasks: &[usize]) -> String {
        let indices: Vec<usize> = tasks.iter().map(|t| t - first).collect();
        let limit = match self.at_once {
            0 => String::new(),
            n => format!("%{n}"),
        };
        let array = format!("--array={}{limit}", ranges(&indices));
        let index = match first {
            0 => "\"$SLURM_ARRAY_TASK_ID\"".to_string(),
            n => format!("$((SLURM_ARRAY_TASK_ID + {n}))"),
        };
        let line = work.task_line(&work.task(self.cpus_per_task), &index);
        self.script(work, "curate", &[array], &line)
    }

    fn script(&self, work: &Work, stage: &str, more: &[String], line: &str) -> String {
        let log = if stage == "rest" {
            "rest-%j"
        } else {
            "curate-%A_%a"
        };
        let mut options = vec![
            format!("--job-name={}-{stage}", work.name()),
            format!(
                "--output={}",
                // Slurm expands % in file names
                format!(
                    "{}/slurm/{log}.log",
                    work.out().display().to_string().replace('%', "%%")
                )
            ),
            format!("--chdir={}", work.folder.display()),
            "--requeue".to_string(),
            "--open-mode=append".to_string(),
        ];
        for (name, value) in [
            ("partition", self.partition.clone()),
            ("account", self.account.clone()),
            ("qos", self.qos.clone()),
            ("time", self.time.clone()),
            ("cpus-per-task", some(self.cpus_per_task as u64)),
            ("mem", some(self.mem_mb)),
        ] {
            if !value.is_empty() {
                options.push(format!("--{name}={value}"));
            }
        }
        options.extend(more.iter().cloned());
        options.extend(self.options.iter().cloned());
        let mut text = String::from("#!/bin/bash\n");
        for option in options {
            text += &format!("#SBATCH {}\n", quoted(&option));
        }
        if !self.setup.is_empty() {
            text += &format!("{}\n", self.setup.trim_end());
        }
        text + &format!("exec {line}\n")
    }

    /// Refuses to submit while an earlier array is queued or running: it would do the same work twice.
    fn refuse_twice(&self, out: &Path) -> Result<()> {
        let Some(before) = Submission::read(out).filter(|s| s.executor == "slurm") else {
            return Ok(());
        };
        let ids: Vec<&str> = before.jobs.iter().map(|j| j.id.as_str()).collect();
        let asked = Command::new("squeue")
            .args(["-h", "-o", "%i", "-j", &ids.join(",")])
            .output();
        // squeue fails once it knows none of them any more
        let Ok(asked) = asked else { return Ok(()) };
        let alive = String::from_utf8_lossy(&asked.stdout).trim().to_string();
        if asked.status.success() && !alive.is_empty() {
            bail!(
                "the job was submitted before and is under way as {}; `millrace status` shows its progress, `scancel` stops it",
                alive.split_whitespace().collect::<Vec<_>>().join(" ")
            );
        }
        Ok(())
    }
}

/// A number, or an empty string for 0.
fn some(n: u64) -> String {
    match n {
        0 => String::new(),
        n => n.to_string(),
    }
}

/// `MaxArraySize` of the site.
fn site_limit() -> usize {
    let answer = Command::new("scontrol").args(["show", "config"]).output();
    let text = answer.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let line = |text: &str| {
        let line = text
            .lines()
            .find(|l| l.trim_start().starts_with("MaxArraySize"))?;
        line.split('=').nth(1)?.trim().parse::<usize>().ok()
    };
    text.ok()
        .and_then(|t| line(&t))
        .filter(|n| *n > 0)
        .unwrap_or(MAX_ARRAY)
}

/// Writes a script and submits it; returns its id, or None if it was only printed.
fn hand_over(
    file: &Path,
    script: &str,
    options: &[String],
    dry_run: bool,
) -> Result<Option<String>> {
    if dry_run {
        let options = options.join(" ");
        print(&format!(
            "# sbatch --parsable {options} {}\n{script}\n",
            file.display()
        ))?;
        return Ok(None);
    }
    write_atomically(file, script.as_bytes())?;
    let answer = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .arg(file)
        .output()
        .context("cannot run sbatch; is this a machine that submits to Slurm?")?;
    if !answer.status.success() {
        bail!(
            "sbatch refused {}: {}",
            file.display(),
            String::from_utf8_lossy(&answer.stderr).trim()
        );
    }
    // the cluster's name may follow behind a semicolon
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let id = text
        .trim()
        .split(';')
        .next()
        .unwrap_or_default()
        .to_string();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
        bail!(
            "sbatch answered {:?}, expected the number of a job",
            text.trim()
        );
    }
    Ok(Some(id))
}

//! Slurm executor: a job array of tasks and, depending on it (`afterok`), one job for the remaining stages.
//!
//! Arrays longer than the site's `MaxArraySize` are split into several. Only unfinished tasks are submitted, so the
//! same command after a failure runs what is missing. Uses `sbatch --parsable` and environment variables that Slurm
//! 22.05 and later share.

use super::work::{Training, Work, quoted, ranges, shell};
use crate::job::Slurm;
use crate::log::print;
use crate::machine::write_atomically;
use crate::submission::{Submission, SubmittedJob};
use anyhow::{Context as _, Result, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `MaxArraySize` if the site's value is unknown: Slurm's own default.
const MAX_ARRAY: usize = 1001;

impl Slurm {
    pub(super) fn submit(&self, work: &Work, dry_run: bool) -> Result<()> {
        let out = work.out();
        if !dry_run {
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
        let (script, file) = match &work.training {
            Some(training) => (self.train_script(work, training), "slurm/train.sh"),
            None => {
                let line = shell(&work.rest(self.cpus_per_task));
                (self.script(work, "rest", &[], &line), "slurm/rest.sh")
            }
        };
        let file = out.join(file);
        if let Some(id) = hand_over(&file, &script, &after, dry_run)? {
            answer.jobs.push(SubmittedJob {
                id,
                tasks: Vec::new(),
            });
            answer.write(work.cx)?;
            let ids: Vec<&str> = answer.jobs.iter().map(|j| j.id.as_str()).collect();
            let tasks = match work.tasks {
                0 => "the training".to_string(),
                tasks => format!("{} of {tasks} tasks", work.todo.len()),
            };
            log!(
                "slurm: {tasks} in jobs {}; `millrace status` shows their progress",
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

    /// The script of a task, or of the remaining stages.
    fn script(&self, work: &Work, stage: &str, more: &[String], line: &str) -> String {
        let log = if stage == "rest" {
            "rest-%j"
        } else {
            "curate-%A_%a"
        };
        let mut options = common(work, stage, log);
        let settings = [
            ("partition", self.partition.clone()),
            ("account", self.account.clone()),
            ("qos", self.qos.clone()),
            ("time", self.time.clone()),
            ("cpus-per-task", some(self.cpus_per_task as u64)),
            ("mem", some(self.mem_mb)),
        ];
        options.extend(given(&settings));
        options.extend(more.iter().cloned());
        options.extend(self.options.iter().cloned());
        self.text(&options, &[], line)
    }

    /// The script of the training: `launch` starts the ranks as steps of the job. SIGUSR1 says that its time is nearly over. The
    /// allocation outlives a node.
    fn train_script(&self, work: &Work, training: &Training) -> String {
        let nodes = &training.nodes;
        let own = |own: &String, of_tasks: &String| match own.as_str() {
            "" => of_tasks.clone(),
            own => own.to_owned(),
        };
        // Slurm gives as many as are free: a node that is down does not keep the job waiting
        let range = match (nodes.least(), nodes.allocated()) {
            (least, most) if least < most => format!("{least}-{most}"),
            (_, most) => most.to_string(),
        };
        let mut options = common(work, "train", "train-%j");
        let settings = [
            ("partition", own(&self.train.partition, &self.partition)),
            ("account", self.account.clone()),
            ("qos", self.qos.clone()),
            ("time", own(&self.train.time, &self.time)),
            ("nodes", range),
            // of one task per node: with a number of tasks Slurm gives no more nodes than the fewest
            ("cpus-per-task", some(nodes.cpus as u64)),
            ("mem", some(nodes.mem_mb)),
            ("gpus-per-node", some(nodes.gpus as u64)),
            ("signal", format!("B:USR1@{}", nodes.grace_s)),
        ];
        options.extend(given(&settings));
        options.push("--no-kill".into());
        options.extend(self.options.iter().cloned());
        options.extend(self.train.options.iter().cloned());
        let exports = training.environment.iter();
        let exports: Vec<String> = exports
            .map(|variable| format!("export {}={}", variable.name, quoted(&variable.value)))
            .collect();
        self.text(&options, &exports, &shell(&work.launch()))
    }

    fn text(&self, options: &[String], exports: &[String], line: &str) -> String {
        let mut text = String::from("#!/bin/bash\n");
        for option in options {
            text += &format!("#SBATCH {}\n", quoted(option));
        }
        if !self.setup.is_empty() {
            text += &format!("{}\n", self.setup.trim_end());
        }
        for export in exports {
            text += &format!("{export}\n");
        }
        text + &format!("exec {line}\n")
    }
}

/// Refuses to submit while an earlier array is queued or running: it would do the same work twice.
pub(super) fn refuse_twice(out: &Path) -> Result<()> {
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

/// Options of each script.
fn common(work: &Work, stage: &str, log: &str) -> Vec<String> {
    // Slurm expands % in file names
    let out = work.out().display().to_string().replace('%', "%%");
    vec![
        format!("--job-name={}-{stage}", work.name()),
        format!("--output={out}/slurm/{log}.log"),
        format!("--chdir={}", work.folder.display()),
        "--requeue".to_string(),
        "--open-mode=append".to_string(),
    ]
}

/// `--NAME=VALUE` of each setting that is not empty.
fn given<'a>(settings: &'a [(&'a str, String)]) -> impl Iterator<Item = String> + 'a {
    let given = settings.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("--{name}={value}"))
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

/// Makes a file that may hold secrets of `nodes.environment` readable by its owner alone.
pub(super) fn only_for_the_owner(file: &Path) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file, mode)
        .with_context(|| format!("cannot set the mode of {}", file.display()))
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
    only_for_the_owner(file)?;
    let answer = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .arg(file)
        .output()
        .context("cannot run sbatch; run this on a machine that submits to Slurm, or with executor = \"local\"")?;
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

//! Health of nodes: `millrace doctor --node FOLDER` on each, before an attempt starts.

use super::record::Excluded;
use super::scheduler::Scheduler;
use crate::log::print;
use crate::machine::{available_memory_bytes, grouped};
use anyhow::{Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The check of a node by `doctor`.
#[derive(Args)]
pub(crate) struct NodeArgs {
    /// Check this node for a training in the folder DIR instead, as executors do: exit code 1 and the reasons if it is not healthy.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["compile_kernels", "measure"])]
    node: Option<PathBuf>,
    /// Bytes of memory that have to be available.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "node", conflicts_with_all = ["compile_kernels", "measure"])]
    memory: u64,
    /// GPUs that have to be usable.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "node", conflicts_with_all = ["compile_kernels", "measure"])]
    gpus: usize,
}

/// Answer of a check, as one line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Health {
    /// Reasons why the node cannot train; none if it is healthy.
    problems: Vec<String>,
}

/// Bytes that a check writes, to notice a full disk.
const WRITTEN: usize = 1 << 20;
/// Checks that run at once.
const AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(20);

impl NodeArgs {
    /// Whether a node is to be checked.
    pub(crate) fn is_given(&self) -> bool {
        self.node.is_some()
    }

    /// Checks this node and prints the answer.
    ///
    /// # Errors
    /// The node is not healthy.
    pub(crate) fn check(&self) -> Result<()> {
        let mut health = Health::default();
        let folder = self.node.as_deref().unwrap_or_else(|| Path::new("."));
        if let Err(error) = write_and_read(folder) {
            let folder = folder.display();
            health
                .problems
                .push(format!("the folder {folder} cannot be written: {error}"));
        }
        let available = available_memory_bytes();
        // 0: the system does not report it
        if available > 0 && available < self.memory {
            health.problems.push(format!(
                "{} MB of memory are available, {} are needed",
                grouped(available / 1_000_000),
                grouped(self.memory.div_ceil(1_000_000))
            ));
        }
        if self.gpus > 0 {
            match crate::devices::here().devices() {
                Ok(found) if found.len() >= self.gpus => {}
                Ok(found) => {
                    health
                        .problems
                        .push(format!("{} of {} GPUs are there", found.len(), self.gpus))
                }
                Err(error) => health
                    .problems
                    .push(format!("no GPU can be used: {}", error.with_causes())),
            }
        }
        print(&format!("{}\n", serde_json::to_string(&health)?))?;
        match health.problems.is_empty() {
            true => Ok(()),
            false => bail!("this node is not healthy: {}", health.problems.join("; ")),
        }
    }
}

fn write_and_read(folder: &Path) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".millrace-")
        .suffix(".tmp")
        .tempfile_in(folder)?;
    file.write_all(&vec![1; WRITTEN])?;
    file.as_file().sync_all()?;
    let mut bytes = Vec::new();
    file.reopen()?.read_to_end(&mut bytes)?;
    match bytes.len() == WRITTEN && bytes.iter().all(|byte| *byte == 1) {
        true => Ok(()),
        false => Err(std::io::Error::other(
            "other bytes are read than were written",
        )),
    }
}

/// Nodes that can train, in the order they were asked for, and the others with a reason each.
#[derive(Default)]
pub(super) struct Checked {
    pub healthy: Vec<String>,
    pub excluded: Vec<Excluded>,
}

impl Checked {
    /// Adds those of further nodes.
    pub(super) fn extend(&mut self, more: Checked) {
        self.healthy.extend(more.healthy);
        self.excluded.extend(more.excluded);
    }
}

/// Checks all `nodes` at once, each within `limit`, by the command line `line` of `doctor`.
pub(super) fn check(
    scheduler: &Scheduler,
    nodes: &[String],
    line: &[String],
    limit: Duration,
) -> Checked {
    let mut checked = Checked::default();
    for nodes in nodes.chunks(AT_ONCE) {
        let until = Instant::now() + limit;
        let running: Vec<std::io::Result<Child>> = nodes
            .iter()
            .map(|node| {
                let mut command = scheduler.on(node, line);
                command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
            })
            .collect();
        for (node, child) in nodes.iter().zip(running) {
            match child
                .map_err(|error| error.to_string())
                .and_then(|c| end(c, until))
            {
                Ok(()) => checked.healthy.push(node.clone()),
                Err(reason) => checked.excluded.push(Excluded {
                    node: node.clone(),
                    reason,
                }),
            }
        }
    }
    checked
}

/// Waits for a check; `Err`: the reason why the node cannot be used.
fn end(mut child: Child, until: Instant) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Err(error) => return Err(error.to_string()),
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() >= until => {
                // a process that is gone already needs no signal
                let _ = child.kill();
                let _ = child.wait();
                return Err("its check did not end in time".into());
            }
            Ok(None) => std::thread::sleep(PAUSE),
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: Option<Health> = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    match answer {
        Some(health) if health.problems.is_empty() && output.status.success() => Ok(()),
        Some(health) if !health.problems.is_empty() => Err(health.problems.join("; ")),
        Some(_) | None => Err(without_answer(&output)),
    }
}

/// The last line that a check without an answer printed, such as srun's.
fn without_answer(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    format!("{}, {}", output.status, last.unwrap_or("no message").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_too_little_memory_and_missing_gpus_are_all_named() {
        let folder = tempfile::tempdir().unwrap();
        let check = |folder: &Path, memory, gpus| NodeArgs {
            node: Some(folder.into()),
            memory,
            gpus,
        };
        check(folder.path(), 1, 0).check().unwrap();
        let wrong = check(&folder.path().join("none"), u64::MAX, 10_000);
        let error = wrong.check().unwrap_err().to_string();
        for part in ["cannot be written", "MB of memory are available", "GPU"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

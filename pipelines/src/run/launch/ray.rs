//! The nodes of a Ray cluster, in one of whose jobs `launch` runs. Ray's jobs have one process on one node, so a small program in
//! Python (`nodes.py`) starts the others as actors.

use crate::job::Nodes;
use crate::machine::write_atomically;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that starts processes.
const PROGRAM: &str = include_str!("nodes.py");

/// The cluster that this process is in.
pub(super) struct RayCluster {
    program: PathBuf,
    cpus: String,
    gpus: String,
    /// Seconds in which the processes of an attempt have to start.
    seconds: String,
}

impl RayCluster {
    /// Writes the program into the job's folder.
    pub(super) fn of_this_process(out: &Path, nodes: &Nodes) -> Result<RayCluster> {
        let program = out.join("ray/nodes.py");
        write_atomically(&program, PROGRAM.as_bytes())?;
        Ok(RayCluster {
            program,
            cpus: nodes.cpus.max(1).to_string(),
            gpus: nodes.gpus.to_string(),
            seconds: nodes.check_s.to_string(),
        })
    }

    fn start(&self, words: &[&str], line: &[String]) -> Command {
        let mut command = Command::new("python3");
        command.arg(&self.program).args(words).stdin(Stdio::null());
        if !line.is_empty() {
            command.arg("--").args(line);
        }
        command
    }

    /// Ids of the nodes that are up and large enough.
    pub(super) fn nodes(&self) -> Result<Vec<String>> {
        let answer = self
            .start(&["list", &self.cpus, &self.gpus], &[])
            .stderr(Stdio::inherit())
            .output()
            .context(
                "cannot run python3, which has to know Ray; `millrace launch` runs in a job of Ray",
            )?;
        if !answer.status.success() {
            bail!(
                "python3 {} cannot list the nodes of Ray",
                self.program.display()
            );
        }
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// One process on a node.
    pub(super) fn on(&self, node: &str, line: &[String]) -> Command {
        self.start(&["on", node], line)
    }

    /// `processes` processes on each of some nodes, which find each other at the first one.
    pub(super) fn ranks(&self, nodes: &[String], processes: usize, line: &[String]) -> Command {
        let (nodes, processes) = (nodes.join(","), processes.to_string());
        let words = [
            "ranks",
            &nodes,
            &processes,
            &self.cpus,
            &self.gpus,
            &self.seconds,
        ];
        self.start(&words, line)
    }
}

//! `[nodes]`: the nodes that a training gets on a cluster.

use super::problem::Problem;
use serde::{Deserialize, Serialize};

/// `[nodes]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nodes {
    /// Nodes of the training; the ranks of `[parallel]` are shared out evenly over them.
    pub count: usize,
    /// Further nodes of the allocation, which take the places of nodes that fail.
    pub spare: usize,
    /// Fewest nodes to go on with, in the planner's best layout for them; 0: `count`, no smaller layout.
    pub fewest: usize,
    /// Training processes per node, which share its ranks as threads.
    pub processes: usize,
    /// GPUs per node; 0: none are asked for.
    pub gpus: usize,
    /// Processors per node, which its processes share; 0: the scheduler's default.
    pub cpus: usize,
    /// Memory per node in MiB; 0: the scheduler's default.
    pub mem_mb: u64,
    /// Failed attempts in a row without a new checkpoint after which the training is given up; also how often an allocation with
    /// too few healthy nodes is given back for another.
    pub retries: usize,
    /// Seconds for the last checkpoint before an allocation ends.
    pub grace_s: u64,
    /// Seconds that the health check of a node may take.
    pub check_s: u64,
    /// Cluster whose rates rank smaller layouts: a cluster file, or a name that `millrace plan --cluster` takes; empty: `dgx-h100`.
    pub cluster: String,
    /// Environment of the processes: `NAME=VALUE`, or `NAME` with the value at the time of the submission.
    pub environment: Vec<String>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            count: 1,
            spare: 0,
            fewest: 0,
            processes: 1,
            gpus: 0,
            cpus: 0,
            mem_mb: 0,
            retries: 3,
            grace_s: 300,
            check_s: 60,
            cluster: String::new(),
            environment: Vec::new(),
        }
    }
}

/// Most nodes, and most processes of a node.
const MOST: usize = 100_000;
/// Most processors of a node, as of `threads`.
const MOST_CPUS: usize = 4096;
/// Most GPUs of a node: no machine has as many.
const MOST_GPUS: usize = 1024;
/// Least and most memory of a node in MiB: a process that trains nothing yet, and 1 PiB, which no machine has. A number outside is of
/// another unit.
const MEMORY_MB: std::ops::RangeInclusive<u64> = 128..=1 << 30;

impl Nodes {
    /// Fewest nodes of an attempt.
    pub(crate) fn least(&self) -> usize {
        match self.fewest {
            0 => self.count,
            fewest => fewest,
        }
    }

    /// Nodes of the allocation.
    pub(crate) fn allocated(&self) -> usize {
        self.count + self.spare
    }

    /// Reports every contradiction within the table.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        let mut add = |key: &str, found: String, wanted: &str| {
            problems.push(Problem {
                key: format!("nodes.{key}"),
                found,
                wanted: wanted.into(),
            });
        };
        let counts = [("count", self.count), ("processes", self.processes)];
        for (key, value) in counts {
            if !(1..=MOST).contains(&value) {
                add(key, value.to_string(), "1 to 100000");
            }
        }
        if self.spare > MOST {
            add("spare", self.spare.to_string(), "0 to 100000");
        }
        for (key, value, most) in [
            ("cpus", self.cpus, MOST_CPUS),
            ("gpus", self.gpus, MOST_GPUS),
        ] {
            if value > most {
                add(key, value.to_string(), &format!("0 to {most} of a node"));
            }
        }
        if self.mem_mb > 0 && !MEMORY_MB.contains(&self.mem_mb) {
            let [least, most] = [MEMORY_MB.start(), MEMORY_MB.end()];
            let wanted = format!("{least} to {most} MiB of a node, or 0: the scheduler's default");
            add("mem_mb", self.mem_mb.to_string(), &wanted);
        }
        if self.fewest > self.count {
            let wanted = "at most nodes.count; 0 is nodes.count";
            add("fewest", self.fewest.to_string(), wanted);
        }
        for (key, value) in [("grace_s", self.grace_s), ("check_s", self.check_s)] {
            if !(1..=86_400).contains(&value) {
                add(key, value.to_string(), "1 to 86400 seconds");
            }
        }
        for (at, entry) in self.environment.iter().enumerate() {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_name = name.chars().all(is_plain) && !name.is_empty();
            let is_digit_first = name.starts_with(|c: char| c.is_ascii_digit());
            if !is_name || is_digit_first || value.chars().any(char::is_control) {
                add(
                    &format!("environment[{at}]"),
                    format!("{entry:?}"),
                    "NAME or NAME=VALUE on one line, such as \"NCCL_SOCKET_IFNAME\"",
                );
            }
        }
    }
}

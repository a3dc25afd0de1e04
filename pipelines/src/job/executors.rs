//! The tables of the executors: `[slurm]`, `[ray]`, `[kubernetes]`.

use super::problem::Problem;
use serde::{Deserialize, Serialize};

/// `[slurm]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Tasks that the shards are distributed over; 0: one per shard.
    pub tasks: usize,
    /// Limit of tasks that run at once, over all arrays; 0: as many as Slurm allows.
    pub at_once: usize,
    /// Longest array of the site; 0: the value that `scontrol show config` reports, or 1001.
    pub max_array: usize,
    /// `--partition`; empty: the site's default, likewise for the next three.
    pub partition: String,
    /// `--account`.
    pub account: String,
    /// `--qos`.
    pub qos: String,
    /// `--time` of a task and of the rest.
    pub time: String,
    /// `--cpus-per-task`, which is also the number of threads; 0: Slurm's default.
    pub cpus_per_task: usize,
    /// `--mem` of a task in MiB; 0: Slurm's default.
    pub mem_mb: u64,
    /// More options of sbatch, one each, such as `--constraint=local`.
    pub options: Vec<String>,
    /// Lines of shell before the program starts, such as `module load zstd`.
    pub setup: String,
    /// Settings of the job that trains, with `setup` and the options above; its nodes are those of `[nodes]`.
    pub train: SlurmTrain,
}

/// `[slurm.train]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmTrain {
    /// `--partition`; empty: that of `[slurm]`.
    pub partition: String,
    /// `--time` of an allocation, after which the training is queued again; empty: that of `[slurm]`.
    pub time: String,
    /// More options of sbatch, such as `--exclusive`.
    pub options: Vec<String>,
    /// More options of srun, such as `--container-image=FILE`.
    pub srun: Vec<String>,
}

impl Slurm {
    /// Reports every contradiction.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        for (key, options, wanted) in [
            (
                "options",
                &self.options,
                "an option of sbatch, such as --constraint=local",
            ),
            (
                "train.options",
                &self.train.options,
                "an option of sbatch, such as --exclusive",
            ),
            (
                "train.srun",
                &self.train.srun,
                "an option of srun, such as --mpi=none",
            ),
        ] {
            for (i, option) in options.iter().enumerate() {
                if !option.starts_with('-') || option.chars().any(char::is_control) {
                    problems.push(Problem {
                        key: format!("slurm.{key}[{i}]"),
                        found: format!("{option:?}"),
                        wanted: wanted.into(),
                    });
                }
            }
        }
        for (key, value) in [
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("time", &self.time),
            ("train.partition", &self.train.partition),
            ("train.time", &self.train.time),
        ] {
            check_line(&format!("slurm.{key}"), value, problems);
        }
    }
}

/// `[ray]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ray {
    /// The dashboard's address, `http://HOST:PORT`.
    pub address: String,
    /// Tasks that the shards are distributed over; 0: one per shard.
    pub tasks: usize,
    /// Tasks that are submitted at once; 0: all. Ray queues those that find no free processors.
    pub at_once: usize,
    /// Processors of a task, which is also the number of threads.
    pub cpus: usize,
    /// Retries of a failed task.
    pub retries: usize,
}

impl Default for Ray {
    fn default() -> Self {
        Ray {
            address: "http://127.0.0.1:8265".into(),
            tasks: 0,
            at_once: 0,
            cpus: 1,
            retries: 3,
        }
    }
}

impl Ray {
    /// Reports every contradiction.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        let mut add = |key: &str, found: String, wanted: &str| {
            problems.push(Problem {
                key: format!("ray.{key}"),
                found,
                wanted: wanted.into(),
            });
        };
        if !self.address.starts_with("http://") {
            add(
                "address",
                format!("{:?}", self.address),
                "http://HOST:PORT of the dashboard",
            );
        }
        if self.cpus == 0 {
            add("cpus", "0".into(), "1 or more");
        }
    }
}

/// `[kubernetes]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// Image with the program.
    pub image: String,
    /// Path of the program in it.
    pub program: String,
    /// Namespace; empty: kubectl's own.
    pub namespace: String,
    /// Tasks that the shards are distributed over; 0: one per shard.
    pub tasks: usize,
    /// Pods at once.
    pub at_once: usize,
    /// Processors of a pod, which is also the number of threads.
    pub cpus: usize,
    /// Memory of a pod in MiB.
    pub mem_mb: u64,
    /// Claim of the volume that holds inputs and the job's folder.
    pub claim: String,
    /// Mount path in the pods: the folder that contains the job's paths.
    pub mount: String,
    /// Secret whose entries become the pods' environment (credentials of the job's store); empty: none.
    pub secret: String,
    /// Retries of a failed pod of a task.
    pub retries: usize,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Kubernetes {
            image: String::new(),
            program: "millrace".into(),
            namespace: String::new(),
            tasks: 0,
            at_once: 16,
            cpus: 1,
            mem_mb: 2048,
            claim: String::new(),
            mount: String::new(),
            secret: String::new(),
            retries: 3,
        }
    }
}

/// Whether a name is an RFC 1123 label, as names of Kubernetes namespaces are.
fn is_label(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 63 && name.chars().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

impl Kubernetes {
    /// Reports every contradiction. With a store nothing has to be mounted.
    pub(crate) fn check(&self, has_store: bool, problems: &mut Vec<Problem>) {
        let needs_volume = !has_store || !self.claim.is_empty() || !self.mount.is_empty();
        for (key, value, wanted) in [
            ("image", &self.image, "an image with the program"),
            (
                "claim",
                &self.claim,
                "a claim of a volume that holds the job's folder",
            ),
            ("mount", &self.mount, "the folder that pods mount it at"),
        ] {
            if value.is_empty() && (key == "image" || needs_volume) {
                problems.push(Problem {
                    key: format!("kubernetes.{key}"),
                    found: "\"\"".into(),
                    wanted: wanted.into(),
                });
            }
        }
        for (key, value) in [
            ("image", &self.image),
            ("program", &self.program),
            ("claim", &self.claim),
            ("mount", &self.mount),
            ("secret", &self.secret),
        ] {
            check_line(&format!("kubernetes.{key}"), value, problems);
        }
        if !self.namespace.is_empty() && !is_label(&self.namespace) {
            problems.push(Problem {
                key: "kubernetes.namespace".into(),
                found: format!("{:?}", self.namespace),
                wanted: "at most 63 lower-case letters, digits and dashes, no dash at either end"
                    .into(),
            });
        }
        for (key, value) in [("cpus", self.cpus), ("at_once", self.at_once)] {
            if value == 0 {
                problems.push(Problem {
                    key: format!("kubernetes.{key}"),
                    found: "0".into(),
                    wanted: "1 or more".into(),
                });
            }
        }
    }
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

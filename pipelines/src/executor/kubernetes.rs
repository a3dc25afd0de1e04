//! Kubernetes: an indexed Job for the tasks and a Job for the rest, rendered for `kubectl`.
//!
//! Manifests are JSON, which kubectl reads as it reads YAML. The job's folder has to be on a volume that all pods mount at
//! the same path (a claim that many nodes may write), or the job has a store that the pods' environment tells how to reach.

use super::{Work, check_line, quoted, shell};
use crate::job::Problem;
use crate::machine::write_atomically;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// Tasks that the shards are dealt to; 0: one a shard.
    pub tasks: usize,
    /// Pods at once.
    pub at_once: usize,
    /// Processors of a pod, which is also the number of threads.
    pub cpus: usize,
    /// Memory of a pod in MiB.
    pub mem_mb: u64,
    /// Claim of the volume that holds inputs and the job's folder.
    pub claim: String,
    /// Where pods mount it: the folder that the job's paths lie under.
    pub mount: String,
    /// Secret whose entries are the pods' environment: what the job's store asks for; empty: none.
    pub secret: String,
    /// How often the pod of a task is started again.
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

/// A name as RFC 1123 has labels, which namespaces of Kubernetes are.
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

    /// Writes both manifests and returns the commands that run them; with `dry_run` the manifests stand before the commands
    /// and nothing is written.
    pub(super) fn render(&self, work: &Work, dry_run: bool) -> Result<String> {
        let folder = work.out().join("kubernetes");
        let (curate, rest) = (folder.join("curate.json"), folder.join("rest.json"));
        let name = |stage: &str| format!("{}-{stage}", work.name());
        let mut shown = String::new();
        for (file, manifest) in [
            (&curate, self.tasks_job(work, &name("curate"))),
            (&rest, self.rest_job(work, &name("rest"))),
        ] {
            let mut text = serde_json::to_string_pretty(&manifest)?;
            text.push('\n');
            if dry_run {
                shown += &format!("# {}\n{text}", file.display());
            } else {
                write_atomically(file, text.as_bytes())?;
            }
        }
        let space = match self.namespace.as_str() {
            "" => String::new(),
            n => format!(" -n {n}"),
        };
        Ok(shown
            + &format!(
                "kubectl{space} apply -f {}\nkubectl{space} wait --for=condition=complete --timeout=-1s job/{}\nkubectl{space} apply -f {}\n",
                quoted(&curate.to_string_lossy()),
                name("curate"),
                quoted(&rest.to_string_lossy()),
            ))
    }

    /// One pod a task, by `JOB_COMPLETION_INDEX`.
    fn tasks_job(&self, work: &Work, name: &str) -> Value {
        let mut args = work.task(self.cpus);
        args[0] = self.program.clone();
        let line = work.task_line(&args, "\"$JOB_COMPLETION_INDEX\"");
        let mut job = self.job(work, name, &line);
        let spec = &mut job["spec"];
        spec["completionMode"] = json!("Indexed");
        spec["completions"] = json!(work.tasks);
        spec["parallelism"] = json!(self.at_once);
        spec["backoffLimitPerIndex"] = json!(self.retries);
        job
    }

    fn rest_job(&self, work: &Work, name: &str) -> Value {
        let mut args = work.rest(self.cpus);
        args[0] = self.program.clone();
        let mut job = self.job(work, name, &shell(&args));
        job["spec"]["backoffLimit"] = json!(self.retries);
        job
    }

    fn job(&self, work: &Work, name: &str, line: &str) -> Value {
        let mut metadata = json!({"name": name, "labels": {"app": "millrace", "job": work.name()}});
        if !self.namespace.is_empty() {
            metadata["namespace"] = json!(self.namespace);
        }
        let amount = json!({"cpu": self.cpus.to_string(), "memory": format!("{}Mi", self.mem_mb)});
        let mut container = json!({
            "name": "millrace",
            "image": self.image,
            // Kubernetes replaces $(NAME) before the shell reads the line; $$ stands for one dollar
            "command": ["/bin/sh", "-c", format!("exec {}", line.replace("$(", "$$("))],
            "resources": {"requests": amount, "limits": amount},
        });
        if !self.secret.is_empty() {
            container["envFrom"] = json!([{"secretRef": {"name": self.secret}}]);
        }
        let mut pod = json!({"restartPolicy": "Never"});
        if !self.claim.is_empty() {
            let claim = json!({"claimName": self.claim});
            pod["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
            container["volumeMounts"] = json!([{"name": "data", "mountPath": self.mount}]);
            container["workingDir"] = json!(work.folder);
        }
        pod["containers"] = json!([container]);
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"template": {"spec": pod}},
        })
    }
}

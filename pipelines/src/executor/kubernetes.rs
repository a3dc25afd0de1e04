//! Kubernetes: an indexed Job for the tasks and a Job for the rest, rendered for `kubectl`.
//!
//! Manifests are JSON, which kubectl reads as it reads YAML. The job's folder has to be on a volume that all pods mount at
//! the same path (a claim that many nodes may write), or the job has a store that the pods' environment tells how to reach.

use super::{Work, quoted};
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

    /// Writes both manifests and tells the commands that run them.
    pub(super) fn render(&self, work: &Work) -> Result<String> {
        let folder = work.out().join("kubernetes");
        let (curate, rest) = (folder.join("curate.json"), folder.join("rest.json"));
        let name = |stage: &str| format!("{}-{stage}", work.name());
        for (file, manifest) in [
            (&curate, self.tasks_job(work, &name("curate"))),
            (&rest, self.rest_job(work, &name("rest"))),
        ] {
            let mut text = serde_json::to_string_pretty(&manifest)?;
            text.push('\n');
            write_atomically(file, text.as_bytes())?;
        }
        let space = match self.namespace.as_str() {
            "" => String::new(),
            n => format!(" -n {n}"),
        };
        Ok(format!(
            "kubectl{space} apply -f {}\nkubectl{space} wait --for=condition=complete --timeout=-1s job/{}\nkubectl{space} apply -f {}\n",
            quoted(&curate.to_string_lossy()),
            name("curate"),
            quoted(&rest.to_string_lossy()),
        ))
    }

    /// One pod a task, by `JOB_COMPLETION_INDEX`.
    fn tasks_job(&self, work: &Work, name: &str) -> Value {
        let mut args = work.task("INDEX", self.cpus);
        args[0] = self.program.clone();
        let words: Vec<String> = args.iter().map(|a| quoted(a)).collect();
        let line = words
            .join(" ")
            .replace(" INDEX ", " \"$JOB_COMPLETION_INDEX\" ");
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
        let words: Vec<String> = args.iter().map(|a| quoted(a)).collect();
        let mut job = self.job(work, name, &words.join(" "));
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
            "command": ["/bin/sh", "-c", format!("exec {line}")],
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

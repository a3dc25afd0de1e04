//! Kubernetes executor: renders an indexed Job for the tasks and a second Job for the remaining stages, for
//! `kubectl`.
//!
//! Manifests are JSON, which kubectl reads as it reads YAML. Either the job's folder is on a volume that all pods
//! mount at the same path (a ReadWriteMany claim), or the job has a store whose address and credentials are in the
//! pods' environment.

use super::work::{Work, quoted, shell};
use crate::job::Kubernetes;
use crate::machine::write_atomically;
use anyhow::Result;
use serde_json::{Value, json};

impl Kubernetes {
    /// Writes both manifests and returns the commands that apply them; with `dry_run` nothing is written and the
    /// manifests are printed before the commands.
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

    /// One pod per task, numbered by `JOB_COMPLETION_INDEX`.
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
            // Kubernetes expands $(NAME) before the shell reads the line; $$ escapes one dollar
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

//! Kubernetes executor: renders an indexed Job for the tasks and a second Job for the remaining stages, and a script that hands
//! them to `kubectl`. Of a job that trains, these are a Job for the stages before, an indexed Job with the ranks, and a Job for those after.
//!
//! Manifests are JSON, which kubectl reads as it reads YAML. Either the job's folder is on a volume that all pods
//! mount at the same path (a ReadWriteMany claim), or the job has a store whose address and credentials are in the
//! pods' environment.

use super::work::{Training, Work, quoted, shell};
use crate::job::{Kubernetes, Nodes};
use crate::machine::write_atomically;
use anyhow::Result;
use serde_json::{Value, json};

impl Kubernetes {
    /// Writes the manifests and a script that applies them one after the other, and returns the command that runs it; with `dry_run`
    /// nothing is written, and the manifests and the script are returned.
    pub(super) fn render(&self, work: &Work, dry_run: bool) -> Result<String> {
        let folder = work.out().join("kubernetes");
        let space = match self.namespace.as_str() {
            "" => String::new(),
            n => format!(" -n {n}"),
        };
        let mut files = Vec::new();
        let mut stages = Vec::new();
        for (stage, manifest) in self.manifests(work) {
            let file = folder.join(format!("{stage}.json"));
            stages.push(format!(
                "stage {} {}\n",
                named(work, stage),
                quoted(&file.to_string_lossy())
            ));
            files.push((file, serde_json::to_string_pretty(&manifest)? + "\n"));
        }
        let script = SCRIPT.replace(" NAMESPACE", &space) + &stages.concat();
        let file = folder.join("run.sh");
        let command = format!("sh {}\n", quoted(&file.to_string_lossy()));
        files.push((file, script));
        if dry_run {
            let shown = files
                .iter()
                .map(|(file, text)| format!("# {}\n{text}", file.display()));
            return Ok(shown.collect());
        }
        for (file, text) in &files {
            write_atomically(file, text.as_bytes())?;
        }
        Ok(command)
    }

    /// The manifest of each stage, in their order.
    fn manifests(&self, work: &Work) -> Vec<(&'static str, Value)> {
        let mut manifests = Vec::new();
        if work.tasks > 0 {
            manifests.push(("curate", self.tasks_job(work, &named(work, "curate"))));
        }
        match &work.training {
            None => manifests.push(("rest", self.rest_job(work, &named(work, "rest")))),
            Some(training) => {
                let around = |stage: &str, which: &str| {
                    let mut line = work.launch();
                    line.extend(["--stages".into(), which.into()]);
                    self.single_job(work, &named(work, stage), line)
                };
                manifests.push(("prepare", around("prepare", "before")));
                manifests.push(("train", self.training_list(work, training)));
                manifests.push(("finish", around("finish", "after")));
            }
        }
        manifests
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
        self.single_job(work, name, work.rest(self.cpus))
    }

    /// One pod.
    fn single_job(&self, work: &Work, name: &str, mut args: Vec<String>) -> Value {
        args[0] = self.program.clone();
        let mut job = self.job(work, name, &shell(&args));
        job["spec"]["backoffLimit"] = json!(self.retries);
        job
    }

    /// A Service, by which the pods find the first one, and an indexed Job with a pod per process. Kubernetes starts a failed pod
    /// again, on another node if its own is gone; the others then end by themselves and are started again as well. Pods that are
    /// evicted, or stopped after a checkpoint, are no failures, and a job that is refused ends the Job.
    fn training_list(&self, work: &Work, training: &Training) -> Value {
        let (name, nodes) = (named(work, "train"), &training.nodes);
        let processes = nodes.count * nodes.processes;
        let labels = json!({"app": "millrace", "job": name, "stage": "train"});
        let mut line = work.train();
        line[0] = self.program.clone();
        let mut job = self.job(work, &name, &shell(&line));
        let spec = &mut job["spec"];
        spec["completionMode"] = json!("Indexed");
        spec["completions"] = json!(processes);
        spec["parallelism"] = json!(processes);
        spec["backoffLimitPerIndex"] = json!(nodes.retries);
        spec["maxFailedIndexes"] = json!(0);
        spec["podFailurePolicy"] = json!({"rules": [
            bad_job(),
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onExitCodes": {"containerName": "millrace", "operator": "In", "values": [130, 143]}},
        ]});
        let template = &mut spec["template"];
        template["metadata"] = json!({"labels": labels});
        let pod = &mut template["spec"];
        pod["subdomain"] = json!(name);
        pod["terminationGracePeriodSeconds"] = json!(nodes.grace_s);
        pod["topologySpreadConstraints"] = json!([{
            "maxSkew": nodes.processes,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }]);
        let index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
        let mut variables = vec![
            json!({"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}}),
            json!({"name": "WORLD_SIZE", "value": processes.to_string()}),
            json!({"name": "MASTER_ADDR", "value": format!("{name}-0.{name}")}),
            json!({"name": "MASTER_PORT", "value": PORT.to_string()}),
        ];
        variables.extend(training.environment.iter().map(|variable| {
            // Kubernetes expands $(NAME)
            json!({"name": variable.name, "value": variable.value.replace("$(", "$$(")})
        }));
        // rounded down, so that the pods of a node fit on it
        let share = |of_node: usize| (of_node / nodes.processes).max(1);
        let container = &mut pod["containers"][0];
        container["env"] = json!(variables);
        let mut amount = serde_json::Map::new();
        if nodes.cpus > 0 {
            amount.insert("cpu".into(), json!(share(nodes.cpus).to_string()));
        }
        if nodes.mem_mb > 0 {
            let mib = (nodes.mem_mb / nodes.processes as u64).max(1);
            amount.insert("memory".into(), json!(format!("{mib}Mi")));
        }
        if nodes.gpus > 0 {
            amount.insert(
                "nvidia.com/gpu".into(),
                json!(share(nodes.gpus).to_string()),
            );
        }
        container["resources"] = json!({"requests": amount, "limits": amount});
        // the check has the container's folder and devices
        let mut check = container.clone();
        check["name"] = json!("check");
        let mut line = vec![self.program.clone()];
        line.extend(crate::run::check_line(&work.cx.job, &of_pod(nodes)));
        check["command"] = command(&shell(&line));
        pod["initContainers"] = json!([check]);
        let metadata = job["metadata"].clone();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "selector": labels,
                "ports": [{"name": "rendezvous", "port": PORT}],
            },
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [service, job]})
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
            "command": command(line),
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
            "spec": {"podFailurePolicy": {"rules": [bad_job()]}, "template": {"spec": pod}},
        })
    }
}

/// A job or a machine that is refused (exit code 2): no other start mends it.
fn bad_job() -> Value {
    json!({"action": "FailJob", "onExitCodes": {"containerName": "millrace", "operator": "In", "values": [2]}})
}

/// The nodes of a training with each process as a node of its own: what a pod has, and is checked for.
fn of_pod(nodes: &Nodes) -> Nodes {
    Nodes {
        count: nodes.count * nodes.processes,
        processes: 1,
        gpus: nodes.gpus / nodes.processes,
        ..nodes.clone()
    }
}

/// The script without its stages. `kubectl wait` waits for one condition only, and would not notice that a Job has failed.
const SCRIPT: &str = r#"# Applies the Jobs one after the other and waits for the end of each; ends with an error at the first one that fails.
# Started again, it goes on with the Job that it waited for. A Job that has failed has to be deleted before.
set -eu
stage() {
  kubectl NAMESPACE apply -f "$2"
  missed=0
  while :; do
    if ended=$(kubectl NAMESPACE get "job/$1" -o 'jsonpath={.status.conditions[?(@.status=="True")].type}'); then
      missed=0
    else
      missed=$((missed + 1))
      [ "$missed" -lt 30 ] || { echo "job/$1: kubectl got no answer 30 times" >&2; exit 1; }
      ended=
    fi
    case " $ended " in
      *" Complete "*)
        echo "job/$1 is complete"
        return
        ;;
      *" Failed "*)
        echo "job/$1 has failed: kubectl NAMESPACE describe job/$1; to start it again: kubectl NAMESPACE delete job/$1" >&2
        exit 1
        ;;
    esac
    sleep "${MILLRACE_POLL_S:-10}"
  done
}
"#;
/// Port of process 0.
const PORT: u16 = 29_400;

/// Name of a stage's Job: a changed job gets Jobs of its own, because Kubernetes changes nothing of those that are there, and one that
/// is complete would count as this one's.
fn named(work: &Work, stage: &str) -> String {
    let mut name = work.name();
    name.truncate(NAME_CHARS);
    let hash = xxhash_rust::xxh3::xxh3_64(work.cx.job.to_toml().as_bytes());
    format!("{}-{:08x}-{stage}", name.trim_end_matches('-'), hash >> 32)
}

/// Characters of a job's name. With the hash, the stage and the number of a pod it is a host's name: at most 63 characters.
const NAME_CHARS: usize = 38;

/// A line of shell as a container's command.
fn command(line: &str) -> Value {
    // Kubernetes expands $(NAME) before the shell reads the line; $$ escapes one dollar
    json!([
        "/bin/sh",
        "-c",
        format!("exec {}", line.replace("$(", "$$("))
    ])
}

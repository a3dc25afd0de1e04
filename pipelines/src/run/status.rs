//! `status`: progress of a job, from the files in its folder alone, whether or not other processes are running it.

use super::failure::Failure;
use super::finished_shards::{finished_shards, stage_of};
use super::launch::LaunchRecord;
use super::task::{TaskState, is_alive, read_state};
use super::training::TrainingState;
use crate::context::{CRAWLS, SHARDS, submitted_shards};
use crate::job::Job;
use crate::log::{plain, print, printable};
use crate::machine::{grouped, megabytes};
use crate::manifest::{Manifest, Record};
use crate::submission::Submission;
use anyhow::{Context as _, Result, bail};
use curate::pipeline::ShardReport;
use curate::read::Shard;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folder of the tasks' state files.
const TASKS: &str = "records/tasks";

/// Stages in the order of a run.
const STAGES: [&str; 7] = [
    "curate", "dedup", "tokenize", "blend", "train", "eval", "generate",
];

/// Prints a line per stage, for a curation its shards and tasks, for a training its newest verified checkpoint.
pub(crate) fn status(job: &Job, is_json: bool) -> Result<()> {
    let out = &job.out;
    let manifest = Manifest::open(out, job.store()?)?;
    for name in ["job.toml", SHARDS, Submission::FILE] {
        manifest.bring(name)?;
    }
    manifest.bring_folder(TASKS)?;
    manifest.bring_folder(&Failure::folder().to_string_lossy())?;
    if !out.join("job.toml").exists() {
        bail!("nothing has run in {} yet", out.display());
    }
    let failed: Vec<(&str, Failure)> = STAGES
        .iter()
        .filter_map(|stage| Some((*stage, Failure::read(out, stage)?)))
        .collect();
    // a failure record may come from an earlier run with other settings
    let has_failed = |stage: &str| failed.iter().any(|(name, _)| *name == stage);
    let done: Vec<(&str, Record)> = STAGES
        .iter()
        .filter(|stage| !has_failed(stage))
        .filter_map(|stage| Some((*stage, manifest.get(stage).transpose()?)))
        .map(|(stage, record)| Ok((stage, record?)))
        .collect::<Result<_>>()?;
    let curated = Curated::read(job, out, &manifest)?;
    let sum = &curated.sum;
    let mut tasks = tasks(out);
    if job.store.is_some() {
        // locks are not visible on other machines
        tasks.iter_mut().for_each(|t| t.2 = !t.1.is_done);
    }
    let alive = tasks.iter().filter(|t| t.2).count();
    let died: Vec<&str> = tasks
        .iter()
        .filter(|t| !t.1.is_done && !t.2 && t.1.error.is_none())
        .map(|t| t.0.as_str())
        .collect();
    let tasks_failed: BTreeMap<&str, &str> = tasks
        .iter()
        .filter_map(|t| Some((t.0.as_str(), t.1.error.as_deref()?)))
        .collect();
    let submitted = Submission::read(out);
    let checkpoint = CheckpointState::read(out);
    let training = TrainingState::read(out);
    let launched = LaunchRecord::read(out);
    if is_json {
        let mut json_line = json!({
            "stages_done": done.iter().map(|d| d.0).collect::<Vec<_>>(),
            "stages_failed": failed.iter().map(|(stage, f)| (*stage, f.error.as_str())).collect::<BTreeMap<_, _>>(),
            "tasks_failed": tasks_failed,
            "shards": curated.shards, "shards_done": curated.shards_done,
            "bytes": curated.bytes, "bytes_done": curated.bytes_done,
            "records": sum.records, "kept": sum.kept, "quarantined": sum.quarantined,
            "tasks_running": alive, "tasks_died": died, "submitted": submitted,
            "checkpoint": checkpoint, "launch": launched,
        });
        // the keys are there before a training begins, and null
        let training = serde_json::to_value(&training)?;
        for key in [
            "step",
            "steps",
            "loss",
            "tokens_per_s",
            "eta_s",
            "running",
            "pid",
        ] {
            json_line[key] = training[key].clone();
        }
        return print(&format!("{json_line}\n"));
    }
    let mut text = String::new();
    if curated.shards > 0 {
        text += &format!(
            "curate    {} of {} shards, {} of {}; {} records, {} kept, {} quarantined\n",
            curated.shards_done,
            curated.shards,
            megabytes(curated.bytes_done),
            megabytes(curated.bytes),
            grouped(sum.records),
            grouped(sum.kept),
            grouped(sum.quarantined)
        );
    }
    if let Some(s) = &submitted {
        let ids: Vec<&str> = s.jobs.iter().map(|j| j.id.as_str()).collect();
        text += &format!("{:<9} jobs {}\n", s.executor, ids.join(" "));
    }
    text += &launched.map_or(String::new(), |launched| launched.lines());
    if !tasks.is_empty() {
        text += &format!("tasks     {} started, {alive} running\n", tasks.len());
    }
    for name in &died {
        text += &format!(
            "          {name} ended without finishing; started again, it continues where it stopped\n"
        );
    }
    for (name, error) in &tasks_failed {
        text += &format!("          {name} failed: {error}\n");
    }
    for (stage, failure) in &failed {
        text += &format!("{stage:<9} failed: {}\n", failure.error);
    }
    for (stage, record) in &done {
        text += &format!("{stage:<9} done, {:.1} s\n", record.seconds);
    }
    text += &training.map_or(String::new(), |training| training.line());
    text += &checkpoint.map_or(String::new(), |checkpoint| checkpoint.lines());
    print(&printable(&plain(&text)))
}

/// Shards of the curation: those of the finished one, else those of the job and how many of them have a record.
struct Curated {
    shards: usize,
    shards_done: usize,
    /// Of the inputs.
    bytes: u64,
    bytes_done: u64,
    /// The reports of the shards that are done.
    sum: ShardReport,
}

impl Curated {
    fn read(job: &Job, out: &Path, manifest: &Manifest) -> Result<Curated> {
        let listed = shards(job, out)?;
        let finished = finished_shards(manifest)?;
        let mut found = Curated {
            shards: finished.unwrap_or(listed.len()),
            shards_done: 0,
            bytes: 0,
            bytes_done: 0,
            sum: ShardReport::default(),
        };
        let is_listed = listed.len() == found.shards;
        for shard in 0..found.shards {
            let bytes = listed.get(shard).filter(|_| is_listed).map(|s| s.bytes);
            let record = manifest.get(&stage_of(shard))?;
            let Some(record) = record else {
                found.bytes += bytes.unwrap_or(0);
                continue;
            };
            let report: ShardReport = serde_json::from_value(record.counts)
                .with_context(|| format!("counts of shard {shard}"))?;
            // of inputs that have changed since, as they were read
            let bytes = bytes.unwrap_or(report.bytes_in);
            found.shards_done += 1;
            found.bytes += bytes;
            found.bytes_done += bytes;
            found.sum.merge(&report);
        }
        Ok(found)
    }
}

/// The checkpoint that `train`, `eval` and `generate` would use.
#[derive(Serialize)]
struct CheckpointState {
    /// Step of the newest verified checkpoint; absent if none is intact.
    step: Option<u64>,
    path: Option<PathBuf>,
    /// Newer checkpoints that are damaged, one line each.
    damaged: Vec<String>,
}

impl CheckpointState {
    /// Reads it as all verbs do, verifying every byte of the checkpoint; None if there is none.
    fn read(out: &Path) -> Option<CheckpointState> {
        match train::checkpoint::newest_checkpoint(&out.join("checkpoints")) {
            Ok(newest) => {
                let newest = newest?;
                Some(CheckpointState {
                    step: Some(newest.step),
                    path: Some(newest.path),
                    damaged: newest.skipped.iter().map(ToString::to_string).collect(),
                })
            }
            Err(error) => Some(CheckpointState {
                step: None,
                path: None,
                damaged: vec![error.to_string()],
            }),
        }
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        for line in &self.damaged {
            text += &format!("          {line}\n");
        }
        if let (Some(step), Some(path)) = (self.step, &self.path) {
            text += &format!(
                "newest verified checkpoint: step {step}, {}\n",
                path.display()
            );
        }
        text
    }
}

/// The shards as they were submitted, or as they are listed now.
fn shards(job: &Job, out: &Path) -> Result<Vec<Shard>> {
    if let Some(listed) = submitted_shards(out)? {
        return Ok(listed);
    }
    match &job.curate {
        // inputs may be gone, or named from another working directory: then the stages are shown without shards
        Some(config) => match curate::pipeline::shards_kept(config, &out.join(CRAWLS)) {
            Ok(shards) => Ok(shards),
            Err(error) => {
                log!("status: the shards of the curation are not shown: {error}");
                Ok(Vec::new())
            }
        },
        None => Ok(Vec::new()),
    }
}

/// (name, recorded state, whether its process is alive) of every task that was started.
fn tasks(out: &Path) -> Vec<(String, TaskState, bool)> {
    let entries = std::fs::read_dir(out.join(TASKS));
    let mut found: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| {
            let file = path.with_extension("");
            let name = file.file_name()?.to_string_lossy().into_owned();
            Some((name, read_state(&file)?, is_alive(&file)))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

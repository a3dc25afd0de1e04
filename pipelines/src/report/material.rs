//! Input of the report: the manifest and the small files of a job.

use super::trace::{self, Profile};
use crate::job::{ADAPTERS, Job};
use crate::manifest::shards_of;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Everything that the page shows. Missing files are `null`: a job may have run only some stages.
pub(crate) struct Material {
    pub job: Job,
    /// `manifest.json`.
    pub manifest: Value,
    /// Time of its last change, which is the end of the last stage.
    pub finished: Option<SystemTime>,
    /// `records/process.json`: the process that worked in the folder last.
    pub process: Value,
    /// `blend.json`.
    pub blend: Value,
    /// Sidecars of the job's token datasets.
    pub sidecars: Vec<index::dataset::Sidecar>,
    /// The job's tokenizer, to show ids as text.
    pub tokenizer: Option<index::tokenizer::Tokenizer>,
    /// `eval.json`.
    pub eval: Value,
    /// Results of evaluation tasks by step, `tasks/step-*.json`.
    pub tasks: Vec<(u64, Value)>,
    /// `generated.json`.
    pub generated: Value,
    /// Lines of `metrics.jsonl`.
    pub metrics: Vec<Value>,
    /// Those of each adapter by name, if the job trains several.
    pub adapters: Vec<(String, Vec<Value>)>,
    /// Traces of the training's ranks.
    pub profiles: Vec<Profile>,
    /// Lines of `keep/clusters.jsonl`.
    pub clusters: Vec<Value>,
    /// Lines of `samples.jsonl`: texts of the samples that the counts of `curate` have.
    pub samples: Vec<Value>,
    /// `decontaminate/report.json`, if the job has evaluation sets.
    pub decontamination: Value,
    /// Lines of `keep/pairs.jsonl`.
    pub pairs: Vec<Value>,
    /// `statistics.json`.
    pub statistics: Value,
    /// Recorded figures of all documents, if the job keeps them; or why they cannot be read.
    pub what_if: Result<curate::statistics::WhatIf, String>,
}

impl Material {
    /// Reads the files that exist under `out`.
    pub(crate) fn read(job: &Job, out: &Path) -> Material {
        let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
        let value = |name: &str| serde_json::from_str(&text(name)).unwrap_or_default();
        let lines = |name: &str| {
            let text = text(name);
            text.lines()
                .filter_map(|l| serde_json::from_str(l).ok())
                .collect()
        };
        Material {
            job: job.clone(),
            manifest: value("manifest.json"),
            finished: (std::fs::metadata(out.join("manifest.json")))
                .and_then(|found| found.modified())
                .ok(),
            process: value("records/process.json"),
            blend: value("blend.json"),
            sidecars: job
                .datasets()
                .iter()
                .filter_map(|d| {
                    index::dataset::Sidecar::read(&out.join("tokens").join(&d.name)).ok()?
                })
                .collect(),
            tokenizer: index::tokenizer::Tokenizer::load(&out.join("tokens/tokenizer.json")).ok(),
            eval: value("eval.json"),
            tasks: results_of_tasks(&out.join("tasks")),
            generated: value("generated.json"),
            metrics: lines("metrics.jsonl"),
            adapters: (job.of_adapters().iter())
                .map(|part| {
                    let name = part.out.file_name().unwrap_or_default();
                    let name = name.to_string_lossy().into_owned();
                    let own = lines(&format!("{ADAPTERS}/{name}/metrics.jsonl"));
                    (name, own)
                })
                .collect(),
            profiles: trace::read(out, job.parallel.world()),
            clusters: lines("keep/clusters.jsonl"),
            samples: lines("samples.jsonl"),
            decontamination: match job.decontaminate {
                Some(_) => value("decontaminate/report.json"),
                None => Value::Null,
            },
            pairs: lines("keep/pairs.jsonl"),
            statistics: value("statistics.json"),
            what_if: figures(job, out),
        }
    }

    /// That of a manifest alone.
    #[cfg(test)]
    pub(super) fn of_manifest(job: Job, manifest: Value) -> Material {
        let mut alone = Material::read(&job, Path::new("/nowhere"));
        alone.manifest = manifest;
        alone
    }

    /// Counts that a stage recorded.
    pub(super) fn counts(&self, stage: &str) -> &Value {
        &self.manifest[stage]["counts"]
    }
}

/// Statistics of other limits: the figures are read once to choose limits and once to count.
fn figures(job: &Job, out: &Path) -> Result<curate::statistics::WhatIf, String> {
    let mut candidates = curate::statistics::Candidates::default();
    each_figure(job, out, |measures, lost| candidates.add(measures, lost))?;
    let mut what_if = curate::statistics::WhatIf::new(candidates.limits());
    each_figure(job, out, |measures, lost| what_if.add(measures, lost))?;
    Ok(what_if)
}

/// Calls `each` for the figures of every document, shard by shard; never if the job keeps none.
pub(crate) fn each_figure(
    job: &Job,
    out: &Path,
    mut each: impl FnMut(&[curate::verdict::Metric], bool),
) -> Result<(), String> {
    let keeps = job.curate.as_ref().is_some_and(|c| c.figures);
    for file in shard_files(out, "figures", shards(out))
        .iter()
        .filter(|_| keeps)
    {
        curate::quality::metrics::read_metrics(file, &mut each).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Shards of the finished curation; none if it is not finished, or was finished by an earlier version.
fn shards(out: &Path) -> Option<usize> {
    let text = std::fs::read(out.join("manifest.json")).ok()?;
    let manifest: Value = serde_json::from_slice(&text).ok()?;
    shards_of(&manifest["curate"]["counts"])
}

/// Files of the first `shards` shards in a folder, or of all, in their order.
fn shard_files(out: &Path, folder: &str, shards: Option<usize>) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        let stem = path
            .file_name()
            .and_then(|name| name.to_str()?.split('.').next());
        let number = stem.and_then(|stem| stem.parse::<usize>().ok());
        shards.is_none_or(|shards| number.is_some_and(|number| number < shards))
    };
    let mut files: Vec<_> = std::fs::read_dir(out.join(folder))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "zst"))
        .filter(is_one)
        .collect();
    files.sort();
    files
}

/// Results by ascending step, from the files of a job's folder.
fn results_of_tasks(folder: &Path) -> Vec<(u64, Value)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |path: PathBuf| {
        let step = path
            .file_stem()?
            .to_str()?
            .strip_prefix("step-")?
            .parse()
            .ok()?;
        let text = std::fs::read_to_string(&path).ok()?;
        Some((step, serde_json::from_str(&text).ok()?))
    };
    let mut all: Vec<(u64, Value)> = entries.filter_map(|entry| one(entry.path())).collect();
    all.sort_by_key(|(step, _)| *step);
    all
}

//! `report.html`: one self-contained page made from the manifest and the small JSON files of a job.

mod html;
mod sections;
mod svg;
mod tokens;

use crate::job::Job;
use serde_json::Value;
use std::path::Path;

/// Everything the page is made from. Missing files are `null`: a job may have only some stages.
pub(crate) struct Material {
    pub job: Job,
    /// `manifest.json`.
    pub manifest: Value,
    /// `blend.json`.
    pub blend: Value,
    /// Sidecars of the job's token datasets.
    pub sidecars: Vec<index::Sidecar>,
    /// The job's tokenizer, to show ids as text.
    pub tokenizer: Option<index::Tokenizer>,
    /// `eval.json`.
    pub eval: Value,
    /// `generated.json`.
    pub generated: Value,
    /// Lines of `metrics.jsonl`.
    pub metrics: Vec<Value>,
    /// Lines of `keep/clusters.jsonl`.
    pub clusters: Vec<Value>,
}

impl Material {
    /// Reads what is there under `out`.
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
            blend: value("blend.json"),
            sidecars: job
                .datasets()
                .iter()
                .filter_map(|d| index::Sidecar::read(&out.join("tokens").join(&d.name)).ok()?)
                .collect(),
            tokenizer: index::Tokenizer::load(&out.join("tokens/tokenizer.json")).ok(),
            eval: value("eval.json"),
            generated: value("generated.json"),
            metrics: lines("metrics.jsonl"),
            clusters: lines("keep/clusters.jsonl"),
        }
    }

    /// Counts that a stage recorded.
    fn counts(&self, stage: &str) -> &Value {
        &self.manifest[stage]["counts"]
    }
}

/// The page.
pub(crate) fn render(m: &Material) -> String {
    let parts = [
        ("funnel", "Funnel", sections::funnel(m)),
        ("text", "Languages and hosts", sections::text(m)),
        ("duplicates", "Duplicates", sections::duplicates(m)),
        ("data", "Data", tokens::data(m)),
        ("training", "Training", sections::training(m)),
        ("generated", "Generated text", sections::generated(m)),
        ("samples", "Kept and dropped", sections::samples(m)),
        ("stages", "Stages", sections::stages(m)),
    ];
    let shown = || parts.iter().filter(|p| !p.2.is_empty());
    let contents: Vec<(&str, &str)> = shown().map(|p| (p.0, p.1)).collect();
    let body = sections::tiles(m) + &shown().map(|p| p.2.as_str()).collect::<String>();
    let subtitle = format!("From {} to a trained model", sections::sources(m));
    html::page(&m.job.name, &subtitle, &contents, &body)
}

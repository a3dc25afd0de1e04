//! Metrics files `figures/NNNNN.jsonl.zst`: the value of every rule for every document of a shard.
//!
//! A line is either a rule, before its first metric: `{"rule", "limit", "side"}`, or a document: `{"id", "lost",
//! "figures": [[number of the rule, value], ...]}`. Rules are numbered in order of appearance. NaN is written as
//! `null`.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, Result, damaged};
use crate::verdict::{Metric, Side};
use crate::write::{JsonLines, OutputFile};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line<'a> {
    Rule {
        rule: String,
        limit: Option<f64>,
        side: Side,
    },
    Document {
        #[serde(borrow)]
        id: std::borrow::Cow<'a, str>,
        lost: bool,
        figures: Vec<(usize, Option<f64>)>,
    },
}

/// Writes the file of a shard.
pub(crate) struct MetricsWriter {
    lines: JsonLines,
    rules: Vec<String>,
}

impl MetricsWriter {
    pub(crate) fn create(out: &Path, name: &str) -> Result<MetricsWriter> {
        Ok(MetricsWriter {
            lines: JsonLines::create(out, name)?,
            rules: Vec::new(),
        })
    }

    /// Appends a document.
    pub(crate) fn write(&mut self, id: &str, metrics: &[Metric], lost: bool) -> Result<()> {
        let mut figures = Vec::with_capacity(metrics.len());
        for m in metrics {
            let number = match self.rules.iter().position(|r| *r == m.rule) {
                Some(number) => number,
                None => {
                    self.lines.write(&Line::Rule {
                        rule: m.rule.clone(),
                        limit: Some(m.limit),
                        side: m.side,
                    })?;
                    self.rules.push(m.rule.clone());
                    self.rules.len() - 1
                }
            };
            figures.push((number, Some(m.value)));
        }
        let id = id.into();
        self.lines.write(&Line::Document { id, lost, figures })
    }

    pub(crate) fn finish(self) -> Result<OutputFile> {
        self.lines.finish()
    }
}

/// Calls `each` for every document of a shard: its metrics, and whether it was dropped by something without a
/// limit.
///
/// # Errors
/// `Io`; `Damaged` for a line that is neither a rule nor a document.
pub fn read_metrics(path: &Path, mut each: impl FnMut(&[Metric], bool)) -> Result<()> {
    let file = std::fs::File::open(path).at(path)?;
    let decoder = zstd::stream::read::Decoder::new(file).at(path)?;
    let mut rules: Vec<(String, f64, Side)> = Vec::new();
    let mut offset = 0;
    for line in BufReader::new(decoder).lines() {
        let line = line.at(path)?;
        let wrong = |found: String| damaged(path, offset, found, "a rule or a document's figures");
        match serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))? {
            // a limit of infinity is no number in JSON
            Line::Rule { rule, limit, side } => {
                rules.push((rule, limit.unwrap_or(f64::INFINITY), side))
            }
            Line::Document { lost, figures, .. } => {
                let metrics: Option<Vec<Metric>> = figures
                    .into_iter()
                    .map(|(number, value)| {
                        let (rule, limit, side) = rules.get(number)?;
                        Some(Metric {
                            rule: rule.clone(),
                            value: value.unwrap_or(f64::NAN),
                            limit: *limit,
                            side: *side,
                        })
                    })
                    .collect();
                let metrics = metrics.ok_or_else(|| wrong("a number of no rule".into()))?;
                each(&metrics, lost);
            }
        }
        offset += line.len() as u64 + 1;
    }
    Ok(())
}

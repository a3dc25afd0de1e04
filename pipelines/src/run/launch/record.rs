//! Record of the attempts of a training on a cluster, `records/launch.json`, for `millrace status`.

use crate::machine::write_atomically;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

const FILE: &str = "records/launch.json";

/// Attempts of a training, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    /// `slurm` or `ray`.
    pub executor: String,
    pub attempts: Vec<Attempt>,
    /// Times that the job was queued again since the checkpoint below.
    #[serde(default)]
    pub queued: usize,
    /// Number of the newest checkpoint when it was queued again the last time.
    #[serde(default)]
    pub queued_at: u64,
}

/// One start of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// The scheduler's job.
    pub job: String,
    /// Start, in UTC.
    pub started: String,
    /// Nodes with ranks.
    pub nodes: Vec<String>,
    /// Healthy nodes without ranks.
    pub spare: Vec<String>,
    /// Nodes that failed their check.
    pub excluded: Vec<Excluded>,
    /// Layout by the names of the job's keys.
    pub layout: Value,
    /// Whether the layout is a smaller one than the job's.
    pub is_smaller: bool,
    /// How it ended; none while it runs, or if its nodes were lost with the process that would have written it.
    pub end: Option<String>,
}

/// A node that is not used, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Excluded {
    pub node: String,
    pub reason: String,
}

impl LaunchRecord {
    /// Reads it; None before the first attempt.
    pub(crate) fn read(out: &Path) -> Option<LaunchRecord> {
        let text = std::fs::read(out.join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(super) fn write(&self, out: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        write_atomically(&out.join(FILE), text.as_bytes())
    }

    /// Lines of `status` on the latest attempt.
    pub(crate) fn lines(&self) -> String {
        let Some(last) = self.attempts.last() else {
            return String::new();
        };
        let mut text = format!(
            "launch    attempt {} in job {} since {} UTC: {}\n",
            self.attempts.len(),
            last.job,
            last.started,
            last.end.as_deref().unwrap_or("no end recorded")
        );
        text += &format!("          nodes {}\n", last.nodes.join(" "));
        if !last.spare.is_empty() {
            text += &format!("          spare {}\n", last.spare.join(" "));
        }
        for Excluded { node, reason } in &last.excluded {
            text += &format!("          {node} is excluded: {reason}\n");
        }
        let size = if last.is_smaller {
            "smaller layout"
        } else {
            "layout"
        };
        text += &format!("          {size} {}\n", layout_words(&last.layout));
        text
    }
}

/// `tp 2, cp 1, ...`.
pub(super) fn layout_words(layout: &Value) -> String {
    let keys = layout.as_object().into_iter().flatten();
    let words = keys.map(|(key, value)| match value.as_str() {
        Some(word) => format!("{key} {word}"),
        None => format!("{key} {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

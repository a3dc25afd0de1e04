//! Passes over the remaining texts: addresses, embeddings, lines, paragraphs, substrings, evaluation texts.

mod bloom;
mod contaminated;
mod kept;
mod lines;
mod semantic;
mod substring;
mod url;

pub use bloom::{BloomConfig, BloomRemove};
pub use contaminated::decontaminate;
pub use lines::{LineHash, LineKeep, LineUnit, LinesConfig};
pub(crate) use semantic::EmbeddingCounts;
pub use semantic::{EMBEDDINGS, SemanticConfig, SemanticKeep};
pub use substring::{SubstringConfig, SubstringUnit};
pub use url::{UrlDedupConfig, UrlKeep};

use std::path::Path;

use super::DedupConfig;
use super::priority::Priority;
use super::report::DedupReport;
use crate::classifier::Models;
use crate::error::{At, Result};
use crate::progress::Progress;
use crate::write::shard_file;
use kept::Passes;

/// Removes the cuts of an earlier job.
pub(super) fn forget(out: &Path, shards: usize) -> Result<()> {
    for shard in 0..shards {
        let path = out.join(shard_file("keep", shard, "edits"));
        if path.exists() {
            std::fs::remove_file(&path).at(&path)?;
        }
    }
    Ok(())
}

/// Runs the passes that the config enables.
pub(super) fn run(
    config: &DedupConfig,
    out: &Path,
    report: DedupReport,
    models: &dyn Models,
    progress: &dyn Progress,
) -> Result<DedupReport> {
    let texts = config.lines.is_some() || config.bloom.is_some() || config.substring.is_some();
    if !texts && config.url.is_none() && config.semantic.is_none() {
        return Ok(report);
    }
    let memory = usize::try_from(config.memory_mb << 20).unwrap_or(usize::MAX);
    let mut passes = Passes::over(out, memory, report, progress, "keep/dropped.jsonl")?;
    let priority = Priority::of(&config.priority);
    if let Some(url) = &config.url {
        url::run(url, &priority, &mut passes)?;
    }
    if let Some(semantic) = &config.semantic {
        semantic::run(semantic, &priority, models, &mut passes)?;
    }
    if let Some(config) = &config.lines {
        lines::run(config, &mut passes)?;
    }
    if let Some(config) = &config.bloom {
        bloom::run(config, &mut passes)?;
    }
    if let Some(config) = &config.substring {
        substring::run(config, &mut passes)?;
    }
    passes.finish()
}

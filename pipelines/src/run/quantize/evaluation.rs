//! A model before and after: bits per byte and perplexity of held-out texts, and the size of its weights.

use super::calibration::each_text;
use crate::tasks::TextModel;
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::Path;
use train::dist::Devices;
use train::eval::Scorer;

/// Figures of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    bits_per_byte: f64,
    /// Per token.
    perplexity: f64,
    /// Bytes of the files with weights.
    size: u64,
}

impl Figures {
    /// Those of the model at `path` on the texts of a file.
    ///
    /// # Errors
    /// A damaged model, one that predicts no tokens, a file without texts.
    pub(super) fn of(path: &Path, texts: &Path, tokenizer: &Tokenizer) -> Result<Figures> {
        let scorer = Scorer::open(path, Devices::Cpu.split(1))?;
        let model = TextModel {
            model: &scorer,
            tokenizer,
        };
        let (mut log, mut tokens, mut bytes) = (0.0, 0, 0);
        each_text(texts, &mut |text| {
            let (own, count) = model.rolling_with_count(text)?;
            (log, tokens, bytes) = (log + own, tokens + count, bytes + text.len());
            Ok(())
        })?;
        if tokens == 0 {
            bail!("{}: found no text", texts.display());
        }
        Ok(Figures {
            bits_per_byte: -log / std::f64::consts::LN_2 / bytes as f64,
            perplexity: (-log / tokens as f64).exp(),
            size: size(path)?,
        })
    }

    /// For the report.
    pub(super) fn to_json(self) -> Value {
        json!({"bits_per_byte": self.bits_per_byte, "perplexity": self.perplexity, "bytes": self.size})
    }
}

/// The table of two models.
pub(super) fn table(before: Figures, after: Figures) -> String {
    let change = |a: f64, b: f64| format!("{:+.2} %", 100.0 * (b / a - 1.0));
    let row = |name: &str, of: &dyn Fn(Figures) -> f64, digits: usize| {
        let [a, b] = [of(before), of(after)];
        format!(
            "{name:<16}{a:>14.digits$}{b:>14.digits$}{:>12}\n",
            change(a, b)
        )
    };
    let mut lines = format!(
        "{:<16}{:>14}{:>14}{:>12}\n",
        "", "before", "after", "change"
    );
    lines += &row("bits per byte", &|of| of.bits_per_byte, 5);
    lines += &row("perplexity", &|of| of.perplexity, 4);
    lines += &row("size, MB", &|of| of.size as f64 / 1e6, 3);
    lines
}

/// Bytes of the weights: a file, or those of a folder or of the newest checkpoint in it.
fn size(path: &Path) -> Result<u64> {
    let bytes = |path: &Path| -> Result<u64> {
        let found = std::fs::metadata(path);
        Ok(found.with_context(|| path.display().to_string())?.len())
    };
    if path.is_file() {
        return bytes(path);
    }
    let folder = match train::checkpoint::is_hugging_face(path) {
        true => path.to_path_buf(),
        false => train::checkpoint::checkpoint_at(path)?.path,
    };
    let mut sum = 0;
    let read = std::fs::read_dir(&folder);
    for entry in read.with_context(|| folder.display().to_string())? {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_weights = ["safetensors", "bin"]
            .iter()
            .any(|ending| name.ends_with(ending));
        // not the optimizer's state or averages of a checkpoint
        let is_other = ["optimizer", "ema", "training_args"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_weights && !is_other {
            sum += bytes(&path)?;
        }
    }
    Ok(sum)
}

//! A model before and after: bits per byte and perplexity of held-out texts, scores of tasks, and the size of its weights.

use super::calibration::each_text;
use crate::tasks::{self, Asked, Results, Score, TextModel};
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::Path;
use train::dist::Devices;
use train::eval::Scorer;

/// Figures of held-out texts.
#[derive(Clone, Copy, Debug)]
struct TextFigures {
    bits_per_byte: f64,
    /// Per token.
    perplexity: f64,
}

/// Figures of a model.
pub(super) struct Figures {
    texts: Option<TextFigures>,
    tasks: Results,
    /// Bytes of the files with weights.
    size: u64,
}

impl Figures {
    /// Those of the model at `path`, on the texts of a file and on tasks.
    ///
    /// # Errors
    /// A damaged model, one that predicts no tokens, a file without texts, rows that a task cannot read.
    pub(super) fn of(
        path: &Path,
        texts: Option<&Path>,
        asked: Option<&Asked>,
        tokenizer: &Tokenizer,
    ) -> Result<Figures> {
        let scorer = Scorer::open(path, Devices::Cpu.split(1))?;
        if tokenizer.vocab() > scorer.vocab() {
            bail!(
                "{}: found {} entries, want at most the model's {}",
                tokenizer.path().display(),
                tokenizer.vocab(),
                scorer.vocab()
            );
        }
        let model = TextModel {
            model: &scorer,
            tokenizer,
            adds_special_tokens: true,
        };
        let texts = match texts {
            Some(texts) => Some(TextFigures::of(&model, texts)?),
            None => None,
        };
        let mut tasks = Results::default();
        for request in asked.iter().flat_map(|asked| asked.requests()) {
            tasks::evaluate(&request, &model, &mut tasks, &mut Vec::new())?;
        }
        Ok(Figures {
            texts,
            tasks,
            size: size(path)?,
        })
    }

    /// For the report.
    pub(super) fn to_json(&self) -> Value {
        let mut all = json!({"bytes": self.size});
        if let Some(texts) = self.texts {
            all["bits_per_byte"] = json!(texts.bits_per_byte);
            all["perplexity"] = json!(texts.perplexity);
        }
        let tasks = self.tasks.to_json(Value::Null)["results"].take();
        if tasks.as_object().is_some_and(|tasks| !tasks.is_empty()) {
            all["tasks"] = tasks;
        }
        all
    }
}

impl TextFigures {
    fn of(model: &TextModel<'_>, texts: &Path) -> Result<TextFigures> {
        let (mut log, mut tokens, mut bytes) = (0.0, 0, 0);
        each_text(texts, &mut |text| {
            let (own, count) = model.rolling_with_count(text)?;
            (log, tokens, bytes) = (log + own, tokens + count, bytes + text.len());
            Ok(())
        })?;
        if tokens == 0 {
            bail!("{}: found no text", texts.display());
        }
        Ok(TextFigures {
            bits_per_byte: -log / std::f64::consts::LN_2 / bytes as f64,
            perplexity: (-log / tokens as f64).exp(),
        })
    }
}

/// The table of two models. Scores of tasks have the difference and the standard error before.
pub(super) fn table(before: &Figures, after: &Figures) -> String {
    let mut lines = vec![["", "before", "after", "change", "stderr"].map(str::to_owned)];
    let mut add = |name: &str, [a, b]: [f64; 2], digits: usize| {
        let change = format!("{:+.2} %", 100.0 * (b / a - 1.0));
        let [a, b] = [a, b].map(|value| format!("{value:.digits$}"));
        lines.push([name.to_owned(), a, b, change, String::new()]);
    };
    if let (Some(a), Some(b)) = (before.texts, after.texts) {
        add("bits per byte", [a.bits_per_byte, b.bits_per_byte], 5);
        add("perplexity", [a.perplexity, b.perplexity], 4);
    }
    let sizes = [before.size, after.size].map(|bytes| bytes as f64 / 1e6);
    add("size, MB", sizes, 3);
    let scores = before.tasks.scores();
    let pairs = scores.iter().zip(after.tasks.scores());
    lines.extend(pairs.map(|(a, b)| compared(a, &b)));
    let mut widths = [0; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.len());
        }
    }
    let [name, first, second, change, error] = widths;
    let shown = lines.iter().map(|[n, a, b, c, e]| {
        let line = format!("{n:<name$}  {a:>first$}  {b:>second$}  {c:>change$}  {e:>error$}");
        format!("{}\n", line.trim_end())
    });
    shown.collect()
}

/// The line of a task's metric.
fn compared(before: &Score, after: &Score) -> [String; 5] {
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |x| format!("{x:.4}"));
    let name = match before.filter.as_str() {
        "none" => format!("{} {}", before.task, before.metric),
        filter => format!("{} {} ({filter})", before.task, before.metric),
    };
    let change = before.value.zip(after.value);
    let change = change.map_or("-".to_owned(), |(a, b)| format!("{:+.4}", b - a));
    [
        name,
        shown(before.value),
        shown(after.value),
        change,
        shown(before.error),
    ]
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

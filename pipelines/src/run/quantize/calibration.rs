//! Texts to calibrate a quantization with: samples of a job's own data, or rows of a file.

use crate::context::Context;
use crate::job;
use crate::run::train_data::TrainData;
use crate::tasks::each_row;
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use train::data::Sample;

/// Column of a row's text.
const TEXT: &str = "text";

/// How many texts, and how long.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) texts: usize,
    /// Tokens of each.
    pub(super) tokens: usize,
}

/// Where the texts come from.
pub(super) enum Data {
    /// A job's own data.
    Job(Box<Context>),
    /// The column `text` of a file's rows.
    Rows(PathBuf),
}

impl Data {
    /// A job (.toml) is opened, which sets the number of threads: nothing may have computed before.
    ///
    /// # Errors
    /// A job that is wrong.
    pub(super) fn open(path: &Path) -> Result<Data> {
        let is_job = path.is_file() && path.extension().is_some_and(|ending| ending == "toml");
        Ok(match is_job {
            true => Data::Job(Box::new(Context::open_to_read(job::load(path, &[])?)?)),
            false => Data::Rows(path.to_path_buf()),
        })
    }

    /// Ids of texts. There are fewer than wanted if the data is short.
    ///
    /// # Errors
    /// A job without data, a file without rows or with rows without a text.
    pub(super) fn texts(
        &self,
        tokenizer: impl FnOnce() -> Result<Tokenizer>,
        amount: Amount,
    ) -> Result<Vec<Vec<u32>>> {
        match self {
            Data::Job(cx) => of_job(cx, amount),
            Data::Rows(path) => of_rows(path, &tokenizer()?, amount),
        }
    }
}

/// Training samples at even distances.
fn of_job(cx: &Context, amount: Amount) -> Result<Vec<Vec<u32>>> {
    if cx.job.has_adapters() {
        bail!("--calibrate: found a job of several adapters, want the job.toml of one");
    }
    let data = TrainData::open(cx)?;
    let plan = data.plan(cx)?;
    data.with_samples(cx, |samples, _| {
        let count = samples.len().min(amount.texts as u64);
        let mut texts = Vec::new();
        for number in 0..count {
            let mut sample = Sample::of(&plan);
            let at = u128::from(number) * u128::from(samples.len()) / u128::from(count);
            let read = samples.read(u64::try_from(at)?, &mut sample);
            read.map_err(|error| anyhow::anyhow!("sample {number}: {error}"))?;
            let Sample::Text(text) = sample else {
                bail!("--calibrate: found samples that are no texts of a decoder");
            };
            let mut tokens = text.tokens;
            tokens.truncate(amount.tokens);
            texts.push(tokens);
        }
        Ok(texts)
    })
}

/// Rows one after the other, each followed by the token that ends documents, cut into texts of equal length.
fn of_rows(path: &Path, tokenizer: &Tokenizer, amount: Amount) -> Result<Vec<Vec<u32>>> {
    let wanted = amount.texts.saturating_mul(amount.tokens);
    let (mut ids, mut of_texts) = (Vec::new(), 0);
    each_text(path, &mut |text| {
        if ids.len() < wanted {
            let text = tokenizer.encode(text)?;
            of_texts += text.len();
            ids.extend(text);
            ids.extend(tokenizer.end_of_document());
        }
        Ok(())
    })?;
    if of_texts == 0 {
        bail!("--calibrate: found no text in {}", path.display());
    }
    let all = ids.chunks(amount.tokens.max(1)).take(amount.texts);
    let whole = all.filter(|text| text.len() == amount.tokens || ids.len() < amount.tokens);
    Ok(whole.map(<[u32]>::to_vec).collect())
}

/// The text of each row of a file.
///
/// # Errors
/// A file without rows, or with a row without a text.
pub(super) fn each_text(path: &Path, take: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let (mut row, mut done) = (0, Ok(()));
    each_row(path, &mut |found| {
        row += 1;
        if done.is_err() {
            return;
        }
        done = match found {
            Err(why) => Err(anyhow::anyhow!("{why}")),
            Ok(columns) => match columns.get(TEXT).and_then(|text| text.as_str()) {
                Some(text) => take(text),
                None => {
                    let names: Vec<&str> = columns.keys().map(String::as_str).collect();
                    let found = names.join(", ");
                    Err(anyhow::anyhow!(
                        "found the columns {found}, want a string in `{TEXT}`"
                    ))
                }
            },
        };
        done = std::mem::replace(&mut done, Ok(()))
            .with_context(|| format!("{}: row {row}", path.display()));
    })?;
    done?;
    if row == 0 {
        bail!("{}: found no rows", path.display());
    }
    Ok(())
}

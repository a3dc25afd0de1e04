//! Files of conversations: read in batches, whose rows are encoded in parallel.

use super::encode::Encoding;
use super::forms::example;
use super::tokens::Tokens;
use crate::job::{ChatFormat, TooLong};
use crate::tasks::each_row;
use anyhow::Result;
use rayon::prelude::*;
use serde_json::{Map, Value};
use std::path::Path;

/// Rows that are encoded together.
const BATCH: usize = 1024;

/// The settings of reading.
pub(crate) struct Reading<'a> {
    pub(crate) encoding: Encoding<'a>,
    pub(crate) format: ChatFormat,
    pub(crate) too_long: TooLong,
    /// Most tokens of a conversation.
    pub(crate) most: usize,
    /// Conversations whose last answer is to be written by the model.
    pub(crate) prompts: usize,
}

/// A row that is not trained on.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    /// Counted from 1.
    pub(crate) row: usize,
    pub(crate) reason: String,
    /// It is a conversation, but too long.
    pub(crate) is_too_long: bool,
}

/// A text for the model to go on with.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    /// The answer of the data.
    pub(crate) answer: String,
}

/// The conversations of a file.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) tokens: Tokens,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) left_out: Vec<LeftOut>,
}

type Row = std::result::Result<Map<String, Value>, String>;

/// Reads a file.
///
/// # Errors
/// A file that cannot be read, or of an unknown kind.
pub(crate) fn read(path: &Path, reading: &Reading<'_>, to: &mut Read) -> Result<()> {
    let (mut batch, mut first) = (Vec::new(), 1);
    each_row(path, &mut |row| {
        batch.push(row);
        if batch.len() == BATCH {
            let rows = std::mem::take(&mut batch);
            first += add(rows, first, reading, to);
        }
    })?;
    add(batch, first, reading, to);
    Ok(())
}

/// Adds the rows of a batch; returns their number.
fn add(rows: Vec<Row>, first: usize, reading: &Reading<'_>, to: &mut Read) -> usize {
    let count = rows.len();
    let wants = reading.prompts.saturating_sub(to.prompts.len());
    let encoded: Vec<_> = rows
        .into_par_iter()
        .enumerate()
        .map(|(at, row)| {
            let example = example(&row?, reading.format)?;
            let encoded = reading.encoding.encode(&example)?;
            let prompt = (at < wants).then(|| reading.encoding.prompt(&example));
            Ok((encoded, prompt.transpose()?))
        })
        .collect();
    for (at, one) in encoded.into_iter().enumerate() {
        let mut leave = |reason: String, is_too_long| {
            to.left_out.push(LeftOut {
                row: first + at,
                reason,
                is_too_long,
            });
        };
        let (encoded, prompt) = match one {
            Ok(one) => one,
            Err(reason) => {
                leave(reason, false);
                continue;
            }
        };
        let (mut ids, answers, most) = (encoded.ids, encoded.answers, reading.most);
        // the first token of a sample is never predicted
        let has_answer = |length: usize| {
            let starts = answers.iter().map(|answer| answer.start.max(1)..answer.end);
            starts
                .into_iter()
                .any(|answer| answer.start < answer.end.min(length))
        };
        if !has_answer(ids.len()) {
            leave("no token of an answer".into(), false);
            continue;
        }
        if ids.len() > most {
            let reason = format!("{} tokens, want at most {most}", ids.len());
            match reading.too_long {
                TooLong::Truncate if has_answer(most) => ids.truncate(most),
                TooLong::Truncate => {
                    leave(format!("{reason} with some of an answer"), true);
                    continue;
                }
                TooLong::Drop | TooLong::Refuse => {
                    leave(reason, true);
                    continue;
                }
            }
        }
        to.prompts
            .extend(prompt.map(|(text, ids, answer)| Prompt { text, ids, answer }));
        to.tokens.push(&ids, &answers);
    }
    count
}

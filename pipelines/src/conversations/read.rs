//! Files of conversations: read in batches, whose rows are encoded in parallel.

use super::comparisons::comparison;
use super::encode::{Encoded, Encoding};
use super::forms::{Example, example};
use super::tokens::Tokens;
use crate::job::{ChatFormat, Filled, TaskTemplate, TaskTemplates, TooLong};
use crate::tasks::each_row;
use anyhow::{Result, bail};
use rayon::prelude::*;
use serde_json::{Map, Value};
use std::path::Path;

/// Rows that are encoded together.
const BATCH: usize = 1024;

/// The settings of reading.
pub(crate) struct Reading<'a> {
    pub(crate) encoding: Encoding<'a>,
    pub(crate) format: ChatFormat,
    /// Make the text of each row, in place of its form.
    pub(crate) tasks: Option<&'a TaskTemplates>,
    pub(crate) too_long: TooLong,
    /// A row is a comparison of two conversations, the chosen one and the rejected one, which follow each other in the tokens.
    pub(crate) is_pairs: bool,
    /// Most tokens of a conversation, or of both of a comparison.
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
    /// The first row with messages, if there is no chat template for them.
    without_template: Option<usize>,
}

type Row = std::result::Result<Map<String, Value>, String>;

/// Reads a file.
///
/// # Errors
/// A file that cannot be read, or of an unknown kind; messages without a chat template.
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
    match to.without_template {
        // a setting that is missing, whatever is done with bad rows
        Some(row) => bail!(
            "finetune.chat_template: found none, nor one beside the tokenizer, want a file, \"chatml\" or \"plain\" for the messages of {}, row {row}",
            path.display()
        ),
        None => Ok(()),
    }
}

/// The conversation of a row, or the two of a comparison with the number of messages that both begin with.
fn examples(
    row: &Map<String, Value>,
    reading: &Reading<'_>,
) -> std::result::Result<(Vec<Example>, usize), String> {
    if let Some(tasks) = reading.tasks {
        return Ok((vec![fitting(row, tasks.of_row(row)?, reading)?], 0));
    }
    if !reading.is_pairs {
        return Ok((vec![example(row, reading.format)?], 0));
    }
    let found = comparison(row)?;
    Ok((vec![found.chosen, found.rejected], found.shared))
}

/// The settings of encoding a row, some of which its task template may have.
fn encoding_of<'a>(row: &Map<String, Value>, reading: &Reading<'a>) -> Encoding<'a> {
    let task = reading.tasks.and_then(|tasks| tasks.of_row(row).ok());
    let of_task = task.and_then(|task| task.answer_only);
    Encoding {
        answer_only: of_task.unwrap_or(reading.encoding.answer_only),
        ..reading.encoding
    }
}

/// The text of a row by a task template. If it is too long and may be cut, with the longest beginning of the field that may be with which
/// it fits.
fn fitting(
    row: &Map<String, Value>,
    task: &TaskTemplate,
    reading: &Reading<'_>,
) -> std::result::Result<Example, String> {
    let of = |kept: usize| {
        let Filled { prompt, answer } = task.fill(row, kept)?;
        Ok(Example::Plain {
            prompt,
            completion: answer,
        })
    };
    let fits = |example: &Example| -> std::result::Result<bool, String> {
        Ok(reading.encoding.encode(example)?.ids.len() <= reading.most)
    };
    let whole = of(usize::MAX)?;
    let may_be_cut = match reading.too_long {
        TooLong::Truncate => task.spare(row) > 0,
        TooLong::Drop | TooLong::Refuse => false,
    };
    if !may_be_cut || fits(&whole)? {
        return Ok(whole);
    }
    // halves the range in which the longest beginning is; one token more may be one character more or many
    let (mut kept, mut cut) = (0, task.spare(row));
    while cut - kept > 1 {
        let middle = kept + (cut - kept) / 2;
        match fits(&of(middle)?)? {
            true => kept = middle,
            false => cut = middle,
        }
    }
    of(kept)
}

/// Adds the rows of a batch; returns their number.
fn add(rows: Vec<Row>, first: usize, reading: &Reading<'_>, to: &mut Read) -> usize {
    let count = rows.len();
    if reading.encoding.template.is_none() && to.without_template.is_none() {
        let has_messages = |row: &Row| {
            let found = row
                .as_ref()
                .ok()
                .and_then(|row| examples(row, reading).ok());
            found.is_some_and(|(all, _)| all.iter().any(|one| matches!(one, Example::Chat(_))))
        };
        let at = rows.iter().position(has_messages);
        to.without_template = at.map(|at| first + at);
    }
    let wants = reading.prompts.saturating_sub(to.prompts.len());
    let encoded: Vec<_> = rows
        .into_par_iter()
        .enumerate()
        .map(|(at, row)| {
            let row = row?;
            let (examples, shared) = examples(&row, reading)?;
            let encoding = encoding_of(&row, reading);
            let mut texts = Vec::with_capacity(examples.len());
            for example in &examples {
                let mut encoded = encoding.encode(example)?;
                if let (true, Example::Chat(messages)) = (reading.is_pairs, example) {
                    let after = messages[shared..].iter();
                    let compared = after.filter(|message| message["role"] == "assistant");
                    let of_prompt = encoded.answers.len().saturating_sub(compared.count());
                    encoded.answers.drain(..of_prompt);
                }
                texts.push(encoded);
            }
            let prompt = (at < wants).then(|| encoding.prompt(&examples[0]));
            Ok((texts, prompt.transpose()?))
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
        let (mut texts, prompt) = match one {
            Ok(one) => one,
            Err(reason) => {
                leave(reason, false);
                continue;
            }
        };
        if !texts.iter().all(|text| has_answer(text, usize::MAX)) {
            leave("no token of an answer".into(), false);
            continue;
        }
        let (length, most) = (
            texts.iter().map(|text| text.ids.len()).sum::<usize>(),
            reading.most,
        );
        if length > most {
            let reason = format!("{length} tokens, want at most {most}");
            match (reading.too_long, &mut texts[..]) {
                (TooLong::Truncate, [text])
                    if reading.tasks.is_none() && has_answer(text, most) =>
                {
                    text.ids.truncate(most);
                }
                (TooLong::Truncate, _) if reading.tasks.is_some() => {
                    leave(format!("{reason} without the field that may be cut"), true);
                    continue;
                }
                (TooLong::Truncate, _) => {
                    leave(format!("{reason} with some of an answer"), true);
                    continue;
                }
                (TooLong::Drop | TooLong::Refuse, _) => {
                    leave(reason, true);
                    continue;
                }
            }
        }
        to.prompts
            .extend(prompt.map(|(text, ids, answer)| Prompt { text, ids, answer }));
        for text in &texts {
            to.tokens.push(&text.ids, &text.answers);
        }
    }
    count
}

/// Whether a token of an answer is among the first `length` ones; the first of a text is never predicted.
fn has_answer(text: &Encoded, length: usize) -> bool {
    let end = text.ids.len().min(length);
    let mut answers = text.answers.iter();
    answers.any(|answer| answer.start.max(1) < answer.end.min(end))
}

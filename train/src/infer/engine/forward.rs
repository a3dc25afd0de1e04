//! The forward pass of a batch over the paged cache, and what its rows lead to.

use std::collections::BTreeMap;

use kernels::attention::{self, Paged, PagedRows};
use kernels::{DType, Tensor, copy};
use rayon::prelude::*;

use crate::checkpoint::whole_model::Model;
use crate::config::plan::Plan;
use crate::data::documents::Documents;
use crate::error::{OnRank, Result};
use crate::infer::engine::adapters::{AdapterId, Loaded};
use crate::infer::engine::blocks::BLOCK;
use crate::infer::engine::sequence::Sequence;
use crate::infer::sample::{self, Scored};
use crate::model::context::{Context, SequenceShard};
use crate::model::row_adapters::AdapterRows;

/// Rows whose logits are held at once.
const HEAD_ROWS: usize = 64;

/// Rows of a running sequence in a batch.
pub(super) struct Slice {
    /// Number among the running sequences.
    pub number: usize,
    /// Rows, guesses included.
    pub rows: usize,
    /// Whether the sequence's next token can be chosen after them.
    pub is_last: bool,
}

impl Slice {
    /// The next token of an encoder-decoder's answer.
    pub(super) fn of_pair(number: usize) -> Slice {
        Slice {
            number,
            rows: 1,
            is_last: true,
        }
    }
}

impl Sequence {
    /// The next `rows` tokens to be computed, and the guesses after them.
    pub(super) fn slice(&self, number: usize, rows: usize) -> Slice {
        Slice {
            number,
            rows: rows + self.drafts.len(),
            is_last: rows == self.missing(),
        }
    }

    /// Tokens that the answer may still get.
    pub(super) fn left(&self) -> usize {
        self.options.max_tokens - self.answer().len()
    }
}

/// What a row leads to.
pub(super) enum Outcome {
    /// The log-probability of the prompt's next token.
    Prompt(Scored),
    /// A new token.
    Next { token: u32, scored: Option<Scored> },
}

/// The rows of a batch.
pub(super) struct Batch {
    ids: Vec<u32>,
    /// Positions as embeddings count them.
    positions: Vec<u32>,
    /// First key that each row sees, if documents hide others.
    first_keys: Option<Vec<u32>>,
}

impl Batch {
    /// The rows of these slices.
    pub(super) fn new(plan: &Plan, running: &[Sequence], slices: &[Slice]) -> Batch {
        let documents = Documents::of_text(plan);
        let starts_over = (documents.as_ref()).is_some_and(|asked| asked.positions.is_some());
        let is_hidden = documents.is_some_and(|asked| asked.bounds.is_some());
        let mut batch = Batch {
            ids: Vec::new(),
            positions: Vec::new(),
            first_keys: is_hidden.then(Vec::new),
        };
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        for slice in slices {
            let sequence = &running[slice.number];
            let (first, seen) = (sequence.computed, sequence.seen());
            let known = slice.rows - sequence.drafts.len();
            let tokens = seen[first..first + known].iter().chain(&sequence.drafts);
            let is_end = |token: u32| Some(token) == plan.eod;
            let before = seen[..first].iter().rposition(|&token| is_end(token));
            let mut start = match starts_over || is_hidden {
                true => before.map_or(0, |at| at + 1),
                false => 0,
            };
            for (at, &token) in (first..).zip(tokens) {
                batch.ids.push(token);
                let origin = if starts_over { start } else { 0 };
                batch.positions.push(number(at - origin));
                if let Some(keys) = &mut batch.first_keys {
                    keys.push(number(start));
                }
                if is_end(token) {
                    start = at + 1;
                }
            }
        }
        batch
    }
}

/// The adapters of a batch's rows, each once.
pub(super) fn adapters_of<'a>(
    loaded: &'a BTreeMap<AdapterId, Loaded>,
    running: &[Sequence],
    slices: &[Slice],
) -> Vec<AdapterRows<'a>> {
    let mut found: BTreeMap<AdapterId, AdapterRows<'a>> = BTreeMap::new();
    let mut first = 0;
    for slice in slices {
        let rows = first..first + slice.rows;
        first = rows.end;
        let Some(id) = running[slice.number].adapter else {
            continue;
        };
        let Some(own) = loaded.get(&id) else {
            unreachable!("an adapter stays while a request has it")
        };
        let of = found.entry(id).or_insert_with(|| AdapterRows {
            adapter: &own.weights,
            ranges: Vec::new(),
        });
        match of.ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => of.ranges.push(rows),
        }
    }
    found.into_values().collect()
}

/// Computes a batch; returns the outcomes of each slice's rows in order.
pub(super) fn run(
    model: &Model,
    cache: &mut [Tensor],
    batch: &Batch,
    running: &[Sequence],
    slices: &[Slice],
    adapters: &[AdapterRows<'_>],
) -> Result<Vec<Vec<Outcome>>> {
    let sequences: Vec<PagedRows<'_>> = slices
        .iter()
        .map(|slice| PagedRows {
            rows: slice.rows,
            position: running[slice.number].computed,
            pages: &running[slice.number].blocks,
        })
        .collect();
    let ids = model.rows_of(&batch.ids)?;
    let rows = Rows {
        batch,
        sequences: &sequences,
        adapters,
    };
    let x = hidden(model, cache, &ids, &rows).on_rank(model.rank(), "run a batch")?;
    let wanted = wanted(running, slices);
    let mut outcomes: Vec<Vec<Outcome>> = slices.iter().map(|_| Vec::new()).collect();
    for chunk in wanted.chunks(HEAD_ROWS) {
        let logits = logits(model, &x, chunk).on_rank(model.rank(), "logits")?;
        let found: Vec<Outcome> = logits
            .par_chunks(model.plan.padded_vocab())
            .zip(chunk)
            .map(|(row, wanted)| {
                let row = &row[..model.plan.vocab];
                let sequence = &running[slices[wanted.slice].number];
                match wanted.kind {
                    Kind::Prompt { token } => {
                        let top = sequence.options.prompt_logprobs.unwrap_or(0);
                        Outcome::Prompt(sample::scored(row, token, top))
                    }
                    Kind::Next { drafts } => next(row, sequence, &sequence.drafts[..drafts]),
                }
            })
            .collect();
        for (outcome, wanted) in found.into_iter().zip(chunk) {
            outcomes[wanted.slice].push(outcome);
        }
    }
    Ok(outcomes)
}

/// The token after `drafts` guesses.
pub(super) fn next(row: &[f32], sequence: &Sequence, drafts: &[u32]) -> Outcome {
    let joined;
    let answer = match drafts {
        [] => sequence.answer(),
        _ => {
            joined = [sequence.answer(), drafts].concat();
            &joined
        }
    };
    let token = sample::choose(row, &sequence.options, sequence.before(answer));
    let scored = (sequence.options.logprobs).map(|top| sample::scored(row, token, top));
    Outcome::Next { token, scored }
}

/// A row whose logits are needed.
struct Wanted {
    slice: usize,
    /// Row of the batch.
    row: usize,
    kind: Kind,
}

enum Kind {
    /// Log-probability of the prompt's token after the row.
    Prompt { token: u32 },
    /// The next token, after this many guesses.
    Next { drafts: usize },
}

fn wanted(running: &[Sequence], slices: &[Slice]) -> Vec<Wanted> {
    let (mut wanted, mut first) = (Vec::new(), 0);
    for (number, slice) in slices.iter().enumerate() {
        let sequence = &running[slice.number];
        let mut want = |row: usize, kind| {
            wanted.push(Wanted {
                slice: number,
                row: first + row,
                kind,
            });
        };
        let known = slice.rows - sequence.drafts.len();
        if sequence.scores_prompt() {
            for row in 0..known {
                let at = sequence.start + sequence.computed + row;
                let scored = sequence.virtual_tokens + sequence.scores.len();
                if at >= scored && at + 1 < sequence.prompt {
                    let token = sequence.tokens[at + 1];
                    want(row, Kind::Prompt { token });
                }
            }
        }
        if slice.is_last && sequence.options.max_tokens > 0 {
            for drafts in 0..=sequence.drafts.len() {
                want(known - 1 + drafts, Kind::Next { drafts });
            }
        }
        first += slice.rows;
    }
    wanted
}

/// The rows of a batch, their pages, and their adapters.
struct Rows<'a> {
    batch: &'a Batch,
    sequences: &'a [PagedRows<'a>],
    adapters: &'a [AdapterRows<'a>],
}

/// Rows before the head, `[n, d]`; their keys and values are in the cache afterwards.
fn hidden(
    model: &Model,
    cache: &mut [Tensor],
    ids: &Tensor,
    rows: &Rows<'_>,
) -> kernels::Result<Tensor> {
    let (batch, sequences) = (rows.batch, rows.sequences);
    let documents = Documents {
        bounds: None,
        positions: Some(batch.positions.clone()),
    };
    let cx = model.context(0..ids.elements(), Some(&documents));
    // tables of angles reach to here: few sizes, none of them longer than twice the longest text
    let end = batch
        .positions
        .iter()
        .max()
        .map_or(1, |&last| last as usize + 1);
    let longest = end.next_power_of_two().min(cx.sequence.longest);
    let cx = Context {
        sequence: SequenceShard {
            longest,
            ..cx.sequence
        },
        adapters: cx.adapters.map(|_| rows.adapters),
        ..cx
    };
    let embedding = model.stage.embedding();
    let embedding = embedding.expect("the only stage is the first");
    let (mut x, _) = embedding.forward((ids, None), &cx)?;
    for (block, cache) in model.stage.blocks().zip(cache) {
        let cx = cx.in_block(block.number);
        let normed = block.before_attention(&x, &cx)?;
        let qkv = block.attention.project(&normed, &cx)?;
        let call = Paged {
            heads: &block.attention.heads,
            page: BLOCK,
            sequences,
            first_keys: batch.first_keys.as_deref(),
            window: block.attention.window,
            block: cx.sequence.key_block,
            numbers: cx.attention_numbers(),
            scores: block.attention.scores(&cx),
            sinks: block.attention.sinks(&cx),
        };
        let mixed = attention::forward_paged(&qkv, cache, &call)?;
        let attended = block.attention.join(mixed, &cx)?;
        x = block.after_attention(&x, normed, attended, &cx)?;
    }
    Ok(x)
}

/// Logits of some rows of x: `[n, d]` -> `[rows, padded vocabulary]`, on every rank.
fn logits(model: &Model, x: &Tensor, rows: &[Wanted]) -> kernels::Result<Vec<f32>> {
    let d = x.dims()[1];
    let mut picked = Tensor::empty(&[rows.len(), d], DType::F32, &model.device)?;
    let mut done = 0;
    while done < rows.len() {
        let next = rows[done..].iter().enumerate();
        let run = next.take_while(|(i, wanted)| wanted.row == rows[done].row + i);
        let (run, from) = (run.count(), rows[done].row);
        let to = picked.flat_mut(done * d..(done + run) * d)?;
        copy(to, x.flat(from * d..(from + run) * d)?)?;
        done += run;
    }
    let cx = model.context(0..rows.len(), None);
    let head = model.stage.head().expect("the only stage is the last");
    head.logits(&picked, &cx)?.download()
}

//! Contamination score of a record in a document: question, answer after it, passage before it.
//!
//! score = q O(question) + a O(answer) + p O(passage), O being the share of a part's weight that matched. The
//! weights are (0.7, 0.2, 0.1), (0.75, 0.25, -), (0.85, -, 0.15) or (1, -, -), by the parts that the record has; a
//! question of fewer than 20 n-grams gives up to half of its weight to the others, an answer of fewer than 4 tokens
//! to the passage. A short record's score below 1 is scaled down: to reach `min_score` it must lie on or above the
//! line from 1 at `whole_tokens` to `min_score` at `free_tokens`.

use super::cluster::Met;
use super::index::{ANSWER_NGRAM, Index, PASSAGE_NGRAM, Part, Record, SHORT_ANSWER};

/// Tokens after a question in which a short answer may start, and the least window for other answers and for passages.
const SHORT_WINDOW: usize = 50;
const WINDOW: usize = 100;
/// N-grams that may be missing in a passage one after the other.
const PASSAGE_MISSES: usize = 2;
/// Questions of fewer n-grams say less.
const QUESTION_NGRAMS: f32 = 20.0;
/// Answers of fewer tokens say less.
const ANSWER_TOKENS: f32 = 4.0;

/// The score of a record; None if it is too low to drop a document.
pub(super) fn score(index: &Index, tokens: &[u64], met: &Met) -> Option<f32> {
    let record = index.record(met.record);
    let least = least(index);
    let question = question(index, record, met);
    let length = record.question.tokens.len();
    // enough only if answer and passage match completely
    let whole = ((least - (0.2 + 0.1)) / 0.7).max(0.0);
    if question < whole || question < needed(index, length, whole) {
        return None;
    }
    let passage = record.passage.as_ref();
    let passage = passage.map(|part| passage_overlap(index, tokens, met, part));
    let answer = record.answer.as_ref();
    let answer = answer.map(|part| answer_overlap(index, tokens, met, record, part));
    let sum = weighted(record, question, answer, passage).min(1.0);
    let unique = record.answer.as_ref().map_or(0, |a| a.unique);
    let of_passage = record.passage.as_ref().map_or(0, |p| p.tokens.len());
    let needed = needed(index, length + unique + of_passage, least);
    let score = if needed > least && sum < 1.0 {
        sum * (least / needed)
    } else if needed > least {
        let scale = least / needed;
        sum * scale + (1.0 - scale)
    } else {
        sum
    };
    (score >= least).then_some(score)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "decon's scores are of single precision"
)]
fn least(index: &Index) -> f32 {
    index.rules.min_score as f32
}

/// Required score of a record with this many tokens, where a long one needs `least`.
fn needed(index: &Index, tokens: usize, least: f32) -> f32 {
    let (whole, free) = (index.rules.whole_tokens, index.rules.free_tokens);
    if tokens <= whole {
        1.0
    } else if tokens >= free {
        least
    } else {
        1.0 - (1.0 - least) * ((tokens - whole) as f32 / (free - whole) as f32)
    }
}

fn question(index: &Index, record: &Record, met: &Met) -> f32 {
    let sum: f32 = met.ngrams.iter().map(|n| index.question_idf(*n)).sum();
    share(sum, record.question.idf)
}

fn share(part: f32, whole: f32) -> f32 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn weighted(record: &Record, question: f32, answer: Option<f32>, passage: Option<f32>) -> f32 {
    let unique = record.question.ngrams.len() as f32;
    let sure = if unique < QUESTION_NGRAMS {
        0.5 + (unique / QUESTION_NGRAMS) * 0.5
    } else {
        1.0
    };
    match (answer, passage) {
        (Some(answer), Some(passage)) => {
            let tokens = record.answer.as_ref().map_or(0, |a| a.unique) as f32;
            let sure_answer = if tokens < ANSWER_TOKENS {
                0.5 + (tokens / ANSWER_TOKENS) * 0.5
            } else {
                1.0
            };
            if sure >= 1.0 && sure_answer >= 1.0 {
                return question * 0.7 + answer * 0.2 + passage * 0.1;
            }
            let spare = 0.7 * (1.0 - sure);
            let of_answer = 0.2 + spare * 0.5;
            let of_passage = (0.1 + spare * 0.5) + of_answer * (1.0 - sure_answer);
            question * (0.7 * sure) + answer * (of_answer * sure_answer) + passage * of_passage
        }
        (Some(answer), None) if sure < 1.0 => {
            question * (0.75 * sure) + answer * (0.25 + 0.75 * (1.0 - sure))
        }
        (Some(answer), None) => question * 0.75 + answer * 0.25,
        (None, Some(passage)) if sure < 1.0 => {
            question * (0.85 * sure) + passage * (0.15 + 0.85 * (1.0 - sure))
        }
        (None, Some(passage)) => question * 0.85 + passage * 0.15,
        (None, None) => question,
    }
}

/// Overlap of an answer after the question. A short one matches wholly or not at all.
fn answer_overlap(index: &Index, tokens: &[u64], met: &Met, record: &Record, answer: &Part) -> f32 {
    let last = met.end + index.ngram() - 1;
    // n-grams that a question has twice stretch it into its answer
    let excess = (last - met.start + 1).saturating_sub(record.question.tokens.len());
    let start = last.saturating_sub(excess) + 1;
    let length = answer.tokens.len();
    if length <= SHORT_ANSWER {
        let end = (start + SHORT_WINDOW).min(tokens.len());
        let is_there = |at: usize| tokens.get(at..at + length) == Some(answer.tokens.as_slice());
        let found = (start..end).any(is_there);
        return if found && answer.idf > 0.0 { 1.0 } else { 0.0 };
    }
    let end = (start + (2 * length).max(WINDOW)).min(tokens.len());
    if end <= start || end - start < ANSWER_NGRAM || answer.idf == 0.0 {
        return 0.0;
    }
    let mut found: Vec<u32> = Vec::new();
    let mut sum = 0.0;
    for ngram in tokens[start..end].windows(ANSWER_NGRAM) {
        if let Some(number) = index.number(ngram)
            && answer.ngrams.binary_search(&number).is_ok()
            && let Err(place) = found.binary_search(&number)
        {
            found.insert(place, number);
            sum += index.answer_idf[&number];
        }
    }
    share(sum, answer.idf)
}

/// Overlap of a passage before the question, searched from its end.
fn passage_overlap(index: &Index, tokens: &[u64], met: &Met, passage: &Part) -> f32 {
    let window = (2 * passage.tokens.len()).max(WINDOW);
    let end = met.start.saturating_sub(1);
    let start = end.saturating_sub(window);
    if start >= end || end - start < PASSAGE_NGRAM || passage.idf == 0.0 {
        return 0.0;
    }
    let mut found: Vec<u32> = Vec::new();
    let (mut sum, mut misses) = (0.0, 0);
    for at in (start..=end - PASSAGE_NGRAM).rev() {
        let number = index.number(&tokens[at..at + PASSAGE_NGRAM]);
        match number.filter(|n| passage.ngrams.binary_search(n).is_ok()) {
            Some(number) => {
                misses = 0;
                if let Err(place) = found.binary_search(&number) {
                    found.insert(place, number);
                    sum += index.passage_idf[&number];
                }
            }
            None if found.is_empty() => {}
            None => {
                misses += 1;
                if misses > PASSAGE_MISSES {
                    break;
                }
            }
        }
    }
    share(sum, passage.idf)
}

//! Beam search, with Megatron-LM's rules (`core_v0.7.0`: `text_generation/{generation,beam_utils}.py`): a step looks at
//! the 2 * width likeliest continuations of the beams; one that ends is kept with its score, the sum of
//! log-probabilities over length^length_penalty; the search ends when the worst of `width` kept answers is at least as good as
//! the best that the beams can still become.

use crate::error::{Error, Result};
use crate::infer::engine::{Engine, Event, Request};
use crate::infer::options::GenerateOptions;

/// Settings of a beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// Beams, and answers returned at most.
    pub width: usize,
    /// Tokens of an answer at most.
    pub max_tokens: usize,
    /// Token that ends an answer.
    pub stop: Option<u32>,
    /// Power of the length that a score is divided by.
    pub length_penalty: f64,
}

/// An answer found by beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// Tokens of the answer, without the stop.
    pub tokens: Vec<u32>,
    /// Sum of log-probabilities over length^length_penalty; the length counts the answer's tokens and its stop.
    pub score: f64,
}

/// The likeliest answers, best first.
///
/// # Errors
/// As `Engine::submit` and `Engine::step`; a width of 0.
pub fn beam_search(engine: &mut Engine, prompt: &[u32], options: &BeamOptions) -> Result<Vec<Beam>> {
    let width = options.width;
    if width == 0 {
        return Err(Error::Request {
            what: "beam width",
            found: "0".into(),
            wanted: "at least 1".into(),
        });
    }
    let mut beams = vec![(Vec::new(), 0.0)];
    let mut kept: Vec<Beam> = Vec::new();
    let score = |log: f64, length: usize| log / (length as f64).powf(options.length_penalty);
    for length in 1..=options.max_tokens {
        let mut candidates = Vec::new();
        for (number, top) in continuations(engine, prompt, &beams, 2 * width)?.iter().enumerate() {
            let log: f64 = beams[number].1;
            let next = top.iter().map(|&(token, logprob)| (number, token, log + f64::from(logprob)));
            candidates.extend(next);
        }
        // the best first; among equals the earlier beam, then the lower token
        candidates.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        candidates.truncate(2 * width);
        let best = candidates.first().map(|&(.., log)| log);
        let mut next = Vec::new();
        for (place, &(beam, token, log)) in candidates.iter().enumerate() {
            if Some(token) == options.stop {
                // one that ends counts only among the best `width`
                if place < width {
                    let tokens = beams[beam].0.clone();
                    keep(&mut kept, Beam { tokens, score: score(log, length) }, width);
                }
                continue;
            }
            if next.len() < width {
                let mut tokens: Vec<u32> = beams[beam].0.clone();
                tokens.push(token);
                next.push((tokens, log));
            }
        }
        beams = next;
        let worst = kept.last().map(|beam| beam.score);
        let is_complete = kept.len() == width
            && best.zip(worst).is_some_and(|(best, worst)| worst >= score(best, length));
        if is_complete || beams.is_empty() {
            return Ok(kept);
        }
    }
    for (tokens, log) in beams {
        let length = tokens.len().max(1);
        keep(&mut kept, Beam { tokens, score: score(log, length) }, width);
    }
    Ok(kept)
}

/// Adds an answer to the best `width`, best first.
fn keep(kept: &mut Vec<Beam>, beam: Beam, width: usize) {
    let at = kept.partition_point(|other| other.score >= beam.score);
    kept.insert(at, beam);
    kept.truncate(width);
}

/// The likeliest next tokens of each beam. Beams share the blocks of their common beginning.
fn continuations(
    engine: &mut Engine,
    prompt: &[u32],
    beams: &[(Vec<u32>, f64)],
    top: usize,
) -> Result<Vec<Vec<(u32, f32)>>> {
    let mut ids = Vec::new();
    for (tokens, _) in beams {
        let options = GenerateOptions {
            logprobs: Some(top),
            ..GenerateOptions::greedy(1)
        };
        ids.push(engine.submit(Request {
            prompt: [prompt, tokens].concat(),
            options,
            slides: false,
        })?);
    }
    let mut found: Vec<Vec<(u32, f32)>> = vec![Vec::new(); ids.len()];
    while !engine.is_idle() {
        for event in engine.step()? {
            if let Event::Token {
                id,
                scored: Some(scored),
                ..
            } = event
                && let Some(number) = ids.iter().position(|other| *other == id)
            {
                found[number] = scored.top;
            }
        }
    }
    Ok(found)
}

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

impl BeamOptions {
    /// A request as long as a beam can become.
    #[must_use]
    pub fn whole(&self, prompt: &[u32]) -> Request {
        Request {
            prompt: prompt.to_vec(),
            beginning: Vec::new(),
            options: GenerateOptions::greedy(self.max_tokens),
            slides: false,
            adapter: None,
        }
    }
}

/// An answer found by beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// Tokens of the answer, without the stop.
    pub tokens: Vec<u32>,
    /// Sum of log-probabilities over length^length_penalty; the length counts the answer's tokens and its stop.
    pub score: f64,
}

/// A search in progress: the caller runs the requests of each step, in any engine and beside any other requests.
pub struct BeamSearch {
    prompt: Vec<u32>,
    options: BeamOptions,
    /// Pairs of tokens of which the second never follows the first.
    never_after: Vec<[u32; 2]>,
    /// Tokens of each beam with the sum of their log-probabilities.
    beams: Vec<(Vec<u32>, f64)>,
    /// The best answers that ended, best first.
    kept: Vec<Beam>,
    /// Tokens that every beam has.
    length: usize,
    is_over: bool,
}

impl BeamSearch {
    /// # Errors
    /// `Request` for a width of 0.
    pub fn new(prompt: &[u32], options: BeamOptions) -> Result<BeamSearch> {
        if options.width == 0 {
            return Err(Error::Request {
                what: "beam width",
                found: "0".into(),
                wanted: "at least 1".into(),
            });
        }
        Ok(BeamSearch {
            prompt: prompt.to_vec(),
            is_over: options.max_tokens == 0,
            options,
            never_after: Vec::new(),
            beams: vec![(Vec::new(), 0.0)],
            kept: Vec::new(),
            length: 0,
        })
    }

    /// Drops continuations in which the second token of a pair follows the first.
    #[must_use]
    pub fn never_after(mut self, pairs: Vec<[u32; 2]>) -> BeamSearch {
        self.never_after = pairs;
        self
    }

    /// The requests of the next step, one for each beam; none when the search is over. Beams share the blocks of their
    /// common beginning.
    pub fn requests(&self) -> Vec<Request> {
        if self.is_over {
            return Vec::new();
        }
        let request = |(tokens, _): &(Vec<u32>, f64)| Request {
            prompt: self.prompt.clone(),
            beginning: tokens.clone(),
            options: GenerateOptions {
                logprobs: Some(2 * self.options.width),
                ..GenerateOptions::greedy(1)
            },
            slides: false,
            adapter: None,
        };
        self.beams.iter().map(request).collect()
    }

    /// Takes the likeliest next tokens of each beam, in the order of `requests`.
    pub fn take(&mut self, tops: &[Vec<(u32, f32)>]) {
        self.length += 1;
        let width = self.options.width;
        let mut candidates = Vec::new();
        for (number, (beam, top)) in self.beams.iter().zip(tops).enumerate() {
            let (tokens, log) = beam;
            let last = tokens.last().or(self.prompt.last()).copied();
            let is_allowed = |token: u32| {
                let mut pairs = self.never_after.iter();
                !pairs.any(|[first, second]| Some(*first) == last && *second == token)
            };
            let next = top.iter().filter(|(token, _)| is_allowed(*token));
            candidates
                .extend(next.map(|&(token, logprob)| (number, token, log + f64::from(logprob))));
        }
        // the best first; among equals the earlier beam, then the lower token
        candidates.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        candidates.truncate(2 * width);
        let best = candidates.first().map(|&(.., log)| log);
        let mut next = Vec::new();
        for (place, &(beam, token, log)) in candidates.iter().enumerate() {
            if Some(token) == self.options.stop {
                // one that ends counts only among the best `width`
                if place < width {
                    let tokens = self.beams[beam].0.clone();
                    self.keep(tokens, log, self.length);
                }
                continue;
            }
            if next.len() < width {
                let mut tokens: Vec<u32> = self.beams[beam].0.clone();
                tokens.push(token);
                next.push((tokens, log));
            }
        }
        self.beams = next;
        let worst = self.kept.last().map(|beam| beam.score);
        let is_complete = self.kept.len() == width
            && best
                .zip(worst)
                .is_some_and(|(best, worst)| worst >= self.score(best, self.length));
        if is_complete {
            self.beams.clear();
        }
        self.is_over = self.beams.is_empty() || self.length == self.options.max_tokens;
    }

    /// The answers, best first; beams that did not end are among them when `max_tokens` ended the search.
    #[must_use]
    pub fn finish(mut self) -> Vec<Beam> {
        for (tokens, log) in std::mem::take(&mut self.beams) {
            let length = tokens.len().max(1);
            self.keep(tokens, log, length);
        }
        self.kept
    }

    fn score(&self, log: f64, length: usize) -> f64 {
        log / (length as f64).powf(self.options.length_penalty)
    }

    /// Adds an answer to the best `width`, best first.
    fn keep(&mut self, tokens: Vec<u32>, log: f64, length: usize) {
        let score = self.score(log, length);
        let at = self.kept.partition_point(|other| other.score >= score);
        self.kept.insert(at, Beam { tokens, score });
        self.kept.truncate(self.options.width);
    }
}

/// The likeliest answers, best first. The engine has no other request.
///
/// # Errors
/// As `Engine::step`; before any step a width of 0, and a prompt that `Engine::check` does not take with `max_tokens`.
pub fn beam_search(
    engine: &mut Engine,
    prompt: &[u32],
    options: &BeamOptions,
) -> Result<Vec<Beam>> {
    let mut search = BeamSearch::new(prompt, options.clone())?;
    engine.check(&options.whole(prompt))?;
    loop {
        let requests = search.requests();
        if requests.is_empty() {
            return Ok(search.finish());
        }
        search.take(&continuations(engine, requests)?);
    }
}

/// The likeliest next tokens of each request.
fn continuations(engine: &mut Engine, requests: Vec<Request>) -> Result<Vec<Vec<(u32, f32)>>> {
    let mut ids = Vec::new();
    for request in requests {
        ids.push(engine.submit(request)?);
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

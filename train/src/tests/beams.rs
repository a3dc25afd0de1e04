//! Beam search in an engine beside the same rules in f64 over whole forward passes, which have no caches and no requests.

use std::path::{Path, PathBuf};

use crate::config::Plan;
use crate::dist::devices::Devices;
use crate::eval::{decoder_logits, logits};
use crate::fixtures::{Log, samples_of, tiny_gpt, tiny_llama, tiny_t5};
use crate::infer::engine::{Engine, Event, Limits, Request};
use crate::infer::{Beam, BeamOptions, GenerateOptions, beam_search};
use crate::trainer::run;

const PROMPT: [u32; 3] = [3, 24, 171];

struct Trained {
    plan: Plan,
    checkpoint: PathBuf,
    _folder: tempfile::TempDir,
}

impl Trained {
    fn of(mut plan: Plan) -> Trained {
        plan.train.steps = 30;
        let folder = tempfile::tempdir().unwrap();
        let samples = samples_of(&plan);
        let outcome = run(
            &plan,
            samples.as_ref(),
            None,
            folder.path(),
            &Log::default(),
        );
        Trained {
            checkpoint: outcome.unwrap().checkpoint,
            plan,
            _folder: folder,
        }
    }

    fn search(&self, options: &BeamOptions) -> Vec<Beam> {
        let mut engine = engine(&self.checkpoint);
        beam_search(&mut engine, &PROMPT, options).unwrap()
    }

    /// Logarithms of the probabilities of every next token.
    fn next(&self, answer: &[u32]) -> Vec<f64> {
        let rows = match self.plan.model.architecture().is_encoder_decoder {
            true => {
                let start = self.plan.start.unwrap();
                decoder_logits(&self.checkpoint, &PROMPT, &[&[start], answer].concat())
            }
            false => logits(&self.checkpoint, &[&PROMPT[..], answer].concat()),
        };
        let row = rows.unwrap().pop().unwrap();
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        row.iter().map(|&x| f64::from(x) - sum.ln()).collect()
    }

    /// The rules of the module's source, over all tokens.
    fn reference(&self, options: &BeamOptions) -> Vec<Beam> {
        let width = options.width;
        let score = |log: f64, length: usize| log / (length as f64).powf(options.length_penalty);
        let mut open: Vec<(Vec<u32>, f64)> = vec![(Vec::new(), 0.0)];
        let mut ended: Vec<Beam> = Vec::new();
        let keep = |ended: &mut Vec<Beam>, tokens: Vec<u32>, score: f64| {
            ended.push(Beam { tokens, score });
            ended.sort_by(|a, b| b.score.total_cmp(&a.score));
            ended.truncate(width);
        };
        for length in 1..=options.max_tokens {
            let mut all = Vec::new();
            for (tokens, log) in &open {
                for (token, more) in (0u32..).zip(self.next(tokens)) {
                    all.push(([&tokens[..], &[token]].concat(), log + more));
                }
            }
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            all.truncate(2 * width);
            let best = score(all[0].1, length);
            open.clear();
            for (place, (mut tokens, log)) in all.into_iter().enumerate() {
                if tokens.last().copied() != options.stop {
                    if open.len() < width {
                        open.push((tokens, log));
                    }
                } else if place < width {
                    tokens.pop();
                    keep(&mut ended, tokens, score(log, length));
                }
            }
            if ended.len() == width && ended.last().is_some_and(|worst| worst.score >= best) {
                open.clear();
            }
            if open.is_empty() {
                break;
            }
        }
        for (tokens, log) in open {
            let score = score(log, tokens.len());
            keep(&mut ended, tokens, score);
        }
        ended
    }
}

fn engine(checkpoint: &Path) -> Engine {
    Engine::open(checkpoint, Devices::Cpu.whole(), Limits::default()).unwrap()
}

#[test]
fn answers_are_those_of_the_rules_over_whole_forward_passes() {
    for plan in [tiny_gpt(), tiny_llama(), tiny_t5()] {
        let trained = Trained::of(plan);
        let likeliest = trained.search(&options(1, None));
        // an end that beams really reach
        let stop = likeliest[0].tokens[3];
        for width in 1..=3 {
            for stop in [None, Some(stop)] {
                let options = options(width, stop);
                let (found, wanted) = (trained.search(&options), trained.reference(&options));
                let at = format!("{:?} {options:?}", trained.plan.model.family);
                let tokens = |beams: &[Beam]| -> Vec<Vec<u32>> {
                    beams.iter().map(|beam| beam.tokens.clone()).collect()
                };
                assert_eq!(tokens(&found), tokens(&wanted), "{at}");
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert!((found.score - wanted.score).abs() < 1e-5, "{at}");
                }
            }
        }
    }
}

fn options(width: usize, stop: Option<u32>) -> BeamOptions {
    BeamOptions {
        width,
        max_tokens: 6,
        stop,
        length_penalty: 0.7,
    }
}

#[test]
fn a_search_that_would_outgrow_the_model_is_refused_before_it_starts() {
    let trained = Trained::of(tiny_gpt());
    let mut engine = engine(&trained.checkpoint);
    let too_long = BeamOptions {
        max_tokens: trained.plan.seq_length - 2,
        ..options(2, None)
    };
    let error = beam_search(&mut engine, &PROMPT, &too_long).unwrap_err();
    let wanted = format!("3 tokens and {} to add", too_long.max_tokens);
    assert!(error.to_string().contains(&wanted), "{error}");
    assert_eq!(engine.counts().steps, 0);
}

#[test]
fn a_given_beginning_changes_no_bit_of_what_follows() {
    for plan in [tiny_gpt(), tiny_t5()] {
        let trained = Trained::of(plan);
        let mut engine = engine(&trained.checkpoint);
        let mut answer = |beginning: &[u32], count: usize| {
            let request = Request {
                prompt: PROMPT.to_vec(),
                beginning: beginning.to_vec(),
                options: GenerateOptions {
                    logprobs: Some(4),
                    ..GenerateOptions::greedy(count)
                },
                slides: false,
                adapter: None,
            };
            engine.submit(request).unwrap();
            let mut scored = Vec::new();
            while !engine.is_idle() {
                for event in engine.step().unwrap() {
                    if let Event::Token { scored: one, .. } = event {
                        scored.push(one.unwrap());
                    }
                }
            }
            scored
        };
        let whole = answer(&[], 8);
        let first: Vec<u32> = whole[..3].iter().map(|scored| scored.token).collect();
        assert_eq!(answer(&first, 5), whole[3..]);
    }
}

//! Answers to prompts of a file or the command line: all run at once, texts come out as they are certain.

use super::model_files::ModelFiles;
use super::sampling_args::SamplingArgs;
use super::stops::Stops;
use super::text_stream::TextStream;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use train::infer::engine::{Engine, Event, Finish, Request};
use train::infer::{GenerateOptions, Scored};

/// A complete answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
    /// With `logprobs`.
    pub(crate) scored: Vec<Scored>,
    /// `stop` or `length`, as OpenAI names it.
    pub(crate) finish_reason: &'static str,
}

impl Answer {
    /// Log-probabilities of its tokens with those of the likeliest others.
    pub(crate) fn logprobs(&self) -> Value {
        let top = |scored: &Scored| -> Vec<Value> {
            let top = scored.top.iter();
            top.map(|(token, logprob)| json!({"token": token, "logprob": logprob}))
                .collect()
        };
        let of = |scored: &Scored| json!({"token": scored.token, "logprob": scored.logprob, "rank": scored.rank + 1, "top": top(scored)});
        self.scored.iter().map(of).collect()
    }
}

/// An answer in progress.
struct Progress {
    number: usize,
    stream: TextStream,
    stops: Stops,
    /// Tokens that end the answer and are no part of it.
    ends: Vec<u32>,
    answer: Answer,
}

/// Receives the number of a prompt and text of its answer that is certain; `None` after the last.
type OnText<'a> = dyn FnMut(usize, Option<&str>) -> Result<()> + 'a;

/// Continues prompts, each with its options.
///
/// # Errors
/// Those of the engine and the tokenizer.
pub(crate) fn answer(
    engine: &mut Engine,
    files: &ModelFiles,
    args: &SamplingArgs,
    prompts: Vec<(Vec<u32>, GenerateOptions)>,
    on_text: &mut OnText<'_>,
) -> Result<Vec<Answer>> {
    let mut running = BTreeMap::new();
    let mut answers: Vec<Answer> = prompts.iter().map(|_| Answer::default()).collect();
    for (number, (prompt, options)) in prompts.into_iter().enumerate() {
        // a text of its own, or the prompt's continuation
        let before = match engine.is_encoder_decoder() {
            true => &[][..],
            false => &prompt,
        };
        let stream = TextStream::new(&files.tokenizer, before, true);
        let progress = Progress {
            number,
            stream,
            stops: Stops::new(&args.stop, false),
            ends: options.stop.iter().flatten().copied().collect(),
            answer: Answer::default(),
        };
        let id = engine.submit(Request {
            prompt,
            options,
            beginning: Vec::new(),
            slides: true,
            adapter: None,
        })?;
        running.insert(id, progress);
    }
    while !engine.is_idle() {
        for event in engine.step()? {
            let (id, end) = match event {
                Event::Started { .. } | Event::Prompt { .. } => continue,
                Event::Token { id, token, scored } => {
                    let Some(progress) = running.get_mut(&id) else {
                        continue;
                    };
                    if progress.ends.contains(&token) {
                        continue;
                    }
                    progress.answer.tokens.push(token);
                    progress.answer.scored.extend(scored);
                    let text = progress.stream.push(token)?;
                    if !progress.pass(&text, on_text)? {
                        continue;
                    }
                    engine.cancel(id);
                    (id, "stop")
                }
                Event::Finished { id, finish } => {
                    let Some(progress) = running.get_mut(&id) else {
                        continue;
                    };
                    let rest = progress.stream.finish()?;
                    if !progress.pass(&rest, on_text)? {
                        let held = progress.stops.finish();
                        progress.add(&held, on_text)?;
                    }
                    match finish {
                        Finish::Stop(_) => (id, "stop"),
                        Finish::Length => (id, "length"),
                    }
                }
            };
            if let Some(mut progress) = running.remove(&id) {
                progress.answer.finish_reason = end;
                on_text(progress.number, None)?;
                answers[progress.number] = progress.answer;
            }
        }
    }
    Ok(answers)
}

impl Progress {
    /// Adds text up to a stop string; returns whether there was one.
    fn pass(&mut self, text: &str, on_text: &mut OnText<'_>) -> Result<bool> {
        let passed = self.stops.push(text);
        self.add(&passed.text, on_text)?;
        Ok(passed.stop.is_some())
    }

    fn add(&mut self, text: &str, on_text: &mut OnText<'_>) -> Result<()> {
        self.answer.text.push_str(text);
        match text {
            "" => Ok(()),
            text => on_text(self.number, Some(text)),
        }
    }
}

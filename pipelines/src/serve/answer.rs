//! The text of one answer as its tokens come: special tokens, stop strings, stop tokens.

use super::sampling::Sampling;
use crate::generation::{Stops, TextStream};
use index::tokenizer::Tokenizer;
use std::sync::Arc;
use train::infer::engine::Finish;

/// Reason for the end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The model ended the text with a token of its own.
    ModelStop,
    /// A token of `stop_token_ids`.
    StopToken(u32),
    /// A stop string.
    StopString(String),
    /// `max_tokens`.
    Length,
}

impl End {
    /// OpenAI's `finish_reason`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            End::ModelStop | End::StopToken(_) | End::StopString(_) => "stop",
            End::Length => "length",
        }
    }

    /// vLLM's `stop_reason`.
    pub(super) fn stop_reason(&self) -> serde_json::Value {
        match self {
            End::ModelStop | End::Length => serde_json::Value::Null,
            End::StopToken(id) => (*id).into(),
            End::StopString(text) => text.as_str().into(),
        }
    }
}

/// An answer in progress.
pub(super) struct Answer {
    text: TextStream,
    stops: Stops,
    /// Ids that end the answer; the first `own` are the request's.
    stop_ids: Vec<u32>,
    own: usize,
    includes_stop: bool,
    /// Tokens before which no stop string counts.
    min_tokens: usize,
    tokens: usize,
    end: Option<End>,
}

impl Answer {
    /// `stop_ids` as `Sampling::all_stop_ids` gives them.
    pub(super) fn new(
        tokenizer: &Arc<Tokenizer>,
        prompt: &[u32],
        sampling: &Sampling,
        stop_ids: Vec<u32>,
    ) -> Answer {
        Answer {
            text: TextStream::new(tokenizer, prompt, sampling.skips_special),
            stops: Stops::new(&sampling.stop, sampling.includes_stop),
            own: sampling.stop_ids.len(),
            stop_ids,
            includes_stop: sampling.includes_stop,
            min_tokens: sampling.min_tokens(),
            tokens: 0,
            end: None,
        }
    }

    /// Tokens so far.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Adds a token; returns the text that is certain now. `end` tells whether a stop string ended the answer.
    ///
    /// # Errors
    /// The tokenizer's.
    pub(super) fn token(&mut self, id: u32) -> anyhow::Result<String> {
        if self.end.is_some() {
            return Ok(String::new());
        }
        self.tokens += 1;
        if self.stop_ids.contains(&id) && !self.includes_stop {
            return Ok(String::new());
        }
        let text = self.text.push(id)?;
        Ok(self.passed(&text))
    }

    /// The end that the engine reports; returns the rest of the text. An end by a stop string came before and stays.
    ///
    /// # Errors
    /// The tokenizer's.
    pub(super) fn finish(&mut self, finish: Finish) -> anyhow::Result<String> {
        if self.end.is_some() {
            return Ok(String::new());
        }
        let rest = self.text.finish()?;
        let mut text = self.passed(&rest);
        if self.end.is_none() {
            text.push_str(&self.stops.finish());
            self.end = Some(match finish {
                Finish::Stop(number) if number < self.own => {
                    End::StopToken(self.stop_ids.get(number).copied().unwrap_or_default())
                }
                Finish::Stop(_) => End::ModelStop,
                Finish::Length => End::Length,
            });
        }
        Ok(text)
    }

    /// The reason of the end, once there is one.
    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn passed(&mut self, text: &str) -> String {
        if self.tokens <= self.min_tokens {
            return text.to_owned();
        }
        let passed = self.stops.push(text);
        self.end = passed.stop.map(End::StopString);
        passed.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::fields::Fields;
    use crate::serve::sampling::Vocabulary;

    /// Tokens 0 to 99 are their numbers, with a blank between them.
    fn run(body: &str, ids: &[u32], finish: Finish) -> (String, Vec<String>, Option<End>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let words = ["a", "b", "END", "<e>"].iter().enumerate();
        let vocab: Vec<String> = words.map(|(id, word)| format!("{word:?}: {id}")).collect();
        let json = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": {{"type": "Whitespace"}},
            "post_processor": null, "decoder": null,
            "added_tokens": [{{"id": 3, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}],
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "a"}}}}"#,
            vocab.join(", ")
        );
        std::fs::write(&path, json).unwrap();
        let tokenizer = Arc::new(Tokenizer::load(&path).unwrap());
        let vocabulary = Vocabulary {
            model: 4,
            tokenizer: 4,
            end_ids: &[3],
        };
        let fields = Fields::parse(body.as_bytes()).unwrap();
        let sampling = Sampling::read(&fields, vocabulary).unwrap();
        let stop_ids = sampling.all_stop_ids(vocabulary);
        let mut answer = Answer::new(&tokenizer, &[0], &sampling, stop_ids);
        let mut pieces: Vec<String> = ids.iter().map(|id| answer.token(*id).unwrap()).collect();
        pieces.push(answer.finish(finish).unwrap());
        (pieces.concat(), pieces, answer.end().cloned())
    }

    #[test]
    fn stops_end_texts_as_asked() {
        let (text, _, end) = run("{}", &[0, 1, 3], Finish::Stop(0));
        assert_eq!((text.as_str(), end), (" a b", Some(End::ModelStop)));
        let (text, _, end) = run(r#"{"stop_token_ids": [1]}"#, &[0, 1], Finish::Stop(0));
        assert_eq!((text.as_str(), end), (" a", Some(End::StopToken(1))));
        let with = r#"{"stop_token_ids": [1], "include_stop_str_in_output": true}"#;
        assert_eq!(run(with, &[0, 1], Finish::Stop(0)).0, " a b");
        let (text, pieces, end) = run(r#"{"stop": "b E"}"#, &[0, 1, 2, 0], Finish::Length);
        assert_eq!(end, Some(End::StopString("b E".into())));
        assert_eq!(text, " a ");
        // the part of a stop string was held back
        assert_eq!(pieces, [" a", " ", "", "", ""]);
        let (text, _, end) = run(r#"{"stop": "b E"}"#, &[0, 1], Finish::Length);
        assert_eq!((text.as_str(), end), (" a b", Some(End::Length)));
    }

    #[test]
    fn special_tokens_have_text_and_early_stops_none_as_asked() {
        let ends = r#"{"ignore_eos": true, "skip_special_tokens": false}"#;
        assert_eq!(run(ends, &[0, 3, 1], Finish::Length).0, " a <e> b");
        assert_eq!(
            run(r#"{"ignore_eos": true}"#, &[0, 3, 1], Finish::Length).0,
            " a b"
        );
        let (text, _, end) = run(
            r#"{"stop": "b", "min_tokens": 2}"#,
            &[1, 1, 0, 1],
            Finish::Length,
        );
        assert_eq!(
            (text.as_str(), end),
            (" b b a ", Some(End::StopString("b".into())))
        );
    }
}

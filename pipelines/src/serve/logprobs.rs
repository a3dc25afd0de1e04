//! Log-probabilities in the forms of OpenAI's routes. Values below -9999 are clamped, as JSON has no infinity.

use super::texts::TokenTexts;
use serde_json::{Map, Value, json};
use train::infer::Scored;

/// The least log-probability that is written, as in vLLM.
const LEAST: f32 = -9999.0;

/// How tokens are named.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) texts: &'a TokenTexts,
    /// `token_id:5` instead of texts, which several tokens may share.
    pub(super) by_id: bool,
}

impl Names<'_> {
    fn of(&self, id: u32) -> String {
        match self.by_id {
            true => format!("token_id:{id}"),
            false => self.texts.text(id).to_owned(),
        }
    }
}

/// The `logprobs` of a completion, token by token.
#[derive(Default)]
pub(super) struct Completion {
    text_offset: Vec<usize>,
    token_logprobs: Vec<Value>,
    tokens: Vec<String>,
    top_logprobs: Vec<Value>,
}

impl Completion {
    /// Adds a token. `offset`: characters of the text before it; returns those before the next.
    pub(super) fn add(
        &mut self,
        names: Names<'_>,
        id: u32,
        scored: Option<&Scored>,
        offset: usize,
    ) -> usize {
        let name = names.of(id);
        self.text_offset.push(offset);
        self.token_logprobs.push(match scored {
            Some(scored) => clamped(scored.logprob).into(),
            None => Value::Null,
        });
        self.top_logprobs.push(match scored {
            Some(scored) => by_name(names, scored, &name).into(),
            None => Value::Null,
        });
        let next = offset + names.texts.text(id).chars().count();
        self.tokens.push(name);
        next
    }

    pub(super) fn into_json(self) -> Value {
        json!({
            "text_offset": self.text_offset,
            "token_logprobs": self.token_logprobs,
            "tokens": self.tokens,
            "top_logprobs": self.top_logprobs,
        })
    }
}

/// The likeliest tokens and the token itself. Of tokens with one name the likeliest counts, so that the largest value is that
/// of the likeliest token in any case: lm-evaluation-harness takes a token for greedy if its value is the largest.
fn by_name(names: Names<'_>, scored: &Scored, name: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for &(id, logprob) in &scored.top {
        found
            .entry(names.of(id))
            .or_insert_with(|| clamped(logprob).into());
    }
    found
        .entry(name)
        .or_insert_with(|| clamped(scored.logprob).into());
    found
}

/// A token of a chat's `logprobs.content`.
pub(super) fn of_chat(names: Names<'_>, id: u32, scored: &Scored) -> Value {
    let of = |id: u32, logprob: f32| {
        let name = names.of(id);
        json!({"token": name, "logprob": clamped(logprob), "bytes": name.as_bytes()})
    };
    let mut token = of(id, scored.logprob);
    let top = scored.top.iter().map(|&(id, logprob)| of(id, logprob));
    token["top_logprobs"] = Value::Array(top.collect());
    token
}

/// vLLM's `prompt_logprobs`: by id, the likeliest and the token itself, with ranks from 1.
pub(super) fn of_prompt(names: Names<'_>, scores: &[Option<Scored>]) -> Value {
    let entry = |id: u32, logprob: f32, rank: usize| {
        let text = names.texts.text(id);
        json!({"logprob": clamped(logprob), "rank": rank, "decoded_token": text})
    };
    let tokens = scores.iter().map(|scored| {
        let Some(scored) = scored else {
            return Value::Null;
        };
        let mut found = Map::new();
        let own = entry(scored.token, scored.logprob, scored.rank + 1);
        found.insert(scored.token.to_string(), own);
        for (rank, &(id, logprob)) in (1..).zip(&scored.top) {
            found.insert(id.to_string(), entry(id, logprob, rank));
        }
        found.into()
    });
    tokens.collect()
}

fn clamped(logprob: f32) -> f32 {
    // NaN as well
    if logprob >= LEAST { logprob } else { LEAST }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::tokenizer::Tokenizer;
    use std::path::Path;
    use std::sync::Arc;

    fn texts() -> TokenTexts {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lm_eval/model");
        let tokenizer = Tokenizer::load(&data.join("tokenizer.json")).unwrap();
        TokenTexts::new(&Arc::new(tokenizer))
    }

    #[test]
    fn the_largest_value_is_the_likeliest_tokens_also_if_names_collide() {
        let texts = texts();
        // parts of characters all look like U+FFFD
        let parts: Vec<u32> = (0..512)
            .filter(|id| texts.text(*id) == "\u{fffd}")
            .collect();
        assert!(parts.len() > 2, "{parts:?}");
        let scored = Scored {
            token: parts[1],
            logprob: -2.5,
            rank: 1,
            top: vec![(parts[0], -0.5)],
        };
        let names = Names {
            texts: &texts,
            by_id: false,
        };
        let mut found = Completion::default();
        assert_eq!(found.add(names, parts[0], None, 4), 5);
        found.add(names, parts[1], Some(&scored), 5);
        let found = found.into_json();
        assert_eq!(found["token_logprobs"], json!([null, -2.5]));
        assert_eq!(found["top_logprobs"], json!([null, {"\u{fffd}": -0.5}]));
        assert_eq!(found["text_offset"], json!([4, 5]));
        let names = Names {
            by_id: true,
            ..names
        };
        let mut found = Completion::default();
        found.add(names, parts[1], Some(&scored), 0);
        let top = &found.into_json()["top_logprobs"][0];
        assert_eq!(top.as_object().unwrap().len(), 2);
    }

    #[test]
    fn infinities_are_clamped_and_ranks_count_from_one() {
        let texts = texts();
        let names = Names {
            texts: &texts,
            by_id: false,
        };
        let scored = Scored {
            token: 70,
            logprob: f32::NEG_INFINITY,
            rank: 4,
            top: vec![(71, -0.25)],
        };
        let found = of_prompt(names, &[None, Some(scored.clone())]);
        assert_eq!(found[0], Value::Null);
        assert_eq!(found[1]["70"]["logprob"], -9999.0);
        assert_eq!(found[1]["70"]["rank"], 5);
        assert_eq!(found[1]["71"]["rank"], 1);
        let found = of_chat(names, 70, &scored);
        assert_eq!(found["bytes"], json!(texts.text(70).as_bytes()));
        assert_eq!(found["top_logprobs"][0]["logprob"], -0.25);
        assert!(!found.to_string().contains("null"));
    }
}

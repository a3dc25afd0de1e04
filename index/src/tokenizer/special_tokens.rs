//! Special tokens in encoding: those that a post-processor adds around a text, and their names within a text.
//!
//! Named as in transformers: `add_special_tokens` adds the tokens of a `tokenizer.json`'s post-processor (LLaMA's BOS,
//! BERT's `[CLS]` and `[SEP]`), `split_special_tokens` treats the name of a special token in the text as text.
//! `add_bos_token` of a `tokenizer_config.json` changes nothing beside a `tokenizer.json`, as in transformers 5.
//! Source: tokenizers 0.23.3 and transformers 5.23 (facts), compared with them in `kinds.rs`.

use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, Override};

/// Treatment of special tokens. Default: none is added, and their names in a text are text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpecialTokens {
    /// Add the post-processor's tokens around a text.
    pub add: bool,
    /// The name of a special token within a text becomes its id.
    pub parse: bool,
}

/// Ids that a post-processor adds before and after one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
}

impl Around {
    /// From the `post_processor` of a `tokenizer.json`.
    pub(super) fn of(processor: &Value) -> Result<Around, String> {
        let wrong = |found: &Value, wanted: &str| {
            let found: String = found.to_string().chars().take(80).collect();
            Err(format!("post_processor: found {found}, wanted {wanted}"))
        };
        let id = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
        match processor["type"].as_str() {
            None if processor.is_null() => Ok(Around::default()),
            Some("ByteLevel") => Ok(Around::default()),
            Some("BertProcessing" | "RobertaProcessing") => {
                match (id(&processor["cls"][1]), id(&processor["sep"][1])) {
                    (Some(cls), Some(sep)) => Ok(Around {
                        before: vec![cls],
                        after: vec![sep],
                    }),
                    _ => wrong(processor, "cls and sep with their ids"),
                }
            }
            Some("Sequence") => {
                let mut all = Around::default();
                for step in processor["processors"].as_array().into_iter().flatten() {
                    // each works on the output of the one before it
                    let outer = Around::of(step)?;
                    all.before.splice(0..0, outer.before);
                    all.after.extend(outer.after);
                }
                Ok(all)
            }
            Some("TemplateProcessing") => {
                let (mut around, mut is_behind) = (Around::default(), false);
                for piece in processor["single"].as_array().into_iter().flatten() {
                    if piece["Sequence"].is_object() {
                        is_behind = true;
                        continue;
                    }
                    let name = piece["SpecialToken"]["id"].as_str().unwrap_or_default();
                    let ids = processor["special_tokens"][name]["ids"].as_array();
                    let ids: Option<Vec<u32>> = ids.and_then(|ids| ids.iter().map(id).collect());
                    let Some(ids) = ids else {
                        return wrong(piece, "a sequence or a token of special_tokens");
                    };
                    match is_behind {
                        false => around.before.extend(ids),
                        true => around.after.extend(ids),
                    }
                }
                match is_behind {
                    true => Ok(around),
                    false => wrong(&processor["single"], "a template with the text in it"),
                }
            }
            _ => wrong(processor, "a post-processor of tokenizers 0.23"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

/// An added token, which is matched before the text is cut into words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) id: u32,
    pub(super) special: bool,
    /// Only between characters that are not `\w`.
    single_word: bool,
    /// White space before it (`lstrip`) or after it (`rstrip`) belongs to it.
    lstrip: bool,
    rstrip: bool,
}

/// Added tokens that are searched for together.
#[derive(Default)]
pub(super) struct Search {
    matcher: Option<AhoCorasick>,
    tokens: Vec<Added>,
}

/// A piece of text, or a token that was found in it.
pub(super) enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

impl Added {
    /// A special token of which only the id is known.
    pub(super) fn named(id: u32) -> Added {
        Added {
            id,
            special: true,
            ..Added::default()
        }
    }

    /// A member of `added_tokens`, with its text; none for one without text or id.
    pub(super) fn of(token: &Value) -> Result<Option<(String, Added)>, String> {
        let is = |key: &str| token[key] == true;
        let (Some(content), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) else {
            return Ok(None);
        };
        let id = u32::try_from(id).map_err(|e| format!("added token {content:?}: {e}"))?;
        let added = Added {
            id,
            special: is("special"),
            single_word: is("single_word"),
            lstrip: is("lstrip"),
            rstrip: is("rstrip"),
        };
        Ok(Some((content.to_string(), added)))
    }
}

impl Search {
    /// For tokens by their texts; an empty text is never found.
    pub(super) fn of(tokens: &[(String, Added)]) -> Result<Search, String> {
        let tokens: Vec<_> = tokens.iter().filter(|(t, _)| !t.is_empty()).collect();
        if tokens.is_empty() {
            return Ok(Search::default());
        }
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(content, _)| content))
            .map_err(|e| format!("added_tokens: {e}"))?;
        Ok(Search {
            matcher: Some(matcher),
            tokens: tokens.into_iter().map(|(_, added)| added.clone()).collect(),
        })
    }

    /// Text and tokens in turn; special tokens are text unless `parse`.
    pub(super) fn cut<'t>(&self, text: &'t str, parse: bool) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let mut from = 0;
        for found in self.matcher.iter().flat_map(|m| m.find_iter(text)) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut start, mut end) = (found.start(), found.end());
            let touches = text[..start].chars().next_back().is_some_and(is_word)
                || text[end..].chars().next().is_some_and(is_word);
            if (token.special && !parse) || (token.single_word && touches) || start < from {
                continue;
            }
            if token.lstrip {
                start = text[..start].trim_end().len().max(from);
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if from < start {
                parts.push(Part::Text(&text[from..start]));
            }
            parts.push(Part::Token(token.id));
            from = end;
        }
        if from < text.len() {
            parts.push(Part::Text(&text[from..]));
        }
        parts
    }
}

/// `\w`.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || unicode_normalization::char::is_combining_mark(c)
}

/// The library's options: no added tokens, truncation or padding, regardless of the file; `parse` recognizes
/// special tokens in the text.
pub(super) fn options(parse: bool) -> EncodeOptions {
    EncodeOptions {
        encode_special_tokens: !parse,
        padding: Override::Off,
        truncation: Override::Off,
        ..EncodeOptions::no_specials()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_of_another_form_is_refused_with_what_it_is() {
        for bad in [
            json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}}),
            json!({"type": "TemplateProcessing", "single": [], "special_tokens": {}}),
            json!({"type": "BertProcessing", "cls": ["[CLS]"], "sep": ["[SEP]", 3]}),
            json!({"type": "Other"}),
            json!(7),
        ] {
            let why = Around::of(&bad).unwrap_err();
            assert!(why.starts_with("post_processor: found"), "{why}");
        }
    }

    #[test]
    fn of_tokens_at_one_place_the_longest_is_found_with_the_blanks_that_it_takes() {
        let strip = Added {
            lstrip: true,
            rstrip: true,
            ..Added::named(2)
        };
        let tokens = [
            ("<a>".into(), Added::named(1)),
            ("<a><b>".into(), strip),
            (String::new(), Added::named(3)),
        ];
        let search = Search::of(&tokens).unwrap();
        let shown = |text: &str, parse: bool| -> Vec<String> {
            let parts = search.cut(text, parse);
            let show = |part: Part<'_>| match part {
                Part::Text(text) => text.to_string(),
                Part::Token(id) => id.to_string(),
            };
            parts.into_iter().map(show).collect()
        };
        assert_eq!(shown("x <a><b>  <a> y", true), ["x", "2", "1", " y"]);
        assert_eq!(shown("x <a>", false), ["x <a>"]);
        assert!(shown("", true).is_empty());
    }
}

//! Settings of language identification.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::identifier::{BUILT_IN, Identifier, LanguageScratch};
use super::paragraphs::{MixtureScratch, mixture, without};
use super::script::script_shares;
use crate::check::{self, Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::quality::fasttext::is_fasttext;
use crate::verdict::{Judge, Verdict, broken};

/// Treatment of paragraphs in other languages than the document's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherParagraphs {
    /// They stay.
    #[default]
    Keep,
    /// They stay, and `meta.other_paragraphs` lists them: first character, one past the last, language.
    List,
    /// They are removed; `meta.removed_languages` has the characters of each language.
    Remove,
}

impl OtherParagraphs {
    fn is_keep(&self) -> bool {
        *self == OtherParagraphs::Keep
    }
}

/// Language identification.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageConfig {
    /// `builtin`, or the path of a fastText model (`.bin` or `.ftz`) such as lid.176 or GlotLID.
    pub model: String,
    /// Labels to keep, in the model's notation (built-in: ISO 639-1 where one exists); empty: keep all, only label.
    pub keep: Vec<String>,
    /// Minimum confidence in 0..=1 for a kept document; 0 accepts any. datatrove: 0.65 with lid.176.
    pub min_confidence: f64,
    /// Identifies every paragraph. The document's language is then the one with the most letters and its
    /// confidence that language's share of them; all shares go to `meta.languages`.
    pub per_paragraph: bool,
    /// Treatment of paragraphs in another language than the document's and those of `keep`, with `per_paragraph`.
    #[serde(skip_serializing_if = "OtherParagraphs::is_keep")]
    pub other_paragraphs: OtherParagraphs,
    /// Shares of scripts go to `meta.scripts`.
    pub scripts: bool,
}

impl Default for LanguageConfig {
    fn default() -> Self {
        LanguageConfig {
            model: BUILT_IN.to_string(),
            keep: Vec::new(),
            min_confidence: 0.0,
            per_paragraph: false,
            other_paragraphs: OtherParagraphs::Keep,
            scripts: false,
        }
    }
}

/// The step, with its model.
struct LanguageFilter {
    config: LanguageConfig,
    identifier: Identifier,
}

/// Where a document's metadata has the confidence of its language.
const CONFIDENCE: &str = "language_confidence";
/// The metric.
const MIN_CONFIDENCE: &str = "language.min_confidence";

/// Four digits are more than a share of letters means.
fn round(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

fn shares<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> Value {
    let pairs = shares.map(|(name, share)| (name.to_string(), round(share).into()));
    Value::Object(pairs.collect())
}

impl StepConfig for LanguageConfig {
    fn name(&self) -> &'static str {
        "language"
    }

    fn check(&self, problem: Problem<'_>) {
        range(problem, "min_confidence", self.min_confidence, 0.0, 1.0);
        if !self.other_paragraphs.is_keep() && !self.per_paragraph {
            let found = format!("{:?}", self.other_paragraphs).to_lowercase();
            problem("other_paragraphs", found, "\"keep\" without per_paragraph");
        }
        if self.model != BUILT_IN {
            // a model's labels are known when it is opened
            if self.model.is_empty() {
                let wanted = "\"builtin\" or the path of a fastText model";
                problem("model", "\"\"".to_string(), wanted);
            }
            return;
        }
        for (i, code) in self.keep.iter().enumerate() {
            if !crate::language::is_known(code) {
                problem(
                    &format!("keep[{i}]"),
                    format!("{code:?}"),
                    "a language code the identifier can give, such as \"en\"",
                );
            }
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let identifier = Identifier::open(&self.model)?;
        if let Some(i) = self.keep.iter().position(|code| !identifier.knows(code)) {
            return Err(at.wrong(
                &format!("language.keep[{i}]"),
                format!("{:?}", self.keep[i]),
                format!("a label of the model {}", self.model),
            ));
        }
        Ok(Box::new(LanguageFilter {
            config: self.clone(),
            identifier,
        }))
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.model == BUILT_IN {
            return Vec::new();
        }
        vec![PathBuf::from(&self.model)]
    }

    fn check_files(&self, problem: Problem<'_>) {
        if self.model != BUILT_IN {
            let wanted = "\"builtin\" or a fastText model (.bin or .ftz)";
            check::file(problem, "model", &self.model, wanted, is_fasttext);
        }
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(vec![MIN_CONFIDENCE.to_string()])
    }
}

impl LanguageFilter {
    /// Lists or removes the paragraphs in other languages of the text that `scratch` has read.
    fn others(&self, draft: &mut Draft, scratch: &MixtureScratch) {
        let stays =
            |code: &str| code == draft.language || self.config.keep.iter().any(|k| k == code);
        let others = scratch.others(stays);
        if others.is_empty() {
            return;
        }
        if self.config.other_paragraphs == OtherParagraphs::List {
            let (mut chars, mut at) = (0, 0);
            let mut place = |byte: usize| {
                chars += draft.text[at..byte].chars().count();
                at = byte;
                chars
            };
            let listed: Vec<Value> = others
                .iter()
                .map(|(bytes, code)| json!([place(bytes.start), place(bytes.end), code]))
                .collect();
            draft.note("other_paragraphs", listed.into());
            return;
        }
        let mut removed: BTreeMap<&str, usize> = BTreeMap::new();
        for (bytes, code) in &others {
            *removed.entry(code).or_default() += draft.text[bytes.clone()].chars().count();
        }
        let text = without(&draft.text, &others);
        draft.note("removed_languages", json!(removed));
        draft.text = text;
    }
}

impl Filter for LanguageFilter {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let config = &self.config;
        if config.scripts {
            let found = script_shares(&draft.text);
            let found = shares(found.iter().map(|(script, share)| (script.code(), *share)));
            draft.note("scripts", found);
        }
        let confidence = if config.per_paragraph {
            let scratch = scratch.own.get::<MixtureScratch>();
            let found = mixture(&self.identifier, &draft.text, scratch);
            let (code, share) = found.main().unwrap_or(("und", 0.0));
            draft.language = code.to_string();
            let found = shares(
                found
                    .shares
                    .iter()
                    .map(|(code, share)| (code.as_str(), *share)),
            );
            draft.note("languages", found);
            share
        } else {
            let scratch = scratch.own.get::<LanguageScratch>();
            let (code, confidence) = self.identifier.identify(&draft.text, scratch);
            draft.language = code.to_string();
            confidence
        };
        draft.note(CONFIDENCE, round(confidence).into());
        if !config.keep.is_empty() && !config.keep.contains(&draft.language) {
            let wanted = config.keep.join(" ");
            return Verdict::Break(broken("language.keep", draft.language.as_str(), wanted));
        }
        judge.at_least(MIN_CONFIDENCE, confidence, config.min_confidence)?;
        if !config.other_paragraphs.is_keep() {
            self.others(draft, scratch.own.get::<MixtureScratch>());
        }
        Verdict::Continue(())
    }

    fn metrics(&self) -> Vec<String> {
        vec![MIN_CONFIDENCE.to_string()]
    }
}

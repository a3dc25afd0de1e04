//! Steps that repair a text or say what it is: normalization, language, source code.

use serde_json::Value;

use super::{Draft, StepScratch, note};
use crate::code::identify_code;
use crate::config::{CodeConfig, LanguageConfig};
use crate::language::{Identifier, mixture, script_shares};
use crate::normalize::NormalizeConfig;
use crate::verdict::{Judge, Verdict, broken};

pub(super) fn normalize(config: &NormalizeConfig, draft: &mut Draft, rewritten: &mut String) {
    draft.repairs = config.repair(&draft.text, rewritten);
    if !draft.repairs.is_empty() {
        std::mem::swap(&mut draft.text, rewritten);
        let made: serde_json::Map<String, Value> = draft
            .repairs
            .made()
            .map(|(name, lines)| (name.to_string(), lines.into()))
            .collect();
        note(draft, "normalized", Value::Object(made));
    }
}

/// Four digits are more than a share of letters means.
fn shares<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> Value {
    let round = |share: f64| (share * 1e4).round() / 1e4;
    let pairs = shares.map(|(name, share)| (name.to_string(), round(share).into()));
    Value::Object(pairs.collect())
}

pub(super) fn name_language(
    config: &LanguageConfig,
    identifier: &Identifier,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    if config.scripts {
        let found = script_shares(&draft.text);
        let found = shares(found.iter().map(|(script, share)| (script.code(), *share)));
        note(draft, "scripts", found);
    }
    let confidence = if config.per_paragraph {
        let found = mixture(identifier, &draft.text, &mut scratch.mixture);
        let (code, share) = found.main().unwrap_or(("und", 0.0));
        draft.language = code.to_string();
        let found = shares(
            found
                .shares
                .iter()
                .map(|(code, share)| (code.as_str(), *share)),
        );
        note(draft, "languages", found);
        share
    } else {
        let (code, confidence) = identifier.identify(&draft.text, &mut scratch.language);
        draft.language = code.to_string();
        confidence
    };
    if !config.keep.is_empty() && !config.keep.contains(&draft.language) {
        let wanted = config.keep.join(" ");
        return Verdict::Break(broken("language.keep", draft.language.as_str(), wanted));
    }
    judge.at_least("language.min_confidence", confidence, config.min_confidence)
}

pub(super) fn name_code(config: &CodeConfig, draft: &mut Draft, judge: &mut Judge) -> Verdict {
    let guess = identify_code(&draft.text, draft.url.as_deref());
    note(draft, "code", Value::String(guess.label.to_string()));
    if !config.keep.is_empty() && !config.keep.iter().any(|k| k == guess.label) {
        let wanted = config.keep.join(" ");
        return Verdict::Break(broken("code.keep", guess.label, wanted));
    }
    judge.at_least(
        "code.min_confidence",
        guess.confidence,
        config.min_confidence,
    )
}

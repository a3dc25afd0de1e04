//! Filters whose words are those of a language; FineWeb-2's limits and stop words.

use rustc_hash::FxHashMap;

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepScratch};
use crate::error::Result;
use crate::text::languages::{self, WordLanguage};
use crate::text::words::WordRules;
use crate::verdict::{Judge, Verdict};

/// Reports a key `language` that names none.
pub(super) fn check_language(setting: &str, problem: Problem<'_>) {
    if let Err(wanted) = WordLanguage::of(setting) {
        problem("language", format!("{setting:?}"), &wanted);
    }
}

/// A filter over the words of a language.
struct InLanguage {
    words: WordLanguage,
    filter: Box<dyn Filter>,
}

/// Lets a filter see the words that the key `language` of `step` asks for.
pub(super) fn in_language(
    setting: &str,
    step: &str,
    at: &Opening<'_>,
    filter: Box<dyn Filter>,
) -> Result<Box<dyn Filter>> {
    let words = WordLanguage::of(setting).map_err(|wanted| {
        let key = format!("{step}.language");
        at.wrong(&key, format!("{setting:?}"), wanted)
    })?;
    Ok(match words {
        WordLanguage::One(WordRules::English) => filter,
        WordLanguage::One(_) | WordLanguage::OfDocument => Box::new(InLanguage { words, filter }),
    })
}

impl Filter for InLanguage {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        scratch.text.use_rules(self.words.rules(&draft.language));
        let verdict = self.filter.apply(draft, scratch, judge);
        scratch.text.use_rules(WordRules::English);
        verdict
    }

    fn metrics(&self) -> Vec<String> {
        self.filter.metrics()
    }
}

/// More would not fit the bit set of matches.
pub(super) const MOST_STOP_WORDS: usize = 128;

/// Number of limits in a line of the table.
pub(super) const LIMITS: usize = 15;

/// A language with FineWeb-2's rules.
pub(super) struct Language {
    pub(super) word_rules: WordRules,
    /// In the order of `fineweb2`'s names.
    pub(super) limits: [f64; LIMITS],
    pub(super) stop_words: Vec<&'static str>,
}

/// Looks up a language of FineWeb-2; the error describes the problem.
pub(super) fn language(name: &str) -> Result<Language, String> {
    let found = languages::language(name)?;
    let none = || {
        let code = found.code;
        format!("a language of FineWeb-2; {code} is none, though its words are known")
    };
    let mut fields = found.fineweb2.ok_or_else(none)?.split('\t');
    let mut limits = [0.0; LIMITS];
    for limit in &mut limits {
        let field = fields.next().unwrap_or_default();
        *limit = field.parse().map_err(|_| none())?;
    }
    Ok(Language {
        word_rules: found.word_rules,
        limits,
        stop_words: fields.collect(),
    })
}

/// A bit for each word.
pub(super) fn bits<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> FxHashMap<Box<[u8]>, u8> {
    words.into_iter().map(Box::from).zip(0..128).collect()
}

//! The clean-up of OpenWebText that Megatron-LM and MT-NLG used: short pages, notices about scripts, white space.
//!
//! Definitions: NVIDIA/Megatron-LM before 26ad37925, `tools/openwebtext/cleanup_fix_dataset.py`, tasks in its
//! order: pages below 512 characters, below 256 with "javascript", below 512 that are not English, and its general
//! cleaning (`  +|\b\n+ |\b\n+` becomes one space). MT-NLG: Smith et al. 2022, arXiv:2201.11990. Its repair of text
//! (ftfy) is the step `normalize`; the language comes from an earlier step `language`. Left out:
//! `cleanup_dataset.py` drops pages below 128 GPT-2 tokens, as this crate has no tokens. There each task is a
//! separate run; here they run one after the other, each if its limit is not 0.

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::chars;
use crate::text::unicode::is_word;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Megatron-LM's clean-up of OpenWebText. Numbers of 0 switch a rule off.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Openwebtext {
    /// Minimum number of characters. Megatron-LM: 512.
    pub min_chars: usize,
    /// Minimum number of characters of a page with "javascript". Megatron-LM: 256.
    pub min_javascript_chars: usize,
    /// Minimum number of characters of a page in another language than `language`; needs a step `language` before.
    /// Megatron-LM: 512.
    pub min_foreign_chars: usize,
    /// The language of the corpus, as the step `language` names it.
    pub language: String,
    /// Join runs of spaces and broken lines.
    pub join_lines: bool,
}

impl Default for Openwebtext {
    fn default() -> Self {
        Openwebtext {
            min_chars: 512,
            min_javascript_chars: 256,
            min_foreign_chars: 0,
            language: "en".to_string(),
            join_lines: false,
        }
    }
}

impl Openwebtext {
    /// Judges a text in a language; `out` receives the result.
    pub fn judge(&self, text: &str, language: &str, out: &mut String) -> Verdict {
        self.measure(text, language, out, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text; `out` receives the result.
    pub fn measure(
        &self,
        text: &str,
        language: &str,
        out: &mut String,
        judge: &mut Judge,
    ) -> Verdict {
        let length = chars(text);
        let least = self.min_chars as f64;
        judge.at_least("openwebtext.min_chars", length as f64, least)?;
        if length < self.min_javascript_chars && says_javascript(text) {
            let least = self.min_javascript_chars;
            return Verdict::Break(broken("openwebtext.javascript", length, least));
        }
        if length < self.min_foreign_chars && language != self.language {
            let least = self.min_foreign_chars;
            return Verdict::Break(broken("openwebtext.foreign", length, least));
        }
        out.clear();
        if self.join_lines {
            join(text, out);
        } else {
            out.push_str(text);
        }
        KEEP
    }
}

/// No letter outside ASCII is a letter of "javascript" in lower case.
fn says_javascript(text: &str) -> bool {
    let word = b"javascript";
    text.as_bytes()
        .windows(word.len())
        .any(|w| w.eq_ignore_ascii_case(word))
}

/// Writes `text` with runs of spaces, and line feeds behind a word with a space after them, as one space.
fn join(text: &str, out: &mut String) {
    let mut before = '\n';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        // a run is counted where it is taken as a whole, so that none is counted twice
        let run = if c == ' ' || (c == '\n' && is_word(before)) {
            rest.bytes().take_while(|&b| char::from(b) == c).count()
        } else {
            1
        };
        if c == ' ' && run > 1 {
            out.push(' ');
            rest = &rest[run..];
            before = ' ';
        } else if c == '\n' && is_word(before) {
            out.push(' ');
            rest = &rest[run..];
            before = '\n';
            if let Some(behind) = rest.strip_prefix(' ') {
                rest = behind;
                before = ' ';
            }
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            before = c;
        }
    }
}

impl StepConfig for Openwebtext {
    fn name(&self) -> &'static str {
        "openwebtext"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.min_foreign_chars > 0 && self.language.is_empty() {
            let wanted = "a label of the step `language`";
            problem("language", "\"\"".to_string(), wanted);
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }

    fn language_key(&self) -> Option<&'static str> {
        (self.min_foreign_chars > 0).then_some("min_foreign_chars")
    }
}

impl Filter for Openwebtext {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &draft.language, &mut scratch.rewritten, judge)?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rules: &Openwebtext, text: &str, language: &str) -> Result<String, String> {
        let mut out = String::new();
        match rules.judge(text, language, &mut out) {
            Verdict::Continue(()) => Ok(out),
            Verdict::Break(reason) => Err(reason.rule),
        }
    }

    #[test]
    fn short_pages_go_by_characters_not_bytes() {
        let rules = Openwebtext::default();
        assert!(judged(&rules, &"\u{e9}".repeat(512), "en").is_ok());
        assert_eq!(
            judged(&rules, &"\u{e9}".repeat(511), "en").unwrap_err(),
            "openwebtext.min_chars"
        );
    }

    #[test]
    fn each_rule_names_its_drop() {
        let rules = Openwebtext {
            min_chars: 0,
            min_foreign_chars: 512,
            ..Openwebtext::default()
        };
        let notice = "Please turn on JavaScript to see this page.";
        assert_eq!(
            judged(&rules, notice, "en").unwrap_err(),
            "openwebtext.javascript"
        );
        assert_eq!(
            judged(&rules, "ein Satz", "de").unwrap_err(),
            "openwebtext.foreign"
        );
        assert!(judged(&rules, "a line", "en").is_ok());
        assert!(judged(&rules, &"javascript ".repeat(60), "de").is_ok());
    }
}

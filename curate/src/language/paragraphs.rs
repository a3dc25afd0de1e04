//! Language identification by paragraph.
//!
//! A paragraph is a line. Its letters count for the language that the identifier assigns, or as
//! undetermined if it has fewer than [`FEW`] letters or the identifier is less sure than
//! [`UNSURE`]: a menu entry or a name says little about a language.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Identifier, LanguageScratch, UNDETERMINED, script};

/// Minimum letters to determine a language. Half a short sentence.
const FEW: u64 = 20;
/// Less confidence than this does not either.
const UNSURE: f64 = 0.5;

/// Languages of a text with their shares of its letters, largest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mixture {
    /// (code, share); shares add up to 1. Empty for a text without letters.
    pub shares: Vec<(String, f64)>,
}

/// Buffers of one thread.
#[derive(Default)]
pub struct MixtureScratch {
    language: LanguageScratch,
    counts: BTreeMap<String, u64>,
    /// Paragraphs with a language, in order: bytes and code.
    paragraphs: Vec<(Range<usize>, String)>,
}

impl MixtureScratch {
    /// Paragraphs of the last text whose language could be determined and is none that `stays` accepts.
    pub fn others(&self, stays: impl Fn(&str) -> bool) -> Vec<(Range<usize>, &str)> {
        let paragraphs = self.paragraphs.iter();
        paragraphs
            .map(|(bytes, code)| (bytes.clone(), code.as_str()))
            .filter(|(_, code)| !stays(code))
            .collect()
    }
}

/// The text without the lines that are these ranges, in order.
pub(super) fn without(text: &str, lines: &[(Range<usize>, &str)]) -> String {
    let mut left = String::with_capacity(text.len());
    let mut next = lines.iter().map(|(bytes, _)| bytes.start).peekable();
    let (mut at, mut is_first) = (0, true);
    for line in text.split('\n') {
        if next.next_if_eq(&at).is_none() {
            if !is_first {
                left.push('\n');
            }
            left.push_str(line);
            is_first = false;
        }
        at += line.len() + 1;
    }
    left
}

impl Mixture {
    /// Share of the language with the most letters; `und` does not count as one.
    pub fn main(&self) -> Option<(&str, f64)> {
        let known = self.shares.iter().find(|s| s.0 != UNDETERMINED);
        known.map(|(code, share)| (code.as_str(), *share))
    }
}

/// Identifies every paragraph of a text.
pub fn mixture(identifier: &Identifier, text: &str, scratch: &mut MixtureScratch) -> Mixture {
    scratch.counts.clear();
    scratch.paragraphs.clear();
    let (mut all, mut at) = (0, 0);
    for line in text.split('\n') {
        let bytes = at..at + line.len();
        at = bytes.end + 1;
        let letters = script::count_letters(line);
        if letters == 0 {
            continue;
        }
        all += letters;
        let mut code = UNDETERMINED;
        if letters >= FEW {
            let (guess, confidence) = identifier.identify(line, &mut scratch.language);
            if confidence >= UNSURE {
                code = guess;
                scratch.paragraphs.push((bytes, guess.to_string()));
            }
        }
        match scratch.counts.get_mut(code) {
            Some(n) => *n += letters,
            None => {
                scratch.counts.insert(code.to_string(), letters);
            }
        }
    }
    let share = |(code, n): (&String, &u64)| (code.clone(), *n as f64 / all as f64);
    let mut shares: Vec<(String, f64)> = scratch.counts.iter().map(share).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Mixture { shares }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "The house is on the hill and the children play in the garden every day.";
    const GERMAN: &str = "Das Haus steht auf dem Berg und die Kinder spielen jeden Tag im Garten.";

    fn of(text: &str) -> Mixture {
        mixture(
            &Identifier::built_in(),
            text,
            &mut MixtureScratch::default(),
        )
    }

    #[test]
    fn each_paragraph_counts_for_its_language() {
        // 56 and 57 letters, 4 undetermined
        let found = of(&format!("{ENGLISH}\n\n{GERMAN}\nMenu\n"));
        let codes: Vec<&str> = found.shares.iter().map(|s| s.0.as_str()).collect();
        assert_eq!(codes, ["de", "en", "und"]);
        let letters = |s: &str| s.chars().filter(|c| c.is_alphabetic()).count() as f64;
        let all = letters(ENGLISH) + letters(GERMAN) + 4.0;
        assert!((found.shares[0].1 - letters(GERMAN) / all).abs() < 1e-9);
        assert!((found.shares[2].1 - 4.0 / all).abs() < 1e-9);
        assert_eq!(found.main().map(|m| m.0), Some("de"));
    }

    #[test]
    fn paragraphs_in_other_languages_are_found_and_cut() {
        let text = format!("Menu\n{ENGLISH}\n{GERMAN}\n\n{ENGLISH}");
        let mut scratch = MixtureScratch::default();
        mixture(&Identifier::built_in(), &text, &mut scratch);
        let others = scratch.others(|code| code == "en");
        assert_eq!(others.len(), 1);
        assert_eq!((&text[others[0].0.clone()], others[0].1), (GERMAN, "de"));
        assert_eq!(
            without(&text, &others),
            format!("Menu\n{ENGLISH}\n\n{ENGLISH}")
        );
        assert_eq!(without(&text, &[]), text);
        let german = scratch.others(|code| code == "de");
        assert_eq!(without(&text, &german), format!("Menu\n{GERMAN}\n"));
        assert!(scratch.others(|_| true).is_empty());
    }

    #[test]
    fn nothing_is_mixed_in_nothing() {
        assert_eq!(of("").shares, []);
        assert_eq!(of("\n\n 12 \n"), Mixture::default());
        assert_eq!(of("Menu").main(), None);
    }
}

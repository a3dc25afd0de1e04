//! Punkt's parameters of a language: abbreviations, collocations, sentence starters, and the cases that words occur
//! in.
//!
//! Facts: NLTK's `punkt_tab` files: one entry per line, columns by tab; `ortho_context.tab` has the sum of flags.

use crate::error::{At, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;

/// Flags of a word's first letter: upper case inside a sentence, any upper, lower at a start, any lower.
pub(super) const MIDDLE_UPPER: u32 = 1 << 2;
pub(super) const UPPER: u32 = 1 << 1 | 1 << 2 | 1 << 3;
pub(super) const START_LOWER: u32 = 1 << 4;
pub(super) const LOWER: u32 = 1 << 4 | 1 << 5 | 1 << 6;

/// The four files.
const FILES: [&str; 4] = [
    "abbrev_types.txt",
    "collocations.tab",
    "ortho_context.tab",
    "sent_starters.txt",
];

#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    pub(super) abbreviations: FxHashSet<String>,
    collocations: FxHashMap<String, FxHashSet<String>>,
    orthography: FxHashMap<String, u32>,
    pub(super) starters: FxHashSet<String>,
}

impl Parameters {
    pub(super) fn read(folder: &Path) -> Result<Parameters> {
        let mut parameters = Parameters::default();
        for name in FILES {
            let path = folder.join(name);
            let text = std::fs::read(&path).at(&path)?;
            let wrong = |(offset, found): (usize, String), wanted: &str| Error::Format {
                path: path.clone(),
                offset: offset as u64,
                field: "line",
                found,
                wanted: wanted.into(),
            };
            let text = String::from_utf8(text).map_err(|e| {
                let at = e.utf8_error().valid_up_to();
                wrong((at, "bytes that are not UTF-8".into()), "UTF-8")
            })?;
            parameters
                .add(name, &text)
                .map_err(|(at, wanted)| wrong(at, wanted))?;
        }
        Ok(parameters)
    }

    /// The parameters in `english/`.
    pub(super) fn english() -> Parameters {
        let texts = [
            include_str!("english/abbrev_types.txt"),
            include_str!("english/collocations.tab"),
            include_str!("english/ortho_context.tab"),
            include_str!("english/sent_starters.txt"),
        ];
        let mut parameters = Parameters::default();
        for (name, text) in FILES.into_iter().zip(texts) {
            let added = parameters.add(name, text);
            debug_assert!(added.is_ok(), "{name}: {added:?}");
        }
        parameters
    }

    /// Adds a file's lines; the error has byte and text of the first one that is wrong.
    fn add(&mut self, name: &str, text: &str) -> Result<(), ((usize, String), &'static str)> {
        for line in text.split_terminator('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let wrong = |wanted| {
                let offset = line.as_ptr() as usize - text.as_ptr() as usize;
                let shown: String = line.chars().take(60).collect();
                Err(((offset, format!("{shown:?}")), wanted))
            };
            match name {
                "abbrev_types.txt" => drop(self.abbreviations.insert(line.into())),
                "sent_starters.txt" => drop(self.starters.insert(line.into())),
                "collocations.tab" => match line.split_once('\t') {
                    Some((first, second)) if !second.contains('\t') => {
                        let seconds = self.collocations.entry(first.into()).or_default();
                        seconds.insert(second.into());
                    }
                    _ => return wrong("two words and one tab"),
                },
                _ => match line.split_once('\t').map(|(w, n)| (w, n.parse())) {
                    Some((word, Ok(flags))) => drop(self.orthography.insert(word.into(), flags)),
                    _ => return wrong("a word, one tab and a number"),
                },
            }
        }
        Ok(())
    }

    pub(super) fn is_collocation(&self, first: &str, second: &str) -> bool {
        let seconds = self.collocations.get(first);
        seconds.is_some_and(|s| s.contains(second))
    }

    /// Flags of the cases that a word occurs in.
    pub(super) fn orthography(&self, word: &str) -> u32 {
        self.orthography.get(word).copied().unwrap_or(0)
    }
}

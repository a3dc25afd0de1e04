//! Sentence splitting (Punkt), for BERT and T5 (`preprocess_data --split-sentences`).
//!
//! Paper: Kiss & Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection", Computational Linguistics 32.
//! Facts: NLTK 3.10's `PunktSentenceTokenizer` given parameters (older versions do not know curly quotes), Megatron-LM's
//! `CustomLanguageVars` for `keep_newlines` and its chunks of 1,000,000 characters, each split separately.
//! We differ: nothing is trained while splitting, and a text is never copied; sentences are ranges of it.

mod contexts;
mod parameters;
mod words;

use crate::error::Result;
use parameters::{LOWER, MIDDLE_UPPER, Parameters, START_LOWER, UPPER};
use std::ops::Range;
use std::path::Path;
use words::{NUMBER, Word, rstrip, words};

/// Megatron splits at most this many characters at a time.
const CHUNK_CHARS: usize = 1_000_000;

/// A sentence splitter. Shared by threads.
#[derive(Clone, Debug)]
pub struct Punkt {
    parameters: std::sync::Arc<Parameters>,
    keep_newlines: bool,
}

impl Punkt {
    /// Reads parameters in NLTK's `punkt_tab` form: a folder with `abbrev_types.txt`, `collocations.tab`,
    /// `ortho_context.tab` and `sent_starters.txt`.
    ///
    /// # Errors
    /// `Io`; `Format` with the byte offset of an invalid line.
    pub fn load(folder: &Path) -> Result<Punkt> {
        Ok(Punkt {
            parameters: Parameters::read(folder)?.into(),
            keep_newlines: false,
        })
    }

    /// English, with parameters that ship with the program: trained on novels in the public domain
    /// (`english/README.md`), so they differ from NLTK's own, which were trained on newspapers: 23 of 22,980 boundaries
    /// fall elsewhere. NLTK's cannot be shipped, as no licence for them is known; [`Punkt::load`] reads them.
    pub fn english() -> Punkt {
        Punkt {
            parameters: Parameters::english().into(),
            keep_newlines: false,
        }
    }

    /// Keeps white space between sentences, including newlines, with the sentence before it, as Megatron's
    /// `--keep-newlines`; off, it is dropped.
    pub fn keep_newlines(mut self, keep: bool) -> Punkt {
        self.keep_newlines = keep;
        self
    }

    /// Appends the sentences of `text` as byte ranges, in order; none is empty.
    pub fn split(&self, text: &str, out: &mut Vec<Range<usize>>) {
        let mut start = 0;
        while start < text.len() {
            let rest = &text[start..];
            let len = rest
                .char_indices()
                .nth(CHUNK_CHARS)
                .map_or(rest.len(), |(at, _)| at);
            self.split_chunk(&rest[..len], start, out);
            start += len;
        }
    }

    fn split_chunk(&self, text: &str, offset: usize, out: &mut Vec<Range<usize>>) {
        let mut slices = Vec::new();
        let mut last_break = 0;
        contexts::each(text, self.keep_newlines, |end, context| {
            if self.breaks(&text[context]) {
                slices.push(last_break..end.end);
                last_break = end.next;
            }
        });
        slices.push(last_break..rstrip(text).len());
        // closing marks after a sentence's end still belong to it
        let mut moved = 0;
        for (i, slice) in slices.iter().enumerate() {
            let start = slice.start + moved;
            let next = slices
                .get(i + 1)
                .map(|n| (n.start, &text[n.start..n.end.max(n.start)]));
            let closing = next.and_then(|(at, rest)| Some((at, rest, closing_len(rest)?)));
            let end = match closing {
                Some((at, rest, len)) => {
                    moved = len;
                    at + rstrip(&rest[..len]).len()
                }
                None => {
                    moved = 0;
                    slice.end
                }
            };
            if start < end {
                out.push(offset + start..offset + end);
            }
        }
    }

    /// Whether a sentence ends in `context` before its last word.
    fn breaks(&self, context: &str) -> bool {
        let mut found = Vec::new();
        words(context, &mut found);
        for word in &mut found {
            self.judge_alone(word);
        }
        // the last word has no next one: a break after it would have no effect
        let last = found.len().saturating_sub(1);
        (0..last).any(|i| {
            let (before, after) = found.split_at_mut(i + 1);
            self.judge_in_context(&mut before[i], &after[0]);
            before[i].ends_sentence
        })
    }

    /// Section 4's first pass: by the word alone.
    fn judge_alone(&self, word: &mut Word<'_>) {
        if matches!(word.text, "." | "?" | "!") {
            word.ends_sentence = true;
        } else if word.is_dots() {
            word.is_ellipsis = true;
        } else if word.has_final_period() && !word.text.ends_with("..") {
            let stem = word.text[..word.text.len() - 1].to_lowercase();
            let last = stem.rsplit('-').next().unwrap_or_default();
            let is_known = |s: &str| self.parameters.abbreviations.contains(s);
            word.is_abbreviation = is_known(&stem) || is_known(last);
            word.ends_sentence = !word.is_abbreviation;
        }
    }

    /// The second pass: a word with a final period, by the word after it.
    fn judge_in_context(&self, word: &mut Word<'_>, next: &Word<'_>) {
        if !word.has_final_period() {
            return;
        }
        let (kind, next_kind) = (word.kind_without_period(), next.kind_in_sentence());
        let (is_initial, is_number) = (word.is_initial(), kind == NUMBER);
        if self.parameters.is_collocation(kind, next_kind) {
            word.ends_sentence = false;
            word.is_abbreviation = true;
            return;
        }
        let starts = self.starts_sentence(next);
        if (word.is_abbreviation || word.is_ellipsis) && !is_initial {
            let frequent = next.starts_upper() && self.parameters.starters.contains(next_kind);
            if starts == Some(true) || frequent {
                word.ends_sentence = true;
                return;
            }
        }
        if !is_initial && !is_number {
            return;
        }
        let always_upper =
            next.starts_upper() && self.parameters.orthography(next_kind) & LOWER == 0;
        if starts == Some(false) || (starts.is_none() && is_initial && always_upper) {
            word.ends_sentence = false;
            word.is_abbreviation = true;
        }
    }

    /// Punkt's orthographic heuristic: whether `word` begins a sentence, from the cases it was seen in; None if
    /// undecided.
    fn starts_sentence(&self, word: &Word<'_>) -> Option<bool> {
        if matches!(word.text, ";" | ":" | "," | "." | "!" | "?") {
            return Some(false);
        }
        let seen = self.parameters.orthography(word.kind_in_sentence());
        if word.starts_upper() && seen & LOWER != 0 && seen & MIDDLE_UPPER == 0 {
            return Some(true);
        }
        let never_starts_lower = seen & UPPER != 0 || seen & START_LOWER == 0;
        (word.starts_lower() && never_starts_lower).then_some(false)
    }
}

/// Bytes of closing marks, and the white space after them, at the start of a sentence that belong to the one before.
fn closing_len(text: &str) -> Option<usize> {
    let is_closing = |c: char| matches!(c, '"' | '\'' | ')' | ']' | '}') || words::is_curly(c);
    for (at, c) in text.char_indices() {
        let after = &text[at..];
        if at > 0 {
            let space = after.len() - after.trim_start().len();
            if space > 0 || after.starts_with("--") {
                return Some(at + space);
            }
        }
        if !is_closing(c) {
            return None;
        }
    }
    (!text.is_empty()).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Spans in characters, like NLTK's.
    fn spans(punkt: &Punkt, text: &str) -> Vec<[usize; 2]> {
        let mut out = Vec::new();
        punkt.split(text, &mut out);
        let chars = |byte: usize| text[..byte].chars().count();
        out.iter().map(|r| [chars(r.start), chars(r.end)]).collect()
    }

    fn golden() -> Value {
        serde_json::from_str(include_str!("../../tests/data/punkt.json")).unwrap()
    }

    #[test]
    fn sentences_equal_nltks_with_and_without_newlines() {
        let (plain, newlines) = (Punkt::english(), Punkt::english().keep_newlines(true));
        let golden = golden();
        let rows = golden["rows"].as_array().unwrap();
        assert!(rows.len() > 300);
        for row in rows {
            let text = row["text"].as_str().unwrap();
            assert_eq!(
                serde_json::json!(spans(&plain, text)),
                row["plain"],
                "{text:?}"
            );
            assert_eq!(
                serde_json::json!(spans(&newlines, text)),
                row["newlines"],
                "keeping newlines: {text:?}"
            );
        }
    }

    #[test]
    fn a_long_text_is_split_a_million_characters_at_a_time() {
        let text = "Well, no. \"Yes!\" \u{e9}t\u{e9} ".repeat(52_000);
        let mut ranges = Vec::new();
        Punkt::english().split(&text, &mut ranges);
        let golden = &golden()["chunked"];
        assert_eq!(golden[0], text.chars().count());
        assert_eq!(golden[1], ranges.len());
        // a span in characters costs a count from the start: only those around the seam
        let chars = |byte: usize| text[..byte].chars().count();
        let near: Vec<[usize; 2]> = (ranges.iter())
            .skip_while(|r| r.start < 1_080_000 || chars(r.start) <= 999_900)
            .take(12)
            .map(|r| [chars(r.start), chars(r.end)])
            .collect();
        assert_eq!(serde_json::json!(near), golden[2]);
    }

    #[test]
    fn parameters_are_read_from_a_folder_and_a_wrong_line_is_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sentences/english");
        let read = Punkt::load(&folder).unwrap();
        let text = "Mr. Smith left. He ran.";
        assert_eq!(spans(&read, text), spans(&Punkt::english(), text));
        let broken = tempfile::tempdir().unwrap();
        for name in [
            "abbrev_types.txt",
            "collocations.tab",
            "ortho_context.tab",
            "sent_starters.txt",
        ] {
            std::fs::copy(folder.join(name), broken.path().join(name)).unwrap();
        }
        std::fs::write(
            broken.path().join("ortho_context.tab"),
            "the\t46\ncat\tmany\n",
        )
        .unwrap();
        let why = Punkt::load(broken.path()).unwrap_err().to_string();
        assert!(
            why.contains("ortho_context.tab") && why.contains("byte 7"),
            "{why}"
        );
        std::fs::remove_file(broken.path().join("abbrev_types.txt")).unwrap();
        assert!(matches!(
            Punkt::load(broken.path()),
            Err(crate::Error::Io { .. })
        ));
    }

    proptest! {
        #[test]
        fn sentences_are_in_order_apart_and_never_empty(text in r#"([a-zA-Z.?!,'") \n\t-]|\PC){0,80}"#) {
            static ENGLISH: std::sync::LazyLock<Punkt> = std::sync::LazyLock::new(Punkt::english);
            for keep_newlines in [false, true] {
                let mut out = Vec::new();
                Punkt { keep_newlines, ..ENGLISH.clone() }.split(&text, &mut out);
                let mut last = 0;
                for range in out {
                    prop_assert!(last <= range.start && range.start < range.end);
                    prop_assert!(text.get(range.clone()).is_some());
                    last = range.end;
                }
            }
        }
    }
}

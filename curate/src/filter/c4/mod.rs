//! C4 filter: removes lines of a page, and drops the page if too little is left.
//!
//! Paper: Raffel et al. 2019, arXiv:1910.10683, sec. 2.2. Three programs implement them differently, see [`C4Profile`].
//!
//! `datatrove` (0.10.1, `C4QualityFilter`) follows the paper. For each line of `str.splitlines`, stripped: drop it
//! if a whitespace word is longer than `max_word_length`; delete citations `[12]`, `[edit]`, `[citation needed]`;
//! it must end in `. ? ! " '` and not in `...`; it must have `min_words_per_line` words (counted before the
//! citations went); a line with "lorem ipsum" or `{` drops the page; a line with "javascript" or a policy phrase is
//! dropped. Fewer than `min_num_sentences` sentences (spaCy's sentencizer) in the remaining text drops the page.
//! The kept lines, joined by line feeds, are the new text.
//!
//! `google` (tensorflow-datasets 4.9.4, `text/c4_utils.py`: the code that made C4) does not accept `'` at the end
//! of a line, requires 5 words per line, counted after citations are deleted, and 3 sentences. Its bad words are
//! the step `bad_words`; its removal of paragraphs that occur on other pages is deduplication. We differ: sentences
//! are spaCy's, there NLTK's.
//!
//! `dolma` (1.2.1, tagger `c4_v2` with `configs/c4-replication/mixer.yaml`) also drops a page for "javascript" and
//! counts no sentences; lines are removed with their line feeds. We differ: there spans are counted in the
//! lower-case text, which shifts them behind a letter that becomes two.

mod config;
mod dolma;
mod phrases;

pub use config::{C4Profile, C4Quality};

use std::sync::LazyLock;

use regex::Regex;

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::unicode::{self, PUNCT, SENTENCE, SPACE};
use crate::text::words::Word;
use crate::text::{Scratch, chars, plain};
use crate::verdict::{Judge, KEEP, Verdict, broken};
use phrases::{JAVASCRIPT, LOREM, phrases};

static CITATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\[\d*\]|\[edit\]|\[citation needed\]").expect("the pattern is one")
});

impl C4Quality {
    /// The rules as a profile has them.
    pub fn of(profile: C4Profile) -> C4Quality {
        let paper = C4Quality {
            profile,
            remove_citations: true,
            filter_no_terminal_punct: true,
            min_num_sentences: 5,
            min_words_per_line: 3,
            max_word_length: 1000,
            filter_lorem_ipsum: true,
            filter_javascript: true,
            filter_curly_bracket: true,
            filter_policy: true,
        };
        match profile {
            C4Profile::Datatrove => paper,
            C4Profile::Google => C4Quality {
                min_num_sentences: 3,
                min_words_per_line: 5,
                ..paper
            },
            C4Profile::Dolma => C4Quality {
                remove_citations: false,
                min_num_sentences: 0,
                max_word_length: 0,
                filter_policy: false,
                ..paper
            },
        }
    }

    /// Judges a text; `out` receives the edited page if it differs.
    pub fn judge(&self, text: &str, scratch: &mut Scratch, out: &mut String) -> Verdict {
        self.measure(text, scratch, out, &mut Judge::strict())
    }

    /// Lets `judge` compare every metric of a text; `out` receives the edited page.
    pub fn measure(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut String,
        judge: &mut Judge,
    ) -> Verdict {
        out.clear();
        if self.profile == C4Profile::Dolma {
            return dolma::measure(self, text, out);
        }
        let google = self.profile == C4Profile::Google;
        let mut sentences = 0;
        for line in unicode::split_lines(text) {
            let mut line = unicode::strip(line);
            let cleaned: String;
            let Some(mut words) = self.whitespace_words(line) else {
                continue;
            };
            if self.remove_citations && line.as_bytes().contains(&b'[') {
                cleaned = CITATION.replace_all(line, "").into_owned();
                line = &cleaned;
                if google {
                    words = plain::words(line).count();
                }
            }
            let ends = line.ends_with(['.', '?', '!', '"']) || (!google && line.ends_with('\''));
            if self.filter_no_terminal_punct && (!ends || line.ends_with("...")) {
                continue;
            }
            if words < self.min_words_per_line {
                continue;
            }
            if self.page_or_line_is_bad(line)? {
                continue;
            }
            // Without metrics to keep only whether there are enough matters, and counting stops there.
            if sentences < self.min_num_sentences || !judge.may_stop_counting() {
                scratch.splitter.split(line, &mut scratch.line_words);
                sentences += count_sentences(line, &scratch.line_words);
            }
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(line);
        }
        judge.at_least(
            "c4.too_few_sentences",
            sentences as f64,
            self.min_num_sentences as f64,
        )?;
        let kept = unicode::strip(out);
        if kept.len() != out.len() {
            *out = kept.to_string();
        }
        KEEP
    }

    /// Number of words by whitespace, None if one is too long.
    fn whitespace_words(&self, line: &str) -> Option<usize> {
        let mut words = 0;
        for word in line
            .split(|c| unicode::is(c, SPACE))
            .filter(|w| !w.is_empty())
        {
            let long = self.max_word_length;
            if long != 0 && word.len() > long && chars(word) > long {
                return None;
            }
            words += 1;
        }
        Some(words)
    }

    /// Breaks if the line condemns the page; true if it condemns only itself.
    fn page_or_line_is_bad(
        &self,
        line: &str,
    ) -> std::ops::ControlFlow<crate::verdict::Reason, bool> {
        use std::ops::ControlFlow::{Break, Continue};
        let bits = phrases(line);
        if self.filter_lorem_ipsum && bits & LOREM != 0 {
            return Break(broken("c4.lorem_ipsum", "lorem ipsum", "none"));
        }
        if self.filter_javascript && bits & JAVASCRIPT != 0 {
            return Continue(true);
        }
        if self.filter_curly_bracket && line.as_bytes().contains(&b'{') {
            return Break(broken("c4.curly_bracket", "{", "none"));
        }
        Continue(self.filter_policy && bits & !(LOREM | JAVASCRIPT) != 0)
    }
}

/// Sentences as spaCy's sentencizer counts them: a new one starts at the first token after a sentence
/// end that is neither punctuation nor a sentence end. White space other than one space between two
/// words is a token too; a sentence with nothing else is not counted.
fn count_sentences(text: &str, words: &[Word]) -> usize {
    let mut count = usize::from(!words.is_empty());
    let mut ended = false;
    let mut before = words.first().map_or(0, |w| w.start);
    for word in words {
        let gap = &text[before as usize..word.start as usize];
        if ended && !gap.is_empty() && gap != " " {
            count += 1;
            ended = false;
        }
        before = word.end;
        let w = word.of(text);
        let mut chars = w.chars();
        let first = chars.next().unwrap_or('a');
        let ends = chars.next().is_none() && unicode::is(first, SENTENCE);
        if ends {
            ended = true;
        } else if ended && !w.chars().all(|c| unicode::is(c, PUNCT)) {
            count += 1;
            ended = false;
        }
    }
    count
}

impl StepConfig for C4Quality {
    fn name(&self) -> &'static str {
        "c4"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.profile == C4Profile::Dolma {
            for (key, is) in [
                ("remove_citations", self.remove_citations),
                ("min_num_sentences", self.min_num_sentences > 0),
                ("max_word_length", self.max_word_length > 0),
                ("filter_policy", self.filter_policy),
            ] {
                if is {
                    let wanted = "nothing: the profile \"dolma\" has no such rule";
                    problem(key, "a value".to_string(), wanted);
                }
            }
        }
        crate::check::range(
            problem,
            "max_word_length",
            self.max_word_length as f64,
            0.0,
            1e9,
        );
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for C4Quality {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(
            &draft.text,
            &mut scratch.text,
            &mut scratch.rewritten,
            judge,
        )?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }
}

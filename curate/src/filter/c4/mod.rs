//! C4 rules: which lines of a page stay, and whether enough of it does.
//!
//! Paper: Raffel et al. 2019, arXiv:1910.10683, sec. 2.2. Three programs mean three things by them, see [`C4Profile`].
//!
//! `datatrove` (0.10.1, `C4QualityFilter`) reads the paper. For each line of `str.splitlines`, stripped: drop it if a whitespace word is
//! longer than `max_word_length`; delete citations `[12]`, `[edit]`, `[citation needed]`; it must end
//! in `. ? ! " '` and not in `...`; it must have `min_words_per_line` words (counted before the
//! citations went); a line with "lorem ipsum" or `{` drops the page; a line with "javascript" or a
//! policy phrase is dropped. Fewer than `min_num_sentences` sentences (spaCy's sentencizer) in what
//! stays drops the page. The kept lines, joined by line feeds, are the new text.
//!
//! `google` (tensorflow-datasets 4.9.4, `text/c4_utils.py`: the code that made C4) does not let a line end in `'`, wants
//! 5 words a line, counted when citations are gone, and 3 sentences. Its bad words are the step `bad_words`, its
//! paragraphs that occur on other pages are deduplication. We differ: sentences are spaCy's, there NLTK's.
//!
//! `dolma` (1.2.1, tagger `c4_v2` with `configs/c4-replication/mixer.yaml`) drops a page for "javascript" too and counts
//! no sentences; lines go with their line feeds. We differ: there spans are counted in the lower-case text, which
//! shifts them behind a letter that becomes two.

mod dolma;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::plain;
use crate::config::Problem;
use crate::text::{Scratch, chars};
use crate::unicode::{self, PUNCT, SENTENCE, SPACE};
use crate::verdict::{Judge, KEEP, Verdict, broken};
use crate::words::Word;

/// Whose reading of C4's rules is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum C4Profile {
    /// datatrove's, of the paper.
    #[default]
    Datatrove,
    /// The code that made C4.
    Google,
    /// dolma's.
    Dolma,
}

/// C4 quality. What a job file leaves out is as the profile has it. Numbers of 0 switch a rule off.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(from = "Given")]
pub struct C4Quality {
    /// Whose definition.
    pub profile: C4Profile,
    /// Delete `[12]`, `[edit]`, `[citation needed]`.
    pub remove_citations: bool,
    /// Drop lines that do not end like a sentence. FineWeb's recipe sets this to false.
    pub filter_no_terminal_punct: bool,
    /// Fewest sentences of a page. Paper: 5; Google: 3.
    pub min_num_sentences: usize,
    /// Fewest words of a line. Paper: 3; Google: 5.
    pub min_words_per_line: usize,
    /// Longest word of a line in characters. 1000.
    pub max_word_length: usize,
    /// Drop pages with "lorem ipsum".
    pub filter_lorem_ipsum: bool,
    /// Drop lines with "javascript"; dolma: pages.
    pub filter_javascript: bool,
    /// Drop pages with `{`.
    pub filter_curly_bracket: bool,
    /// Drop lines with a cookie or privacy phrase.
    pub filter_policy: bool,
}

impl Default for C4Quality {
    fn default() -> Self {
        C4Quality::of(C4Profile::default())
    }
}

/// What a job file says.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Given {
    profile: C4Profile,
    remove_citations: Option<bool>,
    filter_no_terminal_punct: Option<bool>,
    min_num_sentences: Option<usize>,
    min_words_per_line: Option<usize>,
    max_word_length: Option<usize>,
    filter_lorem_ipsum: Option<bool>,
    filter_javascript: Option<bool>,
    filter_curly_bracket: Option<bool>,
    filter_policy: Option<bool>,
}

impl From<Given> for C4Quality {
    fn from(given: Given) -> C4Quality {
        let own = C4Quality::of(given.profile);
        C4Quality {
            profile: given.profile,
            remove_citations: given.remove_citations.unwrap_or(own.remove_citations),
            filter_no_terminal_punct: given
                .filter_no_terminal_punct
                .unwrap_or(own.filter_no_terminal_punct),
            min_num_sentences: given.min_num_sentences.unwrap_or(own.min_num_sentences),
            min_words_per_line: given.min_words_per_line.unwrap_or(own.min_words_per_line),
            max_word_length: given.max_word_length.unwrap_or(own.max_word_length),
            filter_lorem_ipsum: given.filter_lorem_ipsum.unwrap_or(own.filter_lorem_ipsum),
            filter_javascript: given.filter_javascript.unwrap_or(own.filter_javascript),
            filter_curly_bracket: given
                .filter_curly_bracket
                .unwrap_or(own.filter_curly_bracket),
            filter_policy: given.filter_policy.unwrap_or(own.filter_policy),
        }
    }
}

static CITATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[\d*\]|\[edit\]|\[citation needed\]").ok());

/// Phrases in the order of the bits of [`Line::phrases`].
const PHRASES: [&str; 8] = [
    "lorem ipsum",
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
];
const LOREM: u32 = 1;
const JAVASCRIPT: u32 = 2;

static MATCHER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(PHRASES)
        .ok()
});

/// Bits of the phrases in a line. The Kelvin sign is the one character outside ASCII whose lower
/// case is a letter of a phrase.
fn phrases(line: &str) -> u32 {
    let Some(matcher) = MATCHER.as_ref() else {
        return 0;
    };
    if line.contains('\u{212a}') {
        return phrases(&line.replace('\u{212a}', "k"));
    }
    matcher
        .find_overlapping_iter(line)
        .fold(0, |bits, hit| bits | 1 << hit.pattern().as_u32())
}

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

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
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
        crate::config::range(
            problem,
            "max_word_length",
            self.max_word_length as f64,
            0.0,
            1e9,
        );
    }

    /// Judges a text; `Some(text)` is what the page becomes if that differs.
    pub fn judge(&self, text: &str, scratch: &mut Scratch, out: &mut String) -> Verdict {
        self.measure(text, scratch, out, &mut Judge::strict())
    }

    /// Lets `judge` compare every figure of a text; `out` is what the page becomes.
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
            if self.remove_citations
                && line.as_bytes().contains(&b'[')
                && let Some(regex) = CITATION.as_ref()
            {
                cleaned = regex.replace_all(line, "").into_owned();
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
            // Without figures to keep only whether there are enough matters, and counting stops there.
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
/// words is a token too; a sentence of nothing else is not counted.
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

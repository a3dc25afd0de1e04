//! Settings of C4's rules.

use serde::{Deserialize, Serialize};

/// Whose reading of C4's rules is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum C4Profile {
    /// datatrove's, of the paper.
    #[default]
    Datatrove,
    /// The code that created C4.
    Google,
    /// dolma's.
    Dolma,
}

/// C4 quality. Keys absent from a job file have the profile's values. A number of 0 switches a rule off.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(from = "Given")]
pub struct C4Quality {
    /// Whose definition.
    pub profile: C4Profile,
    /// Delete `[12]`, `[edit]`, `[citation needed]`.
    pub remove_citations: bool,
    /// Drop lines that do not end like a sentence. FineWeb's recipe sets this to false.
    pub filter_no_terminal_punct: bool,
    /// Minimum number of sentences of a page. Paper: 5; Google: 3.
    pub min_num_sentences: usize,
    /// Minimum number of words per line. Paper: 3; Google: 5.
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

/// Keys of a job file.
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

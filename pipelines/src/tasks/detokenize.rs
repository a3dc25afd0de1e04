//! Clean-up of WikiText and HellaSwag, as published evaluations do it.
//!
//! Sources: Megatron-LM core_v0.7.0 `tasks/zeroshot_gpt/detokenizer.py` and lm-evaluation-harness 0.4.13
//! `tasks/wikitext/preprocess_wikitext.py` (the same rules in the same order; one of them, for `' [0-9]`, cannot match
//! any text), `tasks/hellaswag/utils.py`.

use super::python_text::strip;
use regex::Regex;
use std::sync::LazyLock;

#[expect(clippy::unwrap_used, reason = "constant patterns, compiled in tests")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static BRACKETS: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
    [
        (pattern(r"\(\s*([^\)]*?)\s*\)"), "(${1})"),
        (pattern(r"\[\s*([^\]]*?)\s*\]"), "[${1}]"),
        (pattern(r"\{\s*([^}]*?)\s*\}"), "{${1}}"),
        (pattern(r#""\s*([^"]*?)\s*""#), "\"${1}\""),
        (pattern(r"'\s*([^']*?)\s*'"), "'${1}'"),
    ]
});

static TITLES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\[.*?\]"));

static SPACES: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+"));

/// Replacements before and after those of brackets, in order.
const BEFORE: [(&str, &str); 10] = [
    ("s '", "s'"),
    (" @-@ ", "-"),
    (" @,@ ", ","),
    (" @.@ ", "."),
    (" : ", ": "),
    (" ; ", "; "),
    (" . ", ". "),
    (" ! ", "! "),
    (" ? ", "? "),
    (" , ", ", "),
];
const AFTER: [(&str, &str); 8] = [
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" \u{b0} ", "\u{b0}"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
];

/// WikiText's text without the traces of its tokenizer.
pub(super) fn wikitext(text: &str) -> String {
    let mut text = text.to_owned();
    for (from, to) in BEFORE {
        text = text.replace(from, to);
    }
    for (pattern, to) in BRACKETS.iter() {
        text = pattern.replace_all(&text, *to).into_owned();
    }
    for (from, to) in AFTER {
        text = text.replace(from, to);
    }
    text
}

/// HellaSwag's text without the marks of WikiHow.
pub(super) fn hellaswag(text: &str) -> String {
    let text = strip(text).replace(" [title]", ". ");
    TITLES.replace_all(&text, "").replace("  ", " ")
}

/// Words of a page: `re.split(r"\s+", page)`, which counts empty strings at the ends.
pub(super) fn words(page: &str) -> usize {
    SPACES.split(page).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // answers of lm-evaluation-harness 0.4.13's functions
    #[test]
    fn wikitext_is_what_the_harness_makes_of_it() {
        let text = " = Robert = \n the actors ' guild ( 1990 @-@ 91 , 3 @,@ 000 ) said : \" no \" . \n = = Career = = \n it 's N N 5 ° C ; [ a ] { b } ' c ' ! ? \n";
        let wanted = " = Robert =\nthe actors'guild (1990-91, 3,000) said: \"no\".\n== Career ==\nit's 1 N 5°C; [a] {b} 'c'!?\n";
        assert_eq!(wikitext(text), wanted);
    }

    #[test]
    fn hellaswags_marks_go() {
        assert_eq!(
            hellaswag(" How to [title] Cut [step] it.  Now   x "),
            "How to. Cut it. Now  x"
        );
    }

    #[test]
    fn empty_strings_at_the_ends_count_as_words() {
        assert_eq!(words(" a b\n"), 4);
        assert_eq!(words(""), 1);
    }
}

//! Languages by datatrove's names, and the rules that split their words.
//!
//! `languages.tsv.zst` has a line for each (tests/oracles/languages.py): 2,017 pairs of language and script, 1,929 of them
//! FineWeb-2's. A language is named with its script (`swh_Latn`), by ISO 639-3 (`swh`) or, where it has one, by ISO 639-1
//! (`sw`, `sw_Latn`).
//! We differ: datatrove's short names mean its last line of the language (`zh` is Chinese in Latin letters there); here
//! they mean the one that its table marks as usual.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::text::words::WordRules;

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Language {
    /// Language and script.
    pub(crate) code: &'static str,
    /// How its words are split.
    pub(crate) word_rules: WordRules,
    /// FineWeb-2's limits and stop words, between tabs; None for a language that it has not.
    pub(crate) fineweb2: Option<&'static str>,
}

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let packed = include_bytes!("languages.tsv.zst");
    let text = zstd::decode_all(&packed[..]).expect("the table is part of the program");
    String::from_utf8(text).expect("the table is text")
});

static BY_NAME: LazyLock<FxHashMap<&'static str, Language>> = LazyLock::new(|| {
    let mut by_name = FxHashMap::default();
    for line in TEXT.lines() {
        let mut fields = line.splitn(4, '\t');
        let mut field = || fields.next().unwrap_or_default();
        let (code, tokenizer, names) = (field(), field(), field());
        let language = Language {
            code,
            word_rules: WordRules::of_tokenizer(tokenizer).unwrap_or(WordRules::Other),
            fineweb2: fields.next(),
        };
        for name in names.split(' ').filter(|name| !name.is_empty()) {
            by_name.insert(name, language);
        }
        by_name.insert(code, language);
    }
    by_name
});

/// Names of the same language that the table does not have.
const ALSO: [(&str, &str); 7] = [
    ("zho_Hans", "cmn_Hani"),
    ("zho_Hant", "cmn_Hani"),
    ("no", "nob_Latn"),
    ("sh", "srp_Latn"),
    ("tl", "fil_Latn"),
    ("tgl", "fil_Latn"),
    ("tgl_Latn", "fil_Latn"),
];

/// The language of a name; None if there is none.
pub(crate) fn find(name: &str) -> Option<Language> {
    let name = ALSO
        .iter()
        .find(|also| also.0 == name)
        .map_or(name, |also| also.1);
    BY_NAME.get(name).copied()
}

/// The language of a name; the error names the nearest ones.
pub(crate) fn language(name: &str) -> Result<Language, String> {
    find(name).ok_or_else(|| {
        let example = "a language of datatrove with its script, such as \"swh_Latn\"";
        match nearest(name) {
            near if near.is_empty() => example.to_string(),
            near => format!("{example}; near are {}", near.join(", ")),
        }
    })
}

/// The setting that stands for the language which the step `language` found in a document.
pub(crate) const OF_DOCUMENT: &str = "document";

/// Whose words a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordLanguage {
    /// The same for all documents.
    One(WordRules),
    /// Those of each document's own language.
    OfDocument,
}

impl WordLanguage {
    /// Reads a setting: empty for English, `document`, or the name of a language. The error names the nearest ones.
    pub(crate) fn of(setting: &str) -> Result<WordLanguage, String> {
        match setting {
            "" => Ok(WordLanguage::One(WordRules::English)),
            OF_DOCUMENT => Ok(WordLanguage::OfDocument),
            name => match language(name) {
                Ok(language) => Ok(WordLanguage::One(language.word_rules)),
                Err(wanted) => Err(format!("\"document\", or {wanted}")),
            },
        }
    }

    /// The rules for a document of this language: the default ones for a language that is not known, English without any.
    pub(crate) fn rules(self, language: &str) -> WordRules {
        match self {
            WordLanguage::One(rules) => rules,
            WordLanguage::OfDocument if language.is_empty() => WordRules::English,
            WordLanguage::OfDocument => find(language).map_or(WordRules::Other, |l| l.word_rules),
        }
    }
}

/// Names that are given with an error.
const NEAREST: usize = 4;
/// Edits up to which a name is near.
const NEAR: usize = 2;

/// The languages whose names are nearest, the same language in another script first.
fn nearest(name: &str) -> Vec<&'static str> {
    if name.is_empty() || name.len() > 16 {
        return Vec::new();
    }
    let language = name.split(['_', '-']).next().unwrap_or(name);
    let mut found: Vec<(usize, &str)> = BY_NAME
        .iter()
        .filter_map(|(known, found)| {
            let is_same = known.split('_').next() == Some(language);
            let far = if is_same { 0 } else { edits(name, known) };
            (far <= NEAR).then_some((far, found.code))
        })
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(_, code)| *code);
    let mut names: Vec<&str> = Vec::new();
    for (_, code) in found {
        if !names.contains(&code) {
            names.push(code);
        }
    }
    names.truncate(NEAREST);
    names
}

/// Levenshtein distance in bytes.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The codes of all languages.
#[cfg(test)]
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter_map(|line| line.split('\t').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_a_tokenizer_that_is_known() {
        let mut count = 0;
        for line in TEXT.lines() {
            let name = line.split('\t').nth(1).unwrap();
            assert!(WordRules::of_tokenizer(name).is_some(), "{line:.40}");
            count += 1;
        }
        assert_eq!(count, 2017);
        assert_eq!(codes().count(), count);
    }

    #[test]
    fn a_language_has_long_and_short_names() {
        for (name, code) in [
            ("de", "deu_Latn"),
            ("deu", "deu_Latn"),
            ("de_Latn", "deu_Latn"),
            ("zh", "cmn_Hani"),
            ("eng_Latn", "eng_Latn"),
            ("zho_Hans", "cmn_Hani"),
        ] {
            assert_eq!(find(name).map(|l| l.code), Some(code), "{name}");
        }
        assert_eq!(
            find("deu").map(|l| l.word_rules),
            find("bar_Latn").map(|l| l.word_rules)
        );
        assert!(find("").is_none() && find("xxx_Latn").is_none());
    }

    #[test]
    fn a_documents_own_language_may_decide() {
        let fixed = WordLanguage::of("de").unwrap();
        assert_eq!(fixed.rules("th"), find("de").unwrap().word_rules);
        let own = WordLanguage::of("document").unwrap();
        assert_eq!(own.rules("th"), WordRules::Thai);
        assert_eq!(own.rules("en"), WordRules::English);
        assert_eq!(own.rules(""), WordRules::English);
        assert_eq!(own.rules("und"), WordRules::Other);
        assert_eq!(
            WordLanguage::of("").unwrap().rules("th"),
            WordRules::English
        );
        assert!(
            WordLanguage::of("deu_Latm")
                .unwrap_err()
                .contains("deu_Latn")
        );
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_nearest() {
        let wanted = language("deu_Latm").unwrap_err();
        assert!(wanted.contains("near are deu_Latn"), "{wanted}");
        let script = language("srp_Arab").unwrap_err();
        assert!(script.contains("srp_Cyrl, srp_Latn"), "{script}");
        assert!(!language("").unwrap_err().contains("near"));
        assert!(
            !language("a name that is far from all")
                .unwrap_err()
                .contains("near")
        );
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
    }
}

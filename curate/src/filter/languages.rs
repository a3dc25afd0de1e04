//! Languages by FineWeb-2's names: how datatrove splits their words, FineWeb-2's thresholds and stop words.
//!
//! `fineweb2/languages.tsv.zst` has a line for each (tests/oracles/fineweb2_languages.py).

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::text::words::WordRules;

/// More would not fit the bit set of matches.
pub(super) const MOST_STOP_WORDS: usize = 128;

/// Lines of the table.
static LANGUAGES: LazyLock<String> = LazyLock::new(|| {
    let packed = include_bytes!("fineweb2/languages.tsv.zst");
    let text = zstd::decode_all(&packed[..]).expect("the table is part of the program");
    String::from_utf8(text).expect("the table is text")
});

/// A language whose words are known.
pub(super) struct Language {
    pub(super) word_rules: WordRules,
    /// In the order of `fineweb2`'s names.
    pub(super) limits: [f64; 15],
    pub(super) stop_words: Vec<&'static str>,
}

/// Looks up a language; the error describes the problem.
pub(super) fn language(code: &str) -> Result<Language, String> {
    let line = LANGUAGES.lines().find_map(|line| {
        let rest = line.strip_prefix(code)?.strip_prefix('\t')?;
        (!code.is_empty()).then_some(rest)
    });
    let wanted = "a language of FineWeb-2 with its script, such as \"swh_Latn\"";
    let mut fields = line.ok_or(wanted)?.split('\t');
    let word_rules = match fields.next().unwrap_or_default() {
        "en" => WordRules::English,
        "base" => WordRules::Base,
        "xx" => WordRules::Other,
        program => {
            return Err(format!(
                "a language whose words need no outside program; those of {code} are {program}'s"
            ));
        }
    };
    let mut limits = [0.0; 15];
    for limit in &mut limits {
        let field = fields.next().unwrap_or_default();
        *limit = field.parse().map_err(|_| wanted.to_string())?;
    }
    Ok(Language {
        word_rules,
        limits,
        stop_words: fields.collect(),
    })
}

/// A bit for each word.
pub(super) fn bits<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> FxHashMap<Box<[u8]>, u8> {
    words.into_iter().map(Box::from).zip(0..128).collect()
}

/// The names of all languages.
#[cfg(test)]
pub(super) fn codes() -> impl Iterator<Item = &'static str> {
    LANGUAGES.lines().filter_map(|line| line.split('\t').next())
}

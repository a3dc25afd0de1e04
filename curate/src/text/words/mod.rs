//! Words as datatrove counts them: spaCy's for English and the languages that have rules there, those of other programs
//! for the rest.
//!
//! A text is cut at whitespace; each run is split by special cases, then prefixes and suffixes are
//! peeled off, then URLs are kept whole, then infixes split the middle; last, sequences of words
//! that spell a special case inside one run are replaced by it (spaCy issue #9155 and its
//! `_apply_special_cases`). Whitespace tokens are dropped as datatrove drops them.
//!
//! Words are byte ranges of the text. Splitting a run is a pure function of the run, so a small
//! direct-mapped cache of recent runs gives the same words as no cache.
//!
//! Languages without spaCy's rules take a whole text at once: India's (`indic.rs`), Chinese (`chinese.rs`), others that put no space between
//! words (`dictionary.rs`), Tibetan (`tibetan.rs`), Korean (`korean.rs`). Vietnamese and Thai join parts (`joined.rs`).

mod affix;
mod boundaries;
mod chinese;
mod dictionary;
mod indic;
mod joined;
mod korean;
mod phrase;
mod special;
mod table;
mod tibetan;
mod url;
mod word;

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use crate::text::narrow;
use crate::text::unicode::{self, ALPHA, LOWER, SPACE, UPPER, is};
use indic::Marks;
use joined::Joined;
use phrase::Phrases;
use special::Specials;
use table::{Places, Table};

pub use word::Word;

/// Rules that split a text into words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WordRules {
    /// spaCy's English.
    #[default]
    English,
    /// English rules without English words (spaCy's Tswana and Luganda).
    Base,
    /// spaCy's `xx`, multi-language, and languages that are no different.
    Other,
    /// One of spaCy's languages with rules of its own, by its number in `table::LANGUAGES`.
    Table(u8),
    /// IndicNLP's for the languages of India.
    Indic,
    /// IndicNLP's for Urdu.
    Urdu,
    /// Dictionaries of scripts without spaces.
    Dictionary,
    /// The same, with some words joined.
    Thai,
    /// jieba's.
    Chinese,
    /// Tibetan syllables.
    Tibetan,
    /// Korean morphemes.
    Korean,
    /// Vietnamese words of several syllables.
    Vietnamese,
}

impl WordRules {
    /// The rules for a tokenizer of datatrove, as the languages' table names it: `xx`, `spaCy de`, `Thai`.
    pub(crate) fn of_tokenizer(name: &str) -> Option<WordRules> {
        let (program, language) = name.split_once(' ').unwrap_or((name, ""));
        Some(match (program, language) {
            ("en", _) => WordRules::English,
            ("base", _) => WordRules::Base,
            ("spaCy", "zh") => WordRules::Chinese,
            ("spaCy", "ja") | ("Stanza", "lzh") => WordRules::Dictionary,
            ("spaCy", "vi") => WordRules::Vietnamese,
            // Stanza's words need its models
            ("xx" | "Stanza", _) => WordRules::Other,
            ("spaCy", language) => WordRules::Table(table::number_of(language)?),
            ("IndicNLP", "ur") => WordRules::Urdu,
            ("IndicNLP", _) => WordRules::Indic,
            ("Thai", _) => WordRules::Thai,
            ("Khmer" | "Lao" | "Burmese", _) => WordRules::Dictionary,
            ("Tibetan", _) => WordRules::Tibetan,
            ("Kiwi", _) => WordRules::Korean,
            _unknown => return None,
        })
    }
}

/// Tables that all splitters share.
pub(crate) struct Rules {
    /// English and `Base` also split at a hyphen after a digit.
    after_digits: bool,
    /// Rules that differ from the default ones.
    table: Option<Table>,
    specials: Specials,
    /// Bytes of the longest special case: longer runs need no look-up, which hashes the whole run.
    longest: usize,
    units: Vec<&'static str>,
    phrases: Phrases,
}

static ENGLISH: LazyLock<Rules> = LazyLock::new(|| Rules::of(special::specials(), true, None));
static BASE: LazyLock<Rules> = LazyLock::new(|| Rules::of(special::base(), true, None));
static OTHER: LazyLock<Rules> = LazyLock::new(|| Rules::of(special::base(), false, None));
static TABLES: Places<Rules> = [const { OnceLock::new() }; table::LANGUAGES.len()];

impl Rules {
    /// Rules of a language of the table, read once.
    fn of_table(number: u8) -> &'static Rules {
        let Some(place) = TABLES.get(usize::from(number)) else {
            return &OTHER;
        };
        place.get_or_init(|| match Table::read(usize::from(number)) {
            Some((table, specials)) => Rules::of(specials, false, Some(table)),
            None => Rules::of(special::base(), false, None),
        })
    }

    fn of(specials: Specials, after_digits: bool, table: Option<Table>) -> Rules {
        let mut rules = Rules {
            after_digits,
            table,
            longest: specials.keys().map(|word| word.len()).max().unwrap_or(0),
            specials,
            units: affix::units(),
            phrases: Phrases::default(),
        };
        let mut words: Vec<Box<str>> = rules.specials.keys().cloned().collect();
        words.sort_unstable();
        for word in &words {
            let mut found = Vec::new();
            rules.infixes(word, &mut found);
            if rules.prefix(word) > 0 || !found.is_empty() || rules.suffix(word) > 0 {
                let mut cuts = Vec::new();
                rules.split_run(word, false, &mut cuts);
                rules.phrases.add(word, &cuts);
            }
        }
        rules
    }

    #[inline]
    fn prefix(&self, s: &str) -> usize {
        match &self.table {
            None => affix::prefix(s),
            Some(table) => table.prefix(s),
        }
    }

    #[inline]
    fn suffix(&self, s: &str) -> usize {
        match &self.table {
            None => affix::suffix(s, &self.units),
            Some(table) => table.suffix(s, &self.units),
        }
    }

    #[inline]
    fn infixes(&self, s: &str, found: &mut Vec<Range<usize>>) {
        match &self.table {
            None => affix::infixes(s, self.after_digits, found),
            Some(table) => table.infixes(s, found),
        }
    }

    /// True for a word that is kept whole whatever its affixes.
    #[inline]
    fn is_whole(&self, s: &str) -> bool {
        self.table.as_ref().is_some_and(|table| table.is_whole(s))
    }

    /// True for a run of letters that is not a special case, where it is one word under the rules.
    #[inline]
    fn is_plain_word(&self, run: &str) -> bool {
        let letters = match &self.table {
            None => run.bytes().all(|b| b.is_ascii_alphabetic()),
            // letters with case: the others have marks of punctuation among them
            Some(table) => {
                let cased = |c| is(c, ALPHA) && !(is(c, LOWER) && is(c, UPPER));
                !table.splits_letters && run.chars().all(cased)
            }
        };
        letters && !self.specials.contains_key(run)
    }

    /// Pushes the end offsets of the words of one run without whitespace.
    fn split_run(&self, run: &str, with_specials: bool, cuts: &mut Vec<u32>) {
        let special = |s: &str| {
            let may_be = with_specials && s.len() <= self.longest;
            if may_be { self.specials.get(s) } else { None }
        };
        let mut prefixes: Vec<usize> = Vec::new();
        let mut suffixes: Vec<usize> = Vec::new();
        let (mut start, mut end) = (0, run.len());
        loop {
            let s = &run[start..end];
            if s.is_empty() || self.is_whole(s) || special(s).is_some() {
                break;
            }
            let head = self.prefix(s);
            if head > 0 && head < s.len() && special(&s[head..]).is_some() {
                start += head;
                prefixes.push(start);
                break;
            }
            let tail = self.suffix(&s[head..]);
            if tail > 0 && tail < s.len() && special(&s[..s.len() - tail]).is_some() {
                suffixes.push(end);
                end -= tail;
                break;
            }
            if head == 0 && tail == 0 {
                break;
            }
            if head > 0 {
                start += head;
                prefixes.push(start);
            }
            if tail > 0 {
                suffixes.push(end);
                end -= tail;
            }
        }
        cuts.extend(prefixes.iter().map(|&p| narrow(p)));
        let middle = &run[start..end];
        if let Some(pieces) = special(middle) {
            let mut at = start;
            for &n in pieces {
                at += usize::from(n);
                cuts.push(narrow(at));
            }
        } else if self.is_whole(middle) || url::is_url(middle) {
            cuts.push(narrow(end));
        } else {
            self.split_infixes(middle, start, cuts);
        }
        cuts.extend(suffixes.iter().rev().map(|&s| narrow(s)));
    }

    /// Pushes the ends of the words of `middle`, which starts at `start` of its run, split at infixes.
    fn split_infixes(&self, middle: &str, start: usize, cuts: &mut Vec<u32>) {
        let mut found = Vec::new();
        self.infixes(middle, &mut found);
        let mut done = 0;
        for Range { start: a, end: b } in found {
            // An infix at the very start stays with the following text, as in spaCy.
            if a == 0 {
                continue;
            }
            if a != done {
                cuts.push(narrow(start + a));
            }
            if a != b {
                cuts.push(narrow(start + b));
            }
            done = b;
        }
        if done < middle.len() {
            cuts.push(narrow(start + middle.len()));
        }
    }
}

const CACHE_BITS: u32 = 14;
const KEY_BYTES: usize = 24;
const MAX_CUTS: usize = 7;

/// One cached run: its bytes, the ends of its words, and whether it contains a phrase.
#[derive(Clone, Copy)]
struct Slot {
    key: [u64; KEY_BYTES / 8],
    len: u8,
    count: u8,
    phrase: bool,
    cuts: [u8; MAX_CUTS],
}

const EMPTY: Slot = Slot {
    key: [0; KEY_BYTES / 8],
    len: 0,
    count: 0,
    phrase: false,
    cuts: [0; MAX_CUTS],
};

/// Splits texts into words; one per thread, with a cache of recent runs.
pub struct Splitter {
    rules: &'static Rules,
    /// Splitter of whole texts, for languages whose runs are not split by themselves.
    whole: Option<Whole>,
    /// Words are joined afterwards.
    joined: Option<Joined>,
    cache: Vec<Slot>,
    cuts: Vec<u32>,
}

/// Splitters of whole texts.
#[derive(Clone, Copy)]
enum Whole {
    Indic(Marks),
    Dictionary,
    Thai,
    Chinese,
    Tibetan,
    Korean,
}

impl Default for Splitter {
    fn default() -> Self {
        Splitter::new()
    }
}

impl Splitter {
    /// An empty cache over the shared rules for English.
    pub fn new() -> Splitter {
        Splitter::of(WordRules::English)
    }

    /// The same for other languages.
    pub(crate) fn of(kind: WordRules) -> Splitter {
        let (rules, whole): (&Rules, Option<Whole>) = match kind {
            WordRules::English => (&ENGLISH, None),
            WordRules::Base => (&BASE, None),
            WordRules::Other => (&OTHER, None),
            WordRules::Table(number) => (Rules::of_table(number), None),
            WordRules::Indic => (&OTHER, Some(Whole::Indic(Marks::Indic))),
            WordRules::Urdu => (&OTHER, Some(Whole::Indic(Marks::Urdu))),
            WordRules::Dictionary => (&OTHER, Some(Whole::Dictionary)),
            WordRules::Thai => (&OTHER, Some(Whole::Thai)),
            WordRules::Chinese => (&OTHER, Some(Whole::Chinese)),
            WordRules::Tibetan => (&OTHER, Some(Whole::Tibetan)),
            WordRules::Korean => (&OTHER, Some(Whole::Korean)),
            WordRules::Vietnamese => (&OTHER, None),
        };
        let joined = (kind == WordRules::Vietnamese).then_some(Joined::Vietnamese);
        let slots = if whole.is_some() { 0 } else { 1 << CACHE_BITS };
        Splitter {
            rules,
            whole,
            joined,
            cache: vec![EMPTY; slots],
            cuts: Vec::new(),
        }
    }

    /// Replaces `words` by the words of `text`. Texts are shorter than 4 GiB.
    pub fn split(&mut self, text: &str, words: &mut Vec<Word>) {
        match self.whole {
            None => {}
            Some(Whole::Indic(marks)) => return indic::split(marks, text, words),
            Some(Whole::Dictionary) => return dictionary::split(text, words),
            Some(Whole::Thai) => {
                dictionary::split(text, words);
                return joined::join(Joined::Thai, text, words);
            }
            Some(Whole::Chinese) => return chinese::split(text, words),
            Some(Whole::Tibetan) => return tibetan::split(text, words),
            Some(Whole::Korean) => return korean::split(text, words),
        }
        words.clear();
        let table = unicode::table();
        let bytes = text.as_bytes();
        let mut phrases = false;
        let mut at = 0;
        while at < bytes.len() {
            let start = at;
            let mut space_len = 0;
            while at < bytes.len() {
                let b = bytes[at];
                if b < 0x80 {
                    if table[b as usize] & SPACE != 0 {
                        space_len = 1;
                        break;
                    }
                    at += 1;
                } else if matches!(b, 0xc2 | 0xe1 | 0xe2 | 0xe3) {
                    // Only these lead bytes start a whitespace character outside ASCII.
                    let c = text[at..].chars().next().unwrap_or('a');
                    if table[c as usize] & SPACE != 0 {
                        space_len = c.len_utf8();
                        break;
                    }
                    at += c.len_utf8();
                } else {
                    at += 1;
                }
            }
            if at > start {
                phrases |= self.run(text, start, at, words);
            }
            at += space_len;
        }
        if phrases {
            self.rules.phrases.apply(text, words, &self.rules.specials);
        }
        if let Some(language) = self.joined {
            joined::join(language, text, words);
        }
    }

    /// Words of `text[start..end]`; true if they spell a special case that is not yet joined.
    #[inline]
    fn run(&mut self, text: &str, start: usize, end: usize, words: &mut Vec<Word>) -> bool {
        let len = end - start;
        let base = narrow(start);
        if len > KEY_BYTES {
            return self.slow(text, start, end, words).0;
        }
        let key = key_of(text.as_bytes(), start, end);
        let mixed = (key[0] ^ key[1].rotate_left(23) ^ key[2].rotate_left(46) ^ len as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = usize::try_from(mixed >> (64 - CACHE_BITS)).unwrap_or(0);
        let slot = &self.cache[index];
        if usize::from(slot.len) == len && slot.key == key {
            let mut from = base;
            for &cut in &slot.cuts[..usize::from(slot.count)] {
                let to = base + u32::from(cut);
                words.push(Word {
                    start: from,
                    end: to,
                });
                from = to;
            }
            return slot.phrase;
        }
        let first = words.len();
        let (phrase, count) = self.slow(text, start, end, words);
        if count <= MAX_CUTS {
            let mut slot = Slot {
                key,
                phrase,
                ..EMPTY
            };
            slot.len = u8::try_from(len).unwrap_or(0);
            slot.count = u8::try_from(count).unwrap_or(0);
            for (cut, word) in slot.cuts.iter_mut().zip(&words[first..]) {
                *cut = u8::try_from(word.end - base).unwrap_or(0);
            }
            self.cache[index] = slot;
        }
        phrase
    }

    #[cold]
    fn slow(
        &mut self,
        text: &str,
        start: usize,
        end: usize,
        words: &mut Vec<Word>,
    ) -> (bool, usize) {
        let run = &text[start..end];
        if self.rules.is_plain_word(run) {
            words.push(Word {
                start: narrow(start),
                end: narrow(end),
            });
            return (false, 1);
        }
        self.cuts.clear();
        self.rules.split_run(run, true, &mut self.cuts);
        let base = u32::try_from(start).unwrap_or(u32::MAX);
        let first = words.len();
        let mut from = 0;
        for &cut in &self.cuts {
            words.push(Word {
                start: base + from,
                end: base + cut,
            });
            from = cut;
        }
        let phrase = self
            .rules
            .phrases
            .inside(text, &words[first..], &self.rules.specials);
        (phrase, words.len() - first)
    }
}

/// The first bytes of a key of each length.
const MASKS: [[u64; KEY_BYTES / 8]; KEY_BYTES + 1] = {
    let mut masks = [[0; KEY_BYTES / 8]; KEY_BYTES + 1];
    let mut len = 0;
    while len <= KEY_BYTES {
        let mut byte = 0;
        while byte < len {
            masks[len][byte / 8] |= 0xff << (8 * (byte % 8));
            byte += 1;
        }
        len += 1;
    }
    masks
};

/// The run's bytes, zero padded. Away from the text's end they are loaded whole and masked: a copy of a length that is not
/// known costs a call.
#[inline]
fn key_of(bytes: &[u8], start: usize, end: usize) -> [u64; KEY_BYTES / 8] {
    let words = |key: &[u8; KEY_BYTES]| {
        let mut words = [0; KEY_BYTES / 8];
        for (word, chunk) in words.iter_mut().zip(key.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        words
    };
    if let Some(key) = bytes[start..].first_chunk::<KEY_BYTES>() {
        let (mut words, masks) = (words(key), MASKS[end - start]);
        words.iter_mut().zip(masks).for_each(|(w, mask)| *w &= mask);
        return words;
    }
    let mut key = [0u8; KEY_BYTES];
    key[..end - start].copy_from_slice(&bytes[start..end]);
    words(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        Splitter::new().split(text, &mut out);
        out.iter().map(|w| w.of(text).to_string()).collect()
    }

    #[test]
    fn contractions_and_punctuation_split_as_in_spacy() {
        assert_eq!(
            words("I can't, \"you'll\" see."),
            ["I", "ca", "n't", ",", "\"", "you", "'ll", "\"", "see", "."]
        );
        assert_eq!(
            words("dont cannot im id 0km c++"),
            [
                "do", "nt", "can", "not", "i", "m", "i", "d", "0", "km", "c++"
            ]
        );
        assert_eq!(
            words("e.g. U.S. 5% (10am) http://a.co/b, well-known"),
            [
                "e.g.",
                "U.S.",
                "5",
                "%",
                "(",
                "10",
                "am",
                ")",
                "http://a.co/b",
                ",",
                "well",
                "-",
                "known"
            ]
        );
    }

    #[test]
    fn a_runs_key_is_its_bytes_and_zeros_wherever_it_stands() {
        let bytes: Vec<u8> = (1..=60).collect();
        for start in 0..bytes.len() {
            for end in start..=bytes.len().min(start + KEY_BYTES) {
                let mut padded = bytes[start..end].to_vec();
                padded.resize(KEY_BYTES, 0);
                let key: Vec<u8> = key_of(&bytes, start, end)
                    .iter()
                    .flat_map(|w| w.to_le_bytes())
                    .collect();
                assert_eq!(key, padded);
            }
        }
    }
}

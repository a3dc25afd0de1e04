//! Lists of words and phrases that are searched in short texts, all at once and without regard to ASCII case.
//!
//! Most places of a text begin no word of a list. A table of one bit for each three letters says so, faster than an automaton
//! goes from state to state; only where it has a bit, the words that begin with these letters are compared.

/// Letters that differ from each other, by the bits that their case does not change.
const LETTERS: u8 = 32;
/// Letters that the table looks at, and bits of the table.
const BEGINNING: usize = 3;
const BEGINNINGS: usize = 1 << 15;

/// A word or a phrase.
pub(super) struct Pattern<'a> {
    pub(super) text: &'a str,
    pub(super) category: usize,
    /// Matches only between word boundaries.
    pub(super) is_whole: bool,
}

/// A pattern as it is compared.
#[derive(Clone)]
struct Known {
    text: Box<[u8]>,
    /// The letter behind its beginning, which most texts do not have.
    next: Option<u8>,
    category: usize,
    is_whole: bool,
}

/// Patterns with a category each, of which there are at most 64.
pub(super) struct Patterns {
    /// One bit for each beginning that a pattern has.
    has: Box<[u8; BEGINNINGS / 8]>,
    /// The list of each beginning; the first one is empty.
    list: Box<[u16; BEGINNINGS]>,
    lists: Vec<Vec<Known>>,
    /// Whether all of them match between word boundaries alone.
    are_whole: bool,
}

impl Patterns {
    /// Empty patterns match nowhere.
    pub(super) fn new<'a>(patterns: impl IntoIterator<Item = Pattern<'a>>) -> Patterns {
        let mut all = Patterns {
            has: Box::new([0; BEGINNINGS / 8]),
            list: Box::new([0; BEGINNINGS]),
            lists: vec![Vec::new()],
            are_whole: true,
        };
        for pattern in patterns {
            let text = pattern.text.as_bytes();
            let known = Known {
                text: text.into(),
                next: text.get(BEGINNING).map(|byte| letter(*byte)),
                category: pattern.category,
                is_whole: pattern.is_whole,
            };
            for beginning in beginnings(text) {
                all.has[beginning / 8] |= 1 << (beginning % 8);
                let list = &mut all.list[beginning];
                if *list == 0 {
                    // there are fewer beginnings than numbers
                    *list = u16::try_from(all.lists.len()).unwrap_or(0);
                    all.lists.push(Vec::new());
                }
                all.lists[usize::from(*list)].push(known.clone());
            }
            all.are_whole &= pattern.is_whole;
        }
        all
    }

    /// Categories of all patterns in `text`, one bit each.
    pub(super) fn find(&self, text: &str) -> u64 {
        let bytes = text.as_bytes();
        let mut found = 0;
        for (at, letters) in bytes.array_windows().enumerate() {
            let key = key_of(letters);
            if self.may_begin(key) {
                found |= self.at(bytes, at, key);
            }
        }
        // behind the end there are zeros
        for at in bytes.len().saturating_sub(BEGINNING - 1)..bytes.len() {
            let mut letters = [0; BEGINNING];
            letters[..bytes.len() - at].copy_from_slice(&bytes[at..]);
            let key = key_of(&letters);
            if self.may_begin(key) {
                found |= self.at(bytes, at, key);
            }
        }
        found
    }

    #[inline(always)]
    fn may_begin(&self, key: usize) -> bool {
        self.has[key / 8] >> (key % 8) & 1 == 1
    }

    /// Categories of the patterns that stand at a place.
    #[inline(never)]
    fn at(&self, bytes: &[u8], at: usize, key: usize) -> u64 {
        let begins = is_border(bytes, at);
        if self.are_whole && !begins {
            return 0;
        }
        let next = bytes.get(at + BEGINNING).map_or(0, |byte| letter(*byte));
        let mut found = 0;
        for pattern in &self.lists[usize::from(self.list[key])] {
            if pattern.next.is_some_and(|own| own != next) || pattern.is_whole && !begins {
                continue;
            }
            let end = at + pattern.text.len();
            let stands = bytes
                .get(at..end)
                .is_some_and(|text| text.eq_ignore_ascii_case(&pattern.text));
            if stands && (!pattern.is_whole || is_border(bytes, end)) {
                found |= 1 << pattern.category;
            }
        }
        found
    }
}

fn letter(byte: u8) -> u8 {
    byte % LETTERS
}

/// The number of a beginning.
#[inline(always)]
fn key_of(letters: &[u8; BEGINNING]) -> usize {
    let [a, b, c] = letters.map(|byte| usize::from(letter(byte)));
    a + usize::from(LETTERS) * (b + usize::from(LETTERS) * c)
}

/// The beginnings of texts that have a pattern there: behind a short one, any letter may follow.
fn beginnings(pattern: &[u8]) -> Vec<usize> {
    let Some(first) = pattern.first() else {
        return Vec::new();
    };
    let letters = |place: usize| match pattern.get(place) {
        Some(byte) => *byte..=*byte,
        None => 0..=LETTERS - 1,
    };
    let pairs = letters(1).flat_map(|b| letters(2).map(move |c| [*first, b, c]));
    pairs.map(|letters| key_of(&letters)).collect()
}

/// Between the byte before `at` and the byte at `at` one word ends or begins.
fn is_border(bytes: &[u8], at: usize) -> bool {
    let (Some(&before), Some(&after)) =
        (at.checked_sub(1).and_then(|i| bytes.get(i)), bytes.get(at))
    else {
        return true;
    };
    let inside = |b: u8| b.is_ascii_alphabetic() || b >= 0x80;
    !inside(before) || !inside(after) || (before.is_ascii_lowercase() && after.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use aho_corasick::AhoCorasick;
    use proptest::prelude::*;

    use super::*;

    const WORDS: [(&str, bool); 9] = [
        ("ab", true),
        ("abc", false),
        ("bca", true),
        ("$", true),
        ("a b", true),
        ("caab", false),
        ("é", true),
        ("C-a", false),
        ("cccc", true),
    ];

    /// The same by an automaton that finds every occurrence.
    fn by_automaton(text: &str) -> u64 {
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(WORDS.map(|word| word.0))
            .unwrap();
        let mut found = 0;
        for hit in automaton.find_overlapping_iter(text) {
            let category = hit.pattern().as_usize();
            let bytes = text.as_bytes();
            let has_borders = is_border(bytes, hit.start()) && is_border(bytes, hit.end());
            if !WORDS[category].1 || has_borders {
                found |= 1 << category;
            }
        }
        found
    }

    fn patterns() -> Patterns {
        Patterns::new(WORDS.iter().enumerate().map(|(category, word)| Pattern {
            text: word.0,
            category,
            is_whole: word.1,
        }))
    }

    proptest! {
        #[test]
        fn all_patterns_are_found_that_an_automaton_finds(text in "[abcABC$ é-]{0,24}") {
            prop_assert_eq!(patterns().find(&text), by_automaton(&text));
        }
    }

    #[test]
    fn patterns_are_found_at_the_edges_and_in_any_case() {
        let found = |text: &str| patterns().find(text);
        assert_eq!(found(""), 0);
        assert_eq!(found("AB"), 1);
        assert_eq!(found("x$"), 1 << 3);
        assert_eq!(found("xab"), 0);
        assert_eq!(found("xabc"), 1 << 1);
        assert_eq!(found("É é"), 1 << 6);
    }
}

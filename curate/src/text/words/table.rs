//! spaCy's rules of further languages, from a table.
//!
//! `spacy.tsv.zst` (tests/oracles/spacy_rules.py, which describes its lines) has for each language what its tokenizer
//! does otherwise than the default one: prefixes, suffixes, infixes, words that are kept whole, special cases. A
//! rule is a regular expression between two conditions on the characters around it; the conditions are sets of
//! characters and are tested outside of the expression, which therefore needs no look-around. spaCy's order decides
//! between prefixes and between infixes; suffixes end with the word, so the longest one is the leftmost.
//!
//! We differ: expressions that spaCy anchors by mistake on one of their alternatives only (HTML tags of Indonesian
//! and Malay) are anchored here.

use std::ops::{Range, RangeInclusive};
use std::sync::{LazyLock, OnceLock};

use regex::Regex;
use rustc_hash::FxHashMap;

use super::affix;
use super::special::{self, Specials};
use crate::text::unicode::{self, ALPHA, LOWER, UPPER};

/// spaCy's languages with rules of their own, in the order of the table.
pub(crate) const LANGUAGES: [&str; 39] = [
    "am", "ar", "bg", "ca", "da", "de", "el", "es", "fa", "fi", "fo", "fr", "ga", "grc", "hsb",
    "hu", "id", "it", "ky", "la", "lb", "lij", "lt", "mk", "ms", "nb", "nl", "pl", "pt", "ro",
    "ru", "sl", "sr", "sv", "ti", "tl", "tr", "tt", "uk",
];

/// Separates the pieces of a special case.
const PIECES: char = '\u{1f}';

static TABLE: LazyLock<String> = LazyLock::new(|| {
    let packed = include_bytes!("spacy.tsv.zst");
    let text = zstd::decode_all(&packed[..]).expect("the table is part of the program");
    String::from_utf8(text).expect("the table is text")
});

/// Sets of characters by name.
static SETS: LazyLock<FxHashMap<&'static str, Set>> = LazyLock::new(|| {
    let mut sets = FxHashMap::default();
    for line in TABLE.lines().take_while(|line| line.starts_with("set\t")) {
        let mut fields = line.split('\t').skip(1);
        let mut field = || fields.next().unwrap_or_default();
        let (name, base, ranges) = (field(), field(), field());
        sets.insert(name, Set::of(base, ranges));
    }
    sets
});

/// A flag that sets are based on, and its characters.
type Base = (u16, Vec<RangeInclusive<u32>>);

static BASES: LazyLock<[Base; 3]> = LazyLock::new(|| {
    [ALPHA, LOWER, UPPER].map(|flag| {
        let chars = ('\0'..=char::MAX).filter(|&c| unicode::is(c, flag));
        (flag, joined(chars.map(|c| c as u32..=c as u32)))
    })
});

/// Sorted ranges, with neighbours made one.
fn joined(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Vec<RangeInclusive<u32>> {
    let mut joined: Vec<RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*range.end().max(last.end());
            }
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

/// Characters as sorted ranges.
#[derive(Default)]
struct Set {
    ranges: Vec<RangeInclusive<u32>>,
}

impl Set {
    fn of(base: &str, ranges: &str) -> Set {
        let flag = match base {
            "A" => ALPHA,
            "L" => LOWER,
            "U" => UPPER,
            _none => 0,
        };
        let hex = |digits: &str| u32::from_str_radix(digits, 16).unwrap_or(0);
        let mut all: Vec<RangeInclusive<u32>> = ranges
            .split(',')
            .filter(|range| !range.is_empty())
            .map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                hex(first)..=hex(last)
            })
            .collect();
        if let Some((_, base)) = BASES.iter().find(|(own, _)| *own == flag) {
            all.extend(base.iter().cloned());
        }
        all.sort_unstable_by_key(|range| *range.start());
        Set {
            ranges: joined(all),
        }
    }

    fn has(&self, c: char) -> bool {
        let c = c as u32;
        let at = self.ranges.partition_point(|range| *range.end() < c);
        self.ranges.get(at).is_some_and(|range| range.contains(&c))
    }

    /// As a class of a regular expression; surrogates are no characters.
    fn class(&self) -> String {
        use std::fmt::Write as _;
        let mut class = String::from("[");
        for range in &self.ranges {
            let (first, last) = (*range.start(), *range.end());
            for (a, b) in [(first, last.min(0xd7ff)), (first.max(0xe000), last)] {
                if a <= b {
                    let _ = write!(class, r"\x{{{a:x}}}-\x{{{b:x}}}");
                }
            }
        }
        class.push(']');
        class
    }
}

/// Condition on the text after a rule's match.
enum Ahead {
    In(&'static Set),
    NotIn(&'static Set),
    /// Matches nothing of it.
    Not(Regex),
}

/// Rules that stand next to each other in the table and have the same conditions.
struct Group {
    /// The match starts the word, before the characters of `behind`.
    at_start: bool,
    /// Sets of the characters before the match, in order.
    behind: Vec<&'static Set>,
    body: Regex,
    ahead: Vec<Ahead>,
}

impl Group {
    /// True if the text before a match fits.
    fn follows(&self, before: &str) -> bool {
        let mut back = before.chars().rev();
        let fits = self
            .behind
            .iter()
            .rev()
            .all(|set| back.next().is_some_and(|c| set.has(c)));
        fits && (!self.at_start || back.next().is_none())
    }

    /// True if the text after a match fits.
    fn precedes(&self, after: &str) -> bool {
        let first = after.chars().next();
        self.ahead.iter().all(|ahead| match ahead {
            Ahead::In(set) => first.is_some_and(|c| set.has(c)),
            Ahead::NotIn(set) => !first.is_some_and(|c| set.has(c)),
            Ahead::Not(regex) => !regex.is_match(after),
        })
    }
}

/// One kind of affix of a language.
enum Affix {
    /// The default language's.
    Default,
    /// English's.
    English,
    Own {
        groups: Vec<Group>,
        /// Any body, wherever it stands: tells where a group is worth trying.
        any: Option<Regex>,
    },
}

/// Rules by which a language's tokenizer differs from the default one.
pub(super) struct Table {
    prefixes: Affix,
    suffixes: Affix,
    infixes: Affix,
    whole: Vec<Whole>,
    /// True if a word of letters alone may have an affix.
    pub(super) splits_letters: bool,
}

/// Words that are kept whole.
struct Whole {
    /// First character of such a word, in lower case; None: any.
    first: Option<char>,
    pattern: &'static str,
    /// Compiled when a word first begins so: French has hundreds of alternatives.
    regex: OnceLock<Option<Regex>>,
}

impl Whole {
    fn is_match(&self, s: &str) -> bool {
        let regex = self
            .regex
            .get_or_init(|| compile(&format!("^(?:{})", expand(self.pattern))));
        regex.as_ref().is_some_and(|regex| regex.is_match(s))
    }
}

/// `<NAME>` replaced by the set's class.
fn expand(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, after)) = rest.split_once('<') {
        let (name, tail) = after.split_once('>').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&SETS.get(name).map(Set::class).unwrap_or_default());
        rest = tail;
    }
    out + rest
}

fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

fn set(name: &str) -> &'static Set {
    static NONE: Set = Set { ranges: Vec::new() };
    SETS.get(name).unwrap_or(&NONE)
}

/// Rules of one kind, each the fields after the kind.
fn affix_of(rules: &[Vec<&str>], anchor: [&str; 2]) -> Option<Affix> {
    match rules {
        [one] if one.len() == 1 && one[0] == "en" => return Some(Affix::English),
        [one] if one.len() == 1 => return Some(Affix::Default),
        _several => {}
    }
    let mut groups = Vec::new();
    let mut any = Vec::new();
    // with a condition on what follows, a later body may fit where an earlier one does not
    for same in rules.chunk_by(|a, b| (a[0], a[2]) == (b[0], b[2]) && a[2].is_empty()) {
        let (behind, ahead) = (same[0][0], same[0][2]);
        let bodies: Vec<String> = same
            .iter()
            .map(|rule| format!("(?:{})", expand(rule[1])))
            .collect();
        let pattern = bodies.join("|");
        let behind = behind.strip_prefix('^').unwrap_or(behind);
        let mut conditions = Vec::new();
        for condition in ahead.split(' ').filter(|c| !c.is_empty()) {
            conditions.push(match condition.split_at(1) {
                ("+", name) => Ahead::In(set(name)),
                (_, regex) if regex.starts_with('(') => {
                    Ahead::Not(compile(&format!("^{}", expand(regex)))?)
                }
                (_, name) => Ahead::NotIn(set(name)),
            });
        }
        groups.push(Group {
            at_start: same[0][0].starts_with('^'),
            behind: behind.split_terminator('.').map(set).collect(),
            body: compile(&format!("{}(?:{pattern}){}", anchor[0], anchor[1]))?,
            ahead: conditions,
        });
        any.push(pattern);
    }
    Some(Affix::Own {
        groups,
        any: compile(&any.join("|")),
    })
}

impl Table {
    /// Reads the rules of the language at `index` of [`LANGUAGES`], and its special cases.
    pub(super) fn read(index: usize) -> Option<(Table, Specials)> {
        let code = LANGUAGES.get(index)?;
        let mut lines = TABLE.lines();
        lines.find(|line| line.strip_prefix("language\t") == Some(code))?;
        let mut specials = special::base();
        let (mut prefixes, mut suffixes, mut infixes) = (Vec::new(), Vec::new(), Vec::new());
        let mut whole = Vec::new();
        for line in lines.take_while(|line| !line.starts_with("language\t")) {
            let (kind, rest) = line.split_once('\t')?;
            let fields: Vec<&str> = rest.split('\t').collect();
            match kind {
                "prefix" => prefixes.push(fields),
                "suffix" => suffixes.push(fields),
                "infix" => infixes.push(fields),
                "match" => {
                    let (first, pattern) = rest.split_once('\t')?;
                    whole.push(Whole {
                        first: first.chars().next(),
                        pattern,
                        regex: OnceLock::new(),
                    });
                }
                "without" => {
                    for word in fields {
                        specials.remove(word.replace(r"\t", "\t").replace(r"\n", "\n").as_str());
                        specials.remove(word);
                    }
                }
                _special => {
                    let pieces: Vec<&str> = rest.split(PIECES).collect();
                    let lengths: Option<Vec<u8>> =
                        pieces.iter().map(|p| u8::try_from(p.len()).ok()).collect();
                    specials.insert(pieces.concat().into(), lengths?);
                }
            }
        }
        let table = Table {
            prefixes: affix_of(&prefixes, ["^", ""])?,
            suffixes: affix_of(&suffixes, ["", "$"])?,
            infixes: affix_of(&infixes, ["^", ""])?,
            whole,
            splits_letters: matches!(*code, "id" | "ms"),
        };
        Some((table, specials))
    }

    /// Byte length of the prefix to split off, 0 if none.
    pub(super) fn prefix(&self, s: &str) -> usize {
        match &self.prefixes {
            Affix::Default | Affix::English => affix::prefix(s),
            Affix::Own { groups, .. } => groups
                .iter()
                .filter(|group| group.follows(""))
                .find_map(|group| {
                    let end = group.body.find(s)?.end();
                    group.precedes(&s[end..]).then_some(end)
                })
                .unwrap_or(0),
        }
    }

    /// Byte length of the suffix to split off, 0 if none.
    pub(super) fn suffix(&self, s: &str, units: &[&str]) -> usize {
        let groups = match &self.suffixes {
            Affix::Default | Affix::English => return affix::suffix(s, units),
            Affix::Own { groups, .. } => groups,
        };
        let window = s.floor_char_boundary(s.len().saturating_sub(WINDOW));
        let near = suffix_from(groups, s, window);
        // what may reach beyond the window is looked for in all of the word
        if window > 0 && near == s.len() - window {
            suffix_from(groups, s, 0)
        } else {
            near
        }
    }

    /// Pushes the byte ranges of the infixes of `s`.
    pub(super) fn infixes(&self, s: &str, found: &mut Vec<Range<usize>>) {
        let (groups, any) = match &self.infixes {
            Affix::Default => return affix::infixes(s, false, found),
            Affix::English => return affix::infixes(s, true, found),
            Affix::Own { groups, any } => (groups, any),
        };
        // numbers with points are read to their end before it is known that no hyphen follows them
        let window = |from: usize| s.floor_char_boundary(from.saturating_add(WINDOW).min(s.len()));
        let mut at = 0;
        // an empty match moves nothing: the next one at its place takes a character
        let mut must_move = false;
        while at <= s.len() {
            let near = window(at);
            let first = any.as_ref().map_or(Some(at), |any| {
                any.find_at(&s[..near], at).map(|found| found.start())
            });
            let Some(start) = first else {
                if near == s.len() {
                    return;
                }
                // every place has at least half a window before it
                at = s.floor_char_boundary(at + WINDOW / 2);
                must_move = false;
                continue;
            };
            must_move &= start == at;
            let end = groups.iter().find_map(|group| {
                if !group.follows(&s[..start]) {
                    return None;
                }
                let end = start + group.body.find(&s[start..window(start)])?.end();
                let fits = group.precedes(&s[end..]) && !(must_move && end == start);
                fits.then_some(end)
            });
            match end {
                Some(end) => {
                    found.push(start..end);
                    must_move = end == start;
                    at = end;
                }
                None => {
                    must_move = false;
                    at = start + s[start..].chars().next().map_or(1, char::len_utf8);
                }
            }
        }
    }

    /// True if a word is kept whole whatever the other rules say.
    pub(super) fn is_whole(&self, s: &str) -> bool {
        if self.whole.is_empty() || s.len() > WINDOW {
            return false;
        }
        let first = s.chars().next().and_then(|c| c.to_lowercase().next());
        let may_be = |whole: &&Whole| whole.first.is_none() || whole.first == first;
        self.whole
            .iter()
            .filter(may_be)
            .any(|whole| whole.is_match(s))
    }
}

/// Bytes at a word's end in which suffixes are looked for first, of the longest infix (of half of it at least) and of the
/// longest word that is kept whole: runs without white space may be long, and are read once for each affix.
const WINDOW: usize = 256;

/// Byte length of the longest suffix that starts at `from` or later, 0 if none.
fn suffix_from(groups: &[Group], s: &str, from: usize) -> usize {
    let mut longest = 0;
    for group in groups {
        // the leftmost match whose surroundings fit
        let mut at = from;
        while at <= s.len() - longest {
            let Some(found) = group.body.find_at(s, at) else {
                break;
            };
            let start = found.start();
            if group.follows(&s[..start]) && group.precedes("") {
                longest = longest.max(s.len() - start);
                break;
            }
            at = start + s[start..].chars().next().map_or(1, char::len_utf8);
        }
    }
    longest
}

/// Number of a language of spaCy that has rules of its own.
pub(crate) fn number_of(code: &str) -> Option<u8> {
    let at = LANGUAGES.iter().position(|&language| language == code)?;
    u8::try_from(at).ok()
}

/// A place for the rules of each language, filled when they are first used.
pub(super) type Places<T> = [OnceLock<T>; LANGUAGES.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_can_be_read_and_has_special_cases() {
        for (number, code) in LANGUAGES.iter().enumerate() {
            let (_, specials) = Table::read(number).unwrap_or_else(|| panic!("{code}"));
            assert!(specials.len() >= 140, "{code}: {}", specials.len());
        }
        assert!(Table::read(LANGUAGES.len()).is_none());
    }

    #[test]
    fn sets_join_their_base_and_their_ranges() {
        let set = Set::of("U", "30-39,61");
        assert!(set.has('A') && set.has('5') && set.has('a'));
        assert!(!set.has('b') && !set.has('-'));
        let class = Regex::new(&format!("^{}$", set.class())).unwrap();
        assert!(class.is_match("A") && !class.is_match("b"));
    }
}

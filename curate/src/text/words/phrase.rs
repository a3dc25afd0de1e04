//! Special cases that the affix rules split, and how they are joined again.
//!
//! spaCy searches the finished words for the sequences its special cases split into without special
//! treatment, drops overlapping hits (longest first, then leftmost), and replaces a hit whose text
//! is exactly a special case. Hits may span a single space; such hits replace nothing but still
//! shadow others, so the search runs over the whole text when any run needs it.

use rustc_hash::FxHashMap;

use super::Word;
use super::special::Specials;

/// A trie of word sequences: (node, word) to node.
#[derive(Default)]
pub(super) struct Phrases {
    ids: FxHashMap<Box<str>, u32>,
    edges: FxHashMap<(u32, u32), u32>,
    ends: Vec<bool>,
}

impl Phrases {
    /// Adds the words of `special`, given the ends of its words.
    pub(super) fn add(&mut self, special: &str, cuts: &[u32]) {
        if self.ends.is_empty() {
            self.ends.push(false);
        }
        let mut node = 0;
        let mut from = 0;
        for &cut in cuts {
            let piece = &special[from..cut as usize];
            from = cut as usize;
            let fresh = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
            let id = *self.ids.entry(piece.into()).or_insert(fresh);
            let next = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
            let target = *self.edges.entry((node, id)).or_insert(next);
            if target == next {
                self.ends.push(false);
            }
            node = target;
        }
        self.ends[node as usize] = true;
    }

    /// Calls `hit(end)` for each phrase that starts at word `from`.
    fn starting_at(&self, text: &str, words: &[Word], from: usize, hit: &mut dyn FnMut(usize)) {
        let mut node = 0;
        for (i, word) in words.iter().enumerate().skip(from) {
            if i > from && !adjacent(text, words[i - 1], *word) {
                return;
            }
            let Some(&id) = self.ids.get(word.of(text)) else {
                return;
            };
            let Some(&next) = self.edges.get(&(node, id)) else {
                return;
            };
            node = next;
            if self.ends[node as usize] {
                hit(i + 1);
            }
        }
    }

    /// True if the words of one run hold a phrase that is not already split as it should be.
    pub(super) fn inside(&self, text: &str, words: &[Word], specials: &Specials) -> bool {
        let mut found = false;
        for from in 0..words.len() {
            self.starting_at(text, words, from, &mut |to| {
                found |= replacement(text, &words[from..to], specials).is_some();
            });
        }
        found
    }

    /// Replaces the phrases of a whole text.
    pub(super) fn apply(&self, text: &str, words: &mut Vec<Word>, specials: &Specials) {
        let mut hits: Vec<(usize, usize)> = Vec::new();
        for from in 0..words.len() {
            self.starting_at(text, words, from, &mut |to| hits.push((from, to)));
        }
        hits.sort_by(|a, b| (b.1 - b.0).cmp(&(a.1 - a.0)).then(a.0.cmp(&b.0)));
        let mut seen = vec![false; words.len()];
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for (from, to) in hits {
            if !seen[from] && !seen[to - 1] {
                chosen.push((from, to));
            }
            seen[from..to].fill(true);
        }
        chosen.sort_unstable();
        let mut out = Vec::with_capacity(words.len());
        let mut done = 0;
        for (from, to) in chosen {
            if let Some(pieces) = replacement(text, &words[from..to], specials) {
                out.extend_from_slice(&words[done..from]);
                let mut start = words[from].start;
                for &n in pieces {
                    out.push(Word {
                        start,
                        end: start + u32::from(n),
                    });
                    start += u32::from(n);
                }
                done = to;
            }
        }
        out.extend_from_slice(&words[done..]);
        *words = out;
    }
}

/// Two words with nothing or one space between them; other whitespace is a separate word.
fn adjacent(text: &str, a: Word, b: Word) -> bool {
    a.end == b.start || (b.start == a.end + 1 && text.as_bytes()[a.end as usize] == b' ')
}

/// The piece lengths of the special case these words spell, unless they are split so already.
fn replacement<'a>(text: &str, words: &[Word], specials: &'a Specials) -> Option<&'a [u8]> {
    let (first, last) = (words.first()?, words.last()?);
    let whole = &text[first.start as usize..last.end as usize];
    let pieces = specials.get(whole)?;
    let same = pieces.len() == words.len()
        && pieces
            .iter()
            .zip(words)
            .all(|(&n, w)| usize::from(n) == w.len());
    (!same).then_some(pieces.as_slice())
}

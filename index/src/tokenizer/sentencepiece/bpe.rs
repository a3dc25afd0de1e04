//! SentencePiece's BPE: of all neighbours whose join is a piece, join the one with the highest score (leftmost of
//! equals) until none is left.
//!
//! Paper: Sennrich et al. 2016, arXiv:1508.07909, with a heap as Kudo & Richardson 2018, arXiv:1808.06226. Facts
//! (sentencepiece 0.2.3): text starts as characters and user-defined symbols, which never join; a join is looked up
//! by its text; an unused piece is taken apart again along the join that last proposed it, wherever in the text
//! that was. We differ: where no piece crosses from a word into the next one, words are cut out first and cached;
//! joins in one word cannot affect another, so the ids are the same.

use super::normalize::SPACE;
use super::proto::{Kind, Piece};
use super::sink::{Sink, char_len};
use super::trie::{Key, Trie};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Words cached per thread; the cache is cleared when there are more.
const CACHED_WORDS: usize = 1 << 16;
/// Longer words are not cached.
const CACHED_BYTES: usize = 48;
/// No symbol before or after.
const END: u32 = u32::MAX;

/// Positions where text can be cut without cutting a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Nowhere,
    BeforeSpaces,
    AfterSpaces,
}

/// Pieces by their text. Shared by threads.
#[derive(Debug)]
pub(super) struct Bpe {
    entries: FxHashMap<Box<[u8]>, Entry>,
    user_defined: Option<Trie>,
    longest: usize,
    cut: Cut,
    unknown: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    score: f32,
    unused: bool,
}

#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
    frozen: bool,
}

/// A join to try.
#[derive(Clone, Copy)]
struct Join {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
}

impl Ord for Join {
    fn cmp(&self, other: &Join) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| other.left.cmp(&self.left))
    }
}
impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Join) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Join {
    fn eq(&self, other: &Join) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Join {}

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    joins: BinaryHeap<Join>,
    /// Length of the left part of the join that last proposed an unused piece.
    left_parts: FxHashMap<Box<[u8]>, u32>,
    pending: Vec<(usize, usize)>,
    words: FxHashMap<Box<[u8]>, (u32, u32)>,
    /// (id, bytes) of the symbols of cached words.
    remembered: Vec<(u32, u32)>,
}

impl Bpe {
    pub(super) fn new(pieces: &[Piece], unknown: u32) -> Result<Bpe, String> {
        let mut entries: FxHashMap<Box<[u8]>, Entry> = FxHashMap::default();
        for (id, p) in (0u32..).zip(pieces) {
            // control, unknown and byte pieces are never found in text, not even as one character
            if matches!(p.kind, Kind::Normal | Kind::UserDefined | Kind::Unused) {
                let entry = Entry {
                    id,
                    score: p.score,
                    unused: p.kind == Kind::Unused,
                };
                entries.insert(p.text.as_bytes().into(), entry);
            }
        }
        let symbols: Vec<_> = (0u32..)
            .zip(pieces)
            .filter(|(_, p)| p.kind == Kind::UserDefined)
            .map(|(id, p)| Key {
                bytes: p.text.as_bytes(),
                value: id,
                score: 0.0,
            })
            .collect();
        let user_defined = match symbols.as_slice() {
            [] => None,
            _ => Some(Trie::new(symbols)?),
        };
        let texts = || pieces.iter().map(|p| p.text.as_str());
        let crosses = |cut| texts().any(|t| cuts(t.as_bytes(), cut).next().is_some());
        let cut = if pieces.iter().any(|p| p.kind == Kind::Unused) {
            Cut::Nowhere
        } else if !crosses(Cut::BeforeSpaces) {
            Cut::BeforeSpaces
        } else if !crosses(Cut::AfterSpaces) {
            Cut::AfterSpaces
        } else {
            Cut::Nowhere
        };
        Ok(Bpe {
            entries,
            user_defined,
            longest: texts().map(str::len).max().unwrap_or(0),
            cut,
            unknown,
        })
    }

    /// Sends the symbols of `text` to `sink`, first one first. `text` is shorter than 2^31 bytes.
    pub(super) fn encode(&self, text: &[u8], scratch: &mut Scratch, sink: &mut Sink<'_>) {
        scratch.left_parts.clear();
        let mut start = 0;
        for end in cuts(text, self.cut).chain(std::iter::once(text.len())) {
            let word = &text[start..end];
            start = end;
            if word.len() > CACHED_BYTES || self.cut == Cut::Nowhere {
                self.encode_word(word, scratch, &mut |id, bytes| sink.piece(id, bytes));
                continue;
            }
            let (from, to) = match scratch.words.get(word) {
                Some(known) => *known,
                None => self.remember(word, scratch),
            };
            let mut at = 0;
            for (id, len) in &scratch.remembered[from as usize..to as usize] {
                let next = at + *len as usize;
                sink.piece(*id, &word[at..next]);
                at = next;
            }
        }
    }

    fn remember(&self, word: &[u8], scratch: &mut Scratch) -> (u32, u32) {
        if scratch.words.len() >= CACHED_WORDS {
            scratch.words.clear();
            scratch.remembered.clear();
        }
        let mut remembered = std::mem::take(&mut scratch.remembered);
        let from = narrow(remembered.len());
        self.encode_word(word, scratch, &mut |id, bytes| {
            remembered.push((id, narrow(bytes.len())));
        });
        let known = (from, narrow(remembered.len()));
        scratch.remembered = remembered;
        scratch.words.insert(word.into(), known);
        known
    }

    fn encode_word(&self, text: &[u8], scratch: &mut Scratch, symbol: &mut dyn FnMut(u32, &[u8])) {
        self.split(text, &mut scratch.symbols);
        scratch.joins.clear();
        for right in 1..narrow(scratch.symbols.len()) {
            self.propose(text, right - 1, right, scratch);
        }
        while let Some(join) = scratch.joins.pop() {
            let (left, right) = (join.left as usize, join.right as usize);
            let (l, r) = (scratch.symbols[left], scratch.symbols[right]);
            if l.len == 0 || r.len == 0 || l.len + r.len != join.len {
                continue;
            }
            scratch.symbols[left].len = join.len;
            scratch.symbols[left].next = r.next;
            scratch.symbols[right].len = 0;
            if r.next != END {
                scratch.symbols[r.next as usize].prev = join.left;
            }
            self.propose(text, l.prev, join.left, scratch);
            self.propose(text, join.left, r.next, scratch);
        }
        let mut at = if scratch.symbols.is_empty() { END } else { 0 };
        while at != END {
            let s = scratch.symbols[at as usize];
            let start = s.start as usize;
            self.emit(text, start, start + s.len as usize, scratch, symbol);
            at = s.next;
        }
    }

    /// Characters and user-defined symbols of `text`.
    fn split(&self, text: &[u8], symbols: &mut Vec<Symbol>) {
        symbols.clear();
        let mut start = 0;
        while start < text.len() {
            let rest = &text[start..];
            let defined = self.user_defined.as_ref().and_then(|t| t.longest(rest));
            let len = defined.map_or_else(|| char_len(rest), |(len, _)| len);
            let number = narrow(symbols.len());
            symbols.push(Symbol {
                start: narrow(start),
                len: narrow(len),
                prev: number.checked_sub(1).unwrap_or(END),
                next: if len == rest.len() { END } else { number + 1 },
                frozen: defined.is_some(),
            });
            start += len;
        }
    }

    fn propose(&self, text: &[u8], left: u32, right: u32, scratch: &mut Scratch) {
        if left == END || right == END {
            return;
        }
        let (l, r) = (
            scratch.symbols[left as usize],
            scratch.symbols[right as usize],
        );
        let (start, len) = (l.start as usize, l.len as usize + r.len as usize);
        if l.frozen || r.frozen || len > self.longest {
            return;
        }
        let joined = &text[start..start + len];
        let Some(entry) = self.entries.get(joined) else {
            return;
        };
        scratch.joins.push(Join {
            score: entry.score,
            left,
            right,
            len: l.len + r.len,
        });
        if entry.unused {
            scratch.left_parts.insert(joined.into(), l.len);
        }
    }

    /// One finished symbol, an unused one in its parts.
    fn emit(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        scratch: &mut Scratch,
        symbol: &mut dyn FnMut(u32, &[u8]),
    ) {
        scratch.pending.push((start, end));
        while let Some((start, end)) = scratch.pending.pop() {
            let bytes = &text[start..end];
            let entry = self.entries.get(bytes);
            let left = match entry {
                Some(e) if e.unused => scratch.left_parts.get(bytes),
                _ => None,
            };
            if let Some(left) = left {
                let middle = start + *left as usize;
                scratch.pending.push((middle, end));
                scratch.pending.push((start, middle));
            } else {
                let used = entry.filter(|e| !e.unused);
                symbol(used.map_or(self.unknown, |e| e.id), bytes);
            }
        }
    }
}

/// Inner places of `text` where `cut` allows one.
fn cuts(text: &[u8], cut: Cut) -> impl Iterator<Item = usize> + '_ {
    let space = SPACE.as_bytes();
    let spaces = memchr::memmem::find_iter(text, space);
    spaces.filter_map(move |at| {
        let after = at + space.len();
        match cut {
            Cut::Nowhere => None,
            Cut::BeforeSpaces => (at > 0 && !text[..at].ends_with(space)).then_some(at),
            Cut::AfterSpaces => {
                (after < text.len() && !text[after..].starts_with(space)).then_some(after)
            }
        }
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "texts are shorter than 2^31 bytes"
)]
fn narrow(n: usize) -> u32 {
    n as u32
}

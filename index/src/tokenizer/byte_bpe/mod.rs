//! Byte-level BPE at memory speed: split by bit arithmetic, look words up in a cache, merge only new words.
//!
//! Exact: the ids are those of tokenizers 0.23 (Unicode version aside, see `unicode.rs`) and of tiktoken for the files
//! that `json.rs` accepts; everything else stays with the library. Special tokens in text are text.

mod cache;
mod json;
mod masks;
mod merge;
mod split;
#[cfg(test)]
mod tests;
mod unicode;

pub(crate) use json::from_tokenizer_json;
pub(crate) use split::{Split, Splitter};

use cache::{Cache, Key};
use masks::Level;
use merge::{Merger, Pairs};
use rustc_hash::FxHashMap;
use std::sync::Mutex;

/// Source of merge ranks.
pub(crate) enum Merges {
    /// Hugging Face: (left id, right id) in rank order; they become the token of their joined bytes.
    Ranked(Vec<(u32, u32)>),
    /// tiktoken: any two parts whose joined bytes are a token merge, and its id is the rank.
    ByRank,
}

/// An encoder's tables. Shared by threads.
pub(crate) struct ByteBpe {
    split: Split,
    level: Level,
    pairs: Pairs,
    /// With `ignore_merges`: tokens that match a whole word, whether or not merges produce them.
    whole: Option<FxHashMap<Box<[u8]>, u32>>,
    /// Caches of dropped encoders, reused by the next ones.
    caches: Mutex<Vec<Cache>>,
}

impl ByteBpe {
    /// From the bytes and id of every ordinary token; all 256 bytes must be among them.
    pub(crate) fn new(
        tokens: &[(Vec<u8>, u32)],
        merges: Merges,
        split: Split,
        ignore_merges: bool,
    ) -> Result<ByteBpe, String> {
        Ok(ByteBpe {
            split,
            level: Level::best(),
            pairs: pairs(tokens, merges)?,
            whole: ignore_merges.then(|| {
                let entries = tokens.iter().map(|(b, id)| (b.as_slice().into(), *id));
                entries.collect()
            }),
            caches: Mutex::default(),
        })
    }

    /// A reusable encoder for one thread.
    pub(crate) fn encoder(&self) -> ByteEncoder<'_> {
        let known = self.caches.lock().ok().and_then(|mut c| c.pop());
        ByteEncoder {
            bpe: self,
            splitter: Splitter::with(self.split, self.level),
            merger: Merger::default(),
            cache: known.unwrap_or_else(Cache::new),
            ends: Vec::new(),
            ids: Vec::new(),
        }
    }
}

fn pairs(tokens: &[(Vec<u8>, u32)], merges: Merges) -> Result<Pairs, String> {
    let ids: FxHashMap<&[u8], u32> = tokens.iter().map(|(b, id)| (b.as_slice(), *id)).collect();
    let mut of_byte = [0; 256];
    for (byte, id) in (0u8..=255).zip(&mut of_byte) {
        let found = ids.get(&[byte][..]);
        *id = *found.ok_or_else(|| format!("no token for the byte {byte:#04x}"))?;
    }
    let mut table = Pairs::new(of_byte)?;
    match merges {
        Merges::Ranked(list) => {
            let bytes: FxHashMap<u32, &[u8]> =
                tokens.iter().map(|(b, id)| (*id, b.as_slice())).collect();
            for (rank, &(left, right)) in list.iter().enumerate() {
                let part = |id: u32| {
                    let found = bytes.get(&id).copied();
                    found.ok_or_else(|| format!("merge {rank}: no token {id}"))
                };
                let joined = [part(left)?, part(right)?].concat();
                let id = ids.get(joined.as_slice());
                let id = *id.ok_or_else(|| format!("merge {rank}: its result is no token"))?;
                table.push(left, right, id)?;
            }
        }
        Merges::ByRank => by_rank(&ids, &mut table)?,
    }
    Ok(table)
}

/// Two parts of a token can only be neighbours as the last two of the token's own merges, so one pair per token is
/// enough: inside a token's bytes, lower ranks merge in the same order in any context. A token whose lower ranks
/// leave more than two parts gets every pair that joins to it.
fn by_rank(ids: &FxHashMap<&[u8], u32>, table: &mut Pairs) -> Result<(), String> {
    let mut tokens: Vec<(&[u8], u32)> = ids.iter().map(|(b, id)| (*b, *id)).collect();
    tokens.sort_by_key(|(_, id)| *id);
    let mut merger = Merger::default();
    for (bytes, id) in tokens.into_iter().filter(|(b, _)| b.len() > 1) {
        if let [left, right] = *merger.merge(table, bytes) {
            table.push(left, right, id)?;
            continue;
        }
        let cuts = (1..bytes.len()).map(|at| bytes.split_at(at));
        let known = |(left, right)| Some((*ids.get(left)?, *ids.get(right)?));
        for (i, (left, right)) in cuts.filter_map(known).enumerate() {
            match i {
                0 => table.push(left, right, id)?,
                _ => table.push_alike(left, right)?,
            }
        }
    }
    Ok(())
}

/// Encodes many texts with one set of buffers and one cache.
pub(crate) struct ByteEncoder<'a> {
    bpe: &'a ByteBpe,
    splitter: Splitter,
    merger: Merger,
    cache: Cache,
    /// Ends of the words of one window.
    ends: Vec<u32>,
    /// Its ids, with room for more.
    ids: Vec<u32>,
}

impl ByteEncoder<'_> {
    /// Appends the ids of `text`, which is shorter than 4 GiB.
    pub(crate) fn encode(&mut self, text: &str, out: &mut Vec<u32>) {
        let text = text.as_bytes();
        let mut from = 0;
        while from < text.len() {
            self.splitter.cut(text, from, &mut self.ends);
            let Some(&length) = self.ends.last() else {
                break;
            };
            // at most one id per byte, plus the slack that `Cache::find` may overwrite
            let room = length as usize + cache::SHORT + 1;
            if self.ids.len() < room {
                self.ids.resize(room, 0);
            }
            let count = self.window(text, from);
            out.extend_from_slice(&self.ids[..count]);
            from += length as usize;
        }
    }

    /// Ids of the words that end at `ends`, into `ids`; returns their number.
    fn window(&mut self, text: &[u8], from: usize) -> usize {
        let mut looked_up = [Lookup::default(); AHEAD];
        let (mut start, mut count) = (from, 0);
        for ends in self.ends.chunks(AHEAD) {
            let batch = &mut looked_up[..ends.len()];
            for (l, end) in batch.iter_mut().zip(ends) {
                let end = from + *end as usize;
                l.start = start;
                l.length = end - start;
                if l.length <= cache::SHORT {
                    l.key = Key::new(text, start, l.length);
                    l.place = self.cache.place(l.key);
                }
                start = end;
            }
            for l in batch {
                if l.length <= cache::SHORT {
                    let found = self.cache.find(l.key, l.place, &mut self.ids, count);
                    if found > 0 {
                        count += found;
                        continue;
                    }
                }
                let word = &text[l.start..l.start + l.length];
                let ids = if l.length <= cache::SHORT {
                    let ids = merged(self.bpe, &mut self.merger, word);
                    self.cache.keep(l.key, ids);
                    ids
                } else {
                    long(self.bpe, &mut self.merger, &mut self.cache, word)
                };
                self.ids[count..count + ids.len()].copy_from_slice(ids);
                count += ids.len();
            }
        }
        count
    }
}

/// Words whose cache slots are computed and prefetched before the first of them is used.
const AHEAD: usize = 32;

/// A word whose cache slot is being prefetched.
#[derive(Clone, Copy, Default)]
struct Lookup {
    key: Key,
    place: usize,
    start: usize,
    length: usize,
}

/// Ids of a word of more than `cache::SHORT` bytes.
fn long<'a>(bpe: &ByteBpe, merger: &'a mut Merger, cache: &'a mut Cache, word: &[u8]) -> &'a [u32] {
    if word.len() > cache::LONG {
        return merged(bpe, merger, word);
    }
    let hash = xxhash_rust::xxh3::xxh3_64(word);
    if let Some(known) = cache.find_long(word, hash) {
        return cache.long_ids(known);
    }
    let ids = merged(bpe, merger, word);
    cache.keep_long(word, hash, ids);
    ids
}

#[cold]
fn merged<'a>(bpe: &ByteBpe, merger: &'a mut Merger, word: &[u8]) -> &'a [u32] {
    match bpe.whole.as_ref().and_then(|w| w.get(word)) {
        Some(id) => merger.single(*id),
        None => merger.merge(&bpe.pairs, word),
    }
}

impl Drop for ByteEncoder<'_> {
    fn drop(&mut self) {
        if let Ok(mut caches) = self.bpe.caches.lock() {
            caches.push(std::mem::replace(&mut self.cache, Cache::empty()));
        }
    }
}

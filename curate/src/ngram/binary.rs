//! KenLM's binary files, format version 5: header, vocabulary, n-grams in probing hash tables or a trie (`trie.rs`).
//!
//! Header: the magic text padded to 56 bytes, test numbers to byte 88, then order (u8 at 88), probing multiplier (f32 at
//! 92), kind (u32 at 96), whether words follow (u8 at 100), search version (u32 at 104), counts of each order (u64 from
//! 108 on), padded to 8 bytes. Probing tables hold 64-bit hashes, 0 for free, at `hash mod buckets` or behind.

use super::bits::{f32_at, size, u32_at, u64_at};
use super::trie::Trie;
use super::{MOST_ORDER, Search, Weights, Words};

const MAGIC: &[u8] = b"mmap lm http://kheafield.com/code format version";
const VERSION: &[u8] = b" 5\n\0";
/// Bytes of the header before the counts.
const FIXED: usize = 108;

pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC[..MAGIC.len().min(40)])
}

pub(super) fn parse(bytes: Vec<u8>) -> Result<(usize, Words, Search), String> {
    let version = bytes.get(MAGIC.len()..MAGIC.len() + VERSION.len());
    if !bytes.starts_with(MAGIC) || version != Some(VERSION) {
        return Err(format!(
            "byte {}: found another version, wanted 5 of KenLM's binary format",
            MAGIC.len()
        ));
    }
    let tests = [0u32, 1.0f32.to_bits(), (-0.5f32).to_bits(), 1, u32::MAX];
    let found = [56, 60, 64, 68, 72].map(|at| u32_at(&bytes, at));
    if found != tests || u64_at(&bytes, 80) != 1 {
        return Err("byte 56: found other test numbers, wanted a little-endian 64-bit file".into());
    }
    let order = usize::from(bytes.get(88).copied().unwrap_or(0));
    if !(2..=MOST_ORDER).contains(&order) {
        return Err(format!(
            "byte 88: found order {order}, wanted 2 to {MOST_ORDER}"
        ));
    }
    let counts: Vec<u64> = (0..order).map(|n| u64_at(&bytes, FIXED + 8 * n)).collect();
    let start = (FIXED + 8 * order).next_multiple_of(8);
    // every n-gram takes a byte at least: larger counts would overflow what follows
    if let Some(n) = counts.iter().position(|c| *c > bytes.len() as u64) {
        return Err(format!(
            "byte {}: found {} n-grams, wanted fewer than bytes",
            FIXED + 8 * n,
            counts[n]
        ));
    }
    let (kind, search_version) = (u32_at(&bytes, 96), u32_at(&bytes, 104));
    let wanted_version = u32::from(kind >= 2);
    if search_version != wanted_version {
        return Err(format!(
            "byte 104: found search version {search_version}, wanted {wanted_version}"
        ));
    }
    match kind {
        0 => probing(bytes, order, &counts, start),
        2..=5 => Trie::parse(bytes, &counts, start, kind == 3 || kind == 5, kind >= 4),
        other => Err(format!(
            "byte 96: found kind {other}, wanted 0 (probing) or 2 to 5 (tries)"
        )),
    }
}

/// A hash table in a file.
#[derive(Debug)]
struct Table {
    start: usize,
    buckets: u64,
    entry: usize,
}

impl Table {
    /// Of `count` entries; returns where it ends.
    fn at(
        start: usize,
        count: u64,
        multiplier: f32,
        entry: usize,
    ) -> Result<(Table, usize), String> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "KenLM's own arithmetic"
        )]
        let wanted = (multiplier * count as f32) as u64;
        let buckets = wanted.max(count + 1);
        let bytes = buckets
            .checked_mul(entry as u64)
            .ok_or("found a table without end, wanted a smaller one")?;
        let end = start
            .checked_add(size(bytes)?)
            .ok_or("found a table without end, wanted a smaller one")?;
        Ok((
            Table {
                start,
                buckets,
                entry,
            },
            end,
        ))
    }

    /// Where the value of a key lies.
    fn find(&self, bytes: &[u8], key: u64) -> Option<usize> {
        let mut bucket = key % self.buckets;
        // a damaged file may have no free bucket
        for _ in 0..self.buckets {
            let at = self.start + usize::try_from(bucket).ok()? * self.entry;
            match u64_at(bytes, at) {
                found if found == key => return Some(at + 8),
                0 => return None,
                _ => {
                    bucket = if bucket + 1 == self.buckets {
                        0
                    } else {
                        bucket + 1
                    }
                }
            }
        }
        None
    }
}

/// Probing hash tables.
#[derive(Debug)]
pub(crate) struct Probing {
    bytes: Vec<u8>,
    words: Table,
    unigrams: usize,
    bound: u64,
    /// Of orders 2 and up.
    tables: Vec<Table>,
}

fn probing(
    bytes: Vec<u8>,
    order: usize,
    counts: &[u64],
    start: usize,
) -> Result<(usize, Words, Search), String> {
    let multiplier = f32_at(&bytes, 92);
    if !(1.0..=1e6).contains(&multiplier) {
        return Err(format!(
            "byte 92: found probing multiplier {multiplier}, wanted 1 or more"
        ));
    }
    // version and bound stand before the table of words
    let (words, unigrams) = Table::at(start + 8, counts[0], multiplier, 12)?;
    let mut end = unigrams + size((counts[0] + 1) * 8)?;
    let mut tables = Vec::new();
    for (n, count) in (2..).zip(&counts[1..]) {
        let entry = if n == order { 12 } else { 16 };
        let (table, next) = Table::at(end, *count, multiplier, entry)?;
        tables.push(table);
        end = next;
    }
    if end > bytes.len() {
        return Err(format!(
            "byte {}: found the end, wanted {end} bytes of tables",
            bytes.len()
        ));
    }
    let search = Probing {
        bytes,
        words,
        unigrams,
        bound: counts[0] + 1,
        tables,
    };
    Ok((order, Words::InSearch, Search::Probing(search)))
}

impl Probing {
    fn weights(&self, at: usize, has_backoff: bool) -> Weights {
        Weights {
            // the sign says whether longer n-grams may follow; a log probability is negative
            prob: -f32_at(&self.bytes, at).abs(),
            backoff: if has_backoff {
                f32_at(&self.bytes, at + 4)
            } else {
                0.0
            },
        }
    }

    /// Number of a word.
    pub(super) fn word(&self, hash: u64) -> u32 {
        let found = self.words.find(&self.bytes, hash);
        found.map_or(0, |at| u32_at(&self.bytes, at))
    }

    pub(super) fn unigram(&self, word: u32) -> Option<Weights> {
        let known = u64::from(word) < self.bound;
        known.then(|| self.weights(self.unigrams + 8 * word as usize, true))
    }

    /// Of `n` words.
    pub(super) fn find(&self, n: usize, hash: u64) -> Option<Weights> {
        let table = self.tables.get(n - 2)?;
        let at = table.find(&self.bytes, hash)?;
        Some(self.weights(at, table.entry == 16))
    }
}

//! KenLM's probing hash tables.

use super::bits::{f32_at, size, u32_at, u64_at};
use super::weights::Weights;

/// A hash table in a file.
#[derive(Debug)]
struct Table {
    start: usize,
    buckets: u64,
    entry: usize,
}

impl Table {
    /// A table of `count` entries; also returns its end.
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

    /// Position of a key's value.
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
    /// Tables for orders 2 and up.
    tables: Vec<Table>,
}
pub(crate) fn probing(
    bytes: Vec<u8>,
    order: usize,
    counts: &[u64],
    start: usize,
) -> Result<Probing, String> {
    let multiplier = f32_at(&bytes, 92);
    if !(1.0..=1e6).contains(&multiplier) {
        return Err(format!(
            "byte 92: found probing multiplier {multiplier}, wanted 1 or more"
        ));
    }
    // version and bound precede the table of words
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
    Ok(Probing {
        bytes,
        words,
        unigrams,
        bound: counts[0] + 1,
        tables,
    })
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

    /// Looks up an n-gram of `n` words.
    pub(super) fn find(&self, n: usize, hash: u64) -> Option<Weights> {
        let table = self.tables.get(n - 2)?;
        let at = table.find(&self.bytes, hash)?;
        Some(self.weights(at, table.entry == 16))
    }
}

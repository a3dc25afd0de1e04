//! KenLM's binary files, format version 5: header, vocabulary, n-grams in probing hash tables or a trie (`trie.rs`).
//!
//! Header: the magic text padded to 56 bytes, test numbers to byte 88, then order (u8 at 88), probing multiplier (f32 at
//! 92), kind (u32 at 96), whether words follow (u8 at 100), search version (u32 at 104), counts of each order (u64 from
//! 108 on), padded to 8 bytes. Probing tables hold 64-bit hashes, 0 for free, at `hash mod buckets` or behind.

use super::bits::{u32_at, u64_at};
use super::probing::probing;
use super::search::Search;
use super::trie::Trie;
use super::weights::{MOST_ORDER, Words};

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
    // every n-gram takes at least one byte: larger counts would overflow the arithmetic below
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
        0 => {
            let tables = probing(bytes, order, &counts, start)?;
            Ok((order, Words::InSearch, Search::Probing(tables)))
        }
        2..=5 => {
            let (is_quantized, is_compressed) = (kind == 3 || kind == 5, kind >= 4);
            let (words, trie) = Trie::parse(bytes, &counts, start, is_quantized, is_compressed)?;
            Ok((order, words, Search::Trie(trie)))
        }
        other => Err(format!(
            "byte 96: found kind {other}, wanted 0 (probing) or 2 to 5 (tries)"
        )),
    }
}

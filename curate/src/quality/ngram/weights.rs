//! Weights and words of an n-gram model, and the hashes that KenLM uses as keys.

use rustc_hash::FxHashMap;

/// Words of an n-gram at most.
pub(crate) const MOST_ORDER: usize = 16;

/// KenLM's log probability of unknown words in a model without `<unk>`.
pub(crate) const NO_UNKNOWN: f32 = -100.0;

/// log10 probability and log10 backoff weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weights {
    pub(crate) prob: f32,
    pub(crate) backoff: f32,
}

/// Entries of an order of a trie, from `begin` to before `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Location of the extensions to the left of the n-grams that end in some words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Hash(u64),
    Range(Entries),
}

/// Numbers of words; 0 is the unknown word.
#[derive(Debug)]
pub(crate) enum Words {
    Map(FxHashMap<u64, u32>),
    /// Sorted hashes: the place of one is its number less one.
    Sorted(Vec<u64>),
    /// In a table beside the n-grams.
    InSearch,
}

/// KenLM's hash of an n-gram that grows to the left.
pub(crate) fn combine(hash: u64, word: u32) -> u64 {
    let word = (u64::from(word) + 1).wrapping_mul(17_894_857_484_156_487_943);
    hash.wrapping_mul(8_978_948_897_894_561_157) ^ word
}

/// MurmurHash64A (Appleby 2008) with seed 0: KenLM's hash of words.
pub(crate) fn murmur64a(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0u64, |k, b| k << 8 | u64::from(*b));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

//! Lookup interface of an n-gram model: words, and n-grams that grow to the left.

use rustc_hash::FxHashMap;

use super::probing::Probing;
use super::trie::Trie;
use super::weights::{Node, Weights, combine};

/// N-grams with their weights.
#[derive(Debug)]
pub(crate) enum Search {
    /// Tables of orders 1, 2, and so on, by hash.
    Maps(Vec<FxHashMap<u64, Weights>>),
    Probing(Probing),
    Trie(Trie),
}

impl Search {
    pub(crate) fn unigram(&self, word: u32) -> Option<(Weights, Node)> {
        match self {
            Search::Maps(maps) => {
                let weights = maps.first()?.get(&u64::from(word))?;
                Some((*weights, Node::Hash(u64::from(word))))
            }
            Search::Probing(tables) => {
                let weights = tables.unigram(word)?;
                Some((weights, Node::Hash(u64::from(word))))
            }
            Search::Trie(trie) => trie.unigram(word),
        }
    }

    /// The n-gram of `matched` words, which is `node`, with one more word to the left.
    pub(crate) fn extend(&self, matched: usize, node: Node, word: u32) -> Option<(Weights, Node)> {
        match (self, node) {
            (Search::Maps(maps), Node::Hash(hash)) => {
                let hash = combine(hash, word);
                let weights = maps.get(matched)?.get(&hash)?;
                Some((*weights, Node::Hash(hash)))
            }
            (Search::Probing(tables), Node::Hash(hash)) => {
                let hash = combine(hash, word);
                let weights = tables.find(matched + 1, hash)?;
                Some((weights, Node::Hash(hash)))
            }
            (Search::Trie(trie), Node::Range(range)) => trie.extend(matched, range, word),
            _ => None,
        }
    }
}

//! One word's bytes to ids: the pair of the lowest rank is merged first, the leftmost among equals, until none is left.
//!
//! Paper: Sennrich et al. 2016, arXiv:1508.07909. Short words rescan an array of ranks after every merge; long ones keep
//! a linked list and a heap, O(n log n): a megabyte without a space takes a fraction of a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Words up to this many bytes rescan.
const SHORT: usize = 48;
/// No pair, no neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Pair {
    left: u32,
    right: u32,
    rank: u32,
    id: u32,
}

const EMPTY: Pair = Pair {
    left: NONE,
    right: NONE,
    rank: NONE,
    id: NONE,
};

/// Ranks of pairs, open addressing at most half full.
pub(super) struct Pairs {
    slots: Vec<Pair>,
    used: usize,
    shift: u32,
    of_byte: [u32; 256],
}

impl Pairs {
    /// No pairs yet; `of_byte` are the ids of the single bytes.
    pub(super) fn new(of_byte: [u32; 256], capacity: usize) -> Pairs {
        let size = (2 * capacity).next_power_of_two().max(16);
        Pairs {
            slots: vec![EMPTY; size],
            used: 0,
            shift: 64 - size.trailing_zeros(),
            of_byte,
        }
    }

    /// Adds a pair, or gives it another rank.
    pub(super) fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        if 2 * self.used >= self.slots.len() {
            let mut larger = Pairs::new(self.of_byte, self.slots.len());
            for p in self.slots.iter().filter(|p| p.id != NONE) {
                larger.insert(p.left, p.right, p.rank, p.id);
            }
            *self = larger;
        }
        let mut at = self.first(left, right);
        while self.slots[at].id != NONE
            && (self.slots[at].left, self.slots[at].right) != (left, right)
        {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.used += usize::from(self.slots[at].id == NONE);
        self.slots[at] = Pair {
            left,
            right,
            rank,
            id,
        };
    }

    #[inline]
    fn first(&self, left: u32, right: u32) -> usize {
        let key = u64::from(left) << 32 | u64::from(right);
        let mixed = (key ^ key >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
        let at = (mixed >> self.shift) as usize;
        at
    }

    /// Rank and id of a pair; rank `NONE` if it does not merge.
    #[inline]
    fn get(&self, left: u32, right: u32) -> (u32, u32) {
        let mut at = self.first(left, right);
        loop {
            let slot = &self.slots[at];
            if (slot.left, slot.right) == (left, right) || slot.id == NONE {
                return (slot.rank, slot.id);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct Merger {
    /// Ids of the parts; after `merge` those of the word.
    ids: Vec<u32>,
    /// Rank of each part and the next.
    ranks: Vec<u32>,
    /// What they become.
    merged: Vec<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
    heap: BinaryHeap<Reverse<u64>>,
}

impl Merger {
    /// Ids of `word`.
    pub(super) fn merge(&mut self, pairs: &Pairs, word: &[u8]) -> &[u32] {
        self.ids.clear();
        self.ids
            .extend(word.iter().map(|b| pairs.of_byte[usize::from(*b)]));
        self.ranks.clear();
        self.merged.clear();
        for two in self.ids.windows(2) {
            let (rank, id) = pairs.get(two[0], two[1]);
            self.ranks.push(rank);
            self.merged.push(id);
        }
        if word.len() <= SHORT {
            self.rescan(pairs);
        } else {
            self.queue(pairs);
        }
        &self.ids
    }

    /// `id` alone, as `merge` gives it.
    pub(super) fn single(&mut self, id: u32) -> &[u32] {
        self.ids.clear();
        self.ids.push(id);
        &self.ids
    }

    fn rescan(&mut self, pairs: &Pairs) {
        let (ids, ranks, merged) = (&mut self.ids, &mut self.ranks, &mut self.merged);
        while ids.len() > 1 {
            let (mut at, mut lowest) = (0, NONE);
            for (i, rank) in ranks.iter().enumerate() {
                if *rank < lowest {
                    (at, lowest) = (i, *rank);
                }
            }
            if lowest == NONE {
                break;
            }
            ids[at] = merged[at];
            ids.remove(at + 1);
            ranks.remove(at);
            merged.remove(at);
            if at < ranks.len() {
                (ranks[at], merged[at]) = pairs.get(ids[at], ids[at + 1]);
            }
            if at > 0 {
                (ranks[at - 1], merged[at - 1]) = pairs.get(ids[at - 1], ids[at]);
            }
        }
    }

    fn queue(&mut self, pairs: &Pairs) {
        let parts = self.ids.len();
        // a word that is longer than the numbers reach would be 4 GiB
        let number = |at: usize| u32::try_from(at).unwrap_or(NONE);
        self.before.clear();
        self.after.clear();
        self.before
            .extend((0..parts).map(|i| number(i.wrapping_sub(1))));
        self.after.extend((1..parts).map(number));
        self.after.push(NONE);
        // the last part has no next one
        self.ranks.push(NONE);
        self.merged.push(NONE);
        let entry = |rank: u32, at: usize| Reverse(u64::from(rank) << 32 | u64::from(number(at)));
        self.heap.clear();
        let known = self.ranks.iter().enumerate().filter(|(_, r)| **r != NONE);
        self.heap.extend(known.map(|(at, rank)| entry(*rank, at)));
        while let Some(Reverse(lowest)) = self.heap.pop() {
            let (at, rank) = ((lowest & 0xffff_ffff) as usize, lowest >> 32);
            // entries of parts that have changed since are left in the heap
            if u64::from(self.ranks[at]) != rank {
                continue;
            }
            let gone = self.after[at] as usize;
            let next = self.after[gone];
            self.ids[at] = self.merged[at];
            self.ids[gone] = NONE;
            self.ranks[gone] = NONE;
            self.after[at] = next;
            self.ranks[at] = NONE;
            if next != NONE {
                self.before[next as usize] = number(at);
                self.rank(pairs, at, next as usize);
            }
            let previous = self.before[at];
            if previous != NONE {
                self.rank(pairs, previous as usize, at);
            }
        }
        self.ids.retain(|id| *id != NONE);
    }

    /// Looks up the pair of the parts `at` and `next` and queues it.
    fn rank(&mut self, pairs: &Pairs, at: usize, next: usize) {
        let (rank, id) = pairs.get(self.ids[at], self.ids[next]);
        (self.ranks[at], self.merged[at]) = (rank, id);
        if rank != NONE {
            self.heap.push(Reverse(u64::from(rank) << 32 | at as u64));
        }
    }
}

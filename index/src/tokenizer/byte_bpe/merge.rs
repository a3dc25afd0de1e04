//! BPE merging of one word: the pair of the lowest rank is merged first, the leftmost among equals, until none is
//! left.
//!
//! Paper: Sennrich et al. 2016, arXiv:1508.07909. Words of up to 64 bytes keep their parts in place, mark the living ones
//! in one number and rescan the ranks after every merge; longer ones keep a linked list and a heap, O(n log n): a
//! megabyte without a space takes a fraction of a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Words up to this many bytes are merged by rescanning: their parts are the bits of a u64.
const SHORT: usize = 64;
/// No pair, no neighbour.
const NONE: u32 = u32::MAX;
/// Bits of an id and of a rank, so that two ids and a rank fit in 64 bits.
const ID_BITS: u32 = 21;
const RANK_BITS: u32 = 22;
/// Pairs that may share a bucket.
const BUCKET: usize = 4;

/// Hash table of merges: pair to rank and merged id.
///
/// A bucket is 32 bytes and is searched without a branch: whether two parts merge is not predictable, and most
/// lookups miss. Overflow goes to the next bucket.
pub(super) struct Pairs {
    /// (left, right, rank) from the high bits down; all ones if free.
    buckets: Vec<[u64; BUCKET]>,
    shift: u32,
    used: usize,
    /// Merged id of each rank.
    merged: Vec<u32>,
    /// In most vocabularies ids follow merge order: as long as that holds, the id is this plus the rank.
    offset: Option<u32>,
    of_byte: [u32; 256],
}

const FREE: u64 = u64::MAX;

/// Whether an id has few enough bits. The highest is excluded: a pair of it is the mark of a free slot.
fn fits(id: u32) -> Result<(), String> {
    let most = (1 << ID_BITS) - 1;
    if id < most {
        return Ok(());
    }
    Err(format!("found token {id}, wanted ids below {most}"))
}

impl Pairs {
    /// No pairs yet; `of_byte` are the ids of the single bytes.
    ///
    /// # Errors
    /// If an id has too many bits; a reason.
    pub(super) fn new(of_byte: [u32; 256]) -> Result<Pairs, String> {
        of_byte.into_iter().try_for_each(fits)?;
        Ok(Pairs {
            buckets: vec![[FREE; BUCKET]; 2],
            shift: 63,
            used: 0,
            merged: Vec::new(),
            offset: None,
            of_byte,
        })
    }

    /// Adds a pair with the next rank. A repeated pair moves here: its last rank counts.
    ///
    /// # Errors
    /// If an id or the rank has too many bits; a reason.
    pub(super) fn push(&mut self, left: u32, right: u32, id: u32) -> Result<(), String> {
        let most = (1 << RANK_BITS) - 1;
        if self.merged.len() >= most {
            return Err(format!("found more than {most} merges"));
        }
        fits(id)?;
        let rank = number(self.merged.len());
        let offset = id.checked_sub(rank);
        self.offset = offset.filter(|o| rank == 0 || self.offset == Some(*o));
        self.merged.push(id);
        self.push_alike(left, right)
    }

    /// Merged id of a rank, without a memory access if possible.
    #[inline(always)]
    fn becomes(&self, rank: u32) -> u32 {
        match self.offset {
            Some(offset) => rank + offset,
            None => self.merged[rank as usize],
        }
    }

    /// Adds a pair that becomes the same token as the pair pushed last, at the same rank.
    ///
    /// # Errors
    /// If an id has too many bits; a reason.
    pub(super) fn push_alike(&mut self, left: u32, right: u32) -> Result<(), String> {
        fits(left)?;
        fits(right)?;
        if let Some(rank) = self.merged.len().checked_sub(1) {
            self.insert(left, right, rank as u64);
        }
        Ok(())
    }

    fn insert(&mut self, left: u32, right: u32, rank: u64) {
        // dense: the most searched buckets should stay in the core's own cache
        if 5 * self.used >= 4 * self.buckets.len() * BUCKET {
            self.used = 0;
            let larger = vec![[FREE; BUCKET]; self.buckets.len() * 2];
            self.shift -= 1;
            let old = std::mem::replace(&mut self.buckets, larger);
            for slot in old.into_iter().flatten().filter(|s| *s != FREE) {
                self.put(slot);
            }
        }
        self.put((u64::from(left) << ID_BITS | u64::from(right)) << RANK_BITS | rank);
    }

    fn put(&mut self, slot: u64) {
        let key = slot >> RANK_BITS;
        let mut at = self.bucket(key);
        loop {
            let bucket = &mut self.buckets[at];
            let place = bucket
                .iter()
                .position(|s| s >> RANK_BITS == key || *s == FREE);
            if let Some(place) = place {
                self.used += usize::from(bucket[place] == FREE);
                bucket[place] = slot;
                return;
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> usize {
        let mixed = (key ^ key >> ID_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the number of buckets"
        )]
        let at = (mixed >> self.shift) as usize;
        at
    }

    /// Rank of a pair; `NONE` if it does not merge.
    #[inline(always)]
    fn rank(&self, left: u32, right: u32) -> u32 {
        let key = u64::from(left) << ID_BITS | u64::from(right);
        let mut at = self.bucket(key);
        loop {
            let bucket = &self.buckets[at];
            let mut rank = NONE;
            for slot in bucket {
                let of_slot = (*slot & ((1 << RANK_BITS) - 1)) as u32;
                rank = if slot >> RANK_BITS == key {
                    of_slot
                } else {
                    rank
                };
            }
            // slots fill from the first on: a free last one ends the search
            if rank != NONE || bucket[BUCKET - 1] == FREE {
                return rank;
            }
            at = (at + 1) & (self.buckets.len() - 1);
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
    before: Vec<u32>,
    after: Vec<u32>,
    heap: BinaryHeap<Reverse<u64>>,
}

impl Merger {
    /// Ids of `word`.
    pub(super) fn merge(&mut self, pairs: &Pairs, word: &[u8]) -> &[u32] {
        self.ids.clear();
        if word.len() <= SHORT {
            self.rescan(pairs, word);
        } else {
            let bytes = word.iter().map(|b| pairs.of_byte[usize::from(*b)]);
            self.ids.extend(bytes);
            self.queue(pairs);
        }
        &self.ids
    }

    /// `id` alone, in the form of `merge`'s result.
    pub(super) fn single(&mut self, id: u32) -> &[u32] {
        self.ids.clear();
        self.ids.push(id);
        &self.ids
    }

    /// Appends the ids of a word of at most `SHORT` bytes.
    fn rescan(&mut self, pairs: &Pairs, word: &[u8]) {
        /// Rank and place of a part that merges with the next one, or this. Signed: SSE2 compares no others.
        const NEVER: i32 = i32::MAX;
        let order_of = |left: u32, right: u32, at: usize| {
            let rank = pairs.rank(left, right);
            let order = rank.cast_signed() << 6 | number(at).cast_signed();
            if rank == NONE { NEVER } else { order }
        };
        let mut ids = [0u32; SHORT];
        let mut order = [NEVER; SHORT];
        for (id, byte) in ids.iter_mut().zip(word) {
            *id = pairs.of_byte[usize::from(*byte)];
        }
        for (at, two) in ids[..word.len()].windows(2).enumerate() {
            order[at] = order_of(two[0], two[1], at);
        }
        // parts that are still there
        let mut alive = !0u64 >> (SHORT - word.len().clamp(1, SHORT));
        let groups = word.len().div_ceil(16);
        loop {
            let mut least = [NEVER; 16];
            for group in &order.as_chunks::<16>().0[..groups] {
                for (l, o) in least.iter_mut().zip(group) {
                    *l = if *o < *l { *o } else { *l };
                }
            }
            let lowest = least.into_iter().fold(NEVER, i32::min);
            if lowest == NEVER {
                break;
            }
            let at = (lowest & 63) as usize;
            ids[at] = pairs.becomes((lowest >> 6).cast_unsigned());
            // of the parts above `at`, the first is removed and the second becomes the neighbour
            let above = alive & (!1 << at);
            let gone = above.trailing_zeros() as usize & 63;
            alive &= !(1 << gone);
            order[gone] = NEVER;
            let behind = above & above.wrapping_sub(1);
            let next = behind.trailing_zeros() as usize & 63;
            let with_next = order_of(ids[at], ids[next], at);
            order[at] = if behind == 0 { NEVER } else { with_next };
            let before = alive & !(!0 << at);
            if before != 0 {
                let previous = 63 - before.leading_zeros() as usize;
                order[previous] = order_of(ids[previous], ids[at], previous);
            }
        }
        while alive != 0 {
            self.ids.push(ids[alive.trailing_zeros() as usize & 63]);
            alive &= alive - 1;
        }
    }

    /// Merges the parts in `ids`.
    fn queue(&mut self, pairs: &Pairs) {
        let parts = self.ids.len();
        self.ranks.clear();
        let twos = self.ids.windows(2);
        self.ranks
            .extend(twos.map(|two| pairs.rank(two[0], two[1])));
        self.before.clear();
        self.after.clear();
        self.before
            .extend((0..parts).map(|i| number(i.wrapping_sub(1))));
        self.after.extend((1..parts).map(number));
        self.after.push(NONE);
        // the last part has no next one
        self.ranks.push(NONE);
        let entry = |rank: u32, at: usize| Reverse(u64::from(rank) << 32 | at as u64);
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
            self.ids[at] = pairs.becomes(self.ranks[at]);
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
        let rank = pairs.rank(self.ids[at], self.ids[next]);
        self.ranks[at] = rank;
        if rank != NONE {
            self.heap.push(Reverse(u64::from(rank) << 32 | at as u64));
        }
    }
}

/// A position in a word. Texts are below 4 GiB.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

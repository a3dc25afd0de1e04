//! Word cache of an encoder: words and their ids, kept per thread across documents. Bounded and exact: a hit
//! compares all bytes.
//!
//! Words of up to 15 bytes are a 16-byte number (bytes, zeros, length), found with two comparisons in one cache line:
//! no byte loop, no branch on the length. Longer ones are compared as slices. The table grows with use; once it is at
//! its bound, a set keeps its first word (in natural text the more frequent one comes first) and replaces the second.

use super::masks;

/// Bytes of the longest word stored as a 16-byte number.
pub(super) const SHORT: usize = 15;
/// Bytes of the longest cached word.
pub(super) const LONG: usize = 160;
/// Ids stored inline beside the word; longer lists are in the arena.
const INLINE: usize = 3;
/// Maximum number of slots: 16 MiB of short words, 6 MiB of long ones.
const MOST_SETS: usize = 1 << 18;
const MOST_LONG: usize = 1 << 18;
/// Entries of the arenas at which the cache is cleared.
const MOST_ARENA: usize = 1 << 23;

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Slot {
    low: u64,
    high: u64,
    ids: [u32; INLINE],
    /// Number of ids; above `INLINE` they are in the arena from `ids[0]` on.
    count: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set([Slot; 2]);

#[derive(Clone, Copy, Default)]
struct LongSlot {
    hash: u64,
    bytes: u32,
    length: u32,
    ids: u32,
    count: u32,
}

/// A short word as a number.
#[derive(Clone, Copy, Default)]
pub(super) struct Key {
    low: u64,
    high: u64,
}

/// Ids of `text[start..start + length]`'s words; see the file's head.
pub(super) struct Cache {
    sets: Vec<Set>,
    shift: u32,
    used: usize,
    long: Vec<LongSlot>,
    long_used: usize,
    bytes: Vec<u8>,
    ids: Vec<u32>,
}

const MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut length = 1;
    while length < 16 {
        // the length is in the 16th byte, which a short word never uses
        masks[length] = !0 >> (128 - 8 * length);
        length += 1;
    }
    masks
};

impl Key {
    /// The word of `length` bytes, 1 to `SHORT`, at `text[start]`.
    #[inline(always)]
    pub(super) fn new(text: &[u8], start: usize, length: usize) -> Key {
        let sixteen = match text
            .get(start..start + 16)
            .and_then(|b| b.first_chunk::<16>())
        {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => padded(&text[start..]),
        };
        let word = sixteen & MASKS[length & 15];
        #[expect(clippy::cast_possible_truncation, reason = "takes the halves apart")]
        Key {
            low: word as u64,
            high: (word >> 64) as u64 | (length as u64) << 56,
        }
    }

    #[inline(always)]
    fn hash(self) -> u64 {
        let product = u128::from(self.low ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(self.high ^ 0xd6e8_feb8_6659_fd93);
        #[expect(clippy::cast_possible_truncation, reason = "folds the halves")]
        let folded = product as u64 ^ (product >> 64) as u64;
        folded
    }
}

#[cold]
fn padded(rest: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = rest.len().min(16);
    bytes[..length].copy_from_slice(&rest[..length]);
    u128::from_le_bytes(bytes)
}

impl Cache {
    pub(super) fn new() -> Cache {
        let sets = 1 << 10;
        Cache {
            sets: vec![Set::default(); sets],
            shift: 64 - sets.trailing_zeros(),
            used: 0,
            long: vec![LongSlot::default(); 1 << 10],
            long_used: 0,
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// A placeholder without capacity, left in an encoder whose cache has been returned.
    pub(super) fn empty() -> Cache {
        Cache {
            sets: Vec::new(),
            shift: 63,
            used: 0,
            long: Vec::new(),
            long_used: 0,
            bytes: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Slot of a short word, present or not: an argument of `find` and `keep`, computed early so that it can be
    /// prefetched.
    #[inline(always)]
    pub(super) fn place(&self, key: Key) -> usize {
        let at = self.set_of(key);
        masks::prefetch(&self.sets, at);
        at
    }

    #[inline(always)]
    fn set_of(&self, key: Key) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below the number of sets")]
        let at = (key.hash() >> self.shift) as usize;
        at
    }

    /// Writes the ids of a known short word to `out[at..]` and returns their number; 0 if it is not known.
    ///
    /// `out` has room for `SHORT` ids from `at` on, and up to `INLINE` of them are overwritten with anything.
    #[inline(always)]
    pub(super) fn find(&self, key: Key, place: usize, out: &mut [u32], at: usize) -> usize {
        let Some(Set(set)) = self.sets.get(place) else {
            return 0;
        };
        let is = |slot: &Slot| (slot.low ^ key.low) | (slot.high ^ key.high) == 0;
        let slot = if is(&set[1]) { &set[1] } else { &set[0] };
        if !is(slot) {
            return 0;
        }
        let count = slot.count as usize;
        if let Some(out) = out.get_mut(at..at + INLINE) {
            out.copy_from_slice(&slot.ids);
        }
        if count > INLINE {
            let from = slot.ids[0] as usize;
            // always copy the maximum: a copy of constant size needs no call
            let known = self.ids.get(from..from + SHORT);
            if let (Some(ids), Some(out)) = (known, out.get_mut(at..at + SHORT)) {
                out.copy_from_slice(ids);
            }
        }
        count
    }

    /// Keeps a short word that `find` did not know.
    pub(super) fn keep(&mut self, key: Key, ids: &[u32]) {
        self.make_room(0, ids.len());
        if self.used >= self.sets.len() && self.sets.len() < MOST_SETS {
            self.grow();
        }
        let mut slot = Slot {
            low: key.low,
            high: key.high,
            ids: [0; INLINE],
            count: number(ids.len()),
        };
        match slot.ids.get_mut(..ids.len()) {
            Some(beside) => beside.copy_from_slice(ids),
            None => {
                slot.ids[0] = number(self.ids.len());
                self.ids.extend_from_slice(ids);
                self.ids
                    .extend([0; SHORT].iter().take(SHORT - ids.len().min(SHORT)));
            }
        }
        self.put(key, slot);
    }

    fn put(&mut self, key: Key, slot: Slot) {
        let at = self.set_of(key);
        let set = &mut self.sets[at].0;
        let place = usize::from(set[0].count > 0);
        self.used += usize::from(set[place].count == 0);
        set[place] = slot;
    }

    fn grow(&mut self) {
        let size = (self.sets.len() * 4).min(MOST_SETS);
        let old = std::mem::replace(&mut self.sets, vec![Set::default(); size]);
        self.shift = 64 - size.trailing_zeros();
        self.used = 0;
        // first words first: they keep their places
        for place in 0..2 {
            for set in &old {
                let slot = set.0[place];
                if slot.count > 0 {
                    let (low, high) = (slot.low, slot.high);
                    self.put(Key { low, high }, slot);
                }
            }
        }
    }

    /// Range of the ids of a cached long word, for `long_ids`.
    pub(super) fn find_long(&self, word: &[u8], hash: u64) -> Option<std::ops::Range<usize>> {
        let first = self.long_place(hash);
        [first, first ^ 1].into_iter().find_map(|at| {
            let slot = &self.long[at];
            let from = slot.bytes as usize;
            let known = slot.hash == hash
                && slot.length as usize == word.len()
                && self.bytes.get(from..from + word.len()) == Some(word);
            let from = slot.ids as usize;
            known.then_some(from..from + slot.count as usize)
        })
    }

    /// Ids at a place that `find_long` gave.
    pub(super) fn long_ids(&self, at: std::ops::Range<usize>) -> &[u32] {
        self.ids.get(at).unwrap_or_default()
    }

    /// Keeps a long word that `find_long` did not know.
    pub(super) fn keep_long(&mut self, word: &[u8], hash: u64, ids: &[u32]) {
        self.make_room(word.len(), ids.len());
        if 2 * self.long_used >= self.long.len() && self.long.len() < MOST_LONG {
            let old = std::mem::take(&mut self.long);
            self.long = vec![LongSlot::default(); old.len() * 4];
            self.long_used = 0;
            for slot in old.into_iter().filter(|s| s.count > 0) {
                self.put_long(slot);
            }
        }
        let slot = LongSlot {
            hash,
            bytes: number(self.bytes.len()),
            length: number(word.len()),
            ids: number(self.ids.len()),
            count: number(ids.len()),
        };
        self.bytes.extend_from_slice(word);
        self.ids.extend_from_slice(ids);
        self.put_long(slot);
    }

    fn put_long(&mut self, slot: LongSlot) {
        let first = self.long_place(slot.hash);
        let place = if self.long[first].count == 0 {
            first
        } else {
            first ^ 1
        };
        self.long_used += usize::from(self.long[place].count == 0);
        self.long[place] = slot;
    }

    fn long_place(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table")]
        let at = hash as usize & (self.long.len() - 1);
        at
    }

    /// Clears the cache when the arenas are full: ids of replaced words are never freed singly.
    fn make_room(&mut self, bytes: usize, ids: usize) {
        let full = |held: usize, more: usize| held + more > MOST_ARENA;
        if full(self.bytes.len(), bytes) || full(self.ids.len(), ids) {
            self.bytes.clear();
            self.ids.clear();
            self.sets.fill(Set::default());
            self.long.fill(LongSlot::default());
            (self.used, self.long_used) = (0, 0);
        }
    }
}

/// Positions in arenas of at most `MOST_ARENA` entries and lengths of words.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

//! Hash table from 64-bit hashes to counts (open addressing), cleared in O(1).
//!
//! Used for duplicate lines and n-grams. Keys are hashes: two different items collide with probability n^2 / 2^64,
//! below 1e-9 for a document of 100 000 words.

/// Counts per key; cleared by bumping a generation.
pub(crate) struct HashCounts {
    slots: Vec<(u64, u32, u32)>,
    generation: u32,
    used: usize,
}

impl Default for HashCounts {
    fn default() -> Self {
        HashCounts {
            slots: vec![(0, 0, 0); 1 << 10],
            generation: 1,
            used: 0,
        }
    }
}

impl HashCounts {
    /// Empties the table and makes room for `items` keys.
    pub(crate) fn clear(&mut self, items: usize) {
        let wanted = (items * 2).next_power_of_two().max(1 << 10);
        self.used = 0;
        if wanted > self.slots.len() {
            self.slots = vec![(0, 0, 0); wanted];
            self.generation = 1;
        } else if self.generation == u32::MAX {
            self.slots.fill((0, 0, 0));
            self.generation = 1;
        } else {
            self.generation += 1;
        }
    }

    /// Adds one to `key` and returns its count before.
    #[inline]
    pub(crate) fn add(&mut self, key: u64) -> u32 {
        debug_assert!(
            self.used < self.slots.len(),
            "clear() was given too few items"
        );
        let mask = self.slots.len() - 1;
        // High bits, because keys may be multiples of powers of two.
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.1 != self.generation {
                *slot = (key, self.generation, 1);
                self.used += 1;
                return 0;
            }
            if slot.0 == key {
                slot.2 += 1;
                return slot.2 - 1;
            }
            at = (at + 1) & mask;
        }
    }

    /// The count of `key`.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.1 != self.generation {
                return 0;
            }
            if slot.0 == key {
                return slot.2;
            }
            at = (at + 1) & mask;
        }
    }
}

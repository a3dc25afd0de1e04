//! Arena allocator: one block of memory, cut into tensors on demand: the smallest free range that is large enough,
//! neighbours merged when they are freed (best fit; Knuth, TAOCP 1, sec. 2.5).
#![expect(unsafe_code, reason = "parts of one allocation")]

use crate::buffer::Buffer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The block and its free ranges.
pub(crate) struct Arena {
    whole: Arc<Buffer>,
    /// Free ranges: offset -> bytes. No two touch.
    free: BTreeMap<usize, usize>,
}

impl Arena {
    /// Returns an arena of this block.
    pub(crate) fn of(block: Buffer) -> Arena {
        Arena {
            free: BTreeMap::from([(0, block.bytes())]),
            whole: Arc::new(block),
        }
    }

    /// Returns a part of `bytes`, which come from `Buffer::round_up`, or `None` if no range is as large.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Buffer> {
        let fitting = self.free.iter().filter(|(_, len)| **len >= bytes);
        let (&offset, &len) = fitting.min_by_key(|(_, len)| **len)?;
        self.free.remove(&offset);
        if len > bytes {
            self.free.insert(offset + bytes, len - bytes);
        }
        // SAFETY: the range was free and is not any more, so no other part overlaps it; nobody else
        // has the whole.
        Some(unsafe { Buffer::part(&self.whole, offset, bytes) })
    }

    /// Takes back bytes `offset .. offset + bytes`; their buffer is gone or about to be.
    pub(crate) fn give(&mut self, buffer: Buffer, offset: usize) {
        let (mut start, mut end) = (offset, offset + buffer.bytes());
        drop(buffer);
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        #[test]
        fn parts_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 1_usize..9, 0_usize..20), 1..80),
        ) {
            let mut arena = Arena::of(Buffer::zeroed(64 * 40).unwrap());
            let mut live: Vec<Buffer> = Vec::new();
            for (takes, size, which) in steps {
                if takes {
                    live.extend(arena.take(64 * size));
                } else if !live.is_empty() {
                    let buffer = live.swap_remove(which % live.len());
                    let offset = buffer.offset().unwrap();
                    arena.give(buffer, offset);
                }
                let mut ranges: Vec<(usize, usize)> = live
                    .iter()
                    .map(|buffer| (buffer.offset().unwrap(), buffer.bytes()))
                    .chain(arena.free.iter().map(|(&offset, &len)| (offset, len)))
                    .collect();
                ranges.sort_unstable();
                let mut end = 0;
                for (offset, len) in ranges {
                    prop_assert_eq!(offset, end, "no gap, no overlap");
                    end = offset + len;
                }
                prop_assert_eq!(end, 64 * 40);
            }
            for buffer in live {
                let offset = buffer.offset().unwrap();
                arena.give(buffer, offset);
            }
            prop_assert_eq!(arena.free.len(), 1);
        }
    }

    #[test]
    fn a_part_outlives_its_arena() {
        let mut arena = Arena::of(Buffer::zeroed(128).unwrap());
        let mut part = arena.take(64).unwrap();
        assert!(arena.take(128).is_none());
        drop(arena);
        part.f32_mut(16)[15] = 2.0;
        assert_eq!(part.f32(16)[15], 2.0);
    }
}

//! Products of small operands that are already in the cache (`strip.rs`), one after another on one thread: by
//! vectors, or in tiles.
#![expect(unsafe_code, reason = "the operands are checked here, once for both")]

use super::bf16::perform;
use super::strip::Strip;
use super::tiles::strided::Held;
use super::{Isa, Numbers};

/// Computes products in one number format on the thread that created it, one after another: nothing else there may
/// use tiles while it lives.
pub(crate) struct Strips {
    isa: Isa,
    numbers: Numbers,
    tiles: Option<Held>,
}

impl Strips {
    pub(crate) fn new(isa: Isa, numbers: Numbers) -> Strips {
        Strips {
            isa,
            numbers,
            tiles: (numbers == Numbers::Bf16Tiles).then(|| Held::new(isa)),
        }
    }

    /// Multiplies on this thread.
    /// # Panics
    /// If an operand is too short; in tiles, if blocks are not whole or words of A not adjacent.
    pub(crate) fn multiply(&mut self, strip: Strip<'_>) {
        if strip.rows == 0 || strip.lanes == 0 {
            return;
        }
        strip.check();
        match &mut self.tiles {
            Some(tiles) => {
                strip.check_blocks();
                // SAFETY: `check` and `check_blocks` found all operands long enough and in whole steps.
                unsafe { tiles.multiply(strip) }
            }
            None => perform(self.isa, self.numbers.are_pairs(), strip),
        }
    }
}

//! Descriptor of dropout: the key of its random bits.

use crate::rng::philox;

/// Keeps these keys apart from those of other uses of the seed.
pub(crate) const DOMAIN: u32 = 0x6472_6f70;

/// Keeps the keys of heads apart from words of masks.
const HEAD_DOMAIN: u32 = 0x6865_6164;

/// Key of the random bits of one dropout in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Share of elements set to 0, from 0 to below 1.
    pub p: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step.
    pub step: u64,
    /// Number of the dropout in the model: the same on every rank.
    pub tensor: u32,
}

/// Position of a shard's first row and column in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Global number of the sequence of row 0.
    pub sequence: u64,
    /// Position of row 0 in its sequence, and of every further sequence's first row.
    pub position: u32,
    /// Rows per sequence: row r belongs to sequence `sequence + r / t`, position `position + r % t`.
    pub t: usize,
    /// Feature of column 0.
    pub feature: usize,
}

/// A `Dropout` prepared for the loops.
#[derive(Clone, Copy)]
pub(crate) struct Constants {
    pub(crate) key: [u32; 2],
    /// Words below are dropped.
    pub(crate) threshold: u32,
    pub(crate) scale: f32,
}

impl Dropout {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "words of 64-bit numbers; a float that is out of range saturates"
    )]
    pub(crate) fn constants(&self) -> Constants {
        let seed = [self.seed as u32, (self.seed >> 32) as u32];
        let step = [self.step as u32, (self.step >> 32) as u32];
        let [a, b, _, _] = philox(seed, [step[0], step[1], self.tensor, DOMAIN]);
        let p = f64::from(self.p);
        Constants {
            key: [a, b],
            threshold: (p * (1_u64 << 32) as f64).round() as u32,
            scale: (1.0 / (1.0 - p)) as f32,
        }
    }

    /// Like `constants` for the probabilities of an attention head: the key is again passed through
    /// Philox with counter (head, 0, 0, `HEAD_DOMAIN`). The position is the query's, the feature the key.
    pub(crate) fn of_head(&self, head: u32) -> Constants {
        let constants = self.constants();
        let [a, b, _, _] = philox(constants.key, [head, 0, 0, HEAD_DOMAIN]);
        Constants {
            key: [a, b],
            ..constants
        }
    }
}

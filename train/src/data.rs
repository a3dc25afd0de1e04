//! Samples in, token tensors out. Training never opens a data file: the samples come through a
//! trait, already in the order in which they are to be used.

use std::error::Error as StdError;
use std::ops::Range;

use kernels::{DType, Device, Tensor};

use crate::error::{Error, OnRank, Result};
use crate::mesh::Place;
use crate::plan::Plan;

/// Sequences of tokens by their place in the global order (0, 1, 2, ...: the order of Megatron's
/// `single` sampler). Called from several threads at once.
pub trait Samples: Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// True if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `tokens`, `seq_length + 1` of them, with sample `index`.
    ///
    /// # Errors
    /// Whatever keeps the source from giving the sample; it ends the run.
    fn read(
        &self,
        index: u64,
        tokens: &mut [u32],
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>>;
}

/// Token ids of some sequences: the first `seq_length` of each, or all but the first.
pub(crate) struct Batch {
    pub inputs: Tensor,
    pub targets: Tensor,
}

/// Reads samples `[first + range.start, first + range.end)`: of each sequence the tokens of the
/// context-parallel rank.
pub(crate) fn read(
    samples: &dyn Samples,
    first: u64,
    range: Range<usize>,
    plan: &Plan,
    (device, place): (&Device, &Place),
) -> Result<Batch> {
    let whole = plan.seq_length;
    let time = whole / place.cp;
    let from = place.cp_rank * time;
    let n = range.len() * time;
    let empty =
        || Tensor::empty(&[n], DType::U32, device).on_rank(place.rank(), "allocate a batch");
    let (mut inputs, mut targets) = (empty()?, empty()?);
    let mut tokens = vec![0; whole + 1];
    let rows = inputs
        .u32_mut()
        .chunks_mut(time)
        .zip(targets.u32_mut().chunks_mut(time));
    for (offset, (input, target)) in range.zip(rows) {
        let sample = first + offset as u64;
        samples
            .read(sample, &mut tokens)
            .map_err(|source| Error::Sample { sample, source })?;
        if let Some(position) = tokens
            .iter()
            .position(|&token| token as usize >= plan.vocab)
        {
            let (found, vocab) = (tokens[position], plan.vocab);
            return Err(Error::Token {
                sample,
                position,
                found,
                vocab,
            });
        }
        input.copy_from_slice(&tokens[from..from + time]);
        target.copy_from_slice(&tokens[from + 1..from + time + 1]);
    }
    Ok(Batch { inputs, targets })
}

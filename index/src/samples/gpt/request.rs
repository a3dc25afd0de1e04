//! Request for GPT samples, and the index arrays built for it: the sample order and sample starts.

use crate::array::Array;

/// Request for the samples of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// L, tokens per sample.
    pub seq_length: u64,
    /// N, samples; `None` is one epoch.
    pub samples: Option<u64>,
    /// Seed of the shuffles.
    pub seed: u32,
    /// A sample is L + 1 tokens, so that its labels are its tokens shifted by one. Megatron's
    /// `add_extra_token_to_sequence`, on by default there.
    pub extra_token: bool,
    /// Tokens that do not fill a last sample are dropped; if not, that sample is padded. Megatron pads only
    /// validation samples, and only on request.
    pub drop_last: bool,
}

impl Request {
    /// Megatron's defaults for `samples` samples (`None`: one epoch) of `seq_length` tokens.
    pub fn of(seq_length: u64, samples: Option<u64>, seed: u32) -> Request {
        Request {
            seq_length,
            samples,
            seed,
            extra_token: true,
            drop_last: true,
        }
    }

    /// x.
    pub(super) fn extra(&self) -> u64 {
        u64::from(self.extra_token)
    }
}

/// Parameters that fix the order of a part's samples, besides its documents and the request's seed and lengths: two
/// requests with equal orders have the same sample at every position that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Order {
    /// E.
    pub epochs: u64,
    /// The last epoch is shuffled separately.
    pub last_epoch_apart: bool,
}

/// Start of each sample, and one row past the last: (position in `document_index`, token offset).
#[derive(Debug, PartialEq)]
pub enum Starts {
    /// Megatron's choice while every number fits 31 bits.
    Narrow(Array<[i32; 2]>),
    /// Otherwise.
    Wide(Array<[i64; 2]>),
}

/// Sample numbers in the order of training.
#[derive(Debug, PartialEq)]
pub enum Places {
    /// Megatron's choice below 2^32 - 2 samples.
    Narrow(Array<u32>),
    /// Otherwise.
    Wide(Array<i64>),
}

impl Starts {
    /// Rows.
    pub fn rows(&self) -> usize {
        match self {
            Starts::Narrow(a) => a.len(),
            Starts::Wide(a) => a.len(),
        }
    }

    /// Row `i` as (position, offset).
    #[inline]
    pub fn row(&self, i: usize) -> (usize, u64) {
        match self {
            Starts::Narrow(a) => (
                a[i][0].unsigned_abs() as usize,
                a[i][1].unsigned_abs().into(),
            ),
            Starts::Wide(a) => (index(a[i][0].unsigned_abs()), a[i][1].unsigned_abs()),
        }
    }

    /// As Megatron stores them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Starts::Narrow(a) => a.bytes(),
            Starts::Wide(a) => a.bytes(),
        }
    }
}

impl Places {
    /// Samples.
    pub fn len(&self) -> usize {
        match self {
            Places::Narrow(a) => a.len(),
            Places::Wide(a) => a.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at place `k`.
    #[inline]
    pub fn at(&self, k: usize) -> usize {
        match self {
            Places::Narrow(a) => a[k] as usize,
            Places::Wide(a) => index(a[k].unsigned_abs()),
        }
    }

    /// As Megatron stores them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Places::Narrow(a) => a.bytes(),
            Places::Wide(a) => a.bytes(),
        }
    }
}

/// The numbers that follow from T and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Epochs and whether the last is apart.
    pub(crate) order: Order,
    /// Samples before the last epoch; the cut of `shuffle_index` if that is apart.
    pub(crate) before_last: u64,
    /// Samples.
    pub(crate) samples: u64,
    /// E T.
    pub(crate) tokens: u64,
}

impl Sizes {
    /// Sizes for `tokens` tokens per epoch; `None` if there are none but samples are requested, or numbers exceed
    /// 63 bits.
    pub(crate) fn of(tokens: u64, r: &Request) -> Option<Sizes> {
        let (l, x) = (r.seq_length, r.extra());
        let epochs = match r.samples {
            None | Some(0) => 1,
            Some(_) if tokens == 0 => return None,
            Some(n) => n.checked_mul(l)?.checked_add(x)?.div_ceil(tokens).max(1),
        };
        let all = epochs.checked_mul(tokens).filter(|t| *t < 1 << 62)?;
        let before_last = ((epochs - 1) * tokens).saturating_sub(x) / l;
        let last_epoch_apart = match r.samples {
            Some(n) if epochs > 1 => {
                let an_epoch = tokens.saturating_sub(x) / l;
                // int(0.80 * n) in f64, as Python computes it; n is far below 2^53
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 <= x < 2^53"
                )]
                let threshold = (0.80 * an_epoch as f64) as u64;
                n.saturating_sub(before_last) < threshold
            }
            _ => false,
        };
        let usable = all.saturating_sub(x);
        let samples = if r.drop_last {
            usable / l
        } else {
            // the C++ code divides in 32 bits, and the count must be its count
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 <= x < 2^62"
            )]
            let rounded = (usable as f32 / l as f32).ceil() as u64;
            rounded
        };
        Some(Sizes {
            order: Order {
                epochs,
                last_epoch_apart,
            },
            before_last: if last_epoch_apart {
                before_last
            } else {
                samples
            },
            samples,
            tokens: all,
        })
    }
}

/// Numbers that index arrays in memory fit `usize`.
pub(super) fn index(i: u64) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

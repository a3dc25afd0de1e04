//! Megatron's `cyclic` sampler: a new permutation for every epoch.
//!
//! M = micro-batch x ranks; an epoch has total - total mod M positions. Position p of epoch e: chunk c = p / M,
//! rank r = (p mod M) / micro-batch, lane l. Sharded: every rank owns a bucket of B = total / M x micro-batch
//! samples, and takes r B + perm_B\[c micro-batch + l\]; else perm\[c M + l ranks + r\] over all whole
//! micro-batches. perm is torch's randperm seeded with the epoch alone. Source: Megatron-LM `data_samplers.py`
//! (`MegatronPretrainingRandomSampler`); torch 2 `randperm` on the CPU. We differ: every rank takes the same number
//! of batches per epoch (unsharded, Megatron can give the first ranks one more, after which ranks disagree about
//! the epoch).

use crate::error::{Error, Result};
use crate::numpy_random::RandomState;
use std::sync::{Arc, Mutex};

/// `torch.randperm(n)` on the CPU with a generator seeded with `seed`.
pub fn randperm(n: u32, seed: u64) -> Vec<u32> {
    // torch keeps the low word of a seed
    let low = u32::try_from(seed & u64::from(u32::MAX)).unwrap_or(0);
    let mut random = RandomState::new(low);
    let mut out: Vec<u32> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        let left = n - i;
        let z = if n < u32::MAX / 20 {
            random.next_u32() % left
        } else {
            let high = u64::from(random.next_u32());
            let draw = high << 32 | u64::from(random.next_u32());
            u32::try_from(draw % u64::from(left)).unwrap_or(0)
        };
        out.swap(i as usize, (i + z) as usize);
    }
    out
}

/// The order, over all epochs.
pub struct Cyclic {
    total: u64,
    micro_batch: u64,
    ranks: u64,
    sharded: bool,
    /// Permutation of the epoch requested last.
    latest: Mutex<Option<(u64, Arc<Vec<u32>>)>>,
}

impl Cyclic {
    /// The order of `total` samples; `sharded` is Megatron's `data_sharding`, on by default there.
    ///
    /// # Errors
    /// `Blend` if there is not a micro-batch for every rank, or more samples than 32 bits count.
    pub fn new(total: u64, micro_batch: u64, ranks: u64, sharded: bool) -> Result<Cyclic> {
        let all = micro_batch.saturating_mul(ranks);
        if all == 0 || total < all || u32::try_from(total).is_err() {
            return Err(Error::Blend {
                field: "cyclic order",
                found: format!(
                    "{total} samples for {ranks} ranks with micro-batches of {micro_batch}"
                ),
                wanted: format!("{} to {} samples", all.max(1), u32::MAX),
            });
        }
        Ok(Cyclic {
            total,
            micro_batch,
            ranks,
            sharded,
            latest: Mutex::new(None),
        })
    }

    /// Places of an epoch.
    pub fn epoch_samples(&self) -> u64 {
        self.total - self.total % (self.micro_batch * self.ranks)
    }

    /// The sample at `place`, counted over all epochs.
    pub fn at(&self, place: u64) -> u64 {
        let (m, n) = (self.micro_batch, self.ranks);
        let (epoch, place) = (place / self.epoch_samples(), place % self.epoch_samples());
        let (chunk, within) = (place / (m * n), place % (m * n));
        let (rank, lane) = (within / m, within % m);
        let order = self.epoch(epoch);
        let at = |i: u64| u64::from(order[usize::try_from(i).unwrap_or(usize::MAX)]);
        if self.sharded {
            rank * self.bucket() + at(chunk * m + lane)
        } else {
            at(chunk * m * n + lane * n + rank)
        }
    }

    /// Samples that one rank owns if sharded.
    fn bucket(&self) -> u64 {
        self.total / (self.micro_batch * self.ranks) * self.micro_batch
    }

    fn epoch(&self, epoch: u64) -> Arc<Vec<u32>> {
        let mut latest = self.latest.lock().unwrap_or_else(|e| e.into_inner());
        match &*latest {
            Some((e, order)) if *e == epoch => order.clone(),
            _ => {
                let n = if self.sharded {
                    self.bucket()
                } else {
                    self.total - self.total % self.micro_batch
                };
                let order = Arc::new(randperm(u32::try_from(n).unwrap_or(u32::MAX), epoch));
                *latest = Some((epoch, order.clone()));
                order
            }
        }
    }
}

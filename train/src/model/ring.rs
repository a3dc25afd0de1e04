//! Ring attention (Liu et al. 2023, arXiv:2310.01889): the keys and values of context-parallel ranks are passed
//! from neighbour to neighbour. A rank holds its own part and one in transit, whatever the length of the sequence.
//!
//! A partial softmax may not be merged in any order, so every rank processes the parts in ascending order, which is
//! that of a single rank (`kernels::attention`). Step i is about part i: its owner sends it to both neighbours, and
//! each forwards it before computing with it, as far as a rank's rows may attend to it. A rank waits until its
//! neighbour has taken the part before it continues, so at most one part is in transit between two ranks. Sending
//! never blocks, and step i depends on no later step.
//!
//! In backward, each rank's contribution to the part's gradient is one aligned block of the tree over leaves of
//! query rows. Blocks are merged in pairs, each on the part's owner or the first rank of the pair, so that a rank
//! holds its own and one more.

use std::ops::Range;

use kernels::comm::{Collective, tensors};
use kernels::{DType, Tensor, reduce};

use crate::model::context::Context;

/// The context-parallel ranks and their masks, for attention.
pub(crate) struct Ring<'a> {
    group: &'a dyn Collective,
    /// Keys of a sequence on each rank.
    pub keys: usize,
    /// Whether a rank's rows attend to no later part.
    is_causal: bool,
    /// Keys a row attends to; 0: any number.
    window: usize,
}

impl<'a> Ring<'a> {
    /// For rows that attend to keys of their own sequence; `None` if each rank has all of them.
    pub(crate) fn of(cx: &Context<'a>, is_causal: bool, window: usize) -> Option<Ring<'a>> {
        (cx.groups.cp.size() > 1).then_some(Ring {
            group: cx.groups.cp,
            keys: cx.sequence.time,
            is_causal,
            window,
        })
    }

    /// For rows that attend to all keys of another sequence, whose context is `far`.
    pub(crate) fn across(far: &Context<'a>) -> Option<Ring<'a>> {
        Ring::of(far, false, 0)
    }

    /// Whether rows of `rank` may attend to keys of `part`; true for adjacent ranks around the part's own.
    fn sees(&self, rank: usize, part: usize) -> bool {
        let is_before = part <= rank || !self.is_causal;
        let is_near =
            self.window == 0 || (part + 1) * self.keys + self.window > rank * self.keys + 1;
        is_before && is_near
    }

    /// Runs this rank over all parts that it may attend to. `compute` receives the position of a part's first key
    /// and its keys and values, `[b * keys, kv_width]`; then `settle` receives the part's number and the result.
    pub(crate) fn travel<T>(
        &self,
        own: &Tensor,
        mut compute: impl FnMut(usize, &Tensor) -> kernels::Result<T>,
        mut settle: impl FnMut(usize, T) -> kernels::Result<()>,
    ) -> kernels::Result<()> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let mut room: Option<Tensor> = None;
        for part in (0..size).filter(|&part| self.sees(rank, part)) {
            let (from, to) = self.neighbours(part);
            let kv = match from {
                None => own,
                Some(from) => {
                    let kv = match &mut room {
                        Some(room) => room,
                        room => room.insert(Tensor::empty(own.dims(), DType::F32, own.device())?),
                    };
                    tensors::recv(self.group, from, kv.view_mut())?;
                    self.group.send(from, &[TAKEN])?;
                    kv
                }
            };
            for to in to.iter().flatten() {
                tensors::send(self.group, *to, kv.view())?;
            }
            let result = compute(part * self.keys, kv)?;
            for to in to.into_iter().flatten() {
                self.group.recv(to, &mut [0.0])?;
            }
            settle(part, result)?;
        }
        Ok(())
    }

    /// The rank that sends this rank a part (`None`: it is its own) and the ranks to forward it to.
    fn neighbours(&self, part: usize) -> (Option<usize>, [Option<usize>; 2]) {
        let (rank, size) = (self.group.rank(), self.group.size());
        let above = Some(rank + 1).filter(|&to| to < size && self.sees(to, part));
        let below = rank.checked_sub(1).filter(|&to| self.sees(to, part));
        match part.cmp(&rank) {
            std::cmp::Ordering::Less => (Some(rank - 1), [above, None]),
            std::cmp::Ordering::Equal => (None, [below, above]),
            std::cmp::Ordering::Greater => (Some(rank + 1), [below, None]),
        }
    }

    /// Sums the gradient of a part over the ranks that attend to it, in the tree over ranks; the part's owner gets
    /// the sum. Must be called in `travel`.
    pub(crate) fn sum_for(&self, part: usize, mine: Tensor) -> kernels::Result<Option<Tensor>> {
        self.merge(0..self.group.size(), part, mine)
    }

    /// The sum over some ranks, on one of them.
    fn merge(
        &self,
        ranks: Range<usize>,
        part: usize,
        mine: Tensor,
    ) -> kernels::Result<Option<Tensor>> {
        if ranks.len() == 1 {
            return Ok(Some(mine));
        }
        // the binary counter: a complete left side, the largest that leaves something
        let middle = ranks.start + (1 << (ranks.len() - 1).ilog2());
        let (left, right) = (ranks.start..middle, middle..ranks.end);
        let rank = self.group.rank();
        let half = if left.contains(&rank) {
            left.clone()
        } else {
            right.clone()
        };
        let sum = self.merge(half, part, mine)?;
        let (Some(a), Some(b)) = (self.holder(&left, part), self.holder(&right, part)) else {
            return Ok(sum);
        };
        let (to, from) = if self.holder(&ranks, part) == Some(a) {
            (a, b)
        } else {
            (b, a)
        };
        let Some(mut sum) = sum else { return Ok(None) };
        if rank == from {
            tensors::send(self.group, to, sum.view())?;
            return Ok(None);
        }
        let mut more = Tensor::empty(sum.dims(), DType::F32, sum.device())?;
        tensors::recv(self.group, from, more.view_mut())?;
        reduce::tree_add_into(&mut sum, &more)?;
        Ok(Some(sum))
    }

    /// The rank that gets the sum of `ranks`: the part's owner, or the first that attends to the part.
    fn holder(&self, ranks: &Range<usize>, part: usize) -> Option<usize> {
        if ranks.contains(&part) {
            return Some(part);
        }
        ranks.clone().find(|&rank| self.sees(rank, part))
    }
}

/// Acknowledges to a neighbour that its part has been taken.
const TAKEN: f32 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::Device;
    use kernels::comm::local;
    use kernels::testing::{random, tree};
    use std::thread;

    /// Runs `one` on every rank of a group.
    fn on_all<T: Send>(size: usize, one: impl Fn(&dyn Collective) -> T + Sync) -> Vec<T> {
        let one = &one;
        thread::scope(|scope| {
            let ranks = local::group(size).into_iter();
            let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || one(&rank))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_rank_meets_the_parts_it_sees_in_ascending_order_and_sums_are_the_trees() {
        let numbers = |rank: usize, part: usize| {
            let seed = (rank * 16 + part) as u64;
            random(&[6], seed, &Device::cpu()).unwrap()
        };
        for size in [2, 3, 4, 5, 8] {
            for (is_causal, window) in [(true, 0), (false, 0), (true, 3), (true, 9), (false, 5)] {
                let found = on_all(size, |group| {
                    let ring = Ring {
                        group,
                        keys: 4,
                        is_causal,
                        window,
                    };
                    let device = Device::cpu();
                    let own = numbers(group.rank(), 100);
                    let own = Tensor::from_f32(&[6], own.host::<f32>().unwrap(), &device).unwrap();
                    let one = device.used_bytes();
                    let (mut seen, mut sum) = (Vec::new(), None);
                    ring.travel(
                        &own,
                        |start, kv| {
                            seen.push(start / 4);
                            assert_eq!(
                                kv.host::<f32>().unwrap(),
                                numbers(start / 4, 100).host::<f32>().unwrap()
                            );
                            // its own and at most one more, at every step
                            assert!(device.used_bytes() <= 2 * one);
                            Ok(start / 4)
                        },
                        |part, computed| {
                            assert_eq!(part, computed);
                            let given = numbers(group.rank(), part);
                            if let Some(whole) = ring.sum_for(part, given)? {
                                assert_eq!(part, group.rank());
                                sum = Some(whole);
                            }
                            Ok(())
                        },
                    )
                    .unwrap();
                    (seen, sum.unwrap())
                });
                // by the definition: key by key and row by row
                let is_seen = |row: usize, key: usize| {
                    (key <= row || !is_causal) && (window == 0 || key + window > row)
                };
                let sees = |rank: usize, part: usize| {
                    (0..16).any(|i| is_seen(rank * 4 + i / 4, part * 4 + i % 4))
                };
                for (rank, (seen, sum)) in found.iter().enumerate() {
                    let want: Vec<usize> = (0..size).filter(|&part| sees(rank, part)).collect();
                    assert_eq!(*seen, want, "{size} {is_causal} {window} {rank}");
                    for (i, sum) in sum.host::<f32>().unwrap().iter().enumerate() {
                        let of = |other: usize| {
                            if sees(other, rank) {
                                numbers(other, rank).host::<f32>().unwrap()[i]
                            } else {
                                0.0
                            }
                        };
                        let want = tree((0..size).map(of));
                        assert_eq!(sum.to_bits(), want.to_bits(), "{size} {is_causal} {window}");
                    }
                }
            }
        }
    }
}

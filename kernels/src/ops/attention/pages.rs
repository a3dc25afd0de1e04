//! Attention over a paged key-value cache (PagedAttention, Kwon et al. 2023, arXiv:2309.06180): a batch has rows of
//! several sequences, each with any number of new rows, and every sequence's keys and values are in pages of one cache.
//! Sequences may share pages of what they have in common. A row has the bits of `forward` on its whole sequence.

use super::{Heads, OP_PAGED, Scores};
use crate::descriptor::attention::check_sinks;
use crate::descriptor::heads::check_rows;
use crate::descriptor::numbers::Numbers;
use crate::error::refuse;
use crate::{DType, Error, Result, Tensor};

/// The new rows of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct PagedRows<'a> {
    /// Rows in the batch, which follow those of the sequence before.
    pub rows: usize,
    /// Position of the first of them.
    pub position: usize,
    /// Numbers of the sequence's pages; page i has its positions from i * page on.
    pub pages: &'a [u32],
}

impl PagedRows<'_> {
    /// Row of the cache that has a position.
    pub(super) fn slot(&self, position: usize, page: usize) -> usize {
        self.pages[position / page] as usize * page + position % page
    }
}

/// Arguments of `forward_paged` beside its tensors. Every row attends to the keys up to its own.
#[derive(Clone, Copy, Debug)]
pub struct Paged<'a> {
    /// Heads and the layout of packed rows.
    pub heads: &'a Heads,
    /// Tokens of a page.
    pub page: usize,
    /// The sequences in the order of their rows.
    pub sequences: &'a [PagedRows<'a>],
    /// First key that each row of the batch sees, as of its document; `None`: 0.
    pub first_keys: Option<&'a [u32]>,
    /// Hides keys `window` or more positions before the row's; 0: none.
    pub window: usize,
    /// As in `Call`.
    pub block: usize,
    /// As in `Call`.
    pub numbers: Numbers,
    /// As in `Call`.
    pub scores: Scores,
    /// As in `Call`.
    pub sinks: Option<&'a Tensor>,
}

impl Paged<'_> {
    /// Row of the cache for each row of the batch.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().flat_map(|sequence| {
            let positions = sequence.position..sequence.position + sequence.rows;
            positions.map(|position| sequence.slot(position, self.page))
        })
    }

    /// Refuses what does not fit. Rows of the batch, rows of the cache.
    pub(super) fn check(&self, qkv: &Tensor, cache: &Tensor) -> Result<()> {
        self.numbers.expect_on(OP_PAGED, qkv.device())?;
        self.scores.check(OP_PAGED, false)?;
        let heads = self.heads;
        check_sinks(OP_PAGED, self.sinks, heads)?;
        let rows = self.sequences.iter().map(|sequence| sequence.rows).sum();
        check_rows(OP_PAGED, ("qkv", qkv), heads, [rows, heads.packed()])?;
        cache.expect(OP_PAGED, "cache", DType::F32)?;
        let held = match *cache.dims() {
            [held, width] if width == heads.kv_width() && self.page > 0 => held,
            _ => {
                return Err(Error::Shape {
                    op: OP_PAGED,
                    name: "cache",
                    found: cache.dims().to_vec(),
                    wanted: format!("[pages * {}, {}]", self.page, heads.kv_width()),
                });
            }
        };
        if let Some(keys) = self.first_keys
            && keys.len() != rows
        {
            let wanted = format!("{rows}, one per row");
            return refuse(OP_PAGED, "first_keys", keys.len().to_string(), wanted);
        }
        for sequence in self.sequences {
            let positions = sequence.position.saturating_add(sequence.rows);
            if let Some(alibi) = self.scores.alibi {
                alibi.check(OP_PAGED, heads.heads, positions)?;
            }
            if sequence.pages.len() < positions.div_ceil(self.page) {
                let found = format!("{} pages", sequence.pages.len());
                let wanted = format!(
                    "{} for {positions} positions",
                    positions.div_ceil(self.page)
                );
                return refuse(OP_PAGED, "pages", found, wanted);
            }
            let limit = held / self.page;
            if let Some(page) = sequence.pages.iter().find(|&&page| page as usize >= limit) {
                return refuse(
                    OP_PAGED,
                    "pages",
                    page.to_string(),
                    format!("below {limit}"),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Mask, forward, forward_paged};
    use super::*;
    use crate::testing::{assert_same_bits, bits, random};
    use crate::{Device, Heads};

    /// Tokens of a page.
    const PAGE: usize = 4;

    /// Two sequences in one cache, pages in no order and the first one shared, in batches of these new rows each; every
    /// row's result, sequence after sequence.
    fn in_batches(whole: [&Tensor; 2], call: &Paged<'_>, batches: &[[usize; 2]]) -> [Vec<f32>; 2] {
        let device = whole[0].device();
        let (packed, width) = (call.heads.packed(), call.heads.heads * call.heads.width);
        let here = whole.map(|qkv| qkv.download::<f32>().unwrap());
        let pages = [[7, 0, 5, 3, 9], [7, 2, 8, 1, 4]];
        let dims = [10 * PAGE, call.heads.kv_width()];
        let mut cache = Tensor::zeros(&dims, DType::F32, device).unwrap();
        let mut outs = [Vec::new(), Vec::new()];
        let mut done = [0, 0];
        for rows in batches {
            let mut new = Vec::new();
            let (mut sequences, mut keys) = (Vec::new(), Vec::new());
            for (i, &rows) in rows.iter().enumerate() {
                let from = done[i] * packed;
                new.extend_from_slice(&here[i][from..from + rows * packed]);
                let all = call.first_keys.unwrap_or(&[0; 32]);
                keys.extend_from_slice(&all[done[i]..done[i] + rows]);
                sequences.push(PagedRows {
                    rows,
                    position: done[i],
                    pages: &pages[i],
                });
            }
            let qkv = Tensor::from_f32(&[new.len() / packed, packed], &new, device).unwrap();
            let call = Paged {
                sequences: &sequences,
                first_keys: call.first_keys.map(|_| keys.as_slice()),
                ..*call
            };
            let mixed = forward_paged(&qkv, &mut cache, &call).unwrap();
            let mixed: Vec<f32> = mixed.download().unwrap();
            let mut at = 0;
            for (i, &rows) in rows.iter().enumerate() {
                outs[i].extend_from_slice(&mixed[at..at + rows * width]);
                at += rows * width;
                done[i] += rows;
            }
        }
        outs
    }

    #[test]
    fn rows_over_pages_have_the_bits_of_whole_sequences() {
        const T: usize = 18;
        let keys: Vec<u32> = (0..32).map(|row| row / 7 * 7).collect();
        let bounds: Vec<[u32; 2]> = keys.iter().map(|&key| [key, u32::MAX]).collect();
        let shapes = [(4, 2, 6), (3, 3, 5), (8, 1, 16)];
        for (number, (heads, kv_heads, width)) in shapes.into_iter().enumerate() {
            let heads = Heads {
                heads,
                kv_heads,
                width,
            };
            for numbers in [Numbers::F32, Numbers::Bf16] {
                for (block, window, has_keys) in [(0, 0, false), (6, 0, true), (8, 5, false)] {
                    let first = random(&[T, heads.packed()], 1, &Device::cpu()).unwrap();
                    let mut second = random(&[T, heads.packed()], 2, &Device::cpu()).unwrap();
                    // the page that both share
                    let page = PAGE * heads.packed();
                    second.f32_mut()[..page].copy_from_slice(&first.f32()[..page]);
                    let paged = Paged {
                        heads: &heads,
                        page: PAGE,
                        sequences: &[],
                        first_keys: has_keys.then_some(keys.as_slice()),
                        window,
                        block,
                        numbers,
                        scores: Scores::scaled(number != 1),
                        sinks: None,
                    };
                    let batches: [&[[usize; 2]]; 3] = [
                        &[[T, T]],
                        &[[5, 4], [1, 0], [2, 9], [1, 1], [1, 1], [8, 3]],
                        &[[1, 1]; T],
                    ];
                    let call = Call {
                        block,
                        numbers,
                        scores: Scores::scaled(number != 1),
                        mask: Mask {
                            window,
                            bounds: has_keys.then_some(&bounds[..T]),
                            ..Mask::CAUSAL
                        },
                        ..Call::causal(&heads, 1, T)
                    };
                    let wanted = [&first, &second].map(|qkv| forward(qkv, &call).unwrap().0);
                    for batches in batches {
                        let found = in_batches([&first, &second], &paged, batches);
                        for (found, wanted) in found.iter().zip(&wanted) {
                            assert_eq!(bits(found), bits(wanted.f32()), "{paged:?} {batches:?}");
                        }
                    }
                    assert_same_bits(|device| {
                        let [a, b] = [&first, &second].map(|x| x.to_device(device).unwrap());
                        let out = in_batches([&a, &b], &paged, batches[1]).concat();
                        vec![Tensor::from_f32(&[out.len()], &out, device).unwrap()]
                    });
                }
            }
        }
    }

    #[test]
    fn pages_that_do_not_fit_are_refused() {
        let (device, heads) = (
            Device::cpu(),
            Heads {
                heads: 2,
                kv_heads: 2,
                width: 3,
            },
        );
        let qkv = random(&[2, heads.packed()], 1, &device).unwrap();
        let mut cache = Tensor::zeros(&[2 * PAGE, heads.kv_width()], DType::F32, &device).unwrap();
        let mut go = |rows, position, pages: &[u32], keys: Option<&[u32]>| {
            let sequence = PagedRows {
                rows,
                position,
                pages,
            };
            let call = Paged {
                heads: &heads,
                page: PAGE,
                sequences: &[sequence],
                first_keys: keys,
                window: 0,
                block: 0,
                numbers: Numbers::F32,
                scores: Scores::scaled(true),
                sinks: None,
            };
            forward_paged(&qkv, &mut cache, &call)
        };
        assert!(go(2, 3, &[1, 0], None).is_ok());
        assert!(go(3, 0, &[1, 0], None).is_err(), "rows");
        assert!(go(2, 3, &[1], None).is_err(), "too few pages");
        assert!(go(2, 3, &[1, 2], None).is_err(), "a page outside");
        assert!(go(2, usize::MAX, &[1, 0], None).is_err(), "position");
        assert!(go(2, 0, &[0], Some(&[0])).is_err(), "first keys");
    }
}

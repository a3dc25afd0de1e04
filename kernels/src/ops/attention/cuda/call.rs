//! A call as the arguments of kernels (`cuda/attention.cuh`).

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::cuda::Arg;
use crate::descriptor::alibi::Alibi;
use crate::descriptor::attention::{Call, Keys, Mask, Next};
use crate::descriptor::dropout::Constants;
use crate::descriptor::position_bias::{Bias, Buckets};
use crate::{DType, Device, Result, Tensor};

/// Where rows, groups and sequences of queries, or of keys and values, are: distances in elements.
#[derive(Clone, Copy)]
struct Strides {
    row: usize,
    group: usize,
    sequence: usize,
}

impl Strides {
    fn args(self) -> [Arg; 3] {
        [self.row.into(), self.group.into(), self.sequence.into()]
    }
}

/// A call's arguments and the tables that they point to.
pub(super) struct Prepared {
    pub(super) args: Vec<Arg>,
    /// Bucket of each distance, if there is a bias.
    pub(super) numbers: Option<Arc<Buffer>>,
    _bounds: Option<Arc<Buffer>>,
    _slopes: Option<Arc<Buffer>>,
}

/// First words of the keys of cached tables; those of rotary angles start with a number of positions.
const BOUNDS: u64 = u64::MAX;
const NUMBERS: u64 = u64::MAX - 1;
const SLOPES: u64 = u64::MAX - 2;

fn address(table: Option<&Arc<Buffer>>) -> Arg {
    table.map_or(Arg::NULL, |table| Arg::Pointer(table.address()))
}

fn is_bf16(x: &Tensor) -> Arg {
    (x.dtype() == DType::Bf16).into()
}

/// A pointer to an element of a tensor.
fn at(x: &Tensor, element: usize) -> Arg {
    let first = x.address().0;
    Arg::U64(first + (element * x.dtype().bytes()) as u64)
}

/// Keys per block; 0 means all of `keys`.
fn block_of(block: usize, keys: usize) -> usize {
    if block == 0 {
        keys.max(1).next_multiple_of(2)
    } else {
        block
    }
}

/// The bucket of each distance, cached: layers and steps have the same.
fn numbers(
    bias: Option<&Bias<'_>>,
    rows: Range<usize>,
    keys: usize,
    device: &Device,
) -> Result<Option<Arc<Buffer>>> {
    let of = |bias: &Bias<'_>| {
        let Buckets {
            buckets,
            max_distance,
            bidirectional,
        } = bias.buckets;
        let sizes = [buckets, max_distance, rows.start, rows.end, keys];
        let key = [NUMBERS, u64::from(bidirectional)].into_iter();
        device.cached_words(key.chain(sizes.map(|size| size as u64)), || {
            let numbers = bias.buckets.by_distance(rows.clone(), keys).into_iter();
            numbers
                .map(|bucket| u32::try_from(bucket).unwrap_or(u32::MAX))
                .collect()
        })
    };
    bias.map(of).transpose()
}

/// The slope of each head, cached: layers and steps have the same.
fn slopes(alibi: Option<Alibi>, heads: usize, device: &Device) -> Result<Option<Arc<Buffer>>> {
    let of = |alibi: Alibi| {
        let key = [SLOPES].into_iter();
        let key = key.chain([alibi.heads, alibi.first, heads].map(|number| number as u64));
        device.cached_words(key, || {
            let slopes = (0..heads).map(|head| alibi.slope(head).to_bits());
            slopes.collect()
        })
    };
    alibi.map(of).transpose()
}

/// The bounds of rows, cached: the layers of a step have the same.
fn bounds(mask: &Mask<'_>, device: &Device) -> Result<Option<Arc<Buffer>>> {
    let of = |bounds: &[[u32; 2]]| {
        let words = bounds.iter().flatten().map(|word| u64::from(*word));
        let key = std::iter::once(BOUNDS).chain(words);
        device.cached_words(key, || bounds.as_flattened().to_vec())
    };
    mask.bounds.map(of).transpose()
}

fn bias_args(bias: Option<&Bias<'_>>, numbers: Option<&Arc<Buffer>>, total: usize) -> [Arg; 4] {
    [
        bias.map(|bias| bias.table).into(),
        address(numbers),
        bias.map_or(0, |bias| bias.buckets.buckets).into(),
        total.into(),
    ]
}

fn dropout_args(constants: Option<Constants>, first_head: u32, sequence: u64) -> [Arg; 7] {
    let is_there = constants.is_some();
    let of = constants.unwrap_or(Constants {
        key: [0; 2],
        threshold: 0,
        scale: 1.0,
    });
    [
        is_there.into(),
        of.key[0].into(),
        of.key[1].into(),
        of.threshold.into(),
        of.scale.into(),
        first_head.into(),
        Arg::U64(sequence),
    ]
}

impl Prepared {
    /// A call on packed rows.
    pub(super) fn of(qkv: &Tensor, call: &Call<'_>) -> Result<Prepared> {
        let (heads, t, device) = (call.heads, call.t, qkv.device());
        let row = call.query_width();
        let q = Strides {
            row,
            group: row / heads.kv_heads,
            sequence: t * row,
        };
        let (kv, first, strides) = match call.keys {
            Keys::Own => (qkv, heads.per_group() * heads.width, q),
            Keys::Part { kv, .. } | Keys::Other { kv, .. } => {
                let row = heads.kv_width();
                let strides = Strides {
                    row,
                    group: 2 * heads.width,
                    sequence: call.held() * row,
                };
                (kv, 0, strides)
            }
        };
        let (position, total) = (call.keys.first(), call.total());
        let (start, end) = (call.keys.start(), call.visible());
        let bounds = bounds(&call.mask, device)?;
        let slopes = slopes(call.scores.alibi, heads.heads, device)?;
        let bias = call.bias.as_ref();
        let numbers = numbers(bias, position..position + t, total, device)?;
        let dropped = call.dropout;
        let constants = dropped.map(|dropped| dropped.dropout.constants());
        let first_head = dropped.map_or(0, |dropped| dropped.first_head);
        let sequence = dropped.map_or(0, |dropped| dropped.sequence);
        let mut args = vec![qkv.into(), is_bf16(qkv)];
        args.extend(q.args());
        args.extend([at(kv, first), at(kv, first + heads.width), is_bf16(kv)]);
        args.extend(strides.args());
        args.extend([heads.heads, heads.per_group(), heads.width, t, position].map(Arg::from));
        let block = block_of(call.block, end - start);
        args.extend([start, start, end, block].map(Arg::from));
        args.push(address(bounds.as_ref()));
        args.push(call.mask.is_causal.into());
        args.push(call.mask.window.into());
        args.extend([call.scores.factor(heads), call.scores.cap].map(Arg::from));
        args.push(address(slopes.as_ref()));
        args.push(call.sinks.into());
        args.extend(bias_args(bias, numbers.as_ref(), total));
        args.push(false.into());
        args.extend(dropout_args(constants, first_head, sequence));
        Ok(Prepared {
            args,
            numbers,
            _slopes: slopes,
            _bounds: bounds,
        })
    }

    /// The next position of every sequence: a group is a head whose rows are the group's heads.
    pub(super) fn of_next(
        packed: &Tensor,
        k_cache: &Tensor,
        v_cache: &Tensor,
        next: &Next<'_>,
    ) -> Result<Prepared> {
        let (heads, device) = (next.heads, packed.device());
        let (width, length) = (heads.width, k_cache.dims()[2]);
        let end = next.position + 1;
        let bias = next.bias.as_ref();
        let numbers = numbers(bias, next.position..end, end, device)?;
        let slopes = slopes(next.scores.alibi, heads.heads, device)?;
        let q = Strides {
            row: width,
            group: heads.group_width(),
            sequence: heads.packed(),
        };
        let kv = Strides {
            row: width,
            group: length * width,
            sequence: heads.kv_heads * length * width,
        };
        let mut args = vec![packed.into(), is_bf16(packed)];
        args.extend(q.args());
        args.extend([k_cache.into(), v_cache.into(), is_bf16(k_cache)]);
        args.extend(kv.args());
        let rows = heads.per_group();
        args.extend([heads.kv_heads, 1, width, rows, next.position].map(Arg::from));
        let block = block_of(next.block, end);
        args.extend([0, next.first_key, end, block].map(Arg::from));
        let mask: [Arg; 3] = [Arg::NULL, false.into(), 0_usize.into()];
        args.extend(mask);
        args.extend([next.scores.factor(heads), next.scores.cap].map(Arg::from));
        args.push(address(slopes.as_ref()));
        args.push(next.sinks.into());
        args.extend(bias_args(bias, numbers.as_ref(), end));
        args.push(true.into());
        args.extend(dropout_args(None, 0, 0));
        Ok(Prepared {
            args,
            numbers,
            _slopes: slopes,
            _bounds: None,
        })
    }
}

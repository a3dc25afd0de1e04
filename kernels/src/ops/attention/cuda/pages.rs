//! Attention over pages on CUDA: rows go to their pages in one launch; then each sequence's keys and values are gathered
//! from its pages and read as a part of a sequence.

use std::sync::Arc;

use super::forward::forward_whole;
use super::rows::SOURCE;
use crate::cuda::{Cuda, Grid};
use crate::descriptor::attention::{Call, Keys, Mask};
use crate::ops::attention::pages::{Paged, PagedRows};
use crate::{DType, Device, Result, Tensor, copy};

pub(in crate::ops::attention) fn forward_paged(
    on: &Arc<Cuda>,
    out: &mut Tensor,
    cache: &mut Tensor,
    qkv: &Tensor,
    call: &Paged<'_>,
) -> Result<()> {
    let (heads, device) = (call.heads, qkv.device());
    let n = qkv.dims()[0] * heads.kv_width();
    let slots = numbers(call.slots(), device)?;
    let args = [
        (&mut *cache).into(),
        qkv.into(),
        (&slots).into(),
        n.into(),
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
    ];
    on.launch(&SOURCE, "attention_put_pages", Grid::over(n), &args)?;
    let (packed, width) = (heads.packed(), heads.heads * heads.width);
    let mut first = 0;
    for sequence in call.sequences {
        let rows = first..first + sequence.rows;
        first = rows.end;
        if rows.is_empty() {
            continue;
        }
        let bounds: Option<Vec<[u32; 2]>> = call.first_keys.map(|keys| {
            let of = &keys[rows.clone()];
            of.iter().map(|&key| [key, u32::MAX]).collect()
        });
        let time = sequence.position + sequence.rows;
        let kv = gather(on, cache, sequence, (call, time))?;
        let mut own = Tensor::empty(&[rows.len(), packed], qkv.dtype(), device)?;
        copy(
            own.view_mut(),
            qkv.flat(rows.start * packed..rows.end * packed)?,
        )?;
        let whole = Call {
            keys: Keys::Part {
                kv: &kv,
                time,
                start: 0,
                first: sequence.position,
            },
            block: call.block,
            numbers: call.numbers,
            scores: call.scores,
            sinks: call.sinks,
            mask: Mask {
                window: call.window,
                bounds: bounds.as_deref(),
                ..Mask::CAUSAL
            },
            ..Call::causal(heads, 1, rows.len())
        };
        let mut mixed = Tensor::empty(&[rows.len(), width], DType::F32, device)?;
        let mut lse = Tensor::empty(&[1, heads.heads, rows.len()], DType::F32, device)?;
        forward_whole(on, &mut mixed, &mut lse, &own, &whole)?;
        copy(
            out.flat_mut(rows.start * width..rows.end * width)?,
            mixed.view(),
        )?;
    }
    Ok(())
}

/// The first `time` keys and values of a sequence, `[time, kv_width]`.
fn gather(
    on: &Arc<Cuda>,
    cache: &Tensor,
    sequence: &PagedRows<'_>,
    (call, time): (&Paged<'_>, usize),
) -> Result<Tensor> {
    let width = call.heads.kv_width();
    let slots = (0..time).map(|position| sequence.slot(position, call.page));
    let slots = numbers(slots, cache.device())?;
    let kv = Tensor::empty(&[time, width], DType::F32, cache.device())?;
    let n = kv.elements();
    let args = [
        (&kv).into(),
        cache.into(),
        (&slots).into(),
        n.into(),
        width.into(),
    ];
    on.launch(&SOURCE, "attention_take_pages", Grid::over(n), &args)?;
    Ok(kv)
}

/// Rows of the cache as a tensor on the device. They are below 2^32, as pages are numbered in 32 bits.
fn numbers(slots: impl Iterator<Item = usize>, device: &Device) -> Result<Tensor> {
    let slots: Vec<u32> = slots
        .map(|slot| u32::try_from(slot).unwrap_or(u32::MAX))
        .collect();
    Tensor::from_u32(&[slots.len()], &slots, device)
}

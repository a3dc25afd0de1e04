//! Attention over pages on the CPU: a task is one kv head of one sequence. One row in f32 reads keys and values in their
//! pages; for more rows, and for words of pairs, they are gathered into the buffers that every other pass reads.

use super::forward::{Room, RowOfGroup, Scratch, row, rows_of_group};
use super::rows::{Rows, Span, block_of};
use super::source::{Pages, Source};
use crate::cpu::Numbers;
use crate::cpu::output::Data;
use crate::cpu::pack::Matrix;
use crate::descriptor::attention::{Call, Mask};
use crate::ops::attention::pages::{Paged, PagedRows};
use crate::{Result, Tensor};
use rayon::prelude::*;

pub(in crate::ops::attention) fn forward_paged(
    out: &mut Tensor,
    cache: &mut Tensor,
    qkv: &Tensor,
    call: &Paged<'_>,
) -> Result<()> {
    append(cache, qkv, call);
    let (heads, device) = (call.heads, qkv.device());
    let (per, width) = (heads.per_group(), heads.width);
    let (cache, qkv) = (cache.f32(), qkv.f32());
    let dummy = Call::causal(heads, 1, 1);
    let mut tasks = Vec::new();
    let mut first = 0;
    for sequence in call.sequences {
        tasks.extend((0..heads.kv_heads).map(|group| (sequence, first, group)));
        first += sequence.rows;
    }
    let mixed: Vec<Vec<f32>> = tasks
        .par_iter()
        .with_max_len(1)
        .map(|&(sequence, first, group)| {
            let keys = Span {
                start: 0,
                end: sequence.position + sequence.rows,
            };
            let is_in_place = sequence.rows == 1 && call.numbers == Numbers::F32;
            let kv = if is_in_place {
                Vec::new()
            } else {
                gather(cache, sequence, keys.end, (call, group))
            };
            let packed = heads.packed();
            let q = Data::F32(&qkv[first * packed..(first + sequence.rows) * packed]);
            let bounds: Option<Vec<[u32; 2]>> = call.first_keys.map(|keys| {
                let of = &keys[first..first + sequence.rows];
                of.iter().map(|&key| [key, u32::MAX]).collect()
            });
            let rows = Rows {
                q,
                q_at: (packed, heads.group_width()),
                kv: Data::F32(&kv),
                kv_at: (2 * width, 0, 0),
                heads,
                first: sequence.position,
                t: sequence.rows,
                keys,
                block: block_of(call.block, keys),
                numbers: call.numbers,
                mask: Mask {
                    is_causal: true,
                    window: call.window,
                    bounds: bounds.as_deref(),
                },
                scale: call.scores.factor(heads),
                cap: call.scores.cap,
                alibi: call.scores.alibi,
                bias: None,
                sinks: call.sinks.map(Tensor::f32),
                sequence: 0,
            };
            let mut out = vec![0.0; sequence.rows * per * width];
            if sequence.rows != 1 {
                let mut room = Room::new(&rows, false, device)?;
                rows_of_group(&rows, (group, &dummy), &mut room, &mut out, device)?;
                return Ok(out);
            }
            let at = group * heads.group_width();
            let of_row = RowOfGroup {
                q: Matrix::of(q, at, [per, width], width),
                group,
                first_key: rows.seen(0).start,
            };
            if is_in_place {
                let pages = Source::Pages(Pages {
                    cache,
                    row: heads.kv_width(),
                    column: group * 2 * width,
                    width,
                    sequence,
                    page: call.page,
                });
                let mut scratch = Scratch::new(&rows, false, device)?;
                row(&rows, of_row, pages, &mut scratch, &mut out, device);
            } else {
                let mut room = Room::new(&rows, false, device)?;
                room.k.fill(rows.shared(group, 0), device);
                room.v.fill(rows.shared(group, 1), device);
                let copied = Source::Copied {
                    k: &room.k,
                    v: &room.v,
                    first: 0,
                };
                row(&rows, of_row, copied, &mut room.scratch, &mut out, device);
            }
            Ok(out)
        })
        .collect::<Result<_>>()?;
    let (out, row) = (out.f32_mut(), heads.heads * width);
    for ((_, first, group), mixed) in tasks.iter().zip(mixed) {
        for (i, mixed) in mixed.chunks_exact(per * width).enumerate() {
            let at = (first + i) * row + group * per * width;
            out[at..at + per * width].copy_from_slice(mixed);
        }
    }
    Ok(())
}

/// Puts the rows' own keys and values in their pages.
fn append(cache: &mut Tensor, qkv: &Tensor, call: &Paged<'_>) {
    let heads = call.heads;
    let (width, before) = (2 * heads.width, heads.per_group() * heads.width);
    let cache = cache.f32_mut();
    let slots = call.slots();
    for (slot, row) in slots.zip(qkv.f32().chunks_exact(heads.packed())) {
        let to = cache[slot * heads.kv_width()..].chunks_exact_mut(width);
        for (to, group) in to.zip(row.chunks_exact(heads.group_width())) {
            to.copy_from_slice(&group[before..]);
        }
    }
}

/// The first `keys` keys and values of a kv head, `[keys, 2 * width]`.
fn gather(
    cache: &[f32],
    sequence: &PagedRows<'_>,
    keys: usize,
    (call, group): (&Paged<'_>, usize),
) -> Vec<f32> {
    let (row, width) = (call.heads.kv_width(), 2 * call.heads.width);
    let mut kv = Vec::with_capacity(keys * width);
    for position in 0..keys {
        let at = sequence.slot(position, call.page) * row + group * width;
        kv.extend_from_slice(&cache[at..at + width]);
    }
    kv
}

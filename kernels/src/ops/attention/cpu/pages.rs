//! Attention over pages on the CPU: a task is one kv head of one sequence. One row in f32 reads keys and values in their
//! pages (`one_row.rs`); for more rows, and for words of pairs, they are gathered into the buffers that every other pass
//! reads.

use super::forward::{Room, RowOfGroup, row, rows_of_group};
use super::one_row::{self, Buffers, OneRow, Pages};
use super::rows::{Rows, Span, block_of};
use super::source::Source;
use crate::cpu::output::Data;
use crate::cpu::pack::Matrix;
use crate::cpu::pieces;
use crate::cpu::scratch::ScratchPool;
use crate::descriptor::attention::{Call, Mask};
use crate::ops::attention::pages::{Paged, PagedRows};
use crate::{Device, Result, Tensor};
use rayon::prelude::*;

/// The new rows of one sequence: their queries, keys and values, and where their results belong.
struct Batch<'a> {
    sequence: &'a PagedRows<'a>,
    /// Number of the first row.
    first: usize,
    /// `[rows, heads * width]`
    out: &'a mut [f32],
}

/// The numbers that all sequences read.
#[derive(Clone, Copy)]
struct Shared<'a> {
    /// Keys and values, `[pages * page, kv_width]`.
    cache: &'a [f32],
    /// The packed rows of the batch.
    qkv: &'a [f32],
}

pub(in crate::ops::attention) fn forward_paged(
    out: &mut Tensor,
    cache: &mut Tensor,
    qkv: &Tensor,
    call: &Paged<'_>,
) -> Result<()> {
    append(cache, qkv, call);
    let device = qkv.device();
    let shared = Shared {
        cache: cache.f32(),
        qkv: qkv.f32(),
    };
    let width = call.heads.heads * call.heads.width;
    let takes = one_row::takes(call.heads, call.numbers);
    let (mut single, mut several) = (Vec::new(), Vec::new());
    let (mut left, mut first) = (out.f32_mut(), 0);
    for sequence in call.sequences {
        let (out, after) = left.split_at_mut(sequence.rows * width);
        let to = if takes && sequence.rows == 1 {
            &mut single
        } else {
            &mut several
        };
        to.push(Batch {
            sequence,
            first,
            out,
        });
        (left, first) = (after, first + sequence.rows);
    }
    let (a, b) = rayon::join(
        || in_pages(single, shared, call, device),
        || gathered(several, shared, call, device),
    );
    a.and(b)
}

/// First keys of a row's sequence that it may see.
fn first_key(call: &Paged<'_>, row: usize, position: usize) -> usize {
    let of_document = call.first_keys.map_or(0, |keys| keys[row] as usize);
    let of_window = match call.window {
        0 => 0,
        window => (position + 1).saturating_sub(window),
    };
    of_document.max(of_window)
}

/// Sequences with one row each, which read keys and values in their pages.
fn in_pages(
    batches: Vec<Batch<'_>>,
    Shared { cache, qkv }: Shared<'_>,
    call: &Paged<'_>,
    device: &Device,
) -> Result<()> {
    let heads = call.heads;
    let (per, width) = (heads.per_group(), heads.width);
    let block = |sequence: &PagedRows<'_>| {
        let keys = Span {
            start: 0,
            end: sequence.position + 1,
        };
        block_of(call.block, keys)
    };
    let longest = batches
        .iter()
        .map(|batch| block(batch.sequence).min(batch.sequence.position + 1));
    let longest = longest.max().unwrap_or(0);
    let mut tasks = Vec::with_capacity(batches.len() * heads.kv_heads);
    for batch in batches {
        let of_groups = batch.out.chunks_exact_mut(per * width).enumerate();
        tasks.extend(of_groups.map(|(group, out)| (batch.sequence, batch.first, group, out)));
    }
    let buffers = ScratchPool::new(tasks.len(), || Buffers::new(heads, longest, device))?;
    pieces(tasks.into_par_iter()).for_each(|(sequence, number, group, out)| {
        let at = number * heads.packed() + group * heads.group_width();
        let row = OneRow {
            q: &qkv[at..at + per * width],
            pages: Pages {
                cache,
                row: heads.kv_width(),
                column: group * 2 * width,
                width,
                sequence,
                page: call.page,
            },
            seen: first_key(call, number, sequence.position)..sequence.position + 1,
            block: block(sequence),
            scale: call.scores.factor(heads),
            cap: call.scores.cap,
            alibi: call.scores.alibi,
            sinks: call
                .sinks
                .map(|sinks| &sinks.f32()[group * per..(group + 1) * per]),
            head: group * per,
        };
        buffers.with(|buffers| one_row::attend(device.isa(), &row, buffers, out));
    });
    Ok(())
}

/// All other sequences, whose keys and values are gathered first.
fn gathered(
    batches: Vec<Batch<'_>>,
    Shared { cache, qkv }: Shared<'_>,
    call: &Paged<'_>,
    device: &Device,
) -> Result<()> {
    let heads = call.heads;
    let (per, width) = (heads.per_group(), heads.width);
    let dummy = Call::causal(heads, 1, 1);
    let tasks: Vec<(&PagedRows<'_>, usize, usize)> = batches
        .iter()
        .flat_map(|batch| (0..heads.kv_heads).map(|group| (batch.sequence, batch.first, group)))
        .collect();
    let mixed: Vec<Vec<f32>> = tasks
        .par_iter()
        .with_max_len(1)
        .map(|&(sequence, first, group)| {
            let keys = Span {
                start: 0,
                end: sequence.position + sequence.rows,
            };
            let kv = gather(cache, sequence, keys.end, (call, group));
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
            let mut room = Room::new(&rows, false, device)?;
            if sequence.rows != 1 {
                rows_of_group(&rows, (group, &dummy), &mut room, &mut out, device)?;
                return Ok(out);
            }
            let at = group * heads.group_width();
            let of_row = RowOfGroup {
                q: Matrix::of(q, at, [per, width], width),
                group,
                first_key: rows.seen(0).start,
            };
            room.k.fill(rows.shared(group, 0), device);
            room.v.fill(rows.shared(group, 1), device);
            let source = Source {
                k: &room.k,
                v: &room.v,
                first: 0,
            };
            row(&rows, of_row, source, &mut room.scratch, &mut out, device);
            Ok(out)
        })
        .collect::<Result<_>>()?;
    let mut mixed = mixed.into_iter();
    for batch in batches {
        for (group, mixed) in (0..heads.kv_heads).zip(&mut mixed) {
            let rows = batch.out.chunks_exact_mut(heads.heads * width);
            for (out, mixed) in rows.zip(mixed.chunks_exact(per * width)) {
                out[group * per * width..][..per * width].copy_from_slice(mixed);
            }
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

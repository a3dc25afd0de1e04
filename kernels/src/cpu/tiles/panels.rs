//! Packing all panels of an operand, in parallel.

use super::super::Isa;
use super::super::pack::Matrix;
use super::super::pieces;
use super::pack::Order;
use super::unit::{BOTH, SIDE};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// A buffer of `floats`; powers of two let packs of unlike shapes share pooled buffers.
pub(super) fn room(floats: usize, device: &Device) -> Result<Tensor> {
    Tensor::empty(&[floats.max(1).next_power_of_two()], DType::F32, device)
}

/// Runs `one` for every part of `apart` floats.
pub(super) fn each_panel(
    out: &mut [f32],
    apart: usize,
    parallel: bool,
    one: impl Fn(usize, &mut [f32]) + Sync,
) {
    if apart == 0 {
        return;
    }
    if parallel {
        let panels = out.par_chunks_mut(apart).enumerate();
        pieces(panels).for_each(|(panel, out)| one(panel, out));
    } else {
        let panels = out.chunks_mut(apart).enumerate();
        panels.for_each(|(panel, out)| one(panel, out));
    }
}

pub(super) fn pack_a(
    a: Matrix<'_>,
    order: Order,
    (rows, height): (Range<usize>, usize),
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let apart = floats_of_a(order, height);
    let len = rows.len().div_ceil(height) * apart;
    let mut packed = room(len, device)?;
    let a = a.up_to(rows.end);
    each_panel(
        &mut packed.f32_mut()[..len],
        apart,
        parallel,
        |panel, out| {
            let first = rows.start + panel * height;
            order.pack_a(device.isa(), (a, first), 0..order.steps(), height, out);
        },
    );
    Ok(packed)
}

pub(super) fn pack_b(
    b: Matrix<'_>,
    order: Order,
    columns: Range<usize>,
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let len = columns.len().div_ceil(BOTH) * order.steps() * BOTH;
    let mut packed = room(len, device)?;
    let b = (b.up_to(columns.end), columns.start);
    let out = &mut packed.f32_mut()[..len];
    fill_columns(out, b, order, device.isa(), parallel);
    Ok(packed)
}

/// Packs columns of b, whose lanes they are, from the first on.
pub(super) fn fill_columns(
    out: &mut [f32],
    (b, first): (Matrix<'_>, usize),
    order: Order,
    isa: Isa,
    parallel: bool,
) {
    let steps = order.steps();
    let apart = steps * BOTH;
    // Neighbours are read together.
    let tasks = if parallel {
        2 * rayon::current_num_threads()
    } else {
        1
    };
    let each = (out.len() / apart.max(1)).div_ceil(tasks).max(1);
    each_panel(out, each * apart, parallel, |task, out| {
        let first = first + task * each * BOTH;
        let count = out.len() / apart;
        order.pack_b(isa, (b, first), 0..steps, count, apart, out);
    });
}

/// Floats of a panel of A.
pub(super) fn floats_of_a(order: Order, height: usize) -> usize {
    order.steps() * height.next_multiple_of(SIDE)
}

//! Gated activations of rows [gate | up]: y = f(gate) g(up), dgate = dy g(up) f'(gate), dup = dy f(gate) g'(up).
//! All of it is computed in f32; bf16 tensors are widened as they are read and rounded last.

use crate::cpu::bf16::{Step, Task};
use crate::cpu::element::{Element, TWO};
use crate::cpu::simd::Lanes;
use crate::cpu::{Isa, ROW_BLOCK};
use crate::{DType, Tensor};
use rayon::prelude::*;
use std::marker::PhantomData;

/// A gated unit's functions of gate and up, whose product it is: values and derivatives, lane by lane.
pub(super) trait Unit {
    fn gate<L: Lanes>(x: L) -> (L, L);

    #[inline(always)]
    fn gate_value<L: Lanes>(x: L) -> L {
        Self::gate(x).0
    }

    fn up<L: Lanes>(x: L) -> (L, L);
}

/// y: rows of f, gate_up: rows of 2f, of one type.
pub(super) fn forward<C: Unit>(y: &mut Tensor, gate_up: &Tensor) {
    let (isa, (_, f)) = (y.device().isa(), y.rows_cols());
    match gate_up.dtype() {
        DType::Bf16 => values::<C, _>(isa, f, y.bf16_mut(), gate_up.bf16()),
        _ => values::<C, _>(isa, f, y.f32_mut(), gate_up.f32()),
    }
}

/// dx, gate_up: rows of 2f, dy: rows of f, of one type.
pub(super) fn backward<C: Unit>(dx: &mut Tensor, dy: &Tensor, gate_up: &Tensor) {
    let (isa, (_, f)) = (dy.device().isa(), dy.rows_cols());
    match gate_up.dtype() {
        DType::Bf16 => derivatives::<C, _>(isa, f, dx.bf16_mut(), dy.bf16(), gate_up.bf16()),
        _ => derivatives::<C, _>(isa, f, dx.f32_mut(), dy.f32(), gate_up.f32()),
    }
}

fn values<C: Unit, E: Element>(isa: Isa, f: usize, y: &mut [E], x: &[E]) {
    let curve = PhantomData::<fn() -> C>;
    let parts = y.par_chunks_mut(f * ROW_BLOCK);
    let parts = parts.zip(x.par_chunks(2 * f * ROW_BLOCK));
    parts.for_each(|(y, x)| E::perform(isa, Values { f, y, x, curve }));
}

fn derivatives<C: Unit, E: Element>(isa: Isa, f: usize, dx: &mut [E], dy: &[E], x: &[E]) {
    let curve = PhantomData::<fn() -> C>;
    let parts = dx.par_chunks_mut(2 * f * ROW_BLOCK);
    let parts = parts
        .zip(dy.par_chunks(f * ROW_BLOCK))
        .zip(x.par_chunks(2 * f * ROW_BLOCK));
    parts.for_each(|(d, x)| E::perform(isa, Slopes { f, d, x, curve }));
}

struct Values<'a, E, C> {
    f: usize,
    y: &'a mut [E],
    x: &'a [E],
    curve: PhantomData<fn() -> C>,
}

impl<E: Element, C: Unit> Task for Values<'_, E, C> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let rows = self.y.chunks_exact_mut(self.f);
        for (y, x) in rows.zip(self.x.chunks_exact(2 * self.f)) {
            let (gate, up) = x.split_at(self.f);
            let ins = gate.chunks(TWO).zip(up.chunks(TWO));
            for (y, (gate, up)) in y.chunks_mut(TWO).zip(ins) {
                let (gate, up) = (E::two::<L>(gate), E::two::<L>(up));
                let [low, high] = [C::gate_value(gate[0]), C::gate_value(gate[1])];
                E::settle::<L, N>([low.mul(C::up(up[0]).0), high.mul(C::up(up[1]).0)], y);
            }
        }
    }
}

struct Slopes<'a, E, C> {
    f: usize,
    /// dx and dy.
    d: (&'a mut [E], &'a [E]),
    x: &'a [E],
    curve: PhantomData<fn() -> C>,
}

impl<E: Element, C: Unit> Task for Slopes<'_, E, C> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let rows = self.d.0.chunks_exact_mut(2 * self.f);
        let rows = rows.zip(self.d.1.chunks_exact(self.f));
        for ((dx, dy), x) in rows.zip(self.x.chunks_exact(2 * self.f)) {
            let ((dgate, dup), (gate, up)) = (dx.split_at_mut(self.f), x.split_at(self.f));
            let outs = dgate.chunks_mut(TWO).zip(dup.chunks_mut(TWO));
            let ins = gate.chunks(TWO).zip(up.chunks(TWO));
            for ((dy, (dgate, dup)), (gate, up)) in dy.chunks(TWO).zip(outs).zip(ins) {
                let (gate, up, dy) = (E::two::<L>(gate), E::two::<L>(up), E::two::<L>(dy));
                let [(y0, slope0), (y1, slope1)] = [C::gate(gate[0]), C::gate(gate[1])];
                let [(up0, of_up0), (up1, of_up1)] = [C::up(up[0]), C::up(up[1])];
                let through = [dy[0].mul(up0), dy[1].mul(up1)];
                E::settle::<L, N>([through[0].mul(slope0), through[1].mul(slope1)], dgate);
                let through = [dy[0].mul(y0), dy[1].mul(y1)];
                E::settle::<L, N>([through[0].mul(of_up0), through[1].mul(of_up1)], dup);
            }
        }
    }
}

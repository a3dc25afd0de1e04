//! Fused epilogues of matrix products, applied to each tile as soon as it is complete and still in the nearest
//! cache. Each element goes through the same operations as in a separate op, so the bits are the same.
//!
//! All of it is computed in f32; outputs in bf16 are rounded last.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::Isa;
use super::activation::{Activation, by_kind};
use super::bf16::{Step, Task};
use super::element::{Element, TWO};
use super::output::{Data, DataMut, Shared};
use super::rotary::Rotary;
use super::simd::{Lanes, vector_fn};
use crate::Bf16;
use crate::descriptor::activation::Kind;
use std::marker::PhantomData;

/// An optional bias and an optional activation, for an output whose rows are contiguous.
#[derive(Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One number per column, added to each row.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) then: Then<'a>,
}

/// Epilogue after the bias. Other matrices have the output's element type.
#[derive(Clone, Copy, Default)]
pub(crate) enum Then<'a> {
    #[default]
    Nothing,
    /// The function of each element, into an output of the same form; the output has its derivative.
    Activation(Kind, Second<'a>),
    /// Each element times that of an input of the same form.
    Times(Data<'a>),
    /// Rotary embedding. It needs whole heads, not tiles: a product's driver applies it (`turns`) as soon as heads
    /// are complete.
    Rotary(&'a Rotary<'a>),
}

/// A second output that tasks write tile by tile, for as long as it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Second<'a> {
    data: Shared,
    len: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

impl<'a> Second<'a> {
    pub(crate) fn new(mut data: DataMut<'a>) -> Second<'a> {
        Second {
            data: data.shared(),
            len: data.len(),
            borrowed: PhantomData,
        }
    }
}

/// A tile of an output whose rows are `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) c: Shared,
    pub(crate) stride: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Whole {
    /// Start of the tile in a second matrix in f32, or null.
    #[inline(always)]
    pub(crate) fn second(&self, epilogue: &Epilogue<'_>) -> *const f32 {
        let at = self.row * self.stride + self.column;
        match (self.c, epilogue.second_at(at)) {
            (Shared::F32(_), Some(second)) => second.cast(),
            _ => std::ptr::null(),
        }
    }

    /// Prefetches the lines of a second matrix, on an instruction set.
    pub(crate) fn prefetch_second_on(self, isa: Isa, epilogue: &Epilogue<'_>) {
        if !matches!(epilogue.then, Then::Nothing | Then::Rotary(_)) {
            prefetch_second(isa, self, *epilogue);
        }
    }

    /// Prefetches the lines of a second matrix.
    #[inline(always)]
    pub(crate) fn prefetch_second<L: Lanes>(&self, epilogue: &Epilogue<'_>) {
        if let Then::Nothing | Then::Rotary(_) = epilogue.then {
            return;
        }
        for row in self.row..self.row + self.rows {
            let start = row * self.stride + self.column;
            match epilogue.then {
                Then::Nothing | Then::Rotary(_) => {}
                Then::Activation(_, second) => second.data.prefetch::<L>(start, self.columns),
                Then::Times(by) => by.prefetch::<L>(start, self.columns),
            }
        }
    }
}

vector_fn! {
    fn prefetch_second<L>(whole: Whole, epilogue: Epilogue<'_>) {
        whole.prefetch_second::<L>(&epilogue);
    }
}

impl Epilogue<'_> {
    /// Address of element `at` of a second matrix, if there is one.
    #[inline(always)]
    pub(crate) fn second_at(&self, at: usize) -> Option<*const u8> {
        Some(match self.then {
            Then::Nothing | Then::Rotary(_) => return None,
            Then::Activation(_, second) => match second.data {
                Shared::F32(x) => x.wrapping_add(at).cast_const().cast(),
                Shared::Bf16(x) => x.wrapping_add(at).cast_const().cast(),
            },
            Then::Times(Data::F32(x)) => x.as_ptr().wrapping_add(at).cast(),
            Then::Times(Data::Bf16(x)) => x.as_ptr().wrapping_add(at).cast(),
        })
    }

    /// Whether there is nothing to apply.
    pub(crate) fn is_none(&self) -> bool {
        self.bias.is_none() && matches!(self.then, Then::Nothing | Then::Rotary(_))
    }

    /// The rotary embedding to apply, if any.
    pub(crate) fn rotary(&self) -> Option<&'_ Rotary<'_>> {
        match self.then {
            Then::Rotary(rotary) => Some(rotary),
            _ => None,
        }
    }

    /// Tiles of `width` columns after which a head ends as well: tasks have as many, or a multiple.
    pub(crate) fn unit(&self, width: usize) -> usize {
        let both = |head: usize| (1..=head).find(|tiles| (tiles * width).is_multiple_of(head));
        (self.rotary())
            .and_then(|rotary| both(rotary.width()))
            .unwrap_or(1)
    }

    /// Applies the epilogue to elements in the output, which is in f32.
    /// # Safety
    /// The tile must be inside the output, and no other task may use its elements or those of a second output
    /// there.
    pub(crate) unsafe fn apply(self, isa: Isa, tile: Whole) {
        // SAFETY: the tile is in the output and this task's, by this function's contract.
        unsafe { go_over::<f32>(isa, self, tile, None) }
    }

    /// Like `apply`, for elements that are in `sums`, rows of whole vectors, and not yet in the output.
    /// # Safety
    /// As `apply`.
    pub(crate) unsafe fn apply_to(self, isa: Isa, tile: Whole, sums: (&[f32], usize)) {
        // SAFETY: the tile is in the output and this task's, by this function's contract.
        unsafe {
            match tile.c {
                Shared::F32(_) => go_over::<f32>(isa, self, tile, Some(sums)),
                Shared::Bf16(_) => go_over::<Bf16>(isa, self, tile, Some(sums)),
            }
        }
    }
}

/// # Safety
/// As `Epilogue::apply`.
unsafe fn go_over<E: Element>(
    isa: Isa,
    epilogue: Epilogue<'_>,
    tile: Whole,
    sums: Option<(&[f32], usize)>,
) {
    // SAFETY: the tile is in the output and this task's, by this function's contract.
    let rows = unsafe { Rows::<E>::new(epilogue, tile, sums) };
    E::perform(isa, rows);
}

/// A tile, its sums if they are elsewhere, and its epilogue. Its owner may write the tile, by the contract of
/// `new`.
struct Rows<'a, 's, E> {
    epilogue: Epilogue<'a>,
    tile: Whole,
    sums: Option<(&'s [f32], usize)>,
    numbers: PhantomData<fn() -> E>,
}

impl<'a, 's, E: Element> Rows<'a, 's, E> {
    /// # Safety
    /// As `Epilogue::apply`, for as long as it lives.
    unsafe fn new(
        epilogue: Epilogue<'a>,
        tile: Whole,
        sums: Option<(&'s [f32], usize)>,
    ) -> Rows<'a, 's, E> {
        Rows {
            epilogue,
            tile,
            sums,
            numbers: PhantomData,
        }
    }
}

impl<E: Element> Task for Rows<'_, '_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        // Constant trip counts keep a whole tile's loop in registers.
        match self.tile.columns {
            TWO => self.ends::<L, N, true>(),
            _ => self.ends::<L, N, false>(),
        }
    }
}

/// A second output's rows of a tile.
struct SecondRows<E>(*mut E);

impl<E: Element> SecondRows<E> {
    /// # Safety
    /// No other task uses the tile of the second output, and `settle` is called with elements of the tile alone.
    /// # Panics
    /// If the tile is not inside the output.
    #[inline(always)]
    unsafe fn of(second: &Second<'_>, tile: &Whole) -> SecondRows<E> {
        let last = (tile.row + tile.rows - 1) * tile.stride;
        let end = last + tile.column + tile.columns;
        assert!(end <= second.len, "the tile is inside the output");
        SecondRows(E::output(second.data))
    }

    /// Writes elements of the tile.
    #[inline(always)]
    fn settle<L: Lanes, N: Step<L>>(&self, x: [L; 2], start: usize, len: usize) {
        // SAFETY: elements of the tile, inside the output and this task's, by the contract of `of`.
        let out = unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) };
        E::settle::<L, N>(x, out);
    }
}

/// The operation after the bias on two vectors, which start at an index in the output. A trait and no closure, whose body would be
/// compiled without the instruction set where it is not inlined.
trait End<E: Element> {
    fn end<L: Lanes, N: Step<L>>(&self, x: [L; 2], start: usize, len: usize) -> [L; 2];
}

struct Keep;

impl<E: Element> End<E> for Keep {
    #[inline(always)]
    fn end<L: Lanes, N: Step<L>>(&self, x: [L; 2], _: usize, _: usize) -> [L; 2] {
        x
    }
}

struct Activate<C, E> {
    values: SecondRows<E>,
    curve: PhantomData<fn() -> C>,
}

impl<C: Activation, E: Element> End<E> for Activate<C, E> {
    #[inline(always)]
    fn end<L: Lanes, N: Step<L>>(&self, x: [L; 2], start: usize, len: usize) -> [L; 2] {
        let (low, high) = (C::both(x[0]), C::both(x[1]));
        self.values.settle::<L, N>([low.0, high.0], start, len);
        [low.1, high.1]
    }
}

struct Multiply<'a, E>(&'a [E]);

impl<E: Element> End<E> for Multiply<'_, E> {
    #[inline(always)]
    fn end<L: Lanes, N: Step<L>>(&self, x: [L; 2], start: usize, len: usize) -> [L; 2] {
        let by = E::two::<L>(&self.0[start..start + len]);
        [x[0].mul(by[0]), x[1].mul(by[1])]
    }
}

impl<E: Element> Rows<'_, '_, E> {
    #[inline(always)]
    fn ends<L: Lanes, N: Step<L>, const WHOLE: bool>(self) {
        match self.epilogue.then {
            Then::Nothing | Then::Rotary(_) => self.each::<L, N, WHOLE>(&Keep),
            Then::Activation(kind, second) => {
                // SAFETY: the tile is this task's by `Rows::new`, and `each` passes elements of the tile alone.
                let values = unsafe { SecondRows::<E>::of(&second, &self.tile) };
                by_kind!(kind, C => self.each::<L, N, WHOLE>(&Activate {
                    values,
                    curve: PhantomData::<fn() -> C>,
                }));
            }
            Then::Times(by) => self.each::<L, N, WHOLE>(&Multiply(E::input(by))),
        }
    }

    /// c = end(element + bias), two vectors at once; `WHOLE`: rows are exactly that long.
    #[inline(always)]
    fn each<L: Lanes, N: Step<L>, const WHOLE: bool>(self, then: &impl End<E>) {
        let Rows {
            epilogue,
            tile,
            sums,
            ..
        } = self;
        let columns = if WHOLE { TWO } else { tile.columns };
        for column in (0..columns).step_by(TWO) {
            let len = if WHOLE {
                TWO
            } else {
                TWO.min(columns - column)
            };
            let bias = match epilogue.bias {
                Some(bias) => f32::two::<L>(&bias[tile.column + column..][..len]),
                None => [L::splat(0.0); 2],
            };
            for row in 0..tile.rows {
                let start = (tile.row + row) * tile.stride + tile.column + column;
                // SAFETY: these elements are of the tile, which is in the output and this task's by `Rows::new`.
                let c =
                    unsafe { std::slice::from_raw_parts_mut(E::output(tile.c).add(start), len) };
                let mut x = match sums {
                    Some((sums, width)) => f32::two::<L>(&sums[row * width + column..][..len]),
                    None => E::two::<L>(c),
                };
                if epilogue.bias.is_some() {
                    x = [x[0].add(bias[0]), x[1].add(bias[1])];
                }
                E::settle::<L, N>(then.end::<L, N>(x, start, len), c);
            }
        }
    }
}

//! Self-check of a tile unit: whether it computes the promised bits. Products of awkward shapes and numbers of all
//! sizes, packed and unpacked, are compared with the emulation, which tests compare with the definition.
#![expect(
    unsafe_code,
    reason = "products of operands in place rely on their caller"
)]

use super::super::bf16_pack::join_row;
use super::super::epilogue::Epilogue;
use super::super::pack::View;
use super::super::plan::{Plan, ViewMut};
use super::super::strip::Strip;
use super::super::tile::Finish;
use super::super::{Isa, Numbers};
use super::unit::{Emulation, Units};
use super::{Right, multiply, strided};
use crate::Device;

/// Rows, columns, k, elements per leaf: flat and tall sums, partial tiles, continued sums; steps that prefetch one,
/// two and three lines.
const SHAPES: [[usize; 4]; 7] = [
    [1, 33, 65, 0],
    [5, 64, 64, 32],
    [16, 40, 97, 24],
    [17, 33, 67, 0],
    [35, 70, 96, 7],
    [33, 34, 640, 32],
    [40, 45, 1300, 0],
];

/// An unpacked product.
#[derive(Clone, Copy)]
struct StripShape {
    rows: usize,
    columns: usize,
    /// Words of k.
    steps: usize,
    /// Whether it continues sums.
    goes_on: bool,
}

const STRIPS: [StripShape; 5] = [
    strip(1, 16, 16, false),
    strip(16, 32, 32, true),
    strip(21, 48, 16, true),
    strip(64, 32, 48, false),
    strip(40, 80, 32, true),
];

const fn strip(rows: usize, columns: usize, steps: usize, goes_on: bool) -> StripShape {
    StripShape {
        rows,
        columns,
        steps,
        goes_on,
    }
}

/// First exponent and how many: near 1, any, whose products are subnormal, whose products overflow; with
/// zeros.
const SIZES: [[(u32, u32); 2]; 5] = [
    [(120, 14), (120, 14)],
    [(0, 255), (0, 255)],
    [(40, 30), (50, 40)],
    [(64, 6), (55, 9)],
    [(180, 12), (195, 6)],
];

/// Whether the processor's unit, which must exist, passes.
#[cfg(target_arch = "x86_64")]
pub(in crate::cpu) fn native_passes() -> bool {
    passes::<super::amx::Native>(Isa::Avx512Bf16)
}

/// Whether `U` passes, with the vectors of `isa`.
pub(super) fn passes<U: Units>(isa: Isa) -> bool {
    let device = Device::unchecked(isa);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut numbers = |(first, count): (u32, u32), len: usize| -> Vec<f32> {
        let one = |_| {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let bytes = state.to_le_bytes();
            let [fraction, exponent] = [0, 4].map(|at| {
                u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            });
            if exponent.is_multiple_of(31) {
                return f32::from_bits(fraction & 0x8000_0000);
            }
            f32::from_bits((fraction & 0x807f_ffff) | (first + exponent % count) << 23)
        };
        (0..len).map(one).collect()
    };
    let is_same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    let are_same = |x: &[f32], y: &[f32]| x.len() == y.len() && x.iter().zip(y).all(is_same);
    SIZES.into_iter().all(|[size_a, size_b]| {
        let are_packed = SHAPES.into_iter().all(|shape @ [m, n, k, _]| {
            let (a, b) = (numbers(size_a, m * k), numbers(size_b, k * n));
            let found = product::<U>(&device, shape, &a, &b);
            let wanted = product::<Emulation>(&device, shape, &a, &b);
            match (found, wanted) {
                (Some(found), Some(wanted)) => are_same(&found, &wanted),
                // not decidable
                _ => false,
            }
        });
        are_packed
            && STRIPS.into_iter().all(|shape| {
                let StripShape {
                    rows,
                    columns,
                    steps,
                    ..
                } = shape;
                let apart = Apart::of(shape);
                let words = |x: Vec<f32>| {
                    let mut words = vec![0.0; x.len() / 2];
                    join_row(isa, &x, &mut words);
                    words
                };
                let a = words(numbers(size_a, 2 * rows * apart.a));
                let b = words(numbers(size_b, 2 * steps * apart.b));
                let c = numbers((120, 14), rows * apart.c);
                let found = unpacked::<U>(isa, shape, &a, &b, &c);
                let wanted = unpacked::<Emulation>(isa, shape, &a, &b, &c);
                columns <= apart.c && are_same(&found, &wanted)
            })
    })
}

/// Words between rows of operands, more than they have.
struct Apart {
    a: usize,
    b: usize,
    c: usize,
}

impl Apart {
    fn of(shape: StripShape) -> Apart {
        Apart {
            a: shape.steps + 5,
            b: shape.columns + 16,
            c: shape.columns + 3,
        }
    }
}

/// Unpacked A B, or c + A B, with the floats between rows of c.
fn unpacked<U: Units>(isa: Isa, shape: StripShape, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
    let StripShape {
        rows,
        columns,
        steps,
        goes_on,
    } = shape;
    let apart = Apart::of(shape);
    let mut c = c.to_vec();
    let strip = Strip {
        a,
        a_at: (apart.a, 1),
        b,
        b_at: apart.b,
        c: &mut c,
        c_at: apart.c,
        rows,
        lanes: columns,
        steps,
        goes_on,
    };
    // SAFETY: `passes` makes operands of this many rows, each as long as it is apart from the next.
    unsafe { strided::multiply::<U>(isa, strip) }
    c
}

/// A B; None without memory.
fn product<U: Units>(
    device: &Device,
    [m, n, k, leaf]: [usize; 4],
    a: &[f32],
    b: &[f32],
) -> Option<Vec<f32>> {
    let mut c = vec![0.0; m * n];
    let view = ViewMut {
        data: c.as_mut_slice().into(),
        rows: m,
        cols: n,
        row_stride: n,
    };
    let plan = Plan {
        device,
        numbers: Numbers::Bf16Tiles,
        leaf,
        finish: Finish::Store,
        epilogue: Epilogue::default(),
        parallel: false,
    };
    let (a, b) = (View::new(a, m, k, k), View::new(b, k, n, n));
    multiply::<U>(view, a.into(), Right::Matrix(b.into()), plan).ok()?;
    Some(c)
}

//! Whether a unit computes the promised bits: products of awkward shapes, of numbers of all sizes, against
//! the emulation, which tests compare with the definition.

use super::super::gemm::{Plan, ViewMut};
use super::super::pack::View;
use super::super::tile::Finish;
use super::super::{Isa, Numbers};
use super::multiply;
use super::unit::{Emulation, Units};
use crate::Device;

/// Rows, columns, k, elements per leaf: flat and tall sums, parts of tiles, sums that go on.
const SHAPES: [[usize; 4]; 6] = [
    [1, 33, 65, 0],
    [5, 64, 64, 32],
    [16, 40, 97, 24],
    [17, 33, 67, 0],
    [35, 70, 96, 7],
    [40, 45, 1300, 0],
];

/// First exponent and how many: near 1, any, whose products are subnormal, whose products overflow; with
/// zeros.
const SIZES: [[(u32, u32); 2]; 5] = [
    [(120, 14), (120, 14)],
    [(0, 255), (0, 255)],
    [(40, 30), (50, 40)],
    [(64, 6), (55, 9)],
    [(180, 12), (195, 6)],
];

/// Whether `U` passes, with the vectors of `isa`.
pub(super) fn passes<U: Units>(isa: Isa) -> bool {
    let device = Device::cpu_with(isa);
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
    SIZES.into_iter().all(|[size_a, size_b]| {
        SHAPES.into_iter().all(|shape @ [m, n, k, _]| {
            let (a, b) = (numbers(size_a, m * k), numbers(size_b, k * n));
            let found = product::<U>(&device, shape, &a, &b);
            let wanted = product::<Emulation>(&device, shape, &a, &b);
            let is_same =
                |(x, y): (f32, f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            match (found, wanted) {
                (Some(found), Some(wanted)) => found.into_iter().zip(wanted).all(is_same),
                // nobody can tell
                _ => false,
            }
        })
    })
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
        data: &mut c,
        rows: m,
        cols: n,
        row_stride: n,
    };
    let plan = Plan {
        device,
        numbers: Numbers::Bf16Tiles,
        leaf,
        finish: Finish::Store,
        parallel: false,
    };
    multiply::<U>(view, View::new(a, m, k, k), View::new(b, k, n, n), plan).ok()?;
    Some(c)
}

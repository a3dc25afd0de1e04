//! Tile products against the manual's text, element by element; the self-check against wrong arithmetics.
#![expect(unsafe_code, reason = "units read and write through pointers")]

use super::super::Isa;
use super::super::bf16::{Task, perform_on_pairs};
use super::super::epilogue::Epilogue;
use super::super::output::Shared;
use super::super::simd::Lanes;
use super::super::tile::Finish;
use super::sums::Block;
use super::unit::{Distances, SIDE, Soon, Stretch, Unit, rows_of_tiles};
use super::*;
use crate::matmul::{Numbers, Op, product};
use crate::testing::{bits, devices, random, tree};
use crate::{Bf16, DType, Device, Tensor};
use proptest::prelude::*;

/// With exponents unbounded below: a product of two bf16 is exact in f64 and the sum nearly so, which is
/// enough to tell on which side of 2^-126 (1 - 2^-25), the least that rounds to 2^-126, it is.
fn fma(a: f32, b: f32, c: f32) -> f32 {
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    let least = f64::from(f32::MIN_POSITIVE) * (1.0 - 2.0_f64.powi(-25));
    let result = a.mul_add(b, c);
    if exact.abs() < least {
        0.0_f32.copysign(result)
    } else {
        result
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0_f32.copysign(x)
    } else {
        x
    }
}

/// TDPBF16PS as the manual defines it, for one row of A and one column of B: `sum` is the element of C.
pub(super) fn tdpbf16ps(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32 {
    let mut temporaries = [0.0_f32; 2];
    for k in 0..16 {
        for (half, temporary) in temporaries.iter_mut().enumerate() {
            let (a, b) = (flush(row[2 * k + half]), flush(column[2 * k + half]));
            *temporary = fma(a, b, *temporary);
        }
    }
    let both = flush(temporaries[0] + temporaries[1]);
    flush(flush(sum) + both)
}

/// The bf16 nearest to x, ties to even; subnormals are zeros of their sign.
pub(super) fn bf16(x: f32) -> f32 {
    if !x.is_normal() {
        return if x.is_subnormal() { flush(x) } else { x };
    }
    let below = f32::from_bits(x.to_bits() & 0xffff_0000);
    let above = f32::from_bits((x.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
    let wide = |y: f32| {
        if y.is_infinite() {
            2.0_f64.powi(128).copysign(y.into())
        } else {
            y.into()
        }
    };
    let distance = |y: f32| (wide(y) - f64::from(x)).abs();
    let is_even = below.to_bits() & 0x1_0000 == 0;
    match distance(below).total_cmp(&distance(above)) {
        std::cmp::Ordering::Less => below,
        std::cmp::Ordering::Greater => above,
        std::cmp::Ordering::Equal if is_even => below,
        std::cmp::Ordering::Equal => above,
    }
}

/// The definition, element by element: `row` and `column` of k elements.
fn element(row: &[f32], column: &[f32], leaf: usize) -> f32 {
    let leaf = if leaf == 0 { row.len().max(1) } else { leaf };
    tree(
        row.chunks(leaf)
            .zip(column.chunks(leaf))
            .map(|(row, column)| {
                let blocks = row.chunks(32).zip(column.chunks(32));
                blocks.fold(0.0, |sum, (row, column)| {
                    let whole = |x: &[f32]| {
                        let mut all = [0.0; 32];
                        for (to, x) in all.iter_mut().zip(x) {
                            *to = bf16(*x);
                        }
                        all
                    };
                    tdpbf16ps(sum, &whole(row), &whole(column))
                })
            }),
    )
}

/// op(a) op(b), or that added to c.
fn by_definition(
    c: &Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    add: bool,
) -> Vec<f32> {
    let at = |(x, op): (&Tensor, Op), row: usize, col: usize| {
        let (_, cols) = x.rows_cols();
        match op {
            Op::Plain => x.f32()[row * cols + col],
            Op::Transposed => x.f32()[col * cols + row],
        }
    };
    let (m, n) = c.rows_cols();
    let k = if a.1 == Op::Plain {
        a.0.rows_cols().1
    } else {
        a.0.rows_cols().0
    };
    let rows: Vec<Vec<f32>> = (0..m)
        .map(|i| (0..k).map(|p| at(a, i, p)).collect())
        .collect();
    let columns: Vec<Vec<f32>> = (0..n)
        .map(|j| (0..k).map(|p| at(b, p, j)).collect())
        .collect();
    let mut out = c.f32().to_vec();
    for (i, row) in rows.iter().enumerate() {
        for (j, column) in columns.iter().enumerate() {
            let sum = element(row, column, leaf);
            let c = &mut out[i * n + j];
            *c = if add { *c + sum } else { sum };
        }
    }
    out
}

const OPS: [(Op, Op); 4] = [
    (Op::Plain, Op::Plain),
    (Op::Transposed, Op::Plain),
    (Op::Plain, Op::Transposed),
    (Op::Transposed, Op::Transposed),
];

fn operands(
    (m, n, k): (usize, usize, usize),
    (op_a, op_b): (Op, Op),
    device: &Device,
    seed: u64,
) -> (Tensor, Tensor) {
    let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
    let a = random(&dims(op_a, m, k), seed, device).unwrap();
    (a, random(&dims(op_b, k, n), seed + 1, device).unwrap())
}

#[test]
fn every_shape_has_the_bits_of_the_definition_on_every_instruction_set() {
    let shapes = [
        (1, 1, 1),
        (1, 33, 65),
        (2, 17, 40),
        (3, 64, 31),
        (5, 7, 300),
        (12, 32, 64),
        (16, 40, 96),
        (17, 33, 67),
        (25, 100, 129),
        (37, 65, 700),
        (130, 70, 96),
        (97, 257, 33),
    ];
    for (m, n, k) in shapes {
        for (at, ops) in OPS.into_iter().enumerate() {
            let plain = Device::cpu();
            let (a, b) = operands((m, n, k), ops, &plain, 1);
            let (a, b) = ((&a, ops.0), (&b, ops.1));
            for (leaf, add) in [(0, false), (1, true), (7, false), (32, true), (64, false)] {
                let c = random(&[m, n], 3, &plain).unwrap();
                let want = bits(&by_definition(&c, a, b, leaf, add));
                for (rank, device) in devices().into_iter().rev().enumerate() {
                    if rank == 0 && (at > 0 && m * n * k > 10_000) {
                        continue; // plain code is slow
                    }
                    let here = |x: &Tensor| Tensor::from_f32(x.dims(), x.f32(), &device).unwrap();
                    let (x, y, mut c) = (here(a.0), here(b.0), here(&c));
                    let (x, y) = ((&x, a.1), (&y, b.1));
                    product(Numbers::Bf16Tiles, &mut c, x, y, leaf, add).unwrap();
                    let place = (device.name(), m, n, k, ops, leaf, add);
                    assert!(bits(c.f32()) == want, "{place:?}");
                }
            }
        }
    }
}

#[test]
fn long_k_in_many_blocks_has_the_bits_of_the_definition() {
    let device = Device::cpu();
    for (m, n) in [(3, 40), (14, 33), (110, 35)] {
        for k in [1500, 3100] {
            let ops = (Op::Transposed, Op::Plain);
            let (a, b) = operands((m, n, k), ops, &device, 1);
            let (a, b) = ((&a, ops.0), (&b, ops.1));
            for leaf in [0, 3, 32, 96, 512, 1101, 2048] {
                let mut c = random(&[m, n], 3, &device).unwrap();
                let want = by_definition(&c, a, b, leaf, true);
                product(Numbers::Bf16Tiles, &mut c, a, b, leaf, true).unwrap();
                assert!(bits(c.f32()) == bits(&want), "{m} {n} {k} {leaf}");
            }
        }
    }
}

#[test]
fn longer_k_over_squares_of_the_output_has_the_bits_of_the_definition() {
    let (k, ops) = (4500, (Op::Plain, Op::Plain));
    for (m, n, leaf, threads) in [(5, 550, 1125, 1), (40, 70, 32, 3), (530, 9, 0, 2)] {
        let device = Device::cpu();
        let (a, b) = operands((m, n, k), ops, &device, 1);
        let (a, b) = ((&a, ops.0), (&b, ops.1));
        let mut c = random(&[m, n], 3, &device).unwrap();
        let want = by_definition(&c, a, b, leaf, true);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let multiply = || product(Numbers::Bf16Tiles, &mut c, a, b, leaf, true);
        pool.build().unwrap().install(multiply).unwrap();
        assert!(bits(c.f32()) == bits(&want), "{m} {n} {leaf}");
    }
}

/// Leaves of one step that the unit adds two at once, in several blocks; all but two are 2^-120.
#[test]
fn neighbours_of_one_step_whose_sum_is_subnormal_are_added_as_any() {
    let (m, n, k, leaf) = (40, 35, 512, 32);
    let power = |p: i32| 2.0_f32.powi(p);
    for device in devices() {
        for first in (0..k / leaf).step_by(2) {
            let (mut a, b) = (vec![0.0; m * k], vec![power(-66); n * k]);
            for row in a.chunks_exact_mut(k) {
                for leaf in row.chunks_exact_mut(leaf) {
                    leaf[9] = power(-54);
                }
                let two = &mut row[first * leaf..(first + 2) * leaf];
                two.fill(0.0);
                two[3] = power(-60) * (1.0 + power(-7));
                two[leaf + 5] = -power(-60);
            }
            let a = Tensor::from_f32(&[m, k], &a, &device).unwrap();
            let b = Tensor::from_f32(&[n, k], &b, &device).unwrap();
            let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
            let (a, b) = ((&a, Op::Plain), (&b, Op::Transposed));
            product(Numbers::Bf16Tiles, &mut c, a, b, leaf, false).unwrap();
            let others = 14.0 * power(-120);
            let is = |want: f32| c.f32().iter().all(|x| *x == want);
            assert!(is(others + power(-133)), "{} {first}", device.name());
            // the unit itself flushes them
            product(Numbers::Bf16Tiles, &mut c, a, b, 2 * leaf, false).unwrap();
            let is = |want: f32| c.f32().iter().all(|x| *x == want);
            assert!(is(others), "{} {first}", device.name());
        }
    }
}

/// A number whose exponent is of a kind: any, tiny, huge, near 1, subnormal or zero.
pub(super) fn number(kind: usize, random: u32) -> f32 {
    let (first, count) = [(1, 253), (1, 80), (190, 64), (120, 14), (0, 2)][kind % 5];
    f32::from_bits((random & 0x807f_ffff) | (first + (random >> 23 & 0xff) % count) << 23)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_products_have_the_bits_of_the_definition(
        m in 1_usize..60, n in 1_usize..90, k in 0_usize..200, leaf in 0_usize..220,
        ops in 0_usize..4, add: bool, threads in 1_usize..4, seed in 0_u64..1000,
    ) {
        let device = Device::cpu();
        let ops = OPS[ops];
        let (a, b) = operands((m, n, k), ops, &device, seed);
        let (a, b) = ((&a, ops.0), (&b, ops.1));
        let mut c = random(&[m, n], seed + 2, &device).unwrap();
        let want = by_definition(&c, a, b, leaf, add);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| product(Numbers::Bf16Tiles, &mut c, a, b, leaf, add)).unwrap();
        prop_assert_eq!(bits(c.f32()), bits(&want));
    }

    #[test]
    fn numbers_of_every_size_have_the_bits_of_the_definition(
        kinds in (0_usize..5, 0_usize..5), seed: u64, leaf in 0_usize..70,
    ) {
        let (m, n, k) = (5, 35, 100);
        for device in devices() {
            let mut state = seed;
            let mut next = |kind| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                number(kind, (state >> 32) as u32)
            };
            let a: Vec<f32> = (0..m * k).map(|_| next(kinds.0)).collect();
            let b: Vec<f32> = (0..n * k).map(|_| next(kinds.1)).collect();
            let a = Tensor::from_f32(&[m, k], &a, &device).unwrap();
            let b = Tensor::from_f32(&[n, k], &b, &device).unwrap();
            let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
            let (a, b) = ((&a, Op::Plain), (&b, Op::Transposed));
            let want = by_definition(&c, a, b, leaf, false);
            product(Numbers::Bf16Tiles, &mut c, a, b, leaf, false).unwrap();
            for (found, want) in c.f32().iter().zip(&want) {
                let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
                prop_assert!(same, "{}: {found:e}, want {want:e}", device.name());
            }
        }
    }
}

#[test]
fn tiles_pairs_and_singles_have_other_bits() {
    let device = Device::cpu();
    let (a, b) = operands((20, 20, 256), OPS[0], &device, 1);
    let of = |numbers| {
        let mut c = Tensor::zeros(&[20, 20], DType::F32, &device).unwrap();
        product(numbers, &mut c, (&a, Op::Plain), (&b, Op::Plain), 64, false).unwrap();
        bits(c.f32())
    };
    assert_ne!(of(Numbers::Bf16Tiles), of(Numbers::Bf16));
    assert_ne!(of(Numbers::Bf16Tiles), of(Numbers::F32));
}

#[test]
fn rows_columns_and_shards_of_k_alone_have_the_bits_of_the_whole() {
    let device = Device::cpu();
    let (m, n, k, leaf) = (70, 75, 8 * 24, 24);
    let ops = (Op::Plain, Op::Transposed);
    let (a, b) = operands((m, n, k), ops, &device, 1);
    let multiply = |a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)| {
        let a = Tensor::from_f32(&[m, k], a, &device).unwrap();
        let b = Tensor::from_f32(&[n, k], b, &device).unwrap();
        let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
        product(
            Numbers::Bf16Tiles,
            &mut c,
            (&a, ops.0),
            (&b, ops.1),
            leaf,
            false,
        )
        .unwrap();
        c
    };
    let whole = multiply(a.f32(), b.f32(), (m, n, k));
    for (row, col, rows, cols) in [
        (0, 3, 1, 40),
        (16, 31, 2, 1),
        (33, 0, 37, 75),
        (69, 64, 1, 11),
    ] {
        let (some_a, some_b) = (
            &a.f32()[row * k..][..rows * k],
            &b.f32()[col * k..][..cols * k],
        );
        let part = multiply(some_a, some_b, (rows, cols, k));
        for r in 0..rows {
            let same = &whole.f32()[(row + r) * n + col..][..cols];
            assert_eq!(bits(&part.f32()[r * cols..][..cols]), bits(same), "row {r}");
        }
    }
    let half = |x: &Tensor, first: usize| -> Vec<f32> {
        let rows = x.f32().chunks_exact(k);
        rows.flat_map(|row| row[first..first + k / 2].to_vec())
            .collect()
    };
    let of = |first| multiply(&half(&a, first), &half(&b, first), (m, n, k / 2));
    let (mut left, right) = (of(0), of(k / 2));
    crate::reduce::tree_add_into(&mut left, &right).unwrap();
    assert_eq!(bits(left.f32()), bits(whole.f32()));
}

/// Arithmetic of a unit over a block of 32.
trait Arithmetic {
    fn block(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32;
}

struct Manual;
impl Arithmetic for Manual {
    fn block(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32 {
        tdpbf16ps(sum, row, column)
    }
}

/// The arithmetic of `vdpbf16ps`.
struct Chain;
impl Arithmetic for Chain {
    fn block(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32 {
        let pairs = row.chunks(2).zip(column.chunks(2));
        pairs.fold(sum, |sum, (a, b)| fma(a[0], b[0], fma(a[1], b[1], sum)))
    }
}

/// Subnormal sums stay.
struct Unflushed;
impl Arithmetic for Unflushed {
    fn block(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32 {
        let mut chains = [0.0_f32; 2];
        for (k, (a, b)) in row.iter().zip(column).enumerate() {
            chains[k % 2] = a.mul_add(*b, chains[k % 2]);
        }
        sum + (chains[0] + chains[1])
    }
}

/// Sums of products are rounded twice.
struct Unfused;
impl Arithmetic for Unfused {
    fn block(sum: f32, row: &[f32; 32], column: &[f32; 32]) -> f32 {
        let mut chains = [0.0_f32; 2];
        for (k, (a, b)) in row.iter().zip(column).enumerate() {
            chains[k % 2] = flush(flush(a * b) + chains[k % 2]);
        }
        flush(sum + flush(chains[0] + chains[1]))
    }
}

/// A unit in scalar code that reads its operands by the distances in `Stretch`.
struct Singles<A>(usize, PhantomData<A>);

impl<A: Arithmetic> Units for Singles<A> {
    type Of<L: Lanes> = Singles<A>;

    fn perform<T: Task>(isa: Isa, task: T) {
        perform_on_pairs(isa, task);
    }
}

impl<A: Arithmetic> Unit for Singles<A> {
    fn start(rows: usize) -> Self {
        Singles(rows, PhantomData)
    }

    fn reshape(&mut self, rows: usize) {
        self.0 = rows;
    }

    unsafe fn run(&mut self, stretch: Stretch<'_>) {
        let word = |from: *const f32, bytes: usize| {
            // SAFETY: the stretch's operands are complete, by the trait's contract.
            unsafe { from.byte_add(bytes).read() }
        };
        let down = |at: Distances, row: usize| row / SIDE * at.lower + row % SIDE * at.row;
        let halves = |word: f32| {
            let bits = word.to_bits();
            [
                f32::from_bits(bits << 16),
                f32::from_bits(bits & 0xffff_0000),
            ]
        };
        for r in 0..self.0 {
            for j in 0..if stretch.is_wide { BOTH } else { SIDE } {
                // SAFETY: the stretch's sums are complete and exclusively this unit's, by the trait's contract.
                let sum = unsafe { &mut *stretch.sums.byte_add(down(stretch.sums_at, r) + 4 * j) };
                if !stretch.goes_on {
                    *sum = 0.0;
                }
                for step in 0..stretch.steps {
                    let (mut row, mut column) = ([0.0; 32], [0.0; 32]);
                    for w in 0..SIDE {
                        let (a, b) = (stretch.a_at, stretch.b_at);
                        let word_a = word(stretch.a, step * a.step + down(a, r) + 4 * w);
                        let word_b = word(stretch.b, step * b.step + w * b.row + 4 * j);
                        row[2 * w..][..2].copy_from_slice(&halves(word_a));
                        column[2 * w..][..2].copy_from_slice(&halves(word_b));
                    }
                    *sum = A::block(*sum, &row, &column);
                }
            }
        }
    }
}

#[test]
fn the_self_check_lets_the_promised_arithmetic_pass_and_no_other() {
    let isa = Device::cpu().isa();
    assert!(self_check::passes::<Emulation>(isa));
    assert!(self_check::passes::<Singles<Manual>>(isa));
    assert!(!self_check::passes::<Singles<Chain>>(isa));
    assert!(!self_check::passes::<Singles<Unflushed>>(isa));
    assert!(!self_check::passes::<Singles<Unfused>>(isa));
}

#[test]
fn tiles_have_the_rows_of_their_factors() {
    assert_eq!(rows_of_tiles(3), [3, 3, 1, 1, 3, 1, 16, 16]);
    assert_eq!(rows_of_tiles(21), [16, 16, 5, 5, 16, 5, 16, 16]);
    assert_eq!(rows_of_tiles(32), [16; 8]);
}

/// Lines that the steps of all blocks of k of a tile prefetch, relative to the tile's start.
fn asked_for(k: usize, leaf: usize, c: Shared, stride: usize) -> Vec<usize> {
    let order = Order::new(k, leaf);
    let rect = Rect::<Emulation> {
        isa: Device::cpu().isa(),
        order,
        height: BOTH,
        span: (0, order.steps()),
        a: Rows::Packed(&[]),
        b: Columns::Packed(&[]),
        m: 2 * BOTH,
        n: 2 * BOTH,
        finish: Finish::Store,
        epilogue: Epilogue::default(),
        c,
        at: (0, 0),
        c_stride: stride,
        units: PhantomData,
    };
    let start = match c {
        Shared::F32(c) => c.wrapping_add(BOTH * stride + BOTH).addr(),
        Shared::Bf16(c) => c.wrapping_add(BOTH * stride + BOTH).addr(),
    };
    let cuts = order.cuts();
    let mut lines = Vec::new();
    for (start_of_block, end) in cuts.blocks() {
        let block = Block {
            a: &[],
            b: &[],
            cuts,
            start: start_of_block,
            end,
        };
        let mut soon = rect.soon(&block, BOTH, BOTH);
        assert!(soon.each <= Soon::MOST);
        for _ in 0..(end - start_of_block) / SIDE {
            let now = soon.take(1);
            for (at, i) in now
                .at
                .into_iter()
                .flat_map(|at| (0..now.each).map(move |i| (at, i)))
            {
                lines.push(at.wrapping_add(i * now.apart).addr() - start);
            }
        }
    }
    lines
}

#[test]
fn steps_ask_for_all_rows_of_a_tile_between_them() {
    let stride = 3 * BOTH;
    let mut f32s = vec![0.0_f32; 2 * BOTH * stride];
    let mut halves = vec![Bf16(0); 2 * BOTH * stride];
    for (k, leaf) in [(384, 0), (768, 0), (1024, 32), (1536, 96), (3072, 0)] {
        for (c, size, of_row) in [
            (Shared::F32(f32s.as_mut_ptr()), 4, vec![0, 64]),
            (Shared::Bf16(halves.as_mut_ptr()), 2, vec![0]),
        ] {
            let found = asked_for(k, leaf, c, stride);
            let row = |r: usize| of_row.iter().map(move |line| r * stride * size + line);
            let wanted: Vec<usize> = (0..BOTH).flat_map(row).collect();
            assert!(
                wanted.iter().all(|line| found.contains(line)),
                "k {k}, leaf {leaf}"
            );
            // If lines do not divide evenly, a block also prefetches some of the next one's.
            assert!(
                found.len() <= 2 * wanted.len(),
                "k {k}: {} asked for",
                found.len()
            );
        }
    }
}

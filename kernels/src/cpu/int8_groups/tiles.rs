//! Tiles of sixteen rows by a panel's 32 columns, a group at a time, as AMX's products of bytes make them.
//!
//! A group's product of signed rows and unsigned codes is an exact sum of 32-bit integers, so that the processor's tile unit
//! (`amx.rs`), its emulation and the loops of other instruction sets give the same bits. Rows are not interleaved here: a group of
//! a row is 16 or 32 bytes side by side, as a tile holds them. A panel's codes already are as the other tile holds them.

use super::layout::{Chain, Compute, Held, Loops, QUAD, STEP, Sums, TALL, WIDTH};
use crate::cpu::codes::{MOST, Scales};
use crate::cpu::simd::LANES;

/// Groups whose sums are added together, so that a tile's sums are read and written half as often.
const TOGETHER: usize = 2;
/// The exponent of a binary16 is this much smaller than that of an f32: 2^112.
const TO_SINGLE: f32 = f32::from_bits(239 << 23);

/// Sums of a group: those of the left 16 columns, then of the right ones.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Products(pub(super) [[[i32; LANES]; TALL]; WIDTH / LANES]);

impl Products {
    pub(super) const ZERO: Products = Products([[[0; LANES]; TALL]; WIDTH / LANES]);
}

/// A unit that multiplies a group of sixteen rows.
pub(super) trait Unit {
    /// Multiplies signed bytes of rows, `quads` times four of each, and unsigned codes of a panel.
    /// # Safety
    /// Both can be read, and the unit of this thread is ready for so many quads.
    unsafe fn multiply(quads: usize, rows: *const u8, codes: *const u8, products: &mut Products);
}

/// The unit in plain Rust.
pub(super) struct Emulation;

impl Loops for Emulation {
    /// Of tiles of sixteen rows alone.
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T, Emulation>
    }
}

impl Unit for Emulation {
    unsafe fn multiply(quads: usize, rows: *const u8, codes: *const u8, products: &mut Products) {
        // SAFETY: both can be read, by the trait's contract.
        let (rows, codes) = unsafe {
            (
                std::slice::from_raw_parts(rows, TALL * quads * QUAD),
                std::slice::from_raw_parts(codes, quads * STEP),
            )
        };
        for (v, tile) in products.0.iter_mut().enumerate() {
            for (row, sums) in rows.chunks_exact(quads * QUAD).zip(tile) {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    let product = |(k, q): (usize, &u8)| {
                        let at = k / QUAD * STEP + (v * LANES + lane) * QUAD + k % QUAD;
                        i32::from(q.cast_signed()) * i32::from(codes[at])
                    };
                    *sum = row.iter().enumerate().map(product).sum();
                }
            }
        }
    }
}

/// Sums of a tile.
type Tile = [[f32; WIDTH]; TALL];

/// As `layout::Compute`.
/// # Safety
/// The chain's panel and rows can be read, and the unit of this thread is ready.
#[inline(always)]
pub(super) unsafe fn chain<T: Held, U: Unit>(chain: Chain, sums: &mut Sums) {
    let Some(sums) = sums.first_chunk_mut() else {
        unreachable!("the sums have room for all heights")
    };
    *sums = [[0.0; WIDTH]; TALL];
    let mut products = [Products::ZERO; TOGETHER];
    let whole = chain.groups / TOGETHER * TOGETHER;
    // SAFETY: the groups are the chain's, and all else is by this function's contract.
    unsafe {
        for first in (0..whole).step_by(TOGETHER) {
            add::<T, U, TOGETHER>(chain, first, &mut products, sums);
        }
        for first in whole..chain.groups {
            let [products, _] = &mut products;
            add::<T, U, 1>(chain, first, std::array::from_mut(products), sums);
        }
    }
}

/// Adds the products of `N` groups, which are kept in `products`.
/// # Safety
/// As `chain`; the chain has these groups.
#[inline(always)]
unsafe fn add<T: Held, U: Unit, const N: usize>(
    chain: Chain,
    first: usize,
    products: &mut [Products; N],
    sums: &mut Tile,
) {
    let quads = const { T::CODE.quads() };
    let mut by = [Numbers::ZERO; N];
    for (own, products) in products.iter_mut().enumerate() {
        let number = first + own;
        // SAFETY: the chain has this group, by this function's contract.
        unsafe {
            let panel = (chain.panel).add(number * const { T::CODE.bytes_of_group() });
            by[own] = Numbers::at::<T>(panel);
            let codes = panel.add(const { T::CODE.bytes_of_scales() });
            let rows = chain.codes.add(number * quads * TALL).cast();
            if const { T::CODE.is_nibble() } {
                let apart = bytes_of_nibbles(codes);
                U::multiply(quads, rows, apart.as_ptr(), products);
            } else {
                U::multiply(quads, rows, codes, products);
            }
        }
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let mut acc = *sums;
        for (own, products) in products.iter().enumerate() {
            let at = (first + own) * TALL + row;
            // SAFETY: rows have the chain's groups, by this function's contract.
            let (scale, shift, total) = unsafe {
                (
                    *chain.scales.add(at),
                    *chain.shifts.add(at),
                    *chain.totals.add(at),
                )
            };
            for (v, acc) in acc.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                for (lane, acc) in acc.iter_mut().enumerate() {
                    let whole = products.0[v][row][lane] + shift;
                    let by = by[own].scales[v][lane] * scale;
                    *acc = (whole as f32).mul_add(by, *acc);
                }
                if const { T::CODE.has_offsets() } {
                    for (lane, acc) in acc.iter_mut().enumerate() {
                        *acc = by[own].offsets[v][lane].mul_add(total, *acc);
                    }
                }
            }
        }
        *sums = acc;
    }
}

/// Scales and offsets of a group's columns.
#[derive(Clone, Copy)]
struct Numbers {
    scales: [[f32; LANES]; WIDTH / LANES],
    offsets: [[f32; LANES]; WIDTH / LANES],
}

impl Numbers {
    const ZERO: Numbers = Numbers {
        scales: [[0.0; LANES]; WIDTH / LANES],
        offsets: [[0.0; LANES]; WIDTH / LANES],
    };

    /// # Safety
    /// A group can be read there.
    #[inline(always)]
    unsafe fn at<T: Held>(panel: *const u8) -> Numbers {
        let mut own = Numbers::ZERO;
        let columns = own.scales.iter_mut().zip(&mut own.offsets).enumerate();
        for (v, (scales, offsets)) in columns {
            // SAFETY: a group begins with its scales, by this function's contract.
            unsafe {
                match const { T::CODE.form_of_scales() } {
                    Scales::Half => {
                        let halves: [u16; LANES] =
                            panel.cast::<[u16; LANES]>().add(v).read_unaligned();
                        *scales = halves.map(widened);
                    }
                    Scales::Single => {
                        *scales = panel.cast::<[f32; LANES]>().add(v).read_unaligned();
                    }
                    Scales::WithOffsets => {
                        let both = panel.cast::<[f32; LANES]>().add(2 * v);
                        *scales = both.read_unaligned();
                        *offsets = both.add(1).read_unaligned();
                    }
                }
            }
        }
        own
    }
}

/// A finite binary16 as f32.
#[inline(always)]
fn widened(half: u16) -> f32 {
    let size = f32::from_bits(u32::from(half & 0x7fff) << 13) * TO_SINGLE;
    f32::from_bits(size.to_bits() | u32::from(half & 0x8000) << 16)
}

/// Codes of 4 bits of a group in bytes of their own.
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn bytes_of_nibbles(codes: *const u8) -> [u8; MOST * WIDTH] {
    let mut out = [0; MOST * WIDTH];
    for (both, out) in out.as_chunks_mut::<{ 2 * STEP }>().0.iter_mut().enumerate() {
        // SAFETY: a group has two steps of codes in each of these, by this function's contract.
        let codes = unsafe { *codes.cast::<[u8; STEP]>().add(both) };
        let (first, second) = out.split_at_mut(STEP);
        for (at, code) in codes.iter().enumerate() {
            first[at] = code & 15;
            second[at] = code >> 4;
        }
    }
    out
}

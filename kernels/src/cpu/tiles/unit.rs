//! The tile unit: eight tiles of up to 16 rows of 64 bytes, and what is done with them on a stretch of k.
//!
//! The instructions of a stretch are written down once, as lists that a macro takes: `amx.rs` makes them
//! the text of an assembler, `Emulated` walks them over the same memory. So what is computed anywhere is
//! what the instructions are given on a machine that has them.
//! Source: Intel SDM, LDTILECFG, TILELOADD, TILEZERO, TDPBF16PS, TILESTORED.
#![expect(
    unsafe_code,
    reason = "tiles are read and written through pointers, as by the instructions"
)]

use super::super::bf16::{even, flushed_fma, odd};
use super::super::simd::{LANES, Lanes};

/// Rows of a tile, words of a row.
pub(super) const SIDE: usize = 16;
/// Rows of the sums of a tall stretch, and their columns.
pub(super) const BOTH: usize = 2 * SIDE;
/// Tiles of the unit.
const TILES: usize = 8;
/// Bytes between rows of A's tiles.
pub(super) const NARROW: usize = 4 * SIDE;
/// Bytes between rows of B's tiles and of the sums.
pub(super) const WIDE: usize = 4 * BOTH;

/// Sums under way: up to 32 rows of 32.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [f32; BOTH * BOTH]);

/// A part of a leaf.
pub(super) struct Stretch<'a> {
    /// For each step a tile of rows of A, or two: a row is 16 words of k.
    pub(super) a: *const f32,
    /// For each step 16 words of k, each of 32 columns.
    pub(super) b: *const f32,
    pub(super) sums: &'a mut Sums,
    /// Words of k over 16.
    pub(super) steps: usize,
    /// Whether sums go on from what they are, instead of 0.
    pub(super) goes_on: bool,
}

/// What multiplies tiles.
pub(super) trait Unit {
    /// Configures it for sums of `rows` rows: at most 16 (flat), or 32 (tall).
    fn start(rows: usize) -> Self;

    /// Adds the products of a stretch to its sums.
    /// # Safety
    /// There is at least one step; A has one tile per step, of tall sums two, B has 16 * 32 words per step.
    unsafe fn run(&mut self, stretch: Stretch<'_>);
}

/// A kind of unit, for any vectors.
pub(super) trait Units {
    type Of<L: Lanes>: Unit;
}

/// Rows of each tile: 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 words of B.
pub(super) fn rows_of_tiles(rows: usize) -> [u8; TILES] {
    let few = u8::try_from(rows.min(SIDE)).expect("at most 16");
    let all = 16;
    [few, few, few, few, few, few, all, all]
}

/// A tall stretch. Sums: tile, bytes from the first sum. Steps: tiles to load, with bytes from where A or B
/// stand; sums, rows and words of a product. Next: bytes to the next step of A and of B.
macro_rules! tall {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 0] [1 64] [2 2048] [3 2112];
            steps: [a 4 0] [b 6 0] [dot 0 4 6] [b 7 64] [dot 1 4 7] [a 5 1024] [dot 2 5 6] [dot 3 5 7];
            next: 2048 2048;
        }
    };
}
pub(super) use tall;

/// A flat one.
macro_rules! flat {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 0] [1 64];
            steps: [a 4 0] [b 6 0] [dot 0 4 6] [b 7 64] [dot 1 4 7];
            next: 1024 2048;
        }
    };
}
pub(super) use flat;

/// One instruction of a step.
enum Op {
    /// Tile, bytes from where A stands.
    A(usize, usize),
    /// Tile, bytes from where B stands.
    B(usize, usize),
    /// Tiles: sums, rows, words.
    Dot(usize, usize, usize),
}

/// The lists as the emulation walks them.
struct Listed {
    sums: &'static [(usize, usize)],
    steps: &'static [Op],
    next: (usize, usize),
}

macro_rules! listed {
    (
        ()
        sums: $([$tile:literal $at:literal])*;
        steps: $([$($op:tt)*])*;
        next: $a:literal $b:literal;
    ) => {
        Listed { sums: &[$(($tile, $at)),*], steps: &[$(op!($($op)*)),*], next: ($a, $b) }
    };
}

macro_rules! op {
    (a $tile:literal $at:literal) => {
        Op::A($tile, $at)
    };
    (b $tile:literal $at:literal) => {
        Op::B($tile, $at)
    };
    (dot $sums:literal $rows:literal $words:literal) => {
        Op::Dot($sums, $rows, $words)
    };
}

const ALL_OF_TALL: Listed = tall!(listed());
const ALL_OF_FLAT: Listed = flat!(listed());

/// The unit in vectors, to the bit.
pub(super) struct Emulated<L> {
    is_tall: bool,
    rows: [u8; TILES],
    /// A row is a vector.
    tiles: [[L; SIDE]; TILES],
    /// Least exponents of the factors in them.
    least: [i32; TILES],
}

/// The emulation, as a kind of unit.
pub(super) struct Emulation;

impl Units for Emulation {
    type Of<L: Lanes> = Emulated<L>;
}

impl<L: Lanes> Unit for Emulated<L> {
    #[inline(always)]
    fn start(rows: usize) -> Self {
        Emulated {
            is_tall: rows > SIDE,
            rows: rows_of_tiles(rows),
            tiles: [[L::splat(0.0); SIDE]; TILES],
            least: [0; TILES],
        }
    }

    #[inline(always)]
    unsafe fn run(&mut self, stretch: Stretch<'_>) {
        let all = if self.is_tall {
            &ALL_OF_TALL
        } else {
            &ALL_OF_FLAT
        };
        let (mut a, mut b) = (stretch.a.cast::<u8>(), stretch.b.cast::<u8>());
        let sums = stretch.sums.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller vouches for A and B, the lists stay inside their steps and inside the sums.
        unsafe {
            for &(tile, at) in all.sums {
                if stretch.goes_on {
                    self.load(tile, sums.add(at), WIDE);
                } else {
                    self.tiles[tile] = [L::splat(0.0); SIDE];
                }
            }
            for _ in 0..stretch.steps {
                for op in all.steps {
                    match *op {
                        Op::A(tile, at) => self.load_factors(tile, a.add(at), NARROW),
                        Op::B(tile, at) => self.load_factors(tile, b.add(at), WIDE),
                        Op::Dot(sums, rows, words) => self.dot(sums, rows, words),
                    }
                }
                a = a.wrapping_add(all.next.0);
                b = b.wrapping_add(all.next.1);
            }
            for &(tile, at) in all.sums {
                self.store(tile, sums.add(at), WIDE);
            }
        }
    }
}

impl<L: Lanes> Emulated<L> {
    /// # Safety
    /// The tile's rows lie `stride` bytes apart from `from` on.
    #[inline(always)]
    unsafe fn load(&mut self, tile: usize, from: *const u8, stride: usize) {
        let rows = usize::from(self.rows[tile]);
        for (row, to) in self.tiles[tile].iter_mut().enumerate() {
            *to = if row < rows {
                // SAFETY: the caller vouches for the rows that the tile has.
                unsafe { L::load_at(from.add(row * stride).cast()) }
            } else {
                L::splat(0.0)
            };
        }
    }

    /// # Safety
    /// As `load`.
    #[inline(always)]
    unsafe fn load_factors(&mut self, tile: usize, from: *const u8, stride: usize) {
        // SAFETY: passed on to the caller.
        unsafe { self.load(tile, from, stride) }
        self.least[tile] = least(&self.tiles[tile]);
    }

    /// # Safety
    /// As `load`, and nobody else touches them.
    #[inline(always)]
    unsafe fn store(&self, tile: usize, to: *mut u8, stride: usize) {
        let rows = usize::from(self.rows[tile]);
        for (row, from) in self.tiles[tile].iter().enumerate().take(rows) {
            // SAFETY: the caller vouches for the rows that the tile has.
            unsafe { from.store_at(to.add(row * stride).cast()) }
        }
    }

    /// TDPBF16PS. Rows past a tile's are never stored.
    #[inline(always)]
    fn dot(&mut self, sums: usize, rows: usize, words: usize) {
        assert!(
            self.rows[sums] == self.rows[rows] && usize::from(self.rows[words]) == SIDE,
            "shapes that the instruction takes"
        );
        let mut factors = [[L::splat(0.0); 2]; SIDE];
        for (factors, words) in factors.iter_mut().zip(self.tiles[words]) {
            *factors = [even(words), odd(words)];
        }
        let count = usize::from(self.rows[rows]);
        let (tall, flat) = (4, 2);
        let [from, to] = self
            .tiles
            .get_disjoint_mut([rows, sums])
            .expect("two tiles");
        // All sums of products are multiples of the least product's last bit: if that is a normal number,
        // nothing is flushed on the way.
        if self.least[rows] + self.least[words] >= 2 * 127 - 126 + 2 * 7 {
            let step = if L::TILE_VECTORS == 2 { tall } else { flat };
            for row in (0..count).step_by(step) {
                if L::TILE_VECTORS == 2 {
                    plain::<L, 4>(&from[row..], &factors, &mut to[row..]);
                } else {
                    plain::<L, 2>(&from[row..], &factors, &mut to[row..]);
                }
            }
        } else {
            for row in 0..count {
                flushing(from[row], &factors, &mut to[row]);
            }
        }
    }
}

/// Least exponent of the factors of words, as bf16 has it; very large if all are zero, very small if one
/// is subnormal.
#[inline(always)]
fn least<L: Lanes>(words: &[L; SIDE]) -> i32 {
    let mut least = [u32::MAX; LANES];
    for words in words {
        for (least, word) in least.iter_mut().zip(words.to_array()) {
            let (low, high) = (word.to_bits() & 0x7fff, word.to_bits() >> 16 & 0x7fff);
            // a zero, less one, is the largest
            *least = (*least).min(low.wrapping_sub(1)).min(high.wrapping_sub(1));
        }
    }
    let least = least.into_iter().fold(u32::MAX, u32::min);
    match i32::try_from(least.wrapping_add(1) >> 7) {
        _ if least == u32::MAX => 1000,
        Ok(exponent) if exponent > 0 => exponent,
        _ => -1000,
    }
}

/// R rows of words by all factors, where nothing is subnormal but the sum of sums.
#[inline(always)]
fn plain<L: Lanes, const R: usize>(words: &[L], factors: &[[L; 2]; SIDE], sums: &mut [L]) {
    let mut chains = [[L::splat(0.0); 2]; R];
    // apart in memory, from where one factor for all lanes is a load
    let mut rows = [[[0.0; LANES]; 2]; R];
    for (row, words) in rows.iter_mut().zip(words) {
        *row = [even(*words).to_array(), odd(*words).to_array()];
    }
    for (k, [even, odd]) in factors.iter().enumerate() {
        for (chain, row) in chains.iter_mut().zip(&rows) {
            let (low, high) = (L::splat(row[0][k]), L::splat(row[1][k]));
            *chain = [low.fma(*even, chain[0]), high.fma(*odd, chain[1])];
        }
    }
    for (sum, [even, odd]) in sums.iter_mut().zip(chains) {
        *sum = flushed(flushed(*sum).add(flushed(even.add(odd))));
    }
}

/// A row of words by all factors, whatever they are.
#[inline(always)]
fn flushing<L: Lanes>(words: L, factors: &[[L; 2]; SIDE], sum: &mut L) {
    let mut chain = [L::splat(0.0); 2];
    let row = words.to_array();
    for (k, [even, odd]) in factors.iter().enumerate() {
        let bits = row[k].to_bits();
        let low = flushed(L::splat(f32::from_bits(bits << 16)));
        let high = flushed(L::splat(f32::from_bits(bits & 0xffff_0000)));
        chain = [
            flushed_fma(low, flushed(*even), chain[0]),
            flushed_fma(high, flushed(*odd), chain[1]),
        ];
    }
    *sum = flushed(flushed(*sum).add(flushed(chain[0].add(chain[1]))));
}

/// Subnormal numbers are zeros of their sign. What rounding leaves subnormal in a sum of two is exact.
#[inline(always)]
fn flushed<L: Lanes>(x: L) -> L {
    let zero = L::splat(0.0);
    let size = x.max(zero.sub(x));
    size.select_less(L::splat(f32::MIN_POSITIVE), x.mul(zero), x)
}

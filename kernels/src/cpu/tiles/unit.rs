//! The tile unit: eight tiles of up to 16 rows of 64 bytes, and their operations on a stretch of k.
//!
//! The instructions of a stretch are written down once, as lists that a macro takes: `amx.rs` turns them into
//! assembler text, `Emulated` interprets them over the same memory. So the emulation computes exactly the
//! instructions that a machine with tiles executes. Source: Intel SDM, LDTILECFG, TILELOADD, TILEZERO, TDPBF16PS,
//! TILESTORED.
#![expect(
    unsafe_code,
    reason = "tiles are read and written through pointers, as by the instructions"
)]

use super::super::Isa;
use super::super::bf16::{Task, even, flushed_fma, odd, perform_on_pairs};
use super::super::simd::{LANES, Lanes};
use super::super::tile::Ahead;
use std::marker::PhantomData;

/// Rows of a tile, and words per row.
pub(super) const SIDE: usize = 16;
/// Rows of the sums of a tall stretch, and their columns.
pub(super) const BOTH: usize = 2 * SIDE;
/// Tiles of the unit.
const TILES: usize = 8;
/// Running sums: up to 32 rows of 32.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [f32; BOTH * BOTH]);

/// Layout of an operand's tiles: bytes between rows of a tile, from the upper 16 rows to the lower ones, and from
/// step to step. The right 16 columns follow the left ones.
#[derive(Clone, Copy)]
pub(super) struct Distances {
    pub(super) row: usize,
    pub(super) lower: usize,
    pub(super) step: usize,
}

/// Lines to prefetch while a stretch is multiplied: of memory that is written or read when sums are complete, as lines
/// prefetched all at once would delay each other, and the rows and words of the stretch; or of the words of B that
/// follow, as the loads of a tile are too few to fill the memory's queue.
#[derive(Clone, Copy)]
pub(super) struct Soon {
    /// The next of two rows of evenly spaced lines.
    pub(super) at: [*const u8; 2],
    pub(super) apart: usize,
    /// Lines of each that a step prefetches: at most `MOST`, or `COLUMNS`.
    pub(super) each: usize,
}

impl Soon {
    pub(super) const MOST: usize = 3;
    /// A step's words of 32 columns, in two rows of lines.
    pub(super) const COLUMNS: usize = SIDE;
    pub(super) const NOTHING: Soon = Soon {
        at: [std::ptr::null(); 2],
        apart: 0,
        each: 0,
    };

    /// In each step as many words of a pack of 32 columns, `Ahead::IN_FLIGHT` bytes after those at `b`, which it multiplies.
    #[inline(always)]
    pub(super) fn of_columns(b: *const f32) -> Soon {
        const LINE: usize = 4 * SIDE;
        let at = b.wrapping_byte_add(Ahead::IN_FLIGHT).cast::<u8>();
        Soon {
            at: [at, at.wrapping_add(LINE)],
            apart: 2 * LINE,
            each: Soon::COLUMNS,
        }
    }

    /// The prefetches of the next `steps` steps.
    #[inline(always)]
    pub(super) fn take(&mut self, steps: usize) -> Soon {
        let now = *self;
        let len = steps * self.each * self.apart;
        self.at = [self.at[0].wrapping_add(len), self.at[1].wrapping_add(len)];
        now
    }
}

/// A part of a leaf: steps of 16 words of k, for up to 32 rows and 32 columns of sums.
pub(super) struct Stretch<'a> {
    /// For each step one or two tiles of rows of A: a row is 16 words of k.
    pub(super) a: *const f32,
    pub(super) a_at: Distances,
    /// For each step 16 words of k, each of 32 columns or 16.
    pub(super) b: *const f32,
    pub(super) b_at: Distances,
    pub(super) sums: *mut f32,
    pub(super) sums_at: Distances,
    /// Words of k over 16.
    pub(super) steps: usize,
    /// Whether sums continue from their values instead of 0.
    pub(super) goes_on: bool,
    /// 32 columns if true, else 16.
    pub(super) is_wide: bool,
    /// Only of packs for 32 rows and columns.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only a processor's unit waits for memory")
    )]
    pub(super) soon: Soon,
    pub(super) owner: PhantomData<&'a mut f32>,
}

impl Stretch<'_> {
    /// For packs of 32 columns, tile after tile and word after word, whose rows take `tiles` tiles per step.
    pub(super) fn packed(
        (a, tiles): (*const f32, usize),
        b: *const f32,
        sums: &mut Sums,
        (steps, goes_on): (usize, bool),
    ) -> Stretch<'_> {
        const ROW: usize = 4 * SIDE;
        let wide = Distances {
            row: 2 * ROW,
            lower: 2 * ROW * SIDE,
            step: 2 * ROW * SIDE,
        };
        Stretch {
            a,
            a_at: Distances {
                row: ROW,
                lower: ROW * SIDE,
                step: ROW * SIDE * tiles,
            },
            b,
            b_at: wide,
            sums: sums.0.as_mut_ptr(),
            sums_at: wide,
            steps,
            goes_on,
            is_wide: true,
            soon: Soon::NOTHING,
            owner: PhantomData,
        }
    }
}

/// A unit that multiplies tiles.
pub(super) trait Unit {
    /// Configures it for sums of `rows` rows: up to 16 (flat), or to 32 (tall).
    fn start(rows: usize) -> Self;

    /// Configures it for another number of rows, if it is one.
    fn reshape(&mut self, rows: usize);

    /// Adds the products of a stretch to its sums.
    /// # Safety
    /// There is at least one step; A and the sums have the rows that the unit is configured for, and all operands
    /// are as long as the stretch says; no other task uses the sums.
    unsafe fn run(&mut self, stretch: Stretch<'_>);
}

/// A kind of unit, for any vectors.
pub(super) trait Units {
    type Of<L: Lanes>: Unit;

    /// Runs a task with the vectors of an instruction set that has such units.
    fn perform<T: Task>(isa: Isa, task: T);
}

/// Rows of each tile: 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 words of B; 0, 1 and 4 are upper ones.
pub(super) fn rows_of_tiles(rows: usize) -> [u8; TILES] {
    let few = |rows: usize| u8::try_from(rows.clamp(1, SIDE)).expect("at most 16");
    let (upper, lower) = (few(rows), few(rows.saturating_sub(SIDE)));
    let all = 16;
    [upper, upper, lower, lower, upper, lower, all, all]
}

/// A stretch of 17 to 32 rows and 32 columns. Sums: tile, its rows, bytes to its columns. Steps: tiles of A to
/// load, with their rows, and of B, with bytes to their columns; sums, rows and words of a product.
macro_rules! tall_wide {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 upper 0] [1 upper 64] [2 lower 0] [3 lower 64];
            steps: [a 4 upper] [b 6 0] [dot 0 4 6] [b 7 64] [dot 1 4 7]
                [a 5 lower] [dot 2 5 6] [dot 3 5 7];
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use tall_wide;

/// For 17 to 32 rows and 16 columns.
macro_rules! tall_slim {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 upper 0] [2 lower 0];
            steps: [a 4 upper] [b 6 0] [dot 0 4 6] [a 5 lower] [dot 2 5 6];
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use tall_slim;

/// For up to 16 rows and 32 columns.
macro_rules! flat_wide {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 upper 0] [1 upper 64];
            steps: [a 4 upper] [b 6 0] [dot 0 4 6] [b 7 64] [dot 1 4 7];
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use flat_wide;

/// For up to 16 rows and 16 columns.
macro_rules! flat_slim {
    ($to:ident $with:tt) => {
        $to! {
            $with
            sums: [0 upper 0];
            steps: [a 4 upper] [b 6 0] [dot 0 4 6];
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use flat_slim;

/// One instruction of a step.
enum Op {
    /// Tile, whether it has the lower rows of A.
    A(usize, bool),
    /// Tile, bytes to its columns of B.
    B(usize, usize),
    /// Tiles: sums, rows, words.
    Dot(usize, usize, usize),
}

/// The lists as the emulation walks them.
struct Listed {
    /// Tile, whether it has the lower rows, bytes to its columns.
    sums: &'static [(usize, bool, usize)],
    steps: &'static [Op],
}

macro_rules! listed {
    (
        ()
        sums: $([$tile:literal $rows:ident $at:literal])*;
        steps: $([$($op:tt)*])*;
    ) => {
        Listed { sums: &[$(($tile, is_lower!($rows), $at)),*], steps: &[$(op!($($op)*)),*] }
    };
}

macro_rules! is_lower {
    (upper) => {
        false
    };
    (lower) => {
        true
    };
}

macro_rules! op {
    (a $tile:literal $rows:ident) => {
        Op::A($tile, is_lower!($rows))
    };
    (b $tile:literal $at:literal) => {
        Op::B($tile, $at)
    };
    (dot $sums:literal $rows:literal $words:literal) => {
        Op::Dot($sums, $rows, $words)
    };
}

/// By whether a stretch is tall and whether it is wide.
const ALL_LISTS: [[Listed; 2]; 2] = [
    [flat_slim!(listed()), flat_wide!(listed())],
    [tall_slim!(listed()), tall_wide!(listed())],
];

/// The unit in vectors, to the bit.
pub(super) struct Emulated<L> {
    is_tall: bool,
    rows: [u8; TILES],
    /// One vector per row.
    tiles: [[L; SIDE]; TILES],
    /// Smallest exponents of the factors in them.
    least: [i32; TILES],
}

/// The emulation, as a kind of unit.
pub(super) struct Emulation;

impl Units for Emulation {
    type Of<L: Lanes> = Emulated<L>;

    fn perform<T: Task>(isa: Isa, task: T) {
        perform_on_pairs(isa, task);
    }
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
    fn reshape(&mut self, rows: usize) {
        self.is_tall = rows > SIDE;
        self.rows = rows_of_tiles(rows);
    }

    #[inline(always)]
    unsafe fn run(&mut self, stretch: Stretch<'_>) {
        let all = &ALL_LISTS[usize::from(self.is_tall)][usize::from(stretch.is_wide)];
        let (mut a, mut b) = (stretch.a.cast::<u8>(), stretch.b.cast::<u8>());
        let (a_at, b_at, sums_at) = (stretch.a_at, stretch.b_at, stretch.sums_at);
        let sums = stretch.sums.cast::<u8>();
        let down = |at: Distances, is_lower| if is_lower { at.lower } else { 0 };
        // SAFETY: the operands are complete by the trait's contract, and the lists stay inside their steps and the
        // sums.
        unsafe {
            for &(tile, is_lower, at) in all.sums {
                if stretch.goes_on {
                    let from = sums.add(down(sums_at, is_lower) + at);
                    self.load(tile, from, sums_at.row);
                } else {
                    self.tiles[tile] = [L::splat(0.0); SIDE];
                }
            }
            for _ in 0..stretch.steps {
                for op in all.steps {
                    match *op {
                        Op::A(tile, is_lower) => {
                            self.load_factors(tile, a.add(down(a_at, is_lower)), a_at.row);
                        }
                        Op::B(tile, at) => self.load_factors(tile, b.add(at), b_at.row),
                        Op::Dot(sums, rows, words) => self.dot(sums, rows, words),
                    }
                }
                a = a.wrapping_add(a_at.step);
                b = b.wrapping_add(b_at.step);
            }
            for &(tile, is_lower, at) in all.sums {
                let to = sums.add(down(sums_at, is_lower) + at);
                self.store(tile, to, sums_at.row);
            }
        }
    }
}

impl<L: Lanes> Emulated<L> {
    /// # Safety
    /// The tile's rows are `stride` bytes apart from `from` on.
    #[inline(always)]
    unsafe fn load(&mut self, tile: usize, from: *const u8, stride: usize) {
        let rows = usize::from(self.rows[tile]);
        for (row, to) in self.tiles[tile].iter_mut().enumerate() {
            *to = if row < rows {
                // SAFETY: the tile's rows are at `from`, `stride` bytes apart, by this function's contract.
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
        // SAFETY: `load` needs the tile's rows at `from`, by this function's contract.
        unsafe { self.load(tile, from, stride) }
        self.least[tile] = least(&self.tiles[tile]);
    }

    /// # Safety
    /// As `load`, and nobody else touches them.
    #[inline(always)]
    unsafe fn store(&self, tile: usize, to: *mut u8, stride: usize) {
        let rows = usize::from(self.rows[tile]);
        for (row, from) in self.tiles[tile].iter().enumerate().take(rows) {
            // SAFETY: the tile's rows are at `to`, `stride` bytes apart, and no other task uses them, by this
            // function's contract.
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

/// Smallest exponent of the factors of words, as bf16 has it; very large if all are zero, very small if one
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

/// Multiplies a row of words by all factors, in the general case.
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

/// Flushes subnormal numbers to zeros of their sign. A subnormal sum of two numbers is exact, so rounding loses
/// nothing here.
#[inline(always)]
fn flushed<L: Lanes>(x: L) -> L {
    let zero = L::splat(0.0);
    let size = x.max(zero.sub(x));
    size.select_less(L::splat(f32::MIN_POSITIVE), x.mul(zero), x)
}

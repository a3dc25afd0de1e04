//! The second factor of a product: the order of its words in panels, and packs of all of it that several products read.

use super::bf16::{Function, function, function_of_halves};
use super::codes::{Code, function_of_codes};
use super::int8_groups;
use super::pack::{Matrix, Panels, pack};
use super::simd::LANES;
use super::tile::Cuts;
use super::{Isa, Numbers};
use crate::Bf16;
use rayon::prelude::*;

type Range = std::ops::Range<usize>;

/// Layout of k in packs.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) numbers: Numbers,
    pub(super) k: usize,
    /// Elements of k per leaf, at least 1.
    pub(super) leaf: usize,
}

impl Order {
    pub(super) fn new(numbers: Numbers, k: usize, leaf: usize) -> Order {
        let whole = k.max(1);
        let leaf = if leaf == 0 { whole } else { leaf.min(whole) };
        Order { numbers, k, leaf }
    }

    /// Words for `len` elements of a leaf.
    pub(super) fn words(self, len: usize) -> usize {
        match self.numbers {
            Numbers::F32 => len,
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                len.div_ceil(2)
            }
        }
    }

    /// Words of k.
    pub(super) fn steps(self) -> usize {
        (self.k / self.leaf) * self.words(self.leaf) + self.words(self.k % self.leaf)
    }

    pub(super) fn cuts(self) -> Cuts {
        Cuts::new(self.steps(), self.words(self.leaf))
    }

    /// Packs steps of some panels, whose k are the columns of their matrix.
    pub(super) fn pack(self, isa: Isa, panels: Panels<Matrix<'_>>, steps: Range, out: &mut [f32]) {
        let Range { start, end } = steps;
        let part = |first, end| Panels {
            a: panels.a.columns(first, end),
            ..panels
        };
        if self.numbers == Numbers::F32 {
            return pack(isa, self.numbers, part(start, end), out);
        }
        let per_leaf = self.words(self.leaf);
        let mut at = start;
        while at < end {
            let leaf = at / per_leaf;
            // Even leaves follow each other without half steps.
            let (stop, k_end) = if self.leaf.is_multiple_of(2) {
                (end, self.k)
            } else {
                let next = (leaf + 1) * self.leaf;
                (end.min((leaf + 1) * per_leaf), self.k.min(next))
            };
            let k = leaf * self.leaf + 2 * (at - leaf * per_leaf);
            let part = part(k, k_end.min(k + 2 * (stop - at)));
            pack(
                isa,
                self.numbers,
                part,
                &mut out[(at - start) * panels.width..],
            );
            at = stop;
        }
    }
}

/// Words of packed panels.
#[derive(Clone, Copy)]
pub(crate) enum Words<'a> {
    Whole(&'a [f32]),
    /// f32 that equal a bf16, as such: half the memory, the same products.
    Halves(&'a [Bf16]),
    /// f32 that are multiples of scales, as such (`codes.rs`).
    Codes(&'a [f32], Code),
}

impl Words<'_> {
    /// Panels of so many steps and columns.
    pub(super) fn panels(self, steps: usize, width: usize) -> usize {
        let floats = match self {
            Words::Whole(words) | Words::Codes(words, _) => words.len(),
            Words::Halves(words) => words.len() / 2,
        };
        floats / self.floats(steps, width).max(1)
    }

    /// Floats of memory of a panel of so many steps and columns.
    pub(super) fn floats(self, steps: usize, width: usize) -> usize {
        match self {
            Words::Whole(_) => steps * width,
            Words::Halves(_) => steps * width / 2,
            Words::Codes(_, code) => code.panel(steps, width),
        }
    }

    /// Bytes of a step of a panel, but for scales.
    pub(super) fn bytes_of_step(self, width: usize) -> usize {
        match self {
            Words::Whole(_) => width * size_of::<f32>(),
            Words::Halves(_) => width * size_of::<Bf16>(),
            Words::Codes(_, code) => code.bytes_of_step(width),
        }
    }

    /// Where the memory for a step of panel `number` of those of `steps` steps begins.
    pub(super) fn at(self, number: usize, [step, steps]: [usize; 2], width: usize) -> *const f32 {
        let panel = number * self.floats(steps, width);
        match self {
            Words::Whole(words) => words[panel + step * width..].as_ptr(),
            Words::Halves(words) => words[2 * panel + step * width..].as_ptr().cast(),
            Words::Codes(words, code) => words[panel + code.before(step, width)..].as_ptr(),
        }
    }

    /// A function that reads them, compiled for an instruction set (`bf16::function`).
    fn function<F: Function<Args>, Args>(self, isa: Isa, pairs: bool) -> unsafe fn(Args) {
        match self {
            Words::Whole(_) => function::<F, Args>(isa, pairs),
            Words::Halves(_) => function_of_halves::<F, Args>(isa),
            Words::Codes(_, code) => function_of_codes::<F, Args>(isa, code),
        }
    }
}

/// A second factor that is packed for many products.
#[derive(Clone, Copy)]
pub(crate) enum Prepacked<'a> {
    Words(Words<'a>),
    /// For products with rounded rows.
    Int8(int8_groups::Right<'a>),
}

/// Panels of B: of a packed block, or of a pack of all columns and all of k.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    pub(super) words: Words<'a>,
    /// The block's first panel.
    pub(super) first: usize,
    /// Its first step, and the steps of panels.
    pub(super) steps: [usize; 2],
    pub(super) width: usize,
}

impl Columns<'_> {
    pub(super) fn panel(&self, p: usize) -> *const f32 {
        self.words.at(self.first + p, self.steps, self.width)
    }
}

/// The second factor.
#[derive(Clone, Copy)]
pub(super) enum Right<'a> {
    Matrix(Matrix<'a>),
    /// By `fill`.
    Packed(Words<'a>),
}

impl Right<'_> {
    /// A function that reads it, compiled for an instruction set (`bf16::function`).
    pub(super) fn function<F: Function<Args>, Args>(
        self,
        isa: Isa,
        pairs: bool,
    ) -> unsafe fn(Args) {
        match self {
            Right::Matrix(_) => function::<F, Args>(isa, pairs),
            Right::Packed(words) => words.function::<F, Args>(isa, pairs),
        }
    }
}

/// Words of all panels of op(B) `[k, n]`.
pub(crate) fn packed_words(isa: Isa, numbers: Numbers, [k, n]: [usize; 2], leaf: usize) -> usize {
    let cols = shape(isa, 1).1;
    n.div_ceil(cols) * Order::new(numbers, k, leaf).steps() * cols
}

/// As `fill` in f32, of numbers that equal a bf16; vectors of a panel are interleaved as `bf16::Halves` reads them.
pub(crate) fn fill_halves(isa: Isa, words: &mut [Bf16], b: Matrix<'_>, leaf: usize) {
    let (cols, b) = (shape(isa, 1).1, b.transposed());
    let order = Order::new(Numbers::F32, b.cols(), leaf);
    let apart = order.steps() * cols;
    if apart == 0 {
        return;
    }
    let panels = words.par_chunks_mut(apart).enumerate();
    panels.for_each_init(
        || vec![0.0; apart],
        |whole, (panel, out)| {
            let one = Panels {
                a: b,
                first: panel * cols,
                width: cols,
                count: 1,
                apart,
            };
            order.pack(isa, one, 0..order.steps(), whole);
            let half = |word: f32| Bf16(u16::try_from(word.to_bits() >> 16).unwrap_or(0));
            for (out, whole) in out.chunks_exact_mut(cols).zip(whole.chunks_exact(cols)) {
                let vectors = cols / LANES;
                for (at, out) in out.iter_mut().enumerate() {
                    *out = half(whole[at % vectors * LANES + at / vectors]);
                }
            }
        },
    );
}

/// Packs all of op(B), whose panels later products read as they are.
pub(crate) fn fill(isa: Isa, numbers: Numbers, words: &mut [f32], b: Matrix<'_>, leaf: usize) {
    let (cols, b) = (shape(isa, 1).1, b.transposed());
    let order = Order::new(numbers, b.cols(), leaf);
    let apart = order.steps() * cols;
    if apart == 0 {
        return;
    }
    words
        .par_chunks_mut(apart)
        .enumerate()
        .for_each(|(panel, out)| {
            let one = Panels {
                a: b,
                first: panel * cols,
                width: cols,
                count: 1,
                apart,
            };
            order.pack(isa, one, 0..order.steps(), out);
        });
}

/// Rows and columns of the tile for an output of m rows. Few rows take the tile that pads them least: the time of a tile
/// does not depend on how many of its rows are in the output.
pub(super) fn shape(isa: Isa, m: usize) -> (usize, usize) {
    let (low, tall, cols) = match isa {
        Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 => (8, 12, 32),
        Isa::Avx2 | Isa::Neon => (4, 6, 16),
        Isa::Portable => (4, 4, 16),
    };
    let padded = |rows: usize| m.next_multiple_of(rows);
    let rows = match m {
        0..=1 => 1,
        2 if tall > LOWEST_ROWS => 2,
        2..=LOWEST_ROWS => LOWEST_ROWS,
        5..=FEW_ROWS if padded(low) < padded(tall) => low,
        _ => tall,
    };
    (rows, cols)
}

/// Panels of a pack that a tile of so many rows takes at once: with few rows one has too few chains to hide the latency
/// of their additions.
pub(super) fn panels_at_once(isa: Isa, rows: usize) -> usize {
    let [one, two, four] = match isa {
        Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 => [4, 2, 2],
        Isa::Avx2 | Isa::Neon => [4, 2, 1],
        Isa::Portable => [1, 1, 1],
    };
    match rows {
        1 => one,
        2 => two,
        4 => four,
        _ => 1,
    }
}

/// `shape` for a product by a matrix of n columns: adapters have so few that half a wide tile holds them.
pub(super) fn shape_by_matrix(isa: Isa, [m, n]: [usize; 2]) -> (usize, usize) {
    let (rows, cols) = shape(isa, m);
    let is_narrow = n <= LANES && m > FEW_ROWS;
    (rows, if is_narrow { LANES } else { cols })
}

/// Rows up to which tiles are lower than those of blocks.
pub(super) const LOWEST_ROWS: usize = 4;
/// Up to this many rows the low tile may be chosen; the padding of more is a small share of them.
const FEW_ROWS: usize = 48;

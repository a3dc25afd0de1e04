//! `C[m,n] = A[m,k] B[k,n]` with one order of k per element, independent of m, n, tile, threads and instruction set.
//!
//! Blocked GEMM: both operands are packed into panels of a block of k; tasks are rectangles of tiles. For a long k
//! the sums of a block of the output wait in memory (`tile.rs`) while one block of k after the other is packed and
//! multiplied. With few rows (generation) no pack of B would be used twice, so a task packs one panel of B and
//! drops it; a pack that is there already is read panel by panel, in blocks of k that stay in L1. A pack holds words: f32, or the bf16 of two neighbouring k (`bf16.rs`); a word of k is a step. Leaves
//! start at whole steps, so that an odd leaf ends with half a step of zeros. Shapes: m, n, k in elements.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::epilogue::{Epilogue, Whole};
use super::output::Shared;
use super::pack::{Matrix, Panels};
use super::plan::{
    FEW_PACKED, FEW_PANELS, PACK_A_BYTES, PACK_B_BYTES, PARALLEL_ABOVE, Plan, ViewMut, block, share,
};
use super::right::{
    Columns, LOWEST_ROWS, Order, Prepacked, Right, Words, panels_at_once, shape, shape_by_matrix,
};
use super::rotary::{Part, Rotary};
use super::simd::LANES;
use super::tile::{Ahead, Cuts, Finish, Stack, Tile};
use super::tile_shapes::{Reading, Shape, tile_function};
use super::{Isa, Numbers, int8_groups, pieces, tiles};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// Bytes of the A panels one task goes through per B panel: half of a 1 MiB L2.
const GROUP_BYTES: usize = 512 << 10;
/// Tasks per thread of an output of few rows: the memory's speed differs from core to core.
const FEW_TASKS: usize = 8;
/// Bytes of a panel's block that several tiles read: at most half of L1, beside the rows; the next block waits in L2.
const BLOCK_BYTES: usize = 16 << 10;
/// Minimum panels per group, even if threads then finish unevenly: B comes from a farther cache.
const GROUP_LEAST: usize = 8;
/// Sums that wait between blocks of k; each task uses only its own tiles'.
#[derive(Clone, Copy)]
struct Waiting(*mut f32);
// SAFETY: the pointer is to exclusively borrowed scratch, of which tasks use disjoint tiles.
unsafe impl Send for Waiting {}
// SAFETY: each tile belongs to one task, so no two threads use the same sums.
unsafe impl Sync for Waiting {}

/// Panels of one packed block: panel p starts at p * k * width.
pub(crate) struct Packed {
    data: Tensor,
    /// Words per lane.
    k: usize,
    width: usize,
}

impl Packed {
    fn panel(&self, p: usize) -> &[f32] {
        let len = self.k * self.width;
        &self.data.f32()[p * len..(p + 1) * len]
    }

    fn columns(&mut self) -> Columns<'_> {
        Columns {
            words: Words::Whole(self.data.f32()),
            first: 0,
            steps: [0, self.k],
            width: self.width,
        }
    }
}

/// Checks the callers' promises; returns whether there is anything to compute.
fn has_elements(c: &ViewMut<'_>, a: Matrix<'_>, plan: &Plan<'_>) -> bool {
    a.check();
    assert!(a.rows() == c.rows, "callers check shapes");
    let (m, n) = (c.rows, c.cols);
    if m == 0 || n == 0 {
        return false;
    }
    assert!(
        (m - 1) * c.row_stride + n <= c.data.len(),
        "the output is inside its slice"
    );
    assert!(
        plan.epilogue.is_none() || c.row_stride == n,
        "rows follow each other"
    );
    true
}

/// Like `gemm`, of columns that `fill` or, in tiles, `tiles::fill` packed for as many as c has and the plan's leaves; with rounded
/// rows, `int8_groups::fill`.
/// # Errors
/// `Memory` if packs do not fit.
pub(crate) fn gemm_packed(
    c: ViewMut<'_>,
    a: Matrix<'_>,
    (packed, n): (Prepacked<'_>, usize),
    plan: Plan<'_>,
) -> Result<()> {
    assert!(n == c.cols, "callers check shapes");
    if !has_elements(&c, a, &plan) {
        return Ok(());
    }
    let words = match packed {
        Prepacked::Words(words) => words,
        Prepacked::Int8(right) => return int8_groups::gemm(c, a, right, plan),
    };
    match words {
        Words::Whole(words) if plan.numbers == Numbers::Bf16Tiles => {
            return tiles::gemm(c, a, tiles::Right::Packed(words), plan);
        }
        Words::Whole(_) => {}
        Words::Halves(_) | Words::Codes(..) => {
            assert!(plan.numbers == Numbers::F32, "other forms are of f32");
        }
    }
    let cols = shape(plan.device.isa(), 1).1;
    let steps = Order::new(plan.numbers, a.cols(), plan.leaf).steps();
    let is_whole = steps == 0 || words.panels(steps, cols) == n.div_ceil(cols);
    assert!(is_whole, "packed for this product");
    blocked(c, a, Right::Packed(words), plan)
}

/// Multiplies; the definition of the bits is in `tile.rs`.
/// # Errors
/// `Memory` if the packs do not fit.
pub(crate) fn gemm<'m>(
    c: ViewMut<'_>,
    a: impl Into<Matrix<'m>>,
    b: impl Into<Matrix<'m>>,
    plan: Plan<'_>,
) -> Result<()> {
    let (a, b) = (a.into(), b.into());
    b.check();
    assert!(
        b.cols() == c.cols && a.cols() == b.rows(),
        "callers check shapes"
    );
    if !has_elements(&c, a, &plan) {
        return Ok(());
    }
    if plan.numbers == Numbers::Bf16Tiles {
        return tiles::gemm(c, a, tiles::Right::Matrix(b), plan);
    }
    blocked(c, a, Right::Matrix(b.transposed()), plan) // lanes of a panel are columns
}

/// The product block by block, by vectors.
fn blocked(mut c: ViewMut<'_>, a: Matrix<'_>, b: Right<'_>, plan: Plan<'_>) -> Result<()> {
    let (m, n, k) = (c.rows, c.cols, a.cols());
    let order = Order::new(plan.numbers, k, plan.leaf);
    let cuts = order.cuts();
    let isa = plan.device.isa();
    let (rows, cols) = match b {
        Right::Matrix(_) => shape_by_matrix(isa, [m, n]),
        Right::Packed(_) => shape(isa, m),
    };
    let parallel =
        plan.parallel && rayon::current_num_threads() > 1 && m * n * k.max(1) > PARALLEL_ABOVE;
    let out = c.data.shared();
    if takes_few(&plan, [m, n], matches!(b, Right::Packed(_))) {
        let whole = 0..order.steps();
        let packed_a = pack_block((a, order), 0..m, whole, rows, plan.device, parallel)?;
        let few = Few {
            a: &packed_a,
            b,
            m,
            n,
            cols,
            order,
            finish: plan.finish,
            epilogue: plan.epilogue,
            c: out,
            c_stride: c.row_stride,
        };
        few.multiply(isa, parallel);
        return Ok(());
    }
    let is_long = cuts.own() > 0;
    let b_bytes = if is_long { PACK_A_BYTES } else { PACK_B_BYTES };
    let m_block = block(m, rows, cuts.longest(), PACK_A_BYTES);
    let whole_heads = cols * plan.epilogue.unit(cols);
    let n_block = block(n, cols, cuts.longest(), b_bytes).next_multiple_of(whole_heads);
    let tiles = m.min(m_block).div_ceil(rows) * n.min(n_block).div_ceil(cols);
    let mut sums = Tensor::empty(&[tiles * cuts.own() * rows * cols], DType::F32, plan.device)?;
    let own = Waiting(sums.f32_mut().as_mut_ptr());
    let mut packed_b = None;
    for n0 in (0..n).step_by(n_block) {
        let n_end = n.min(n0 + n_block);
        for m0 in (0..m).step_by(m_block) {
            let m_end = m.min(m0 + m_block);
            for span in cuts.blocks() {
                // With a single block of k one pack serves all rows; otherwise it is replaced by the next.
                if is_long || m0 == 0 {
                    packed_b = None;
                }
                let columns = match (b, &mut packed_b) {
                    (Right::Packed(words), _) => Columns {
                        words,
                        first: n0 / cols,
                        steps: [span.0, order.steps()],
                        width: cols,
                    },
                    (Right::Matrix(_), Some(packed)) => Packed::columns(packed),
                    (Right::Matrix(b), none) => none
                        .insert(pack_block(
                            (b, order),
                            n0..n_end,
                            span.0..span.1,
                            cols,
                            plan.device,
                            parallel,
                        )?)
                        .columns(),
                };
                let rect = Rect {
                    a: (a, order),
                    height: rows,
                    b: columns,
                    m: m_end - m0,
                    n: n_end - n0,
                    cuts,
                    span,
                    own,
                    pairs: plan.numbers.are_pairs(),
                    finish: plan.finish,
                    epilogue: plan.epilogue,
                    c: out,
                    at: (m0, n0),
                    c_stride: c.row_stride,
                };
                rect.multiply(plan.device, parallel)?;
            }
        }
    }
    Ok(())
}

/// Whether a product with m rows and n columns goes through B panel by panel, all rows with each (`Few`). Its tasks share
/// out the panels of columns alone: of a pack with few of them, no more rows than of a matrix, and of a single panel no
/// more than those that lower tiles than a block's hold.
fn takes_few(plan: &Plan<'_>, [m, n]: [usize; 2], is_packed: bool) -> bool {
    let (rows, cols) = shape(plan.device.isa(), m);
    let threads = if plan.parallel {
        rayon::current_num_threads()
    } else {
        1
    };
    let panels = match is_packed && n.div_ceil(cols) >= 2 * threads {
        true => FEW_PACKED,
        false => FEW_PANELS,
    };
    m <= LOWEST_ROWS || m <= panels * rows && n > cols
}

/// Whether a product `[m, n]` over k words of k, by a matrix or a pack, applies rotary embedding itself
/// (`epilogue::Then::Rotary`).
pub(crate) fn turns(plan: &Plan<'_>, c: DType, [m, n, k]: [usize; 3], is_packed: bool) -> bool {
    if plan.numbers == Numbers::Bf16Tiles {
        return tiles::turns(plan, m, k);
    }
    // Sums of an output in bf16 are rounded tile by tile.
    c == DType::F32
        && m > FEW_PANELS * shape(plan.device.isa(), m).0
        && !takes_few(plan, [m, n], is_packed)
}

/// Packs `span` of k of some lanes.
fn pack_block(
    (x, order): (Matrix<'_>, Order),
    lanes: Range,
    span: Range,
    width: usize,
    device: &Device,
    parallel: bool,
) -> Result<Packed> {
    let k = span.len();
    let panels = lanes.len().div_ceil(width);
    // Powers of two let packs of unlike shapes share pooled buffers.
    let floats = (panels * k * width).max(1).next_power_of_two();
    let mut data = Tensor::empty(&[floats], DType::F32, device)?;
    if k > 0 {
        let part = x.up_to(lanes.end);
        let out = &mut data.f32_mut()[..panels * k * width];
        let apart = k * width;
        let tasks = if parallel {
            panels.min(2 * rayon::current_num_threads())
        } else {
            1
        };
        let each = panels.div_ceil(tasks);
        let one = |(task, out): (usize, &mut [f32])| {
            let panels = Panels {
                a: part,
                first: lanes.start + task * each * width,
                width,
                count: out.len() / apart,
                apart,
            };
            order.pack(device.isa(), panels, span.clone(), out);
        };
        if parallel {
            pieces(out.par_chunks_mut(each * apart).enumerate()).for_each(one);
        } else {
            one((0, out));
        }
    }
    Ok(Packed { data, k, width })
}

/// A block of the output and the packs it comes from.
struct Rect<'a> {
    a: (Matrix<'a>, Order),
    /// Rows of a tile.
    height: usize,
    b: Columns<'a>,
    m: usize,
    n: usize,
    cuts: Cuts,
    /// Steps of k that the packs have.
    span: (usize, usize),
    /// Sums of the block's tiles, row of tiles by row, that wait between blocks of k.
    own: Waiting,
    /// Whether a word is two bf16.
    pairs: bool,
    finish: Finish,
    epilogue: Epilogue<'a>,
    /// All of the output, and where the block starts in it.
    c: Shared,
    at: (usize, usize),
    c_stride: usize,
}

impl Rect<'_> {
    fn multiply(&self, device: &Device, parallel: bool) -> Result<()> {
        let (rows, cols) = (self.m.div_ceil(self.height), self.n.div_ceil(self.b.width));
        let steps = (self.span.1 - self.span.0).max(1);
        let threads = if parallel {
            rayon::current_num_threads()
        } else {
            1
        };
        // Several groups per thread, the same number for each so that threads finish together, unless groups would
        // be small.
        let most = (GROUP_BYTES / (4 * self.height * steps)).clamp(1, rows);
        let tasks = if parallel { 4 * threads } else { 1 };
        let group = rows.div_ceil(tasks).clamp(GROUP_LEAST.min(most), most);
        let groups = rows.div_ceil(group).next_multiple_of(threads).min(rows);
        // Strips of columns where there are fewer groups than it takes.
        let least = if parallel { 2 * threads } else { 1 };
        let strip = cols.div_ceil(least.div_ceil(groups).clamp(1, cols));
        let strip = strip.next_multiple_of(self.epilogue.unit(self.b.width));
        let strips = cols.div_ceil(strip);
        let pack = |panels: Range, parallel| {
            let end = self.m.min(panels.end * self.height);
            let lanes = self.at.0 + panels.start * self.height..self.at.0 + end;
            let span = self.span.0..self.span.1;
            pack_block(self.a, lanes, span, self.height, device, parallel)
        };
        // A task that alone uses a group packs it itself and so has it in L2.
        let shared = (strips > 1).then(|| pack(0..rows, parallel)).transpose()?;
        let one = |task: usize| {
            let (g, s) = (task / strips, task % strips);
            let panels = share(rows, g, groups);
            let own;
            let (a, first) = match &shared {
                Some(a) => (a, 0),
                None => {
                    own = pack(panels.clone(), false)?;
                    (&own, panels.start)
                }
            };
            let tiles = Tiles {
                isa: device.isa(),
                rect: self,
                a,
                first,
                rows: panels,
                cols: s * strip..cols.min((s + 1) * strip),
            };
            tiles.multiply();
            Ok(())
        };
        if parallel {
            pieces((0..groups * strips).into_par_iter()).try_for_each(one)
        } else {
            (0..groups * strips).try_for_each(one)
        }
    }
}

/// An output of few rows.
struct Few<'a> {
    a: &'a Packed,
    /// Lanes are columns.
    b: Right<'a>,
    m: usize,
    n: usize,
    /// Columns of a panel.
    cols: usize,
    order: Order,
    finish: Finish,
    epilogue: Epilogue<'a>,
    c: Shared,
    c_stride: usize,
}

impl Few<'_> {
    /// Panels that a tile takes at once.
    fn at_once(&self, isa: Isa) -> usize {
        match self.b {
            Right::Packed(_) => panels_at_once(isa, self.a.width),
            Right::Matrix(_) => 1,
        }
    }

    /// Blocks of k. Tiles that read the same panel, one after another, take a block of it that stays in L1.
    fn cuts(&self) -> Cuts {
        let cuts = self.order.cuts();
        match self.b {
            Right::Packed(words) if self.m > self.a.width => {
                let step = words.bytes_of_step(self.cols);
                Cuts::blocked(cuts.k, cuts.leaf, BLOCK_BYTES / step)
            }
            Right::Packed(_) | Right::Matrix(_) => cuts,
        }
    }

    fn multiply(&self, isa: Isa, parallel: bool) {
        let panels = self.n.div_ceil(self.cols);
        let at_once = self.at_once(isa);
        let units = panels.div_ceil(at_once);
        let tasks = if parallel {
            units.min(FEW_TASKS * rayon::current_num_threads())
        } else {
            1
        };
        let one = |task: usize| {
            let of = share(units, task, tasks);
            let tiles = FewTiles {
                isa,
                few: self,
                at_once,
                cols: of.start * at_once..panels.min(of.end * at_once),
            };
            tiles.multiply();
        };
        if parallel {
            pieces((0..tasks).into_par_iter()).for_each(one);
        } else {
            (0..tasks).for_each(one);
        }
    }
}

/// Buffers for waiting sums (`Stack`) of some tiles.
struct Room {
    own: Vec<f32>,
    shared: Vec<f32>,
    /// Floats before the first whole cache line: a vector that crosses lines takes twice the time.
    skipped: usize,
}

impl Room {
    fn new(cuts: Cuts, tile_floats: usize, tiles: usize) -> Room {
        let shared = vec![0.0; cuts.shared() * tile_floats + LANES];
        Room {
            own: vec![0.0; tiles * cuts.own() * tile_floats],
            skipped: shared.as_ptr().align_offset(4 * LANES).min(LANES),
            shared,
        }
    }

    fn shared(&mut self) -> &mut [f32] {
        &mut self.shared[self.skipped..]
    }
}

/// Buffer for the sums of one tile whose output is in bf16.
struct Rounding([f32; Rounding::ROWS * Rounding::COLUMNS]);

impl Rounding {
    /// Rows of the largest tile.
    const ROWS: usize = 12;
    const COLUMNS: usize = 32;

    fn new() -> Rounding {
        Rounding([0.0; Rounding::ROWS * Rounding::COLUMNS])
    }

    /// Distance of a tile's rows: low tiles may be wider.
    fn stride(whole: &Whole) -> usize {
        whole.columns.max(Rounding::COLUMNS)
    }

    /// Where to write a tile's sums, and the distance of its rows: the output itself, or this buffer.
    #[inline(always)]
    fn place(&mut self, whole: &Whole) -> (*mut f32, usize) {
        match whole.c {
            Shared::F32(c) => {
                let start = whole.row * whole.stride + whole.column;
                (c.wrapping_add(start), whole.stride)
            }
            Shared::Bf16(_) => (self.0.as_mut_ptr(), Rounding::stride(whole)),
        }
    }

    /// Applies the epilogue, and rounds.
    /// # Safety
    /// As `Epilogue::apply`; the sums must be where `place` said.
    #[inline(always)]
    unsafe fn finish(&self, isa: Isa, epilogue: Epilogue<'_>, whole: Whole) {
        // SAFETY: `apply` and `apply_to` need the tile in the output and free of other tasks, by this function's
        // contract.
        unsafe {
            match whole.c {
                Shared::F32(_) if epilogue.is_none() => {}
                Shared::F32(_) => epilogue.apply(isa, whole),
                Shared::Bf16(_) => {
                    let stride = Rounding::stride(&whole);
                    epilogue.apply_to(isa, whole, (&self.0, stride));
                }
            }
        }
    }
}

type Range = std::ops::Range<usize>;

struct Tiles<'a> {
    isa: Isa,
    rect: &'a Rect<'a>,
    /// Has panels from the `first` of the block on.
    a: &'a Packed,
    first: usize,
    rows: Range,
    cols: Range,
}

impl Tiles<'_> {
    fn multiply(self) {
        let Tiles {
            isa,
            rect,
            a,
            first,
            rows,
            cols,
        } = self;
        let (height, width) = (rect.height, rect.b.width);
        let (start, end) = rect.span;
        let own = rect.cuts.own() * height * width;
        let reading = Reading {
            isa,
            b: Right::Packed(rect.b.words),
            pairs: rect.pairs,
        };
        let shape = Shape {
            rows: height,
            columns: width,
            panel: width,
        };
        let compute = tile_function(reading, shape);
        let all = rect.n.div_ceil(width);
        let mut room = Room::new(rect.cuts, height * width, 0);
        let mut rounding = Rounding::new();
        // Columns up to this one have their rotary embedding.
        let mut turned = cols.start * width;
        for j in cols {
            for i in rows.clone() {
                let whole = Whole {
                    c: rect.c,
                    stride: rect.c_stride,
                    row: rect.at.0 + i * height,
                    column: rect.at.1 + j * width,
                    rows: height.min(rect.m - i * height),
                    columns: width.min(rect.n - j * width),
                };
                let (c, c_stride) = rounding.place(&whole);
                let t = Tile {
                    a: a.panel(i - first).as_ptr(),
                    b: rect.b.panel(j),
                    b_apart: 0,
                    ahead: Ahead::NONE,
                    cuts: rect.cuts,
                    start,
                    end,
                    finish: rect.finish,
                    c,
                    c_stride,
                    second: whole.second(&rect.epilogue),
                    rows: whole.rows,
                    cols: whole.columns,
                };
                let is_last = end == rect.cuts.k;
                if is_last && t.second.is_null() {
                    // The chain hides the latency of this prefetch.
                    whole.prefetch_second_on(isa, &rect.epilogue);
                }
                // SAFETY: panels have a row per k of the block; sums of the block's tiles follow each other;
                // tiles of different (i, j) are disjoint and each (i, j) belongs to one task.
                unsafe {
                    let at = rect.own.0.add((i * all + j) * own);
                    let stack = Stack {
                        own: std::ptr::slice_from_raw_parts_mut(at, own),
                        shared: room.shared(),
                    };
                    compute((t, stack));
                }
                if is_last {
                    // SAFETY: the tile's sums are where `place` said, and tile (i, j) of the output is this task's.
                    unsafe { rounding.finish(isa, rect.epilogue, whole) }
                }
            }
            if let Some(rotary) = rect.epilogue.rotary()
                && end == rect.cuts.k
            {
                let end = rect.n.min((j + 1) * width) / rotary.width() * rotary.width();
                // SAFETY: a task's columns are whole heads; its rows and columns are its own.
                unsafe { rect.turn(isa, rotary, rows.clone(), turned..end) }
                turned = end;
            }
        }
    }
}

impl Rect<'_> {
    /// Applies rotary embedding to heads that are complete in the output, some panels of rows and columns of the
    /// block. # Safety Nobody else uses them.
    unsafe fn turn(&self, isa: Isa, rotary: &Rotary<'_>, panels: Range, columns: Range) {
        let Shared::F32(c) = self.c else {
            unreachable!("only heads of f32 turn in the output")
        };
        let (first, end) = (
            panels.start * self.height,
            self.m.min(panels.end * self.height),
        );
        let part = Part {
            row: self.at.0 + first,
            column: self.at.1 + columns.start,
            rows: end - first,
            columns: columns.len(),
        };
        // SAFETY: the block's rows and columns are inside the output, and no other task uses them, by this
        // function's contract.
        unsafe {
            let start = c.add(part.row * self.c_stride + part.column);
            rotary.in_place_at(isa, start, self.c_stride, part);
        }
    }
}

struct FewTiles<'a> {
    isa: Isa,
    few: &'a Few<'a>,
    /// Panels that a tile takes at once.
    at_once: usize,
    cols: Range,
}

impl FewTiles<'_> {
    fn multiply(self) {
        let FewTiles {
            isa,
            few,
            at_once: most,
            cols,
        } = self;
        let cuts = few.cuts();
        let reading = Reading {
            isa,
            b: few.b,
            pairs: few.order.numbers.are_pairs(),
        };
        let (height, width) = (few.a.width, few.cols);
        let of_panels = |count: usize| {
            let shape = Shape {
                rows: height,
                columns: count * width,
                panel: width,
            };
            tile_function(reading, shape)
        };
        let (of_most, of_one) = (of_panels(most), of_panels(1));
        let rows = few.m.div_ceil(height);
        let (mut room, own) = (
            Room::new(cuts, height * most * width, rows),
            cuts.own() * height * most * width,
        );
        let longest = cuts.longest();
        let mut room_for_panel = match few.b {
            Right::Matrix(_) => vec![0.0; longest * width],
            Right::Packed(_) => Vec::new(),
        };
        let mut rounding = Rounding::new();
        let mut next = cols.start;
        while next < cols.end {
            let j = next;
            let (count, compute) = match j + most <= cols.end {
                true => (most, of_most),
                false => (1, of_one),
            };
            next += count;
            for (start, end) in cuts.blocks() {
                let panel = match few.b {
                    Right::Packed(words) => words.at(j, [start, few.order.steps()], width),
                    Right::Matrix(b) => {
                        let one = Panels {
                            a: b,
                            first: j * width,
                            width,
                            count: 1,
                            apart: longest * width,
                        };
                        few.order.pack(isa, one, start..end, &mut room_for_panel);
                        room_for_panel.as_ptr()
                    }
                };
                for i in 0..rows {
                    let whole = Whole {
                        c: few.c,
                        stride: few.c_stride,
                        row: i * height,
                        column: j * width,
                        rows: height.min(few.m - i * height),
                        columns: (count * width).min(few.n - j * width),
                    };
                    let (c, c_stride) = rounding.place(&whole);
                    let t = Tile {
                        a: few.a.panel(i)[start * height..].as_ptr(),
                        b: panel,
                        b_apart: match few.b {
                            Right::Packed(words) => words.floats(few.order.steps(), width),
                            Right::Matrix(_) => 0,
                        },
                        ahead: match few.b {
                            Right::Packed(words) => {
                                let step = words.bytes_of_step(width);
                                match rows {
                                    1 => Ahead::of_panels(panel, count, step),
                                    _ => Ahead::share(panel, [i, rows], (end - start) * step, step),
                                }
                            }
                            Right::Matrix(_) => Ahead::NONE,
                        },
                        cuts,
                        start,
                        end,
                        finish: few.finish,
                        c,
                        c_stride,
                        second: std::ptr::null(),
                        rows: whole.rows,
                        cols: whole.columns,
                    };
                    let stack = Stack {
                        own: &mut room.own[i * own..(i + 1) * own],
                        shared: &mut room.shared[room.skipped..],
                    };
                    // SAFETY: all panels have a row per k of the block; tiles of different (i, j)
                    // are disjoint and each j belongs to one task.
                    unsafe { compute((t, stack)) }
                    if end == cuts.k {
                        // SAFETY: the tile's sums are where `place` said, and column panel j is this task's.
                        unsafe { rounding.finish(isa, few.epilogue, whole) }
                    }
                }
            }
        }
    }
}

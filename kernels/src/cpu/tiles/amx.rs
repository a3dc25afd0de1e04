//! AMX: whether the processor's tile unit may be used, and its instructions.
//!
//! Tiles are usable if the processor has them and their bf16 products, the system saves them on thread switches,
//! and it grants this process permission (Linux: requested once, for all threads, including those already started).
//! Devices use them only if a self-check (`self_check.rs`) also finds the bits of the emulation. Source: Intel SDM,
//! CPUID leaf 7, XGETBV, LDTILECFG; Linux, Documentation/arch/x86/xstate.rst.
#![expect(unsafe_code, reason = "instructions without intrinsics on stable Rust")]

use super::super::Isa;
use super::super::bf16::{Task, native};
use super::super::simd::Lanes;
use super::unit::{
    SIDE, Soon, Stretch, Unit, Units, flat_slim, flat_wide, rows_of_tiles, tall_slim, tall_wide,
};
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Whether the processor has tiles, bf16 products in them and vectors of bf16 pairs.
pub(in crate::cpu) fn is_there() -> bool {
    let (tiles_bf16, tiles) = (1 << 22, 1 << 24);
    let both = tiles_bf16 | tiles;
    let has_tiles = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & both == both;
    has_tiles && Isa::Avx512Bf16.has_vectors()
}

/// Whether the system saves tiles for this process; requests it, once.
pub(in crate::cpu) fn has_leave() -> bool {
    static LEAVE: OnceLock<bool> = OnceLock::new();
    *LEAVE.get_or_init(|| is_there() && keeps_tiles() && ask())
}

/// Whether the system has enabled both parts of a thread's state that tiles use.
fn keeps_tiles() -> bool {
    let has_xgetbv = __cpuid(1).ecx & 1 << 27 != 0;
    let (configuration, data) = (1 << 17, 1 << 18);
    // SAFETY: XGETBV may be executed where CPUID says OSXSAVE.
    has_xgetbv && unsafe { xcr0() } & (configuration | data) == configuration | data
}

/// # Safety
/// CPUID says OSXSAVE.
unsafe fn xcr0() -> u32 {
    let low: u32;
    // SAFETY: XGETBV exists where CPUID says OSXSAVE, by this function's contract; it changes nothing.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low
}

/// Requests permission for the tiles' data from Linux (arch_prctl, ARCH_REQ_XCOMP_PERM).
#[cfg(target_os = "linux")]
fn ask() -> bool {
    let (arch_prctl, request, tile_data) = (158_i64, 0x1023_u64, 18_u64);
    let answer: i64;
    // SAFETY: the system call takes no pointers; it only changes this process's permission to use tiles.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") arch_prctl => answer,
            in("rdi") request,
            in("rsi") tile_data,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// Operand of LDTILECFG.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row of each tile; eight of 16 are there.
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(
    size_of::<Configuration>() == 64,
    "as the processor reads it"
);

/// Rows of a tile, and their bytes.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Shape {
    rows: u8,
    bytes: u16,
}

impl Shape {
    /// # Panics
    /// If a tile has fewer.
    pub(in crate::cpu) fn new(rows: usize, bytes: usize) -> Shape {
        assert!(rows <= 16 && bytes <= 64, "a tile has 16 rows of 64 bytes");
        #[expect(clippy::cast_possible_truncation, reason = "small, by the assert")]
        Shape {
            rows: rows as u8,
            bytes: bytes as u16,
        }
    }
}

/// The tile unit of the thread that created it; a thread has one at a time.
pub(super) struct Tiles {
    rows: usize,
    /// Not `Send`: a configuration belongs to a thread.
    only_here: std::marker::PhantomData<*const ()>,
}

/// The processor's, as a kind of unit.
pub(super) struct Native;

impl Units for Native {
    type Of<L: Lanes> = Tiles;

    fn perform<T: Task>(_: Isa, task: T) {
        native::perform(task);
    }
}

impl Unit for Tiles {
    fn start(rows: usize) -> Self {
        assert!(has_leave(), "units are started where there are some");
        // SAFETY: the process has permission to use tiles, by the assert.
        unsafe { configure(&shapes(rows)) }
        Tiles {
            rows,
            only_here: std::marker::PhantomData,
        }
    }

    fn reshape(&mut self, rows: usize) {
        if rows != self.rows {
            // SAFETY: `start` checked the process's permission to use tiles, which is never withdrawn.
            unsafe { configure(&shapes(rows)) }
            self.rows = rows;
        }
    }

    unsafe fn run(&mut self, stretch: Stretch<'_>) {
        // SAFETY: the operands are complete by the trait's contract, the lists stay inside their steps and the
        // sums, and `start` configured this thread's tiles.
        unsafe {
            match (self.rows > SIDE, stretch.is_wide, stretch.soon.each) {
                (true, true, 1) => tall_wide!(asking(stretch, 2048, once)),
                (true, true, 2) => tall_wide!(asking(stretch, 2048, twice)),
                (true, true, Soon::MOST) => tall_wide!(asking(stretch, 2048, thrice)),
                (true, true, _) => tall_wide!(assembled(stretch)),
                (true, false, _) => tall_slim!(assembled(stretch)),
                (false, true, Soon::COLUMNS) => flat_wide!(asking(stretch, 1024, sixteen)),
                (false, true, _) => flat_wide!(assembled(stretch)),
                (false, false, _) => flat_slim!(assembled(stretch)),
            }
        }
    }
}

/// The tiles of products of bf16 with so many rows.
fn shapes(rows: usize) -> [Shape; 8] {
    rows_of_tiles(rows).map(|rows| Shape { rows, bytes: 64 })
}

/// Configures this thread's tiles.
/// # Safety
/// The process must have permission to use tiles (`has_leave`).
pub(in crate::cpu) unsafe fn configure(shapes: &[Shape]) {
    let mut configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    for (number, shape) in shapes.iter().enumerate() {
        configuration.rows[number] = shape.rows;
        configuration.row_bytes[number] = shape.bytes;
    }
    // SAFETY: the process has permission to use tiles, by this function's contract, and the configuration is valid
    // for palette 1.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly));
    }
}

/// Released tiles add nothing to thread switches.
/// # Safety
/// This thread's tiles are configured, and not in use.
pub(in crate::cpu) unsafe fn release() {
    // SAFETY: by this function's contract.
    unsafe { asm!("tilerelease", options(nostack, nomem)) }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `start` configured this thread's tiles, and `Tiles` cannot leave its thread.
        unsafe { release() }
    }
}

/// The instructions of a list as one block: between two blocks the compiler would not preserve the tiles.
macro_rules! assembled {
    (
        ($stretch:ident)
        sums: $([$tile:literal $rows:ident $at:literal])*;
        steps: $([$($op:tt)*])*;
    ) => {
        asm!(
            // the register that says whether sums continue is then reused for the address of the lower ones
            "test {sums_lower}, {sums_lower}",
            "lea {sums_lower}, [{sums} + {lower}]",
            "jnz 3f",
            $(concat!("tilezero tmm", $tile),)*
            "jmp 2f",
            "3:",
            $(concat!("tileloadd tmm", $tile, ", ", place!(apart sums $rows), $at, "]"),)*
            "2:",
            $(instruction!(apart $($op)*),)*
            "add {a}, {a_step}",
            "add {a_lower}, {a_step}",
            "add {b}, {b_step}",
            "dec {steps}",
            "jnz 2b",
            $(concat!("tilestored ", place!(apart sums $rows), $at, "], tmm", $tile),)*
            sums_lower = inout(reg) usize::from($stretch.goes_on) => _,
            sums = in(reg) $stretch.sums,
            lower = in(reg) $stretch.sums_at.lower,
            sums_row = in(reg) $stretch.sums_at.row,
            a = inout(reg) $stretch.a => _,
            a_lower = inout(reg) $stretch.a.wrapping_byte_add($stretch.a_at.lower) => _,
            a_row = in(reg) $stretch.a_at.row,
            a_step = in(reg) $stretch.a_at.step,
            b = inout(reg) $stretch.b => _,
            b_row = in(reg) $stretch.b_at.row,
            b_step = in(reg) $stretch.b_at.step,
            steps = inout(reg) $stretch.steps => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}
use assembled;

/// Like `assembled`, for packs of 32 columns, whose distances are known, with lines to prefetch in each step; `a_step`: bytes
/// of A in a step.
macro_rules! asking {
    (
        ($stretch:ident, $a_step:literal, $each:ident)
        sums: $([$tile:literal $rows:ident $at:literal])*;
        steps: $([$($op:tt)*])*;
    ) => {
        asm!(
            "test {goes_on}, {goes_on}",
            "jnz 3f",
            $(concat!("tilezero tmm", $tile),)*
            "jmp 2f",
            "3:",
            $(concat!("tileloadd tmm", $tile, ", ", place!(packed sums $rows), $at, "]"),)*
            "2:",
            lines!($each),
            $(instruction!(packed $($op)*),)*
            concat!("add {a}, ", $a_step),
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            $(concat!("tilestored ", place!(packed sums $rows), $at, "], tmm", $tile),)*
            goes_on = in(reg) usize::from($stretch.goes_on),
            sums = in(reg) $stretch.sums,
            a = inout(reg) $stretch.a => _,
            one = in(reg) 64_usize,
            b = inout(reg) $stretch.b => _,
            two = in(reg) 128_usize,
            steps = inout(reg) $stretch.steps => _,
            left = inout(reg) $stretch.soon.at[0] => _,
            right = inout(reg) $stretch.soon.at[1] => _,
            apart = in(reg) $stretch.soon.apart,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}
use asking;

/// Prefetches this many lines of both rows, no nearer than L2.
macro_rules! lines {
    (once) => {
        "prefetcht1 [{left}]\n prefetcht1 [{right}]\n add {left}, {apart}\n add {right}, {apart}"
    };
    (twice) => {
        concat!(lines!(once), "\n", lines!(once))
    };
    (thrice) => {
        concat!(lines!(twice), "\n", lines!(once))
    };
    (sixteen) => {
        concat!(lines!(eight), "\n", lines!(eight))
    };
    (eight) => {
        concat!(lines!(four), "\n", lines!(four))
    };
    (four) => {
        concat!(lines!(twice), "\n", lines!(twice))
    };
}
use lines;

/// Address of a tile, without the byte offset of its columns.
macro_rules! place {
    (apart a upper) => {
        "[{a} + {a_row} + "
    };
    (apart a lower) => {
        "[{a_lower} + {a_row} + "
    };
    (apart b) => {
        "[{b} + {b_row} + "
    };
    (apart sums upper) => {
        "[{sums} + {sums_row} + "
    };
    (apart sums lower) => {
        "[{sums_lower} + {sums_row} + "
    };
    (packed a upper) => {
        "[{a} + {one} + "
    };
    (packed a lower) => {
        "[{a} + {one} + 1024 + "
    };
    (packed b) => {
        "[{b} + {two} + "
    };
    (packed sums upper) => {
        "[{sums} + {two} + "
    };
    (packed sums lower) => {
        "[{sums} + {two} + 2048 + "
    };
}
use place;

macro_rules! instruction {
    ($lie:ident a $tile:literal $rows:ident) => {
        concat!("tileloadd tmm", $tile, ", ", place!($lie a $rows), "0]")
    };
    ($lie:ident b $tile:literal $at:literal) => {
        concat!("tileloadd tmm", $tile, ", ", place!($lie b), $at, "]")
    };
    ($lie:ident dot $sums:literal $rows:literal $words:literal) => {
        concat!("tdpbf16ps tmm", $sums, ", tmm", $rows, ", tmm", $words)
    };
}
use instruction;

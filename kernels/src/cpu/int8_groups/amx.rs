//! AMX's products of bytes. Source: Intel SDM, TDPBSUD, TILELOADD, TILESTORED; CPUID leaf 7.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::layout::{Chain, Compute, Held, Loops, QUAD, STEP, Sums, TALL, WIDTH};
use super::tiles::{self, Emulation, Products, Unit};
use crate::cpu::Isa;
use crate::cpu::codes::MOST;
use crate::cpu::tiles::amx::{Shape, configure, has_leave, release};

/// Bytes of a row of 16 sums, and of 16 columns of four codes.
const ROW: usize = 64;

/// The processor's unit.
pub(super) struct Native;

impl Loops for Native {
    /// Of tiles of sixteen rows alone, and where this thread's tiles are `Ready`.
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T>
    }
}

/// # Safety
/// The machine has AVX-512 and `Ready`'s tiles; the chain's panel and rows can be read.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
unsafe fn chain<T: Held>(chain: Chain, sums: &mut Sums) {
    // SAFETY: by this function's contract.
    unsafe { tiles::chain::<T, Native>(chain, sums) }
}

/// Whether the instruction set allows tiles of bytes, and the machine has them and computes what the emulation does.
pub(super) fn is_used(isa: Isa) -> bool {
    static PASSES: OnceLock<bool> = OnceLock::new();
    isa == Isa::Amx && *PASSES.get_or_init(|| is_there() && has_leave() && passes())
}

fn is_there() -> bool {
    let bytes = 1 << 25;
    let has_tiles = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & bytes == bytes;
    has_tiles
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("fma")
}

/// Whether products of pseudo-random bytes of all sizes are those of the emulation.
fn passes() -> bool {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let [byte, ..] = state.to_le_bytes();
        byte
    };
    [MOST / QUAD, MOST / QUAD / 2].into_iter().all(|quads| {
        let _ready = Ready::new(quads);
        (0..8).all(|_| {
            let rows: Vec<u8> = (0..TALL * quads * QUAD).map(|_| byte()).collect();
            let codes: Vec<u8> = (0..quads * STEP).map(|_| byte()).collect();
            let mut found = Products::ZERO;
            let mut wanted = Products::ZERO;
            // SAFETY: both have as many bytes as are read, and this thread's tiles are ready.
            unsafe {
                Native::multiply(quads, rows.as_ptr(), codes.as_ptr(), &mut found);
                Emulation::multiply(quads, rows.as_ptr(), codes.as_ptr(), &mut wanted);
            }
            found.0 == wanted.0
        })
    })
}

/// Tiles of this thread that are configured for products of bytes.
pub(super) struct Ready {
    /// Not `Send`: a configuration belongs to a thread.
    only_here: PhantomData<*const ()>,
}

impl Ready {
    /// Two tiles of sums, one of rows and two of codes. The process must have permission to use tiles.
    pub(super) fn new(quads: usize) -> Ready {
        assert!(has_leave(), "tiles are used where there are some");
        let sums = Shape::new(TALL, ROW);
        let codes = Shape::new(quads, ROW);
        let rows = Shape::new(TALL, quads * QUAD);
        // SAFETY: the process has permission to use tiles, by the assert.
        unsafe { configure(&[sums, sums, rows, codes, codes]) }
        Ready {
            only_here: PhantomData,
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: `new` configured this thread's tiles, and `Ready` cannot leave its thread.
        unsafe { release() }
    }
}

impl Unit for Native {
    #[inline(always)]
    unsafe fn multiply(quads: usize, rows: *const u8, codes: *const u8, products: &mut Products) {
        const { assert!(STEP == 2 * ROW && WIDTH * QUAD == STEP) };
        // SAFETY: the tiles are ready, and rows, codes and sums are as large as they are configured, by the trait's contract.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm2, [{rows} + {row} + 0]",
                "tileloadd tmm3, [{codes} + {step} + 0]",
                "tileloadd tmm4, [{codes} + {step} + 64]",
                "tdpbsud tmm0, tmm2, tmm3",
                "tdpbsud tmm1, tmm2, tmm4",
                "tilestored [{sums} + {one} + 0], tmm0",
                "tilestored [{sums} + {one} + 1024], tmm1",
                rows = in(reg) rows,
                row = in(reg) quads * QUAD,
                codes = in(reg) codes,
                step = in(reg) STEP,
                sums = in(reg) products.0.as_mut_ptr(),
                one = in(reg) ROW,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

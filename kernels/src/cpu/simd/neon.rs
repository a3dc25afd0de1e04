//! Lanes in four registers of NEON.
#![expect(
    unsafe_code,
    reason = "vector intrinsics and calls into functions with target features"
)]

use super::lanes::{Kernel, LANES, Lanes, ONE};
use crate::Bf16;
use std::arch::aarch64::*;
use std::arch::asm;

#[target_feature(enable = "neon")]
pub(super) fn run<K: Kernel<Args>, Args>(args: Args) -> K::Out {
    K::run::<Quad>(args)
}

/// Four NEON registers. Made only inside `run`, hence only where the feature is.
#[derive(Clone, Copy)]
pub(super) struct Quad([float32x4_t; 4]);

/// An operation on each register.
macro_rules! quad {
    ($name:ident($a:ident $(, $arg:ident)*) = $value:expr) => {
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            let mut all = self;
            for i in 0..4 {
                let ($a, $($arg,)*) = (self.0[i], $($arg.0[i],)*);
                // SAFETY: a `Quad` exists only where NEON does.
                all.0[i] = unsafe { $value };
            }
            all
        }
    };
}

/// Stable Rust has no intrinsics for these; they read nothing and fault nowhere.
macro_rules! prefetch {
    ($hint:literal, $x:expr) => {
        // SAFETY: a prefetch is a hint: it reads nothing and faults nowhere.
        unsafe {
            asm!(
                concat!("prfm ", $hint, ", [{}]"),
                in(reg) $x.addr(),
                options(nomem, nostack, preserves_flags)
            )
        }
    };
}

impl Lanes for Quad {
    const TILE_VECTORS: usize = 1;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn prefetch(x: *const f32) {
        prefetch!("pldl1keep", x);
    }

    #[inline(always)]
    fn prefetch_to_write(x: *const f32) {
        prefetch!("pstl1keep", x);
    }

    #[inline(always)]
    fn prefetch_to_l2(x: *const f32) {
        prefetch!("pldl2keep", x);
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: called only inside `run`.
        Quad([unsafe { vdupq_n_f32(x) }; 4])
    }

    /// Lanes of one vector as factors: a multiply-add takes its factor from a lane, while a broadcast load (`ld1r`)
    /// occupies the vector units on many cores.
    #[inline(always)]
    unsafe fn splat_of<const LEN: usize>(x: *const f32, i: usize) -> Self {
        let first = i / 4 * 4;
        // SAFETY: the caller vouches for LEN floats; four are read only where they are. Inside `run`.
        unsafe {
            let lane = if first + 4 <= LEN {
                let four = vld1q_f32(x.add(first));
                match i % 4 {
                    0 => vdupq_laneq_f32::<0>(four),
                    1 => vdupq_laneq_f32::<1>(four),
                    2 => vdupq_laneq_f32::<2>(four),
                    _ => vdupq_laneq_f32::<3>(four),
                }
            } else if first + 2 <= LEN && i < first + 2 {
                let two = vld1_f32(x.add(first));
                match i % 4 {
                    0 => vdupq_lane_f32::<0>(two),
                    _ => vdupq_lane_f32::<1>(two),
                }
            } else {
                vdupq_n_f32(*x.add(i))
            };
            Quad([lane; 4])
        }
    }

    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; inside `run`.
        Quad(std::array::from_fn(|i| unsafe { vld1q_f32(x.add(4 * i)) }))
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        for (i, part) in self.0.into_iter().enumerate() {
            // SAFETY: the caller vouches for room for sixteen floats.
            unsafe { vst1q_f32(out.add(4 * i), part) }
        }
    }
    #[inline(always)]
    unsafe fn widen_at(x: *const Bf16) -> Self {
        let mut out = Self::splat(0.0);
        for (i, pair) in out.0.chunks_exact_mut(2).enumerate() {
            // SAFETY: the caller vouches for sixteen numbers of two bytes; called only inside `run`.
            unsafe {
                let (zero, x) = (vdupq_n_u16(0), vld1q_u16(x.add(8 * i).cast()));
                pair[0] = vreinterpretq_f32_u16(vzip1q_u16(zero, x));
                pair[1] = vreinterpretq_f32_u16(vzip2q_u16(zero, x));
            }
        }
        out
    }
    #[inline(always)]
    fn load_words(x: &[Bf16]) -> Self {
        let x = &x[..2 * LANES];
        // SAFETY: 64 bytes are there, which need no alignment.
        unsafe { Self::load_at(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_words(self, out: &mut [Bf16]) {
        let out = &mut out[..2 * LANES];
        // SAFETY: there is room for 64 bytes, which need no alignment.
        unsafe { self.store_at(out.as_mut_ptr().cast()) }
    }
    quad!(add(a, b) = vaddq_f32(a, b));
    quad!(sub(a, b) = vsubq_f32(a, b));
    quad!(mul(a, b) = vmulq_f32(a, b));
    quad!(div(a, b) = vdivq_f32(a, b));
    quad!(fma(a, b, c) = vfmaq_f32(c, a, b));
    // FMAX and FMIN would return a NaN in either operand.
    quad!(max(a, b) = vbslq_f32(vcgtq_f32(a, b), a, b));
    quad!(min(a, b) = vbslq_f32(vcltq_f32(a, b), a, b));
    quad!(sqrt(a) = vsqrtq_f32(a));
    quad!(
        pow2(a) = {
            let shifted = vshlq_n_u32::<23>(vreinterpretq_u32_f32(a));
            vreinterpretq_f32_u32(vaddq_u32(shifted, vdupq_n_u32(ONE)))
        }
    );
    quad!(select_less(a, b, then, other) = vbslq_f32(vcltq_f32(a, b), then, other));
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        let mut out = rows;
        for (part, rows) in rows.chunks_exact(4).enumerate() {
            for column in 0..4 {
                let [a, b, c, d] = [rows[0], rows[1], rows[2], rows[3]];
                // SAFETY: a `Quad` exists only where NEON does.
                let turned = unsafe { turned(a.0[column], b.0[column], c.0[column], d.0[column]) };
                for (i, row) in turned.into_iter().enumerate() {
                    out[4 * column + i].0[part] = row;
                }
            }
        }
        out
    }
}

/// Transposes four rows of four: pairs within two rows, then pairs of them.
#[inline]
#[target_feature(enable = "neon")]
fn turned(a: float32x4_t, b: float32x4_t, c: float32x4_t, d: float32x4_t) -> [float32x4_t; 4] {
    let pairs = |x| vreinterpretq_f64_f32(x);
    let floats = |x| vreinterpretq_f32_f64(x);
    let even = (pairs(vtrn1q_f32(a, b)), pairs(vtrn1q_f32(c, d)));
    let odd = (pairs(vtrn2q_f32(a, b)), pairs(vtrn2q_f32(c, d)));
    [
        floats(vtrn1q_f64(even.0, even.1)),
        floats(vtrn1q_f64(odd.0, odd.1)),
        floats(vtrn2q_f64(even.0, even.1)),
        floats(vtrn2q_f64(odd.0, odd.1)),
    ]
}

//! Peak arithmetic of a CPU path in multiplies and adds per second: multiply-adds that stay in registers, tiles
//! that stay in L1, on all threads of the current pool at once. Model FLOPs utilisation (Chowdhery et al. 2022,
//! arXiv:2204.02311, appendix B) and the bench of ops are shares of it.
//!
//! Measured, not derived: a program cannot look up the clock under wide vectors, the number of multiply-add ports
//! or a container's share of a core. Threads run concurrently and are counted over the same time, so threads that
//! share a core do not count twice.
#![expect(
    unsafe_code,
    reason = "vector instructions of a path that this machine is known to have"
)]

use std::time::{Duration, Instant};

use crate::Isa;
use crate::cpu::Numbers;

/// Multiply-adds in flight: above latency times throughput of the CPUs at hand.
const CHAINS: usize = 16;
/// Steps of a round: some 50 microseconds.
const ROUNDS: usize = 1 << 14;
/// Time to reach the clock of wide vectors, and time of one measurement, of which the best counts.
const WARM_UP: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_millis(15);
const WINDOWS: usize = 3;

/// A loop of a known number of multiplies and adds.
#[derive(Clone, Copy)]
enum Loop {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Pairs,
    #[cfg(target_arch = "x86_64")]
    Tiles,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Returns the most floating-point operations per second (a multiply-add is two) for products of `numbers`
/// with `isa` on all threads of the current pool together. Where sums of bf16 are emulated with f32, that of f32. None
/// if this machine lacks `isa`, and where no such loop is written: plain Rust. Takes about 60 ms.
pub fn peak_flops(isa: Isa, numbers: Numbers) -> Option<f64> {
    let which = isa.is_available().then(|| loop_of(isa, numbers))??;
    let mut best = 0.0f64;
    rate(which, WARM_UP);
    for _ in 0..WINDOWS {
        best = best.max(rate(which, WINDOW));
    }
    (best > 0.0).then_some(best)
}

#[cfg(target_arch = "x86_64")]
fn loop_of(isa: Isa, numbers: Numbers) -> Option<Loop> {
    match (isa, numbers) {
        (Isa::Amx, Numbers::Bf16Tiles) => Some(Loop::Tiles),
        (Isa::Amx | Isa::Avx512Bf16, Numbers::Bf16) => Some(Loop::Pairs),
        (Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512, _) => Some(Loop::Avx512),
        (Isa::Avx2, _) => Some(Loop::Avx2),
        (Isa::Neon | Isa::Portable, _) => None,
    }
}

#[cfg(target_arch = "aarch64")]
fn loop_of(isa: Isa, _: Numbers) -> Option<Loop> {
    (isa == Isa::Neon).then_some(Loop::Neon)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn loop_of(_: Isa, _: Numbers) -> Option<Loop> {
    None
}

/// Operations per second of all threads over one stretch of time.
fn rate(which: Loop, window: Duration) -> f64 {
    let start = Instant::now();
    let one = |_: rayon::BroadcastContext<'_>| {
        let mut work = 0.0;
        while start.elapsed() < window {
            work += which.run();
        }
        work
    };
    let work: f64 = rayon::broadcast(one).into_iter().sum();
    work / start.elapsed().as_secs_f64()
}

impl Loop {
    /// One round; returns its multiplies and adds.
    fn run(self) -> f64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a loop exists only for an instruction set that `peak_flops` found on this machine.
            Loop::Avx512 => unsafe { x86::wide() },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a loop exists only for an instruction set that `peak_flops` found on this machine.
            Loop::Avx2 => unsafe { x86::narrow() },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a loop exists only for an instruction set that `peak_flops` found on this machine.
            Loop::Pairs => unsafe { x86::pairs() },
            #[cfg(target_arch = "x86_64")]
            Loop::Tiles => crate::cpu::tiles::busy(std::hint::black_box(ROUNDS)),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: a loop exists only for an instruction set that `peak_flops` found on this machine.
            Loop::Neon => unsafe { arm::quad() },
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{CHAINS, ROUNDS};
    use std::arch::aarch64::*;
    use std::hint::black_box;

    #[target_feature(enable = "neon")]
    pub(super) fn quad() -> f64 {
        let by = vdupq_n_f32(black_box(0.5));
        let mut sums = [vdupq_n_f32(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = vfmaq_f32(by, *sum, by);
            }
        }
        black_box(sums);
        (2 * 4 * CHAINS * ROUNDS) as f64
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CHAINS, ROUNDS};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn wide() -> f64 {
        let by = _mm512_set1_ps(black_box(0.5));
        let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, by, by);
            }
        }
        black_box(sums);
        (2 * 16 * CHAINS * ROUNDS) as f64
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn narrow() -> f64 {
        // fourteen sums and a factor fit into sixteen registers
        const SUMS: usize = CHAINS - 2;
        let by = _mm256_set1_ps(black_box(0.5));
        let mut sums = [_mm256_set1_ps(black_box(1.0)); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, by, by);
            }
        }
        black_box(sums);
        (2 * 8 * SUMS * ROUNDS) as f64
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn pairs() -> f64 {
        let factor = _mm512_set1_ps(black_box(0.0));
        // SAFETY: both are 64 bytes of which every pattern is valid.
        let factor: __m512bh = unsafe { std::mem::transmute(factor) };
        let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
        (4 * 16 * CHAINS * ROUNDS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::matmul;
    use crate::testing::random;
    use crate::{DType, Device, Tensor};

    /// A product of matrices that fit a cache stays below the peak of its path. Other tests run at the same time: a
    /// product of 0.3 ms may have the processor to itself, while a measurement of 15 ms shares it. It is therefore
    /// compared with the fastest round of the loop, which takes some 50 microseconds.
    #[test]
    fn no_product_is_faster_than_the_peak() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let Some(peak) = peak_flops(isa, Numbers::F32) else {
                assert_eq!(isa, Isa::Portable);
                continue;
            };
            let device = Device::cpu_with(isa);
            let (a, b) = (
                random(&[256, 256], 1, &device).unwrap(),
                random(&[256, 256], 2, &device).unwrap(),
            );
            let mut c = Tensor::empty(&[256, 256], DType::F32, &device).unwrap();
            let mut fastest = 0.0f64;
            for _ in 0..20 {
                let started = Instant::now();
                matmul(&mut c, &a, &b, 256, false).unwrap();
                let flops = 2.0 * 256f64.powi(3) / started.elapsed().as_secs_f64();
                fastest = fastest.max(flops);
            }
            let one = loop_of(isa, Numbers::F32).unwrap();
            let round = |_| {
                let started = Instant::now();
                let work = one.run();
                work / started.elapsed().as_secs_f64()
            };
            let threads = rayon::current_num_threads() as f64;
            let most = (0..2000).map(round).fold(0.0, f64::max) * threads;
            assert!(fastest < 2.0 * most, "{isa:?}: {fastest:e} of {most:e}");
            assert!(
                peak > 0.0 && peak < 2.0 * most,
                "{isa:?}: {peak:e} of {most:e}"
            );
        }
    }
}

//! What this machine does at most, measured on all threads of the pool: multiply-adds that stay in
//! registers, tiles that stay in L1, and copies of arrays of the ops' size and of arrays that no cache holds.
#![expect(
    unsafe_code,
    reason = "vector instructions, after a look at what the CPU has"
)]

use kernels::testing::busy_tiles;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Floats of an array that fits a last-level cache, as the tables' rows of 1024 x 768.
const CACHED: usize = 1024 * 768;
/// Floats of an array that does not.
const UNCACHED: usize = 24 << 20;
/// Multiply-adds in flight: above latency times throughput of the CPUs at hand.
const CHAINS: usize = 16;
const ROUNDS: usize = 1 << 16;

/// 1e9 multiplies and adds, or bytes read and written, per second; `None` where it cannot be told.
pub(crate) struct Ceilings {
    pub(crate) f32: Option<f64>,
    pub(crate) bf16: Option<f64>,
    pub(crate) tiles: Option<f64>,
    pub(crate) copy: f64,
    pub(crate) copy_uncached: f64,
}

impl Ceilings {
    pub(crate) fn measure() -> Ceilings {
        Ceilings {
            f32: multiply_adds(),
            bf16: pair_products(),
            tiles: tile_products(),
            copy: copies(CACHED),
            copy_uncached: copies(UNCACHED),
        }
    }

    /// The one that a row of a table is held against.
    pub(crate) fn of(&self, name: &str, unit: &str) -> Option<f64> {
        match unit {
            "GB/s" => Some(self.copy),
            _ if name.contains("Bf16Tiles") => self.tiles,
            _ if name.contains("Bf16") => self.bf16,
            _ => self.f32,
        }
    }
}

/// 1e9 units of work per second of all threads together, at best; `run` does `work` of them.
fn rate(work: f64, run: impl Fn() + Sync) -> f64 {
    let one = |_: rayon::BroadcastContext<'_>| {
        run();
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        while start.elapsed() < Duration::from_millis(200) {
            let round = Instant::now();
            run();
            best = best.min(round.elapsed().as_secs_f64());
        }
        work / best / 1e9
    };
    rayon::broadcast(one).into_iter().sum()
}

/// In the order of a product of many rows and columns (`cpu/tiles/unit.rs`).
fn tile_products() -> Option<f64> {
    let work = busy_tiles(ROUNDS)?;
    Some(rate(work, || {
        black_box(busy_tiles(black_box(ROUNDS)));
    }))
}

fn copies(floats: usize) -> f64 {
    let source = vec![1.0_f32; floats];
    let one = |_: rayon::BroadcastContext<'_>| {
        let mut to = vec![0.0_f32; floats];
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        while start.elapsed() < Duration::from_millis(200) {
            let round = Instant::now();
            black_box(&mut to).copy_from_slice(black_box(&source));
            best = best.min(round.elapsed().as_secs_f64());
        }
        (8 * floats) as f64 / best / 1e9
    };
    rayon::broadcast(one).into_iter().sum()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn multiply_adds() -> Option<f64> {
    None
}

#[cfg(target_arch = "aarch64")]
fn multiply_adds() -> Option<f64> {
    let work = (2 * 4 * CHAINS * ROUNDS) as f64;
    let has = std::arch::is_aarch64_feature_detected!("neon");
    // SAFETY: the CPU has the feature.
    has.then(|| rate(work, || unsafe { arm::quad(ROUNDS) }))
}

#[cfg(not(target_arch = "x86_64"))]
fn pair_products() -> Option<f64> {
    None
}

#[cfg(target_arch = "x86_64")]
fn multiply_adds() -> Option<f64> {
    let work = |lanes: usize| (2 * lanes * CHAINS * ROUNDS) as f64;
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has the feature.
        Some(rate(work(16), || unsafe { x86::wide(ROUNDS) }))
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has the features.
        Some(rate(work(8), || unsafe { x86::narrow(ROUNDS) }))
    } else {
        None
    }
}

#[cfg(target_arch = "x86_64")]
fn pair_products() -> Option<f64> {
    let work = (4 * 16 * CHAINS * ROUNDS) as f64;
    let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    // SAFETY: the CPU has the features.
    has.then(|| rate(work, || unsafe { x86::pairs(ROUNDS) }))
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::CHAINS;
    use std::arch::aarch64::*;
    use std::hint::black_box;

    #[target_feature(enable = "neon")]
    pub(super) fn quad(rounds: usize) {
        let by = vdupq_n_f32(black_box(0.5));
        let mut sums = [vdupq_n_f32(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(by, *sum, by);
            }
        }
        black_box(sums);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::CHAINS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn wide(rounds: usize) {
        let by = _mm512_set1_ps(black_box(0.5));
        let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, by, by);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn narrow(rounds: usize) {
        let by = _mm256_set1_ps(black_box(0.5));
        let mut sums = [_mm256_set1_ps(black_box(1.0)); CHAINS - 2];
        // fourteen sums and a factor are what sixteen registers hold
        for _ in 0..rounds * CHAINS / (CHAINS - 2) {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, by, by);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn pairs(rounds: usize) {
        let factor = _mm512_set1_ps(black_box(0.0));
        // SAFETY: both are 64 bytes of which every pattern is valid.
        let factor: __m512bh = unsafe { std::mem::transmute(factor) };
        let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
    }
}

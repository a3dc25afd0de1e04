//! Measured ceilings of this machine, on all threads of the pool: multiply-adds and tiles by `kernels::peak_flops`,
//! copies of arrays of the ops' size and of arrays larger than any cache.

use kernels::ops::matmul::Numbers;
use kernels::{Isa, peak_flops};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Floats of an array that fits a last-level cache, as the tables' rows of 1024 x 768.
const CACHED: usize = 1024 * 768;
/// Floats of an array that does not.
const UNCACHED: usize = 24 << 20;

/// 1e9 multiplies and adds, or bytes read and written, per second; `None` if it cannot be measured.
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
            f32: peak(Isa::detect(), Numbers::F32),
            bf16: peak(Isa::Avx512Bf16, Numbers::Bf16),
            tiles: peak(Isa::Amx, Numbers::Bf16Tiles),
            copy: copies(CACHED),
            copy_uncached: copies(UNCACHED),
        }
    }

    /// The one that a row of a table is held against.
    pub(crate) fn of(&self, name: &str, unit: &str) -> Option<f64> {
        match unit {
            "GB/s" => Some(self.copy),
            // of integers
            "GOP/s" => None,
            _ if name.contains("Bf16Tiles") => self.tiles,
            _ if name.contains("Bf16") => self.bf16,
            _ => self.f32,
        }
    }
}

/// 1e9 multiplies and adds per second of one path.
fn peak(isa: Isa, numbers: Numbers) -> Option<f64> {
    let flops = isa.is_available().then(|| peak_flops(isa, numbers));
    flops.flatten().map(|flops| flops / 1e9)
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

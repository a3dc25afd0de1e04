//! Dropout on the CPU: Philox over 16 counters at a time, 64 features per call.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::vector_fn;
use crate::descriptor::dropout::{Constants, Place};
use rayon::prelude::*;

/// Features whose words one call makes.
const BLOCK: usize = 64;
/// Counters of one call.
const LANES: usize = 16;

#[expect(
    clippy::cast_possible_truncation,
    reason = "mod.rs checks positions; a sequence number is split into words"
)]
pub(super) fn apply(x: &mut Tensor, constants: &Constants, place: &Place) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let place = *place;
    let constants = *constants;
    x.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .enumerate()
        .for_each(|(block, rows)| {
            for (r, row) in rows.chunks_exact_mut(d).enumerate() {
                let r = block * ROW_BLOCK + r;
                let sequence = place.sequence + (r / place.t) as u64;
                let position = place.position + (r % place.t) as u32;
                let counter = [position, sequence as u32, (sequence >> 32) as u32];
                drop_row(isa, row, place.feature, counter, constants);
            }
        });
}

vector_fn! {
    /// Multiplies a row, whose first element is `feature`, with the factors of counter (position, sequence
    /// low, high).
    pub(crate) fn drop_row<L>(row: &mut [f32], feature: usize, counter: [u32; 3], constants: Constants) {
        let mut rest = row;
        let mut at = feature;
        while !rest.is_empty() {
            let within = at % BLOCK;
            let (now, later) = rest.split_at_mut(rest.len().min(BLOCK - within));
            let factors = factors(at / BLOCK, counter, &constants);
            for (x, factors) in now.chunks_mut(LANES).zip(factors[within..].chunks(LANES)) {
                L::load_part(x, 0.0).mul(L::load_part(factors, 0.0)).store_part(x);
            }
            at += now.len();
            rest = later;
        }
    }
}

/// Factors of the features 64 * block .. 64 * (block + 1): `rng::philox` on 16 counters, lane by lane,
/// so that the compiler can use vectors.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "halves of products; mod.rs checks features"
)]
fn factors(block: usize, counter: [u32; 3], constants: &Constants) -> [f32; BLOCK] {
    let [mut k0, mut k1] = constants.key;
    let first = (block * LANES) as u32;
    let mut words = [[0; LANES]; 4];
    for (lane, word) in words[0].iter_mut().enumerate() {
        *word = first + lane as u32;
    }
    for (words, c) in words[1..].iter_mut().zip(counter) {
        *words = [c; LANES];
    }
    for _ in 0..10 {
        let [a, b, c, d] = words;
        for i in 0..LANES {
            let x = 0xD251_1F53_u64 * u64::from(a[i]);
            let y = 0xCD9E_8D57_u64 * u64::from(c[i]);
            words[0][i] = (y >> 32) as u32 ^ b[i] ^ k0;
            words[1][i] = y as u32;
            words[2][i] = (x >> 32) as u32 ^ d[i] ^ k1;
            words[3][i] = x as u32;
        }
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    let mut out = [0.0; BLOCK];
    for (out, word) in out.iter_mut().zip(words.as_flattened()) {
        if *word >= constants.threshold {
            *out = constants.scale;
        }
    }
    out
}

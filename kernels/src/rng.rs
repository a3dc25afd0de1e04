//! Counter-based random numbers: Philox4x32-10, no stream to share, no state to save.
//! Paper: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". Key: the seed. Counter:
//! (index, stream), so a number depends on (seed, stream, index) alone; streams are hashes of names.
//! Normals are Box-Muller in f64, two per counter: elements 2i and 2i + 1 share counter i.

use rayon::prelude::*;

/// Returns the four words of Philox4x32-10.
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let ([mut k0, mut k1], [mut a, mut b, mut c, mut d]) = (key, counter);
    for _ in 0..10 {
        let [high0, low0] = halves(MULTIPLIERS[0] * u64::from(a));
        let [high1, low1] = halves(MULTIPLIERS[1] * u64::from(c));
        (a, b, c, d) = (high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0);
        (k0, k1) = (k0.wrapping_add(STEPS[0]), k1.wrapping_add(STEPS[1]));
    }
    [a, b, c, d]
}

/// High and low word.
#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
fn halves(x: u64) -> [u32; 2] {
    [(x >> 32) as u32, x as u32]
}

/// The two uniforms in [0, 1) of a counter, 53 bits each.
fn pair(seed: u64, stream: u64, counter: u64) -> [f64; 2] {
    let [key1, key0] = halves(seed);
    let ([c1, c0], [s1, s0]) = (halves(counter), halves(stream));
    let [a, b, c, d] = philox([key0, key1], [c0, c1, s0, s1]);
    let unit = |high: u32, low: u32| {
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        bits as f64 * (1.0 / (1_u64 << 53) as f64)
    };
    [unit(a, b), unit(c, d)]
}

/// Returns a number in [0, 1) with 53 random bits.
pub fn uniform(seed: u64, stream: u64, index: u64) -> f64 {
    pair(seed, stream, index)[0]
}

/// Fills `out` with normals of mean 0: `out[i]` depends on (seed, stream, first_element + i) alone.
pub fn fill_normal(out: &mut [f32], seed: u64, stream: u64, first_element: u64, std: f32) {
    let normals = |counter: u64| {
        let [u, v] = pair(seed, stream, counter);
        // 1 - u is in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * (1.0 - u).ln()).sqrt() * f64::from(std);
        let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
        [rounded(radius * cos), rounded(radius * sin)]
    };
    let odd = usize::from(first_element % 2 == 1).min(out.len());
    let (head, pairs) = out.split_at_mut(odd);
    if let [x] = head {
        *x = normals(first_element / 2)[1];
    }
    let start = first_element.div_ceil(2);
    pairs
        .par_chunks_mut(2)
        .with_min_len(1024)
        .enumerate()
        .for_each(|(i, out)| {
            let values = normals(start + i as u64);
            out.copy_from_slice(&values[..out.len()]);
        });
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "normals are made in f64 and rounded once"
)]
fn rounded(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "bucket numbers are small")]
mod tests {
    use super::*;

    /// Known answers of the paper's library, Random123 `kat_vectors`.
    #[test]
    fn philox_gives_the_known_answers() {
        assert_eq!(
            philox([0; 2], [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_normal_depends_on_its_index_alone() {
        let mut whole = vec![0.0; 9001];
        fill_normal(&mut whole, 7, 9, 0, 0.02);
        for (first, len) in [(0, 1), (1, 1), (1, 4), (4, 3), (17, 5000)] {
            let mut part = vec![0.0; len];
            fill_normal(&mut part, 7, 9, first as u64, 0.02);
            assert_eq!(part, whole[first..first + len], "{first} {len}");
        }
    }

    #[test]
    fn normals_have_the_moments_of_the_normal_distribution() {
        let n = 1_000_000;
        let mut x = vec![0.0; n];
        fill_normal(&mut x, 1, 2, 0, 2.0);
        let moment =
            |p: i32| x.iter().map(|x| (f64::from(*x) / 2.0).powi(p)).sum::<f64>() / n as f64;
        // Standard errors of the moments: 1e-3 times 1, sqrt 2, sqrt 15, sqrt 96; five of them.
        assert!(moment(1).abs() < 5e-3);
        assert!((moment(2) - 1.0).abs() < 7.1e-3);
        assert!(moment(3).abs() < 2e-2);
        assert!((moment(4) - 3.0).abs() < 4.9e-2);
    }

    #[test]
    fn uniforms_are_spread_over_the_unit_interval() {
        let n = 100_000;
        let mut counts = [0.0_f64; 16];
        for i in 0..n {
            let u = uniform(3, 4, i);
            assert!((0.0..1.0).contains(&u));
            counts[(u * 16.0) as usize] += 1.0;
        }
        let want = n as f64 / 16.0;
        let chi2: f64 = counts.iter().map(|c| (c - want).powi(2) / want).sum();
        assert!(
            chi2 < 37.7,
            "0.1 % point of chi-square with 15 degrees: {chi2}"
        );
    }
}

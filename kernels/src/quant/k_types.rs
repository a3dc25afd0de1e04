//! Types of 256 numbers whose scales are quantized themselves.

use super::block::{SUPER, half_at, put_half};
use super::search::{self, Affine, Candidates, GROUP, SMALL, Symmetric, nearest};

/// Groups of 32 in a block.
const GROUPS: usize = SUPER / GROUP;
/// Highest scale of 6 bits.
const HIGHEST: f32 = 63.0;
/// Bytes of the packed scales and minima.
const SCALES: usize = 12;
/// Start of the packed scales, after two halves.
const AT_SCALES: usize = 4;
const AT_Q4: usize = AT_SCALES + SCALES;
const AT_FIFTH: usize = AT_Q4;
const AT_Q5: usize = AT_FIFTH + SUPER / 8;

const AT_UPPER: usize = SUPER / 2;
const AT_Q6_SCALES: usize = AT_UPPER + SUPER / 4;
const AT_Q6_SCALE: usize = AT_Q6_SCALES + SUPER / SMALL;

/// Scales and minima of 6 bits: the lower four groups have bytes of their own, whose two upper bits are the upper bits
/// of the others.
fn pack_scales(scales: &[u8; GROUPS], minima: &[u8; GROUPS], out: &mut [u8]) {
    let half = GROUPS / 2;
    for group in 0..half {
        let [upper_scale, upper_minimum] = [scales[group + half], minima[group + half]];
        out[group] = scales[group] | (upper_scale >> 4) << 6;
        out[group + half] = minima[group] | (upper_minimum >> 4) << 6;
        out[group + GROUPS] = upper_scale & 15 | (upper_minimum & 15) << 4;
    }
}

/// Scale and minimum of a group.
fn unpack_scale(packed: &[u8], group: usize) -> [u8; 2] {
    let half = GROUPS / 2;
    if group < half {
        return [packed[group] & 63, packed[group + half] & 63];
    }
    let low = packed[group + half];
    [
        low & 15 | (packed[group - half] >> 6) << 4,
        low >> 4 | (packed[group] >> 6) << 4,
    ]
}

fn six_bits(x: f32) -> u8 {
    u8::try_from(nearest(x).clamp(0, 63)).unwrap_or(0)
}

/// Quantizes all but the packing of q, which is returned.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the levels"
)]
fn quantize_affine(
    x: &[f32],
    highest: u8,
    candidates: Candidates,
    block: &mut [u8],
) -> [u8; SUPER] {
    let found: [Affine; GROUPS] = std::array::from_fn(|group| {
        let x = &x[group * GROUP..][..GROUP];
        let sum: f32 = x.iter().fold(0.0, |sum, x| sum + x * x);
        let typical = (sum / GROUP as f32).sqrt();
        let mut weights = [0.0; GROUP];
        for (weight, x) in weights.iter_mut().zip(x) {
            *weight = typical + x.abs();
        }
        search::affine(x, &weights, highest, candidates)
    });
    let largest = |of: fn(&Affine) -> f32| found.iter().map(of).fold(0.0, f32::max);
    let [scale, minimum] = [largest(|one| one.scale), largest(|one| one.minimum)];
    let inverse = |x: f32| if x > 0.0 { HIGHEST / x } else { 0.0 };
    let [per_scale, per_minimum] = [inverse(scale), inverse(minimum)];
    let scales = found.map(|one| six_bits(per_scale * one.scale));
    let minima = found.map(|one| six_bits(per_minimum * one.minimum));
    pack_scales(&scales, &minima, &mut block[AT_SCALES..AT_SCALES + SCALES]);
    let scale = put_half(scale / HIGHEST, block, 0);
    let minimum = put_half(minimum / HIGHEST, block, 2);
    let mut all = [0; SUPER];
    let groups = x.chunks_exact(GROUP).zip(all.chunks_exact_mut(GROUP));
    for (group, (x, all)) in groups.enumerate() {
        let scale = scale * f32::from(scales[group]);
        let minimum = minimum * f32::from(minima[group]);
        if scale == 0.0 {
            all.copy_from_slice(&found[group].q);
            continue;
        }
        for (q, x) in all.iter_mut().zip(x) {
            *q = nearest((x + minimum) / scale).clamp(0, i32::from(highest)) as u8;
        }
    }
    all
}

fn dequantize_affine(block: &[u8], q: impl Fn(usize) -> u8, x: &mut [f32]) {
    let [scale, minimum] = [half_at(block, 0), half_at(block, 2)];
    for (group, x) in x.chunks_exact_mut(GROUP).enumerate() {
        let [own_scale, own_minimum] = unpack_scale(&block[AT_SCALES..], group);
        let scale = scale * f32::from(own_scale);
        let minimum = minimum * f32::from(own_minimum);
        for (at, x) in x.iter_mut().enumerate() {
            *x = scale * f32::from(q(group * GROUP + at)) - minimum;
        }
    }
}

/// Pairs of groups share bytes: the first has the low bits.
fn pack_nibbles(q: &[u8; SUPER], out: &mut [u8]) {
    let pairs = q.chunks_exact(2 * GROUP);
    for (pair, out) in pairs.zip(out.chunks_exact_mut(GROUP)) {
        let (low, high) = pair.split_at(GROUP);
        for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
            *out = low & 15 | (high & 15) << 4;
        }
    }
}

fn nibble(packed: &[u8], at: usize) -> u8 {
    let (pair, within) = (at / (2 * GROUP), at % (2 * GROUP));
    let byte = packed[pair * GROUP + within % GROUP];
    if within < GROUP { byte & 15 } else { byte >> 4 }
}

pub(super) fn to_q4_k(x: &[f32], block: &mut [u8]) {
    let candidates = Candidates {
        first: -1.0,
        step: 0.1,
        steps: 20,
    };
    let q = quantize_affine(x, 15, candidates, block);
    pack_nibbles(&q, &mut block[AT_Q4..]);
}

pub(super) fn of_q4_k(block: &[u8], x: &mut [f32]) {
    dequantize_affine(block, |at| nibble(&block[AT_Q4..], at), x);
}

pub(super) fn to_q5_k(x: &[f32], block: &mut [u8]) {
    let candidates = Candidates {
        first: -0.5,
        step: 0.1,
        steps: 15,
    };
    let q = quantize_affine(x, 31, candidates, block);
    pack_nibbles(&q, &mut block[AT_Q5..]);
    let fifth = &mut block[AT_FIFTH..AT_Q5];
    fifth.fill(0);
    for (group, q) in q.chunks_exact(GROUP).enumerate() {
        for (fifth, q) in fifth.iter_mut().zip(q) {
            *fifth |= (q >> 4) << group;
        }
    }
}

pub(super) fn of_q5_k(block: &[u8], x: &mut [f32]) {
    let q = |at: usize| {
        let fifth = block[AT_FIFTH + at % GROUP] >> (at / GROUP) & 1;
        nibble(&block[AT_Q5..], at) | fifth << 4
    };
    dequantize_affine(block, q, x);
}

/// Position of the lower 4 bits of a number, and of its upper 2: byte and first bit.
fn six_bit_places(at: usize) -> [[usize; 2]; 2] {
    let (half, within) = (at / (SUPER / 2), at % (SUPER / 2));
    let (quarter, lane) = (within / GROUP, within % GROUP);
    [
        [
            half * 2 * GROUP + quarter % 2 * GROUP + lane,
            quarter / 2 * 4,
        ],
        [AT_UPPER + half * GROUP + lane, quarter * 2],
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 8 and 6 bits"
)]
pub(super) fn to_q6_k(x: &[f32], block: &mut [u8]) {
    block.fill(0);
    let found: [Symmetric; SUPER / SMALL] =
        std::array::from_fn(|group| search::symmetric(&x[group * SMALL..][..SMALL], 32));
    let mut largest = 0.0_f32;
    for one in &found {
        if one.scale.abs() > largest.abs() {
            largest = one.scale;
        }
    }
    if largest.abs() < search::SMALLEST {
        return;
    }
    let inverse = -128.0 / largest;
    let whole = put_half(1.0 / inverse, block, AT_Q6_SCALE);
    for (group, x) in x.chunks_exact(SMALL).enumerate() {
        let own = nearest(inverse * found[group].scale).clamp(-128, 127) as i8;
        block[AT_Q6_SCALES + group] = own.cast_unsigned();
        let scale = whole * f32::from(own);
        for (lane, x) in x.iter().enumerate() {
            let q = match scale == 0.0 {
                true => found[group].q[lane],
                false => (nearest(x / scale).clamp(-32, 31) + 32) as u8,
            };
            let [[low, low_bit], [high, high_bit]] = six_bit_places(group * SMALL + lane);
            block[low] |= (q & 15) << low_bit;
            block[high] |= (q >> 4) << high_bit;
        }
    }
}

pub(super) fn of_q6_k(block: &[u8], x: &mut [f32]) {
    let whole = half_at(block, AT_Q6_SCALE);
    for (at, x) in x.iter_mut().enumerate() {
        let own = block[AT_Q6_SCALES + at / SMALL].cast_signed();
        let [[low, low_bit], [high, high_bit]] = six_bit_places(at);
        let q = block[low] >> low_bit & 15 | (block[high] >> high_bit & 3) << 4;
        *x = whole * f32::from(own) * (f32::from(q) - 32.0);
    }
}

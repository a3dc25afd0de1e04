//! Types with one scale for each 32 numbers. The roundings are those of the package `gguf` 0.19 (`quants.py`), all in f32.
//!
//! The inverse of a scale below 2^-128 is infinite. Products with it have no whole number, in whose place the package, like the
//! instruction of x86 that converts them, has 0; the scale is 0 in binary16, so that no number that comes back depends on it.

use super::block::{PLAIN, half_at, put_half};

const HALF: usize = PLAIN / 2;

/// The number of largest magnitude, the first of several: of a block of zeros its sign is that of the first.
fn largest(x: &[f32]) -> f32 {
    let mut largest = x.first().copied().unwrap_or(0.0);
    for &number in x {
        if number.abs() > largest.abs() {
            largest = number;
        }
    }
    largest
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn extent(x: &[f32]) -> [f32; 2] {
    let low = x.iter().copied().fold(f32::INFINITY, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    [low, high]
}

/// The whole part of a number that is not below 0, at most `highest`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast to u8 saturates, as clipping does"
)]
fn whole(moved: f32, highest: u8) -> u8 {
    match moved.is_finite() {
        true => (moved as u8).min(highest),
        false => 0,
    }
}

/// Two numbers of 4 bits a byte: the first half of the block in the low bits.
fn pack_nibbles(q: &[u8; PLAIN], out: &mut [u8]) {
    for (at, out) in out.iter_mut().enumerate() {
        *out = q[at] & 15 | (q[at + HALF] & 15) << 4;
    }
}

fn nibbles(packed: &[u8]) -> [u8; PLAIN] {
    let mut q = [0; PLAIN];
    for (at, &byte) in packed.iter().enumerate() {
        q[at] = byte & 15;
        q[at + HALF] = byte >> 4;
    }
    q
}

/// The fifth bits, one a number.
fn pack_fifth_bits(q: &[u8; PLAIN], out: &mut [u8]) {
    out.fill(0);
    for (at, q) in q.iter().enumerate() {
        out[at / 8] |= (q >> 4) << (at % 8);
    }
}

fn with_fifth_bits(mut q: [u8; PLAIN], bits: &[u8]) -> [u8; PLAIN] {
    for (at, q) in q.iter_mut().enumerate() {
        *q |= (bits[at / 8] >> (at % 8) & 1) << 4;
    }
    q
}

fn each(x: &[f32], of: impl Fn(f32) -> u8) -> [u8; PLAIN] {
    let mut q = [0; PLAIN];
    for (q, &x) in q.iter_mut().zip(x) {
        *q = of(x);
    }
    q
}

pub(super) fn to_q4_0(x: &[f32], block: &mut [u8]) {
    let scale = largest(x) / -8.0;
    let inverse = inverse(scale);
    put_half(scale, block, 0);
    let q = each(x, |x| whole(x * inverse + 8.5, 15));
    pack_nibbles(&q, &mut block[2..]);
}

pub(super) fn of_q4_0(block: &[u8], x: &mut [f32]) {
    let scale = half_at(block, 0);
    for (x, q) in x.iter_mut().zip(nibbles(&block[2..])) {
        *x = scale * (f32::from(q) - 8.0);
    }
}

pub(super) fn to_q4_1(x: &[f32], block: &mut [u8]) {
    let [low, high] = extent(x);
    let scale = (high - low) / 15.0;
    let inverse = inverse(scale);
    put_half(scale, block, 0);
    put_half(low, block, 2);
    let q = each(x, |x| whole((x - low) * inverse + 0.5, 15));
    pack_nibbles(&q, &mut block[4..]);
}

pub(super) fn of_q4_1(block: &[u8], x: &mut [f32]) {
    let (scale, low) = (half_at(block, 0), half_at(block, 2));
    for (x, q) in x.iter_mut().zip(nibbles(&block[4..])) {
        *x = scale * f32::from(q) + low;
    }
}

pub(super) fn to_q5_0(x: &[f32], block: &mut [u8]) {
    let scale = largest(x) / -16.0;
    let inverse = inverse(scale);
    put_half(scale, block, 0);
    let q = each(x, |x| whole(x * inverse + 16.5, 31));
    pack_fifth_bits(&q, &mut block[2..6]);
    pack_nibbles(&q, &mut block[6..]);
}

pub(super) fn of_q5_0(block: &[u8], x: &mut [f32]) {
    let scale = half_at(block, 0);
    let q = with_fifth_bits(nibbles(&block[6..]), &block[2..6]);
    for (x, q) in x.iter_mut().zip(q) {
        *x = scale * (f32::from(q) - 16.0);
    }
}

pub(super) fn to_q5_1(x: &[f32], block: &mut [u8]) {
    let [low, high] = extent(x);
    let scale = (high - low) / 31.0;
    let inverse = inverse(scale);
    put_half(scale, block, 0);
    put_half(low, block, 2);
    let q = each(x, |x| whole((x - low) * inverse + 0.5, 31));
    pack_fifth_bits(&q, &mut block[4..8]);
    pack_nibbles(&q, &mut block[8..]);
}

pub(super) fn of_q5_1(block: &[u8], x: &mut [f32]) {
    let (scale, low) = (half_at(block, 0), half_at(block, 2));
    let q = with_fifth_bits(nibbles(&block[8..]), &block[4..8]);
    for (x, q) in x.iter_mut().zip(q) {
        *x = scale * f32::from(q) + low;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a scaled number is in -127..=127"
)]
pub(super) fn to_q8_0(x: &[f32], block: &mut [u8]) {
    let scale = largest(x).abs() / 127.0;
    let inverse = inverse(scale);
    put_half(scale, block, 0);
    for (q, &x) in block[2..].iter_mut().zip(x) {
        let scaled = x * inverse;
        let whole = if scaled.is_finite() {
            scaled.round() as i8
        } else {
            0
        };
        *q = whole.cast_unsigned();
    }
}

pub(super) fn of_q8_0(block: &[u8], x: &mut [f32]) {
    let scale = half_at(block, 0);
    for (x, q) in x.iter_mut().zip(&block[2..]) {
        *x = scale * f32::from(q.cast_signed());
    }
}

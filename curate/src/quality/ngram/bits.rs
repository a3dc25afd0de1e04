//! Reads numbers at byte and bit positions. Bits beyond the end are 0: sizes were checked before.

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|b| b.first_chunk::<4>());
    four.map_or(0, |b| u32::from_le_bytes(*b))
}

pub(super) fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(u32_at(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|b| b.first_chunk::<8>());
    eight.map_or(0, |b| u64::from_le_bytes(*b))
}

/// `length` bits, at most 57, from bit `at` of the bytes from `base` on.
pub(super) fn bits_at(bytes: &[u8], base: usize, at: u64, length: u32) -> u64 {
    let byte = usize::try_from(at >> 3).unwrap_or(usize::MAX);
    let eight = u64_at(bytes, base.saturating_add(byte));
    (eight >> (at & 7)) & ((1 << length) - 1)
}

/// Bits that numbers up to `most` need.
pub(super) fn needed(most: u64) -> u32 {
    64 - most.leading_zeros()
}

/// A length in bytes that fits memory.
pub(super) fn size(n: u64) -> Result<usize, String> {
    usize::try_from(n)
        .map_err(|_| format!("found a part of {n} bytes, wanted less than memory has"))
}

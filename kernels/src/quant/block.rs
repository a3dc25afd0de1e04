//! Lengths of blocks and the binary16 numbers in them.

/// Numbers of a block of the plain types.
pub(super) const PLAIN: usize = 32;
/// Numbers of a block of the K types.
pub(super) const SUPER: usize = 256;

/// A binary16 number of a block.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Stores the nearest binary16; returns its value.
pub(super) fn put_half(x: f32, block: &mut [u8], at: usize) -> f32 {
    let half = half::f16::from_f32(x);
    block[at..at + 2].copy_from_slice(&half.to_le_bytes());
    half.to_f32()
}

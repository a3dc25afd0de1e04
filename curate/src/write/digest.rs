//! Checksum at the end of our own files: writing and verification.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{At, Result, damaged};

/// `N` bytes at `at`, which must exist.
pub(crate) fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Size of a file, XXH3-128 of all but its last 16 bytes, and its last 24 bytes.
pub(crate) fn verify(path: &Path, least: u64) -> Result<(u64, u128, [u8; 24])> {
    let mut file = File::open(path).at(path)?;
    let size = file.metadata().at(path)?.len();
    if size < least {
        return Err(damaged(
            path,
            size,
            "end of file",
            format!("at least {least} bytes"),
        ));
    }
    let mut hash = Xxh3::new();
    let mut tail = [0u8; 24];
    let mut left = size - 16;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let want = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        file.read_exact(&mut buffer[..want]).at(path)?;
        hash.update(&buffer[..want]);
        left -= want as u64;
        for &byte in &buffer[want.saturating_sub(8)..want] {
            tail.copy_within(1..8, 0);
            tail[7] = byte;
        }
    }
    file.read_exact(&mut tail[8..]).at(path)?;
    Ok((size, hash.digest128(), tail))
}

/// Compares the checksum in the last 16 bytes.
pub(crate) fn check_digest(path: &Path, size: u64, digest: u128, tail: &[u8; 24]) -> Result<()> {
    let stored = u128::from_le_bytes(word(tail, 8));
    if stored != digest {
        let found = format!("checksum {stored:032x}");
        return Err(damaged(
            path,
            size - 16,
            found,
            format!("checksum {digest:032x}"),
        ));
    }
    Ok(())
}

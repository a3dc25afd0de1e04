//! Bands in the order of their minima, for `keep = "datatrove"`.
//!
//! datatrove 0.10.1 sorts each band by its minima, joins neighbours with equal ones, band after band, and keeps the
//! root that a union by size ends with: the kept document depends on that order, so it is reproduced here, by an
//! external sort of all minima. The files then hold all minima of a band, at most eight.

use super::numbering::Numbering;
use super::signature::{NO_SIGNATURE, SignatureColumn};
use super::sort::Sorter;
use super::stage::Stage;
use crate::error::Result;
use crate::progress::Progress;
use crate::write::word;

/// Bytes of an ordered key: eight hashes, the most a band may have with `keep = "datatrove"`.
const ORDERED: usize = 64;

impl Stage<'_> {
    /// Joins neighbours in the order of a band's minima.
    pub(super) fn ordered_band(&mut self, band: u32, progress: &dyn Progress) -> Result<()> {
        let folder = self.out.join("tmp/dedup").join(format!("band-{band:03}"));
        let mut sorter = Sorter::<{ ORDERED + 8 }>::new(&folder, self.memory());
        let width = 8 * self.shape.width as usize;
        let mut without = 0;
        for (shard, file) in (0u32..).zip(&self.files) {
            let mut number = 0u32;
            for group in 0..file.groups() {
                let bytes = file.column(SignatureColumn::Band(band), group)?;
                progress.bytes(bytes.len() as u64);
                for minima in bytes.chunks_exact(width) {
                    if minima[..8] == NO_SIGNATURE.to_le_bytes() {
                        without += 1;
                    } else if !self.exact.get(self.numbering.number(shard, number)) {
                        sorter.push(record(minima, shard, number))?;
                    }
                    number += 1;
                }
            }
        }
        self.report.without_signature = without;
        let mut last: Option<[u8; ORDERED + 8]> = None;
        let (sets, numbering, pairs) = (&mut self.sets, &self.numbering, &mut self.report.pairs);
        sorter.drain(&mut |r| {
            if let Some(previous) = &last
                && previous[..ORDERED] == r[..ORDERED]
            {
                sets.join(number_of(previous, numbering), number_of(r, numbering));
                *pairs += 1;
            }
            last = Some(*r);
            Ok(())
        })
    }
}

/// Minima so that bytes sort like them, then shard, then document, all big-endian.
fn record(minima: &[u8], shard: u32, document: u32) -> [u8; ORDERED + 8] {
    let mut r = [0; ORDERED + 8];
    for (to, from) in r
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(minima.as_chunks::<8>().0)
    {
        *to = u64::from_le_bytes(*from).to_be_bytes();
    }
    r[ORDERED..ORDERED + 4].copy_from_slice(&shard.to_be_bytes());
    r[ORDERED + 4..].copy_from_slice(&document.to_be_bytes());
    r
}

fn number_of(record: &[u8; ORDERED + 8], numbering: &Numbering) -> u64 {
    let shard = u32::from_be_bytes(word(record, ORDERED));
    let document = u32::from_be_bytes(word(record, ORDERED + 4));
    numbering.number(shard, document)
}

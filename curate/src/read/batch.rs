//! Batches of raw records of a file, bounded by bytes.

use crate::text::narrow;

/// Defect of a record that could still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Name in reports.
    pub(crate) name: &'static str,
    /// In words.
    pub(crate) why: &'static str,
}

/// One record of a batch: a slice of the batch's bytes, or why there is none.
pub(crate) struct Raw {
    /// Byte offset in the file (of the gzip member for WARC, in the decompressed text for lines).
    pub(crate) offset: u64,
    /// Number of the record in its file (of its part of the file), from 0, bad ones included.
    pub(crate) number: u64,
    /// Number among the records of the same offset.
    nth: u32,
    start: u32,
    end: u32,
    /// Why the record cannot be read.
    pub(crate) bad: Option<String>,
    /// The fault it was read in spite of.
    pub(crate) repaired: Option<Fault>,
}

/// Some records of a file.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) data: Vec<u8>,
    pub(crate) records: Vec<Raw>,
    /// File bytes consumed for this batch.
    pub(crate) consumed: u64,
    /// Numbers count inside a part of a file: records are named by their offset.
    by_offset: bool,
    /// Offset of the last record and its number among those of this offset.
    pub(crate) last: Option<(u64, u32)>,
}

impl Batch {
    /// An empty batch; `part`: of a part of a file.
    pub(crate) fn of_part(part: bool) -> Batch {
        Batch {
            by_offset: part,
            ..Batch::default()
        }
    }

    /// Identifies a record in its file: its number, or its position where numbers are not known.
    pub(crate) fn label(&self, raw: &Raw) -> String {
        match raw.nth {
            _ if !self.by_offset => raw.number.to_string(),
            0 => format!("@{}", raw.offset),
            nth => format!("@{}.{nth}", raw.offset),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.records.clear();
        self.consumed = 0;
    }

    /// The bytes of a record.
    pub(crate) fn bytes(&self, raw: &Raw) -> &[u8] {
        &self.data[raw.start as usize..raw.end as usize]
    }

    pub(crate) fn push(&mut self, offset: u64, number: u64, bytes: &[u8], repaired: Option<Fault>) {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        self.push_read(offset, number, start, repaired);
    }

    /// A record whose bytes are the batch's from `start` on.
    pub(crate) fn push_read(
        &mut self,
        offset: u64,
        number: u64,
        start: usize,
        repaired: Option<Fault>,
    ) {
        let nth = self.nth(offset);
        self.records.push(Raw {
            offset,
            number,
            nth,
            start: narrow(start),
            end: narrow(self.data.len()),
            bad: None,
            repaired,
        });
    }

    pub(crate) fn push_bad(&mut self, offset: u64, number: u64, why: String) {
        let nth = self.nth(offset);
        self.records.push(Raw {
            offset,
            number,
            nth,
            start: 0,
            end: 0,
            bad: Some(why),
            repaired: None,
        });
    }

    /// Records of a member follow each other, in this batch and from the one before.
    fn nth(&mut self, offset: u64) -> u32 {
        let same = self.last.is_some_and(|(last, _)| last == offset);
        let nth = self.last.filter(|_| same).map_or(0, |(_, nth)| nth + 1);
        self.last = Some((offset, nth));
        nth
    }

    pub(crate) fn is_full(&self) -> bool {
        self.data.len() >= BATCH_BYTES || self.records.len() >= BATCH_RECORDS
    }
}

/// A batch is closed once it holds this much; one record may exceed it.
const BATCH_BYTES: usize = 4 << 20;

const BATCH_RECORDS: usize = 2048;

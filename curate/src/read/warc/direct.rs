//! Fast path of the WARC reader: a member (or frame) that is one sound record, decompressed directly into the
//! batch.

use super::WarcReader;
use super::header::{end_from, header_value, is_start, parse_length, repair};
use crate::read::batch::Batch;
use crate::read::compression::Piece;

impl WarcReader {
    /// Reads a member directly into the batch; false if the slow path must handle it: the bytes read are in its
    /// buffer then.
    pub(super) fn direct(&mut self, batch: &mut Batch) -> bool {
        let waiting = self.at < self.buffer.len() || self.damage.is_some() || self.end;
        if !self.compressed || waiting {
            return false;
        }
        let before = batch.data.len();
        let piece = self.source.next(&mut batch.data);
        if let Piece::Data {
            offset,
            starts_member: true,
            ends_member: true,
        } = piece
            && offset < self.stop
            && let Some((head, end)) = sound(&batch.data[before..], self.max)
        {
            batch.data.truncate(before + end);
            let (head, body) = batch.data[before..].split_at(head);
            let repaired = repair(head, body);
            batch.push_read(offset, self.number, before, repaired);
            self.number += 1;
            self.buffer.clear();
            self.pieces.clear();
            self.starts.clear();
            self.no_blank = 0;
            self.at = 0;
            return true;
        }
        self.compact();
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&batch.data[before..]);
        batch.data.truncate(before);
        self.note(piece, at);
        false
    }
}

/// Header length and end of the record if the bytes are one record with its two line ends, no more.
fn sound(bytes: &[u8], max: usize) -> Option<(usize, usize)> {
    if !is_start(bytes) {
        return None;
    }
    let head = end_from(bytes, 0)?;
    let length = parse_length(header_value(&bytes[..head], b"content-length")?)?;
    let length = usize::try_from(length).ok().filter(|n| *n <= max)?;
    let end = head.checked_add(length)?;
    (bytes.get(end..)? == b"\r\n\r\n").then_some((head, end))
}

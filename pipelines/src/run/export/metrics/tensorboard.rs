//! Event files of TensorBoard: records of TensorFlow's framing with `Event` messages of protocol buffers.
//!
//! A record is its length (u64, little-endian), the masked CRC-32C of these eight bytes, the bytes, and their masked CRC-32C. The
//! fields of `Event` used here: 1 `wall_time` (double), 2 `step` (int64), 3 `file_version` (string), 5 `summary` with, per number,
//! field 1 `value`: 1 `tag` (string), 2 `simple_value` (float). Sources: tensorflow/core/lib/io/record_writer.h and
//! tensorboard/compat/proto/{event,summary}.proto.

use super::form::{Form, Moment};
use crate::journal::Line;
use crc32c::crc32c;
use std::io::{self, Write};

/// Name of the file: TensorBoard reads those with `tfevents` in their name.
pub(super) const FILE: &str = "events.out.tfevents.millrace";

/// Writer of an event file.
pub(super) struct TensorBoard<W> {
    out: W,
}

impl<W: Write> TensorBoard<W> {
    /// Writes the first event, which names the version of the format.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(out: W, unix: f64) -> io::Result<TensorBoard<W>> {
        let mut event = Message::default();
        event.double(1, unix);
        event.bytes(3, b"brain.Event:2");
        let mut file = TensorBoard { out };
        file.record(&event.0)?;
        Ok(file)
    }

    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        self.out.write_all(&length)?;
        self.out.write_all(&masked(&length).to_le_bytes())?;
        self.out.write_all(data)?;
        self.out.write_all(&masked(data).to_le_bytes())
    }
}

impl<W: Write> Form for TensorBoard<W> {
    fn line(&mut self, line: &Line, at: Moment) -> io::Result<()> {
        let mut summary = Message::default();
        for (name, value) in &line.values {
            let mut one = Message::default();
            one.bytes(1, name.as_bytes());
            one.float(2, *value);
            summary.bytes(1, &one.0);
        }
        let mut event = Message::default();
        event.double(1, at.unix);
        event.integer(2, line.step);
        event.bytes(5, &summary.0);
        self.record(&event.0)
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The checksum of a record's part: CRC-32C, turned by 15 bits, plus a constant.
fn masked(data: &[u8]) -> u32 {
    let crc = crc32c(data);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n.to_le_bytes()[0] | 0x80);
            n >>= 7;
        }
        self.0.push(n.to_le_bytes()[0]);
    }

    /// Number of a field and how it is stored: 0 varint, 1 eight bytes, 2 bytes with their length, 5 four bytes.
    fn key(&mut self, field: u64, stored: u64) {
        self.varint(field << 3 | stored);
    }

    fn integer(&mut self, field: u64, n: u64) {
        self.key(field, 0);
        self.varint(n);
    }

    fn double(&mut self, field: u64, n: f64) {
        self.key(field, 1);
        self.0.extend(n.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// The nearest f32, as the field has no more bits.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "TensorBoard's numbers are f32"
    )]
    fn float(&mut self, field: u64, n: f64) {
        self.key(field, 5);
        self.0.extend((n as f32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_castagnoli_s() {
        // RFC 3720, B.4: 32 bytes of zeros
        let crc = crc32c(&[0; 32]);
        assert_eq!(crc, 0x8a91_36aa);
        // 0x8a9136aa turned right by 15 bits is 0x6d551522
        assert_eq!(masked(&[0; 32]), 0x6d55_1522_u32.wrapping_add(0xa282_ead8));
    }

    #[test]
    fn an_event_has_the_fields_of_the_message() {
        let line = Line::parse(br#"{"step":300,"loss":0.5}"#).unwrap();
        let mut bytes = Vec::new();
        let at = Moment {
            unix: 2.0,
            seconds: 0.0,
        };
        let mut file = TensorBoard { out: &mut bytes };
        file.line(&line, at).unwrap();
        let want = [
            &[0x09, 0, 0, 0, 0, 0, 0, 0, 0x40][..],
            &[0x10, 0xac, 0x02],
            &[0x2a, 13, 0x0a, 11],
            &[0x0a, 4, b'l', b'o', b's', b's', 0x15, 0, 0, 0, 0x3f],
        ]
        .concat();
        assert_eq!(bytes[..8], (want.len() as u64).to_le_bytes());
        assert_eq!(bytes[12..bytes.len() - 4], want);
    }
}

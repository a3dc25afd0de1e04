//! Wire format of messages between processes: a header of 48 bytes and numbers, little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | `MRF1` |
//! | 4, 5, 6 | kind, type of the numbers, op |
//! | 8..12, 12..16, 16..20 | group, member that sends, member that receives (all ones: every one) |
//! | 24..32 | turn: number of collectives that the sender began in this group before |
//! | 32..40 | elements of the sender's whole call, for comparison |
//! | 40..48 | elements that follow |

use std::io::{self, Read};
use std::sync::Arc;

pub(super) const HEADER: usize = 48;
const MAGIC: [u8; 4] = *b"MRF1";
/// Maximum number of bytes that a frame may carry; more means damage.
const MOST_BYTES: u64 = 1 << 40;
/// Memory is allocated as bytes arrive, not as a header says.
const STRETCH: usize = 1 << 22;
/// Receiver: every member of the group in the process.
pub(super) const EVERYONE: u32 = u32::MAX;

/// Ops by number.
const OPS: [&str; 9] = [
    "all_reduce_sum",
    "reduce_scatter_sum",
    "all_reduce_max",
    "all_gather",
    "all_gather_f64",
    "all_to_all",
    "broadcast",
    "barrier",
    "exchange",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of a collective.
    Turn,
    /// A message between two ranks.
    Mail,
    /// A member of a group has ended.
    Gone,
    /// The first cause of the end of the run.
    Failed,
    /// The process ends as it should.
    Bye,
    /// The process lives.
    Ping,
    /// Another process ended without a report.
    Lost,
}

const KINDS: [Kind; 7] = [
    Kind::Turn,
    Kind::Mail,
    Kind::Gone,
    Kind::Failed,
    Kind::Bye,
    Kind::Ping,
    Kind::Lost,
];

/// Numbers of a frame, shared by those who read them.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    F32(Arc<Vec<f32>>),
    F64(Arc<Vec<f64>>),
    Bytes(Arc<Vec<u8>>),
}

impl Payload {
    pub(super) fn none() -> Payload {
        Payload::F32(Arc::default())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::F32(x) => bytemuck::cast_slice(x),
            Payload::F64(x) => bytemuck::cast_slice(x),
            Payload::Bytes(x) => x,
        }
    }

    /// Empty if it holds other numbers: the ops are compared before.
    pub(super) fn f32(&self) -> &[f32] {
        match self {
            Payload::F32(x) => x,
            _ => &[],
        }
    }

    /// Like `f32`.
    pub(super) fn f64(&self) -> &[f64] {
        match self {
            Payload::F64(x) => x,
            _ => &[],
        }
    }

    /// Type number and elements.
    pub(super) fn form(&self) -> (u8, usize) {
        match self {
            Payload::F32(x) => (0, x.len()),
            Payload::F64(x) => (1, x.len()),
            Payload::Bytes(x) => (2, x.len()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub kind: Kind,
    pub op: &'static str,
    pub group: u32,
    pub from: u32,
    pub to: u32,
    pub turn: u64,
    pub whole: u64,
}

impl Header {
    /// Header of a frame between processes rather than members of a group.
    pub(super) fn of(kind: Kind) -> Header {
        Header {
            kind,
            op: OPS[0],
            group: 0,
            from: 0,
            to: EVERYONE,
            turn: 0,
            whole: 0,
        }
    }

    pub(super) fn encode(&self, payload: &Payload) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let (form, len) = payload.form();
        let number = |at: Option<usize>| at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX);
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = number(KINDS.iter().position(|kind| *kind == self.kind));
        bytes[5] = form;
        bytes[6] = number(OPS.iter().position(|op| *op == self.op));
        for (at, x) in [(8, self.group), (12, self.from), (16, self.to)] {
            bytes[at..at + 4].copy_from_slice(&x.to_le_bytes());
        }
        for (at, x) in [(24, self.turn), (32, self.whole), (40, len as u64)] {
            bytes[at..at + 8].copy_from_slice(&x.to_le_bytes());
        }
        bytes
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads a frame.
pub(super) fn read(from: &mut impl Read) -> io::Result<(Header, Payload)> {
    let mut bytes = [0; HEADER];
    from.read_exact(&mut bytes)?;
    if bytes[..4] != MAGIC {
        return Err(damaged("bytes that are no frame"));
    }
    let u32_at =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let kind = KINDS.get(usize::from(bytes[4]));
    let op = OPS.get(usize::from(bytes[6]));
    let header = Header {
        kind: *kind.ok_or_else(|| damaged("a frame of no known kind"))?,
        op: op.ok_or_else(|| damaged("a frame of no known op"))?,
        group: u32_at(8),
        from: u32_at(12),
        to: u32_at(16),
        turn: u64_at(24),
        whole: u64_at(32),
    };
    let len = u64_at(40);
    let payload = match bytes[5] {
        0 => Payload::F32(Arc::new(numbers(from, len)?)),
        1 => Payload::F64(Arc::new(numbers(from, len)?)),
        2 => Payload::Bytes(Arc::new(numbers(from, len)?)),
        _ => return Err(damaged("a frame of no known numbers")),
    };
    Ok((header, payload))
}

fn numbers<T: bytemuck::Pod>(from: &mut impl Read, len: u64) -> io::Result<Vec<T>> {
    let width = size_of::<T>() as u64;
    let len = usize::try_from(len).map_err(|_| damaged("a frame too long"))?;
    if (len as u64).saturating_mul(width) > MOST_BYTES {
        return Err(damaged("a frame too long"));
    }
    let mut x: Vec<T> = Vec::new();
    while x.len() < len {
        let start = x.len();
        x.resize(len.min(start + STRETCH), T::zeroed());
        from.read_exact(bytemuck::cast_slice_mut(&mut x[start..]))?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let payload = Payload::F64(Arc::new(vec![1.5, -0.0]));
        let header = Header {
            op: "barrier",
            group: 3,
            from: 1,
            to: 2,
            turn: 1 << 33,
            whole: 9,
            ..Header::of(Kind::Turn)
        };
        let mut bytes = header.encode(&payload).to_vec();
        bytes.extend_from_slice(payload.bytes());
        bytes
    }

    #[test]
    fn frames_come_back_and_damaged_ones_are_errors() {
        let bytes = frame();
        let (header, payload) = read(&mut bytes.as_slice()).unwrap();
        assert_eq!((header.kind, header.op), (Kind::Turn, "barrier"));
        assert_eq!((header.group, header.from, header.to), (3, 1, 2));
        assert_eq!((header.turn, header.whole), (1 << 33, 9));
        assert_eq!(payload.f64()[1].to_bits(), (-0.0f64).to_bits());
        for cut in 0..bytes.len() {
            assert!(read(&mut &bytes[..cut]).is_err(), "{cut}");
        }
        for (at, value) in [(0, 0), (4, 99), (5, 99), (6, 99), (46, 1)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(read(&mut wrong.as_slice()).is_err(), "{at}");
        }
    }
}

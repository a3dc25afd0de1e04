//! Messages of Arrow's interprocess format: their heads, and checks of what they declare before memory is allocated.
//!
//! Facts: "IPC Streaming Format" and "IPC File Format" of Arrow's columnar format, version 1.5. A message is
//! `ff ff ff ff`, the length of its metadata (i32), the metadata (a flatbuffer), padding, and a body whose length the
//! metadata declares. Writers before Arrow 0.15 leave out the first four bytes. A length of 0 ends the stream. A file
//! has `ARROW1` at both ends around a stream, and before the second one a footer with the place of each message.

use std::io::{self, Read};

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{CompressionType, Message, RecordBatch};

use crate::read::storage::Blob;

/// First bytes of a file, and its last.
pub(super) const MAGIC: &[u8] = b"ARROW1";
/// First bytes of a message.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Bytes of a message's metadata or a footer that are read: a schema names every label of a column.
const MAX_METADATA: u64 = 64 << 20;
/// Bytes of a batch for each byte that a record may have.
const BATCH_RECORDS: u64 = 32;
/// Bytes that a batch may expand to from any number of bytes, and its growth beyond them.
const SMALL: u64 = 256 << 20;
const MOST_GROWTH: u64 = 500;
/// Rows that a batch may have whatever its size.
const FEW_ROWS: u64 = 4 << 20;
/// Bytes before the length of a compressed buffer's content.
const PREFIX: u64 = 8;

/// A file that is read at any place.
pub(super) struct File {
    blob: Box<dyn Blob>,
    pub(super) size: u64,
    at: u64,
}

impl File {
    pub(super) fn over(mut blob: Box<dyn Blob>) -> io::Result<File> {
        let size = blob
            .size()?
            .ok_or_else(|| io::Error::other("the server does not report the file's size"))?;
        Ok(File { blob, size, at: 0 })
    }

    /// The bytes at an offset; None if the file ends before them.
    pub(super) fn bytes(&mut self, at: u64, length: u64) -> io::Result<Option<Vec<u8>>> {
        if !self.holds(at, length) {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.fill(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The same, aligned as arrays want it.
    fn buffer(&mut self, at: u64, length: u64) -> io::Result<Option<Buffer>> {
        if !self.holds(at, length) {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut bytes = MutableBuffer::try_from_len_zeroed(length)
            .map_err(|e| io::Error::other(e.to_string()))?;
        self.fill(at, bytes.as_slice_mut())?;
        Ok(Some(bytes.into()))
    }

    fn holds(&self, at: u64, length: u64) -> bool {
        at.checked_add(length).is_some_and(|end| end <= self.size)
    }

    fn fill(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if at != self.at {
            self.blob.go_to(at)?;
        }
        // unknown after a read that was refused
        self.at = u64::MAX;
        self.blob.read_exact(into)?;
        self.at = at + into.len() as u64;
        Ok(())
    }
}

/// A message without its body.
pub(super) struct Head {
    metadata: Vec<u8>,
    body: u64,
    body_bytes: u64,
}

impl Head {
    /// Reads the head at `at`; None at the end of the stream.
    ///
    /// # Errors
    /// Outside: a refused read. Inside: damage, in words.
    pub(super) fn read(file: &mut File, at: u64) -> io::Result<Result<Option<Head>, String>> {
        if at == file.size {
            return Ok(Ok(None));
        }
        let ended = || {
            Ok(Err(format!(
                "the file ends inside the message at byte {at}"
            )))
        };
        let Some(first) = file.bytes(at, 4)? else {
            return ended();
        };
        let (length, start) = match first[..] == CONTINUATION {
            true => (file.bytes(at + 4, 4)?, at + 8),
            false => (Some(first), at + 4),
        };
        let Some(length) = length.and_then(|l| l.try_into().ok().map(i32::from_le_bytes)) else {
            return ended();
        };
        if length == 0 {
            return Ok(Ok(None));
        }
        let length = match u64::try_from(length) {
            Ok(length) if length <= MAX_METADATA => length,
            _ => return Ok(Err(format!("no message at byte {at}"))),
        };
        let Some(metadata) = file.bytes(start, length)? else {
            return ended();
        };
        let body_bytes = match arrow_ipc::root_as_message(&metadata) {
            Ok(message) => u64::try_from(message.bodyLength()).ok(),
            Err(e) => return Ok(Err(format!("no message at byte {at}: {e}"))),
        };
        let Some(body_bytes) = body_bytes else {
            return Ok(Err(format!("no message at byte {at}: a negative length")));
        };
        let body = start + length;
        if !file.holds(body, body_bytes) {
            return ended();
        }
        Ok(Ok(Some(Head {
            metadata,
            body,
            body_bytes,
        })))
    }

    /// The metadata. It was verified when the head was read.
    pub(super) fn message(&self) -> Result<Message<'_>, String> {
        arrow_ipc::root_as_message(&self.metadata).map_err(|e| e.to_string())
    }

    /// Offset of the next message.
    pub(super) fn end(&self) -> u64 {
        self.body + self.body_bytes
    }

    /// The body, once `batch` does not declare more than there is or than is allowed for records of `max` bytes.
    ///
    /// # Errors
    /// Outside: a refused read. Inside: the declaration, in words.
    pub(super) fn body(
        &self,
        file: &mut File,
        batch: &RecordBatch<'_>,
        max: usize,
    ) -> io::Result<Result<Buffer, String>> {
        let declared = allowed(self.body_bytes, max).and_then(|()| within(batch, self.body_bytes));
        if let Err(why) = declared {
            return Ok(Err(why));
        }
        let Some(body) = file.buffer(self.body, self.body_bytes)? else {
            return Ok(Err("the file ends inside it".to_string()));
        };
        Ok(expands_to(batch, &body).and_then(|expanded| {
            allowed(expanded, max)?;
            let growth = self.body_bytes.saturating_mul(MOST_GROWTH);
            if expanded > SMALL.max(growth) {
                return Err(format!(
                    "{expanded} bytes out of {}, more than {MOST_GROWTH} times",
                    self.body_bytes
                ));
            }
            let rows = rows_of(batch)?;
            let most = FEW_ROWS.max(expanded.saturating_mul(8));
            match rows > most {
                true => Err(format!("{rows} rows in {expanded} bytes, more than {most}")),
                false => Ok(body),
            }
        }))
    }
}

/// Checks that as many bytes may be in memory.
pub(super) fn allowed(bytes: u64, max: usize) -> Result<(), String> {
    let most = (max as u64).saturating_mul(BATCH_RECORDS);
    match bytes > most {
        true => Err(too_large(bytes, most)),
        false => Ok(()),
    }
}

fn too_large(bytes: u64, most: u64) -> String {
    format!("{bytes} bytes, more than {most} ({BATCH_RECORDS} times max_record_bytes)")
}

/// Rows that a batch declares.
pub(super) fn rows_of(batch: &RecordBatch<'_>) -> Result<u64, String> {
    u64::try_from(batch.length()).map_err(|_| "a negative number of rows".to_string())
}

/// Place of each buffer in the body: offset and length.
fn buffers<'b>(batch: &RecordBatch<'b>) -> impl Iterator<Item = Option<(u64, u64)>> + use<'b> {
    let buffers = batch.buffers().into_iter().flatten();
    buffers.map(|b| {
        Some((
            u64::try_from(b.offset()).ok()?,
            u64::try_from(b.length()).ok()?,
        ))
    })
}

/// Checks that buffers are in the body and do not share its bytes.
fn within(batch: &RecordBatch<'_>, body: u64) -> Result<(), String> {
    let mut sum = 0u64;
    for place in buffers(batch) {
        let end = place.and_then(|(offset, length)| offset.checked_add(length));
        let (Some((_, length)), Some(end)) = (place, end) else {
            return Err("a buffer with a negative place".to_string());
        };
        sum = sum.saturating_add(length);
        if length > 0 && end > body || sum > body {
            return Err(format!("buffers beyond its {body} bytes"));
        }
    }
    Ok(())
}

/// Bytes of all buffers once they are decompressed.
fn expands_to(batch: &RecordBatch<'_>, body: &[u8]) -> Result<u64, String> {
    let is_compressed = match batch.compression() {
        None => false,
        Some(how) => match how.codec() {
            CompressionType::LZ4_FRAME | CompressionType::ZSTD => true,
            other => return Err(format!("compression {}, which is unknown", other.0)),
        },
    };
    let mut sum = 0u64;
    for (offset, length) in buffers(batch).flatten() {
        let mut bytes = length;
        if is_compressed && length > 0 {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let prefix = body.get(start..).and_then(|b| b.first_chunk::<8>());
            let declared = prefix
                .filter(|_| length >= PREFIX)
                .map(|p| i64::from_le_bytes(*p));
            bytes = match declared {
                // stored as it is
                Some(-1) => length - PREFIX,
                Some(declared) => {
                    u64::try_from(declared).map_err(|_| format!("a buffer of {declared} bytes"))?
                }
                None => return Err("a compressed buffer without its length".to_string()),
            };
        }
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// The footer of a file, and the bytes before it; in words why there is none.
pub(super) fn footer(file: &mut File) -> io::Result<Result<Vec<u8>, String>> {
    let tail = 4 + MAGIC.len() as u64;
    let Some(start) = file.size.checked_sub(tail) else {
        return Ok(Err("no footer".to_string()));
    };
    let Some(last) = file.bytes(start, tail)? else {
        return Ok(Err("no footer".to_string()));
    };
    let length = last.first_chunk::<4>().map(|l| i32::from_le_bytes(*l));
    let length = length.and_then(|l| u64::try_from(l).ok());
    let place = length
        .filter(|l| last.ends_with(MAGIC) && (1..=MAX_METADATA).contains(l))
        .and_then(|l| Some((start.checked_sub(l)?, l)));
    let Some((start, length)) = place else {
        return Ok(Err("no footer".to_string()));
    };
    let Some(bytes) = file.bytes(start, length)? else {
        return Ok(Err("no footer".to_string()));
    };
    Ok(match arrow_ipc::root_as_footer(&bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(format!("no footer: {e}")),
    })
}

//! Zip archives of stored (uncompressed) entries inside a range of a file, as `torch.save` writes them.
//!
//! The end of the range has the end record (22 bytes; its 64-bit form for large ones), which says where the central
//! directory is; each of its records gives an entry's name, CRC-32, size and local header, behind which the bytes
//! are. Source: PKWARE's APPNOTE 6.3, sections 4.3 and 4.5. We read the subset that torch writes and refuse the rest:
//! compression, encryption, comments, archives over several disks.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::checkpoint::torch::crc32::crc32;
use crate::error::{At, Error, Result};

/// Longest central directory read; torch writes a few entries for a tensor.
const MAX_DIRECTORY: u64 = 1 << 24;

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// First byte of its local header in the archive.
    pub(super) header: u64,
    pub bytes: u64,
    crc: u32,
}

/// An archive in `[start, start + length)` of a file.
pub(crate) struct Archive<'a> {
    file: &'a mut File,
    path: &'a Path,
    start: u64,
    length: u64,
    pub entries: Vec<Entry>,
}

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 2)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]).into())
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

/// A length of 16 bits.
fn length_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u16_at(bytes, at)).unwrap_or(usize::MAX)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) | u32_at(bytes, at + 4) << 32
}

/// Where an archive is in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub start: u64,
    pub length: u64,
}

impl Extent {
    /// A whole file of `length` bytes.
    pub(crate) fn whole(length: u64) -> Extent {
        Extent { start: 0, length }
    }
}

impl<'a> Archive<'a> {
    /// Reads the directory.
    pub(crate) fn open(file: &'a mut File, path: &'a Path, extent: Extent) -> Result<Archive<'a>> {
        let bytes = file.metadata().at("read", path)?.len();
        let Extent { start, length } = extent;
        let mut archive = Archive {
            file,
            path,
            start,
            length,
            entries: Vec::new(),
        };
        if start.checked_add(length).is_none_or(|end| end > bytes) {
            let found = format!("{bytes} bytes");
            let wanted = format!("an archive of {length} bytes from {start}");
            return Err(archive.damaged(0, "file", found, wanted));
        }
        let (first, size, count) = archive.directory()?;
        if size > MAX_DIRECTORY {
            let wanted = format!("at most {MAX_DIRECTORY}");
            return Err(archive.damaged(
                length,
                "central directory",
                format!("{size} bytes"),
                wanted,
            ));
        }
        let directory = archive.bytes_at(first, size)?;
        let mut at = 0;
        for _ in 0..count {
            at += archive.record(&directory[at..], first + at as u64)?;
        }
        Ok(archive)
    }

    /// An archive in the first `length` bytes of a file, whose directory was read before.
    pub(crate) fn of_entries(
        file: &'a mut File,
        path: &'a Path,
        length: u64,
        entries: Vec<Entry>,
    ) -> Archive<'a> {
        Archive {
            file,
            path,
            start: 0,
            length,
            entries,
        }
    }

    /// Offset of the central directory, its bytes and number of entries.
    fn directory(&mut self) -> Result<(u64, u64, u64)> {
        let at = self.length.saturating_sub(22);
        let end = self.bytes_at(at, 22)?;
        if end[..4] != *b"PK\x05\x06" {
            let found = format!("{:02x?}", &end[..4]);
            return Err(self.damaged(at, "end of the archive", found, "PK 5 6".into()));
        }
        let short = (u32_at(&end, 16), u32_at(&end, 12), u16_at(&end, 10));
        if short.0 != 0xffff_ffff && short.1 != 0xffff_ffff && short.2 != 0xffff {
            return Ok(short);
        }
        // the 64-bit end record, found through its locator before the short one
        let before = at.saturating_sub(20);
        let locator = self.bytes_at(before, 20)?;
        let record = u64_at(&locator, 8);
        let long = self.bytes_at(record, 56)?;
        if locator[..4] != *b"PK\x06\x07" || long[..4] != *b"PK\x06\x06" {
            let wanted = "a 64-bit end record".into();
            return Err(self.damaged(before, "end of the archive", "another".into(), wanted));
        }
        Ok((u64_at(&long, 48), u64_at(&long, 40), u64_at(&long, 32)))
    }

    /// Parses one record of the directory, which starts at `at` of the archive; returns its length.
    fn record(&mut self, bytes: &[u8], at: u64) -> Result<usize> {
        let wrong = |found: String, wanted: &str| {
            Err(self.damaged(at, "entry of the central directory", found, wanted.into()))
        };
        if bytes.len() < 46 || bytes[..4] != *b"PK\x01\x02" {
            return wrong("another".into(), "46 bytes that start with PK 1 2");
        }
        let (flags, method) = (u16_at(bytes, 8), u16_at(bytes, 10));
        if method != 0 || flags & 1 != 0 {
            return wrong(
                format!("method {method}, flags {flags:#x}"),
                "stored as it is",
            );
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| length_at(bytes, at));
        let end = 46 + name + extra + comment;
        if bytes.len() < end {
            return wrong(format!("{} bytes", bytes.len()), "all of the entry");
        }
        let mut size = u32_at(bytes, 24);
        let mut stored = u32_at(bytes, 20);
        let mut header = u32_at(bytes, 42);
        // numbers that did not fit are in the zip64 field, in this order
        let mut wide = wide_numbers(&bytes[46 + name..46 + name + extra]).into_iter();
        for number in [&mut size, &mut stored, &mut header] {
            if *number == 0xffff_ffff {
                match wide.next() {
                    Some(found) => *number = found,
                    None => return wrong("no 64-bit size".into(), "one"),
                }
            }
        }
        if stored != size {
            return wrong(format!("{stored} of {size} bytes"), "stored as it is");
        }
        let crc = u32_at(bytes, 16);
        self.entries.push(Entry {
            name: String::from_utf8_lossy(&bytes[46..46 + name]).into_owned(),
            header,
            bytes: size,
            crc: u32::try_from(crc).unwrap_or(u32::MAX),
        });
        Ok(end)
    }

    /// The entry with this path below the archive's top folder.
    pub(crate) fn find(&self, end: &str) -> Result<Entry> {
        let is_it = |entry: &&Entry| {
            let rest = entry.name.split_once('/').map(|(_, rest)| rest);
            rest == Some(end)
        };
        match self.entries.iter().find(is_it) {
            Some(entry) => Ok(entry.clone()),
            None => {
                let wanted = format!("an entry {end}");
                Err(self.damaged(0, "archive", "none".into(), wanted))
            }
        }
    }

    /// All bytes of an entry of at most `most`.
    pub(crate) fn read(&mut self, entry: &Entry, most: u64) -> Result<Vec<u8>> {
        let what = format!("entry {}", entry.name);
        if entry.bytes > most {
            let (found, wanted) = (format!("{} bytes", entry.bytes), format!("at most {most}"));
            return Err(self.damaged(entry.header, &what, found, wanted));
        }
        let local = self.bytes_at(entry.header, 30)?;
        if local[..4] != *b"PK\x03\x04" {
            let found = format!("{:02x?}", &local[..4]);
            return Err(self.damaged(entry.header, &what, found, "PK 3 4".into()));
        }
        let data = entry.header + 30 + u16_at(&local, 26) + u16_at(&local, 28);
        let bytes = self.bytes_at(data, entry.bytes)?;
        let found = crc32(&bytes);
        if found != entry.crc {
            let (found, wanted) = (format!("CRC {found:08x}"), format!("{:08x}", entry.crc));
            return Err(self.damaged(data, &what, found, wanted));
        }
        Ok(bytes)
    }

    /// Reads bytes of the archive; the range is checked against its length before allocation.
    fn bytes_at(&mut self, at: u64, count: u64) -> Result<Vec<u8>> {
        if at.checked_add(count).is_none_or(|end| end > self.length) {
            let found = format!("an end at {}", self.length);
            let wanted = format!("{count} bytes from {at}");
            return Err(self.damaged(at.min(self.length), "archive", found, wanted));
        }
        let place = SeekFrom::Start(self.start + at);
        self.file.seek(place).at("seek in", self.path)?;
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(usize::MAX)];
        self.file.read_exact(&mut bytes).at("read", self.path)?;
        Ok(bytes)
    }

    /// `at` counts within the archive.
    pub(crate) fn damaged(&self, at: u64, what: &str, found: String, wanted: String) -> Error {
        Error::Damaged {
            path: self.path.to_owned(),
            offset: self.start.saturating_add(at),
            what: what.to_owned(),
            found,
            wanted,
        }
    }
}

/// Numbers of the extra field 1.
fn wide_numbers(mut extra: &[u8]) -> Vec<u64> {
    while extra.len() >= 4 {
        let (id, size) = (u16_at(extra, 0), length_at(extra, 2));
        let field = &extra[4..];
        let field = &field[..size.min(field.len())];
        if id == 1 {
            return (0..field.len() / 8).map(|i| u64_at(field, 8 * i)).collect();
        }
        extra = &extra[(4 + size).min(extra.len())..];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_fit_stand_in_the_extra_field() {
        let mut extra = vec![9, 0, 2, 0, 7, 7, 1, 0, 16, 0];
        extra.extend(5_000_000_000u64.to_le_bytes());
        extra.extend(6_000_000_000u64.to_le_bytes());
        assert_eq!(wide_numbers(&extra), [5_000_000_000, 6_000_000_000]);
        for end in 0..extra.len() {
            assert!(wide_numbers(&extra[..end]).len() < 2);
        }
    }
}

//! Writes zip archives of stored (uncompressed) entries as `torch.save` does: each entry's bytes start at a multiple of 64 bytes of
//! the archive, behind padding in a field "FB" of its local header, and sizes and CRC-32 follow them. Sizes and
//! offsets from 4 GiB on have fields of 64 bits. Source: PKWARE's APPNOTE 6.3, sections 4.3 to 4.5, and archives of torch 2.15.

use std::io::{self, Write};

use crate::checkpoint::torch::crc32::Crc32;

/// Alignment of entries' bytes.
const ALIGNMENT: u64 = 64;
/// Sizes and names are in UTF-8, and sizes follow the bytes.
const FLAGS: u16 = 0x0808;
/// From this number on a field of 32 bits is full and one of 64 bits has the number.
const FULL: u64 = 0xffff_ffff;

/// An entry that was written.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    crc: u32,
    bytes: u64,
    /// First byte of its local header.
    header: u64,
}

impl Written {
    /// The field of 64-bit numbers for those that need it, in the specification's order; empty if none does.
    fn wide(&self) -> Vec<u8> {
        let is_large = self.bytes >= FULL;
        let sizes = is_large.then_some([self.bytes; 2]);
        let offset = (self.header >= FULL).then_some(self.header);
        let numbers = sizes.into_iter().flatten().chain(offset);
        let numbers: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        match numbers.is_empty() {
            true => numbers,
            false => [&le16(1)[..], &le16(numbers.len()), &numbers].concat(),
        }
    }

    /// Everything before the bytes.
    fn local(&self) -> Vec<u8> {
        let wide = self.wide();
        let start = self.header + (30 + self.name.len() + wide.len() + 4) as u64;
        let padding = usize::try_from(start.next_multiple_of(ALIGNMENT) - start).unwrap_or(0);
        let mut out = b"PK\x03\x04\0\0".to_vec();
        out.extend(FLAGS.to_le_bytes());
        // stored; no time; CRC and sizes follow the bytes
        out.extend([0; 18]);
        out.extend(le16(self.name.len()));
        out.extend(le16(wide.len() + 4 + padding));
        out.extend(self.name.bytes());
        out.extend(wide);
        out.extend(b"FB");
        out.extend(le16(padding));
        out.extend(vec![b'Z'; padding]);
        out
    }

    /// Everything after the bytes.
    fn descriptor(&self) -> Vec<u8> {
        let mut out = b"PK\x07\x08".to_vec();
        out.extend(self.crc.to_le_bytes());
        match self.wide().is_empty() {
            true => out.extend([le32(self.bytes); 2].concat()),
            false => out.extend([self.bytes.to_le_bytes(); 2].concat()),
        }
        out
    }

    /// Its record in the central directory.
    fn central(&self) -> Vec<u8> {
        let wide = self.wide();
        let mut out = b"PK\x01\x02\0\0\0\0".to_vec();
        out.extend(FLAGS.to_le_bytes());
        out.extend([0; 6]);
        out.extend(self.crc.to_le_bytes());
        out.extend([le32(self.bytes); 2].concat());
        out.extend(le16(self.name.len()));
        out.extend(le16(wide.len()));
        out.extend([0; 10]);
        out.extend(le32(self.header));
        out.extend(self.name.bytes());
        out.extend(wide);
        out
    }
}

/// A length of 16 bits: those of names and of fields beside them.
fn le16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

/// A number of 32 bits, full if it needs more.
fn le32(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

/// An archive that is being written. Its first byte need not be that of a file.
pub(super) struct ArchiveWriter<'w, W: Write> {
    out: &'w mut W,
    /// Folder of all entries.
    top: &'static str,
    at: u64,
    entries: Vec<Written>,
}

impl<'w, W: Write> ArchiveWriter<'w, W> {
    pub(super) fn new(out: &'w mut W, top: &'static str) -> ArchiveWriter<'w, W> {
        ArchiveWriter {
            out,
            top,
            at: 0,
            entries: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    pub(super) fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry_of(name, bytes.len() as u64, |put| put(bytes))
    }

    /// An entry of `bytes` bytes, which `fill` gives part by part.
    pub(super) fn entry_of(
        &mut self,
        name: &str,
        bytes: u64,
        fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut entry = Written {
            name: format!("{}/{name}", self.top),
            crc: 0,
            bytes,
            header: self.at,
        };
        self.put(&entry.local())?;
        let (start, mut crc) = (self.at, Crc32::new());
        fill(&mut |part| {
            crc.add(part);
            self.put(part)
        })?;
        if self.at - start != bytes {
            let found = self.at - start;
            let told = format!("entry {name}: found {found} bytes, want {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        entry.crc = crc.value();
        self.put(&entry.descriptor())?;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes the directory; returns the archive's length.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let (start, count) = (self.at, self.entries.len());
        for entry in std::mem::take(&mut self.entries) {
            self.put(&entry.central())?;
        }
        let (end, size) = (self.at, self.at - start);
        // the 64-bit end record, which torch writes in any case: its length, versions, disks
        let mut out = b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x1e\x03\x2d\0\0\0\0\0\0\0\0\0".to_vec();
        out.extend([(count as u64).to_le_bytes(); 2].concat());
        out.extend(size.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(end.to_le_bytes());
        out.extend(b"\x01\0\0\0PK\x05\x06\0\0\0\0");
        out.extend([le16(count); 2].concat());
        out.extend(le32(size));
        out.extend(le32(start));
        out.extend([0; 2]);
        self.put(&out)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufWriter, Seek, SeekFrom};

    use super::*;
    use crate::checkpoint::torch::zip::{Archive, Extent};

    /// An archive whose parts of zeros are holes.
    struct Sparse(File);

    impl Write for Sparse {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > 4096 {
                self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
                return Ok(bytes.len());
            }
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    /// Entries before and after one of more than 4 GiB, whose CRC is not computed here.
    #[test]
    fn entries_beyond_four_gigabytes_have_sizes_and_offsets_of_64_bits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.zip");
        let large = (1 << 32) + 12_345;
        let mut out = Sparse(File::create(&path).unwrap());
        let mut archive = ArchiveWriter::new(&mut out, "archive");
        archive.entry("first", b"one").unwrap();
        let entry = Written {
            name: "archive/large".into(),
            crc: 7,
            bytes: large,
            header: archive.at,
        };
        archive.put(&entry.local()).unwrap();
        assert!(archive.at.is_multiple_of(ALIGNMENT));
        let zeros = vec![0; 1 << 20];
        let (whole, rest) = (large >> 20, large % (1 << 20));
        for _ in 0..whole {
            archive.put(&zeros).unwrap();
        }
        archive
            .put(&zeros[..usize::try_from(rest).unwrap()])
            .unwrap();
        archive.put(&entry.descriptor()).unwrap();
        archive.entries.push(entry);
        archive.entry("last", b"three").unwrap();
        // another large one, whose header is far as well
        let far = Written {
            name: "archive/far".into(),
            crc: 8,
            bytes: large + 1,
            header: archive.at,
        };
        archive.entries.push(far.clone());
        let length = archive.finish().unwrap();
        let mut file = File::open(&path).unwrap();
        let mut read = Archive::open(&mut file, &path, Extent::whole(length)).unwrap();
        let sizes: Vec<(&str, u64)> = read
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.bytes))
            .collect();
        let want = [
            ("archive/first", 3),
            ("archive/large", large),
            ("archive/last", 5),
            ("archive/far", large + 1),
        ];
        assert_eq!(sizes, want);
        for (name, bytes) in [("first", &b"one"[..]), ("last", b"three")] {
            let entry = read.find(name).unwrap();
            assert_eq!(read.read(&entry, 100).unwrap(), bytes);
        }
        assert_eq!(read.find("far").unwrap().header, far.header);
    }

    #[test]
    fn an_entry_with_other_bytes_than_it_states_is_an_error() {
        let mut out = BufWriter::new(Vec::new());
        let mut archive = ArchiveWriter::new(&mut out, "archive");
        let error = archive.entry_of("x", 4, |put| put(b"abc")).unwrap_err();
        assert!(
            error.to_string().contains("found 3 bytes, want 4"),
            "{error}"
        );
    }
}

//! ZIP archives of bounded size: entries by name, within a budget of bytes for the whole file.
//!
//! The `zip` crate reads them. Its list of entries grows with the central directory, so the bytes that are read for it
//! have a budget as well. The offsets of entries in the file go with the reasons of bad ones.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::panics::caught;
use crate::read::storage::{Blob, Failure, Watched};

/// Bytes that may be read to find and read the list of entries.
const MAX_DIRECTORY: u64 = 32 << 20;

/// The two first bytes of entries and of the end of an archive.
pub(crate) const MAGIC: &[u8] = b"PK";

/// A file as `zip` reads it: with seeks, and no more bytes than allowed.
struct Seekable {
    blob: Box<dyn Blob>,
    at: u64,
    size: u64,
    /// Bytes that may still be read.
    left: Arc<AtomicU64>,
}

impl Read for Seekable {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Relaxed);
        if left == 0 {
            return Err(io::Error::other("the archive is read over and over"));
        }
        let n = self.blob.read(out)?;
        self.at += n as u64;
        self.left.store(left.saturating_sub(n as u64), Relaxed);
        Ok(n)
    }
}

impl Seek for Seekable {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let target = target.ok_or_else(|| io::Error::other("a position before the file"))?;
        self.blob.go_to(target)?;
        self.at = target;
        Ok(target)
    }
}

/// An open archive.
pub(crate) struct Container {
    archive: ZipArchive<BufReader<Seekable>>,
    failure: Failure,
    size: u64,
    readable: Arc<AtomicU64>,
    /// Bytes that its entries may still expand to.
    left: u64,
    most: u64,
}

/// An entry that cannot be read.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is none of this name.
    Absent,
    /// It is encrypted.
    Encrypted,
    /// It is damaged or too long: its offset and why.
    Bad(u64, String),
}

impl Container {
    /// Opens an archive whose entries may expand to `most` bytes together.
    ///
    /// # Errors
    /// A read that was refused; inside, why the file is no archive that can be read.
    pub(crate) fn open(
        blob: Box<dyn Blob>,
        size: u64,
        most: u64,
    ) -> io::Result<Result<Container, String>> {
        let (blob, failure) = Watched::over(blob);
        let readable = Arc::new(AtomicU64::new(MAX_DIRECTORY));
        let file = Seekable {
            blob,
            at: 0,
            size,
            left: readable.clone(),
        };
        let opened = caught(|| ZipArchive::new(BufReader::new(file)));
        if let Some(refused) = failure.take() {
            return Err(refused);
        }
        let archive = match opened {
            Ok(Ok(archive)) => archive,
            Ok(Err(e)) => return Ok(Err(format!("ZIP archive: {}", told(&e)))),
            Err(panic) => return Ok(Err(format!("ZIP archive: {panic}"))),
        };
        Ok(Ok(Container {
            archive,
            failure,
            size,
            readable,
            left: most,
            most,
        }))
    }

    /// Names of its entries, in the order of the list.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.archive.file_names_raw();
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Whether there is an entry of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.archive.index_for_name_raw(name.as_bytes()).is_some()
    }

    /// Start and length of the bytes of an entry that is not compressed.
    ///
    /// # Errors
    /// A read that was refused; inside, why it cannot be read in place.
    pub(crate) fn place(&mut self, name: &str) -> io::Result<Result<(u64, u64), String>> {
        let Some(index) = self.archive.index_for_name_raw(name.as_bytes()) else {
            return Ok(Err("not in the archive".to_string()));
        };
        self.readable.store(MAX_DIRECTORY, Relaxed);
        let archive = &mut self.archive;
        let found = caught(move || {
            let entry = archive.by_index_raw(index).map_err(|e| told(&e))?;
            if entry.encrypted() {
                return Err("encrypted".to_string());
            }
            if entry.compression() != CompressionMethod::Stored {
                return Err("compressed inside the archive".to_string());
            }
            let start = entry.data_start().ok_or("without a start")?;
            Ok((start, entry.size()))
        });
        if let Some(refused) = self.failure.take() {
            return Err(refused);
        }
        let found = found.unwrap_or_else(Err);
        let is_inside = |place: &(u64, u64)| {
            let end = place.0.checked_add(place.1);
            end.is_some_and(|end| end <= self.size)
        };
        Ok(found.and_then(|place| {
            let inside = is_inside(&place).then_some(place);
            inside.ok_or_else(|| "the file ends inside it".to_string())
        }))
    }

    /// The expanded bytes of an entry, checked against its CRC.
    ///
    /// # Errors
    /// A read that was refused; inside, why there is no such entry.
    pub(crate) fn entry(&mut self, name: &str) -> io::Result<Result<Vec<u8>, Refused>> {
        let Some(index) = self.archive.index_for_name_raw(name.as_bytes()) else {
            return Ok(Err(Refused::Absent));
        };
        let (left, most) = (self.left, self.most);
        // an entry is read once, with what its reader reads ahead
        self.readable
            .store(self.size.saturating_add(MAX_DIRECTORY), Relaxed);
        let archive = &mut self.archive;
        let read = caught(move || expand(archive, index, left, most));
        if let Some(refused) = self.failure.take() {
            return Err(refused);
        }
        let read = read.unwrap_or_else(|panic| Err(Refused::Bad(0, panic)));
        if let Ok(bytes) = &read {
            self.left -= bytes.len() as u64;
        }
        Ok(read)
    }
}

fn expand(
    archive: &mut ZipArchive<BufReader<Seekable>>,
    index: usize,
    left: u64,
    most: u64,
) -> Result<Vec<u8>, Refused> {
    let mut entry = match archive.by_index(index) {
        Ok(entry) => entry,
        Err(ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED)) => {
            return Err(Refused::Encrypted);
        }
        Err(e) => return Err(Refused::Bad(0, told(&e))),
    };
    let offset = entry.header_start();
    let mut bytes = Vec::new();
    let read = (&mut entry).take(left + 1).read_to_end(&mut bytes);
    if bytes.len() as u64 > left {
        let why = format!("the archive's texts expand past {most} bytes");
        return Err(Refused::Bad(offset, why));
    }
    match read {
        Ok(_) => Ok(bytes),
        Err(e) => Err(Refused::Bad(offset, e.to_string())),
    }
}

/// An error in words.
fn told(error: &ZipError) -> String {
    match error {
        ZipError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            "the file ends inside it".to_string()
        }
        other => other.to_string(),
    }
}

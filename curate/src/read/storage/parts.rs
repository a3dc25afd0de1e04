//! Parts of a file as one stream: `x.warc.gz#bytes=100-199,5000-5999`.
//!
//! Records of a crawl that an index names are gzip members here and there in files of a gigabyte. The ranges are written as HTTP
//! writes them (RFC 9110, section 14.1.2: first and last byte, both included), in the order of the file. Neighbours that are
//! close together are requested together, and the bytes between them are discarded: a request costs more than they do.

use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::blob::Blob;

/// Between the path and its ranges.
const MARK: &str = "#bytes=";
/// Parts with fewer bytes than this between them are one request.
const NEAR: u64 = 64 << 10;

/// The path of a file with these parts of it: sorted, without doubles, overlapping ones joined. Empty ranges are left out.
pub(crate) fn with_parts(path: &str, parts: &[Range<u64>]) -> String {
    let mut sorted: Vec<Range<u64>> = parts.iter().filter(|p| !p.is_empty()).cloned().collect();
    sorted.sort_by_key(|part| (part.start, part.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for part in sorted {
        match joined.last_mut() {
            Some(last) if part.start < last.end => last.end = last.end.max(part.end),
            Some(_) | None => joined.push(part),
        }
    }
    let ranges: Vec<String> = joined
        .iter()
        .map(|part| format!("{}-{}", part.start, part.end - 1))
        .collect();
    format!("{path}{MARK}{}", ranges.join(","))
}

/// A file and the parts of it that a path names; None for the path of a whole file.
pub(crate) fn parts_of(path: &Path) -> Option<(PathBuf, Vec<Range<u64>>)> {
    let (file, ranges) = path.to_str()?.rsplit_once(MARK)?;
    let mut parts: Vec<Range<u64>> = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-')?;
        let part = first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?;
        let is_behind = parts.last().is_none_or(|before| before.end <= part.start);
        if part.is_empty() || !is_behind {
            return None;
        }
        parts.push(part);
    }
    Some((PathBuf::from(file), parts))
}

/// Bytes of the parts together.
pub(crate) fn length(parts: &[Range<u64>]) -> u64 {
    parts.iter().map(|part| part.end - part.start).sum()
}

/// Parts of a blob, one after the other.
pub(super) struct Parts {
    blob: Box<dyn Blob>,
    parts: Vec<Range<u64>>,
    /// Number of the part that is read.
    at: usize,
    /// Offset in the file of the next byte of the blob; None before the first request and after a jump.
    offset: Option<u64>,
    /// Bytes of the part that are read.
    done: u64,
}

impl Parts {
    pub(super) fn over(blob: Box<dyn Blob>, parts: Vec<Range<u64>>) -> Parts {
        Parts {
            blob,
            parts,
            at: 0,
            offset: None,
            done: 0,
        }
    }

    /// End of the last part that is requested with the one at `at`.
    fn end_of_request(&self) -> u64 {
        let mut end = self.parts[self.at].end;
        for part in &self.parts[self.at + 1..] {
            if part.start - end > NEAR {
                break;
            }
            end = part.end;
        }
        end
    }

    /// Brings the blob to a byte of the part at `at`, by a request or by reading on.
    fn go_on_at(&mut self, wanted: u64) -> io::Result<()> {
        let mut left = match self.offset {
            Some(offset) if wanted >= offset && wanted - offset <= NEAR => wanted - offset,
            Some(_) | None => {
                self.blob.go_to_part(wanted..self.end_of_request())?;
                self.offset = Some(wanted);
                return Ok(());
            }
        };
        let mut between = [0; 8 << 10];
        while left > 0 {
            let most = usize::try_from(left).map_or(between.len(), |n| n.min(between.len()));
            match self.blob.read(&mut between[..most]) {
                Ok(0) => return Err(self.too_short()),
                Ok(n) => left -= n as u64,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.offset = Some(wanted);
        Ok(())
    }

    fn too_short(&self) -> io::Error {
        let part = &self.parts[self.at];
        let why = format!(
            "the file ends inside of the bytes {}-{} that are wanted of it",
            part.start,
            part.end - 1
        );
        io::Error::new(io::ErrorKind::UnexpectedEof, why)
    }
}

impl Read for Parts {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(part) = self.parts.get(self.at).cloned() {
            let left = part.end - part.start - self.done;
            if left == 0 {
                self.at += 1;
                self.done = 0;
                continue;
            }
            if out.is_empty() {
                return Ok(0);
            }
            let wanted = part.start + self.done;
            if self.offset != Some(wanted) {
                self.go_on_at(wanted)?;
            }
            let most = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
            let n = self.blob.read(&mut out[..most])?;
            if n == 0 {
                return Err(self.too_short());
            }
            self.offset = Some(wanted + n as u64);
            self.done += n as u64;
            return Ok(n);
        }
        Ok(0)
    }
}

impl Blob for Parts {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        (self.at, self.done, self.offset) = (0, offset, None);
        while let Some(part) = self.parts.get(self.at)
            && self.done >= part.end - part.start
        {
            self.done -= part.end - part.start;
            self.at += 1;
        }
        Ok(())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(length(&self.parts)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A file in memory that notes the requests.
    struct Noted {
        bytes: io::Cursor<Vec<u8>>,
        requests: Arc<Mutex<Vec<Range<u64>>>>,
    }

    impl Read for Noted {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            // short reads, as a network has them
            let most = out.len().min(1000);
            self.bytes.read(&mut out[..most])
        }
    }

    impl Blob for Noted {
        fn go_to(&mut self, offset: u64) -> io::Result<()> {
            self.bytes.set_position(offset);
            Ok(())
        }

        fn go_to_part(&mut self, part: Range<u64>) -> io::Result<()> {
            self.requests.lock().unwrap().push(part.clone());
            self.go_to(part.start)
        }

        fn size(&mut self) -> io::Result<Option<u64>> {
            Ok(Some(self.bytes.get_ref().len() as u64))
        }
    }

    fn bytes(range: Range<u64>) -> Vec<u8> {
        range.map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
    }

    fn opened(parts: &[Range<u64>]) -> (Parts, Arc<Mutex<Vec<Range<u64>>>>) {
        let requests = Arc::<Mutex<Vec<Range<u64>>>>::default();
        let blob = Noted {
            bytes: io::Cursor::new(bytes(0..300_000)),
            requests: requests.clone(),
        };
        let path = with_parts("x.warc.gz", parts);
        let (file, parts) = parts_of(Path::new(&path)).unwrap();
        assert_eq!(file, Path::new("x.warc.gz"));
        (Parts::over(Box::new(blob), parts), requests)
    }

    #[test]
    fn near_parts_are_one_request_and_far_ones_are_several() {
        // in another order, twice, and overlapping
        let wanted = [200_000..200_010, 10..20, 5000..9000, 10..20, 8000..9500];
        let (mut parts, requests) = opened(&wanted);
        let mut read = Vec::new();
        parts.read_to_end(&mut read).unwrap();
        let want = [bytes(10..20), bytes(5000..9500), bytes(200_000..200_010)].concat();
        assert_eq!(read, want);
        assert_eq!(parts.size().unwrap(), Some(want.len() as u64));
        assert_eq!(*requests.lock().unwrap(), [10..9500, 200_000..200_010]);
        // any byte of the stream
        for at in [0, 9, 10, 11, 4509, 4510, 4519, 4520] {
            parts.go_to(at as u64).unwrap();
            read.clear();
            parts.read_to_end(&mut read).unwrap();
            assert_eq!(read, want[at..], "{at}");
        }
    }

    #[test]
    fn a_file_that_ends_before_its_parts_is_an_error() {
        let (mut parts, _) = opened(&[10..20, 299_990..300_010]);
        let why = parts.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof);
        assert!(why.to_string().contains("299990-300009"), "{why}");
    }

    #[test]
    fn only_ranges_in_order_are_parts() {
        for path in [
            "x.gz",
            "x.gz#bytes=",
            "x.gz#bytes=5",
            "x.gz#bytes=5-4",
            "x.gz#bytes=a-b",
            "x.gz#bytes=5-9,7-8",
            "x.gz#bytes=0-18446744073709551615",
        ] {
            assert_eq!(parts_of(Path::new(path)), None, "{path}");
        }
    }
}

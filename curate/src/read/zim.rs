//! Reader for ZIM files, the offline copies of wikis that Kiwix distributes: their HTML pages, cluster by cluster.
//!
//! Facts: the ZIM file format (openZIM), versions 5 and 6: a header, a list of media types, pointers to directory
//! entries by path, and clusters of blobs, compressed with zstd or xz, before with zlib or bzip2. Entries of the
//! content's namespace (C, before version 6.1 A) with the type `text/html` are read; redirects, pictures and indexes
//! are not. A page's main text is extracted like that of a page of the web.
//!
//! A cluster that cannot be read is one bad record, which says how many pages are lost.

use std::io::{self, Read};

use lzma_rust2::XzReader;

use super::Batch;
use super::composed::Composed;
use super::format::{Mismatch, starts_with};
use super::storage::{Blob, Failure, Watched};

/// First bytes of a file.
pub(super) const MAGIC: &[u8] = b"ZIM\x04";
/// Bytes of the header.
const HEADER: usize = 80;
/// Bytes of a directory entry before its path.
const ENTRY: usize = 16;
/// Bytes of a directory entry that are read for its path and title.
const NAMES: usize = 4 << 10;
/// Bytes of the list of media types.
const MAX_TYPES: usize = 64 << 10;
/// Bytes of a cluster, stored and expanded; writers make them of 2 MiB.
const MAX_CLUSTER: usize = 64 << 20;
/// Memory for the dictionary of xz, in KiB.
const XZ_MEMORY_KIB: u32 = 64 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Pointers that are read at once.
const POINTERS: usize = 8192;

/// A file read at any place, with the bytes around the last one.
struct File {
    blob: Box<dyn Blob>,
    failure: Failure,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl File {
    /// Bytes at an offset; None if the file ends before them.
    fn read(&mut self, at: u64, length: usize) -> io::Result<Option<&[u8]>> {
        let end = at.checked_add(length as u64);
        if end.is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        let known = self.start + self.bytes.len() as u64;
        if at < self.start || end.is_some_and(|end| end > known) {
            self.blob.go_to(at)?;
            self.bytes.clear();
            self.start = at;
            let wanted = length.max(CHUNK) as u64;
            let read = self.blob.by_ref().take(wanted).read_to_end(&mut self.bytes);
            if let Some(refused) = self.failure.take() {
                return Err(refused);
            }
            read?;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(from..from + length))
    }
}

/// A page's place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    cluster: u32,
    blob: u32,
    /// Offset of its directory entry.
    entry: u64,
}

/// Numbers of the header.
#[derive(Clone, Copy)]
struct Header {
    entries: u32,
    clusters: u32,
    paths: u64,
    cluster_pointers: u64,
    types: u64,
    checksum: u64,
}

/// Reads pages.
pub(crate) struct ZimReader {
    file: File,
    /// The header, until the pages are listed; and from then on.
    header: Option<Header>,
    clusters: Option<Header>,
    pages: Vec<Page>,
    next: usize,
    /// The cluster that is expanded.
    cluster: Option<(u32, Cluster)>,
    number: u64,
    max: usize,
    /// Why the file has no pages.
    empty: Option<String>,
}

/// An expanded cluster.
struct Cluster {
    bytes: Vec<u8>,
    width: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    eight.map_or(0, u64::from_le_bytes)
}

impl ZimReader {
    pub(super) fn open(
        mut blob: Box<dyn Blob>,
        max: usize,
    ) -> io::Result<Result<ZimReader, Mismatch>> {
        let size = blob.size()?;
        let (blob, failure) = Watched::over(blob);
        let mut file = File {
            blob,
            failure,
            size: size.unwrap_or(0),
            start: 0,
            bytes: Vec::new(),
        };
        let length = file.size.min(HEADER as u64);
        let head = file.read(0, usize::try_from(length).unwrap_or(HEADER))?;
        let head = head.unwrap_or_default().to_vec();
        if !head.is_empty() && !head.starts_with(MAGIC) {
            return Ok(Err(Mismatch {
                wanted: "a ZIM file",
                found: starts_with(&head),
                start: "\"ZIM\\x04\"",
            }));
        }
        let empty = match (size, head.len()) {
            (None, _) => Some("the server does not say how long the file is"),
            (_, 0) => Some("the file is empty"),
            (_, HEADER) => None,
            _ => Some("the file ends inside its header"),
        };
        let header = empty.is_none().then(|| Header {
            entries: u32_at(&head, 24),
            clusters: u32_at(&head, 28),
            paths: u64_at(&head, 32),
            cluster_pointers: u64_at(&head, 48),
            types: u64_at(&head, 56),
            checksum: u64_at(&head, 72),
        });
        Ok(Ok(ZimReader {
            file,
            header,
            clusters: None,
            pages: Vec::new(),
            next: 0,
            cluster: None,
            number: 0,
            max,
            empty: empty.map(str::to_string),
        }))
    }

    fn bad(&mut self, offset: u64, why: String, batch: &mut Batch) {
        batch.push_bad(offset, self.number, why);
        self.number += 1;
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        if let Some(header) = self.header.take() {
            match self.index(&header)? {
                Ok(lost) if lost > 0 => {
                    self.bad(0, format!("{lost} entries that cannot be read"), batch);
                }
                Ok(_) => {}
                Err(why) => self.empty = Some(why),
            }
            batch.consumed = self.file.size;
            if self.pages.is_empty() && self.empty.is_none() && batch.records.is_empty() {
                self.empty = Some("no pages of HTML".to_string());
            }
            self.pages.sort_unstable();
            self.clusters = Some(header);
        }
        if let Some(why) = self.empty.take() {
            self.bad(0, why, batch);
        }
        while !batch.is_full() {
            let Some(&page) = self.pages.get(self.next) else {
                break;
            };
            self.next += 1;
            self.read_page(page, batch)?;
        }
        Ok(())
    }

    /// Lists the pages; returns how many entries cannot be read, or why none can.
    fn index(&mut self, header: &Header) -> io::Result<Result<u64, String>> {
        let types = match self.types(header)? {
            Ok(types) => types,
            Err(why) => return Ok(Err(why)),
        };
        let mut lost = 0;
        let mut at = 0u64;
        while at < u64::from(header.entries) {
            let count = POINTERS.min(usize::try_from(u64::from(header.entries) - at).unwrap_or(1));
            let offset = header.paths.saturating_add(8 * at);
            let Some(pointers) = self.file.read(offset, 8 * count)? else {
                return Ok(Err("the file ends inside its list of entries".to_string()));
            };
            let pointers: Vec<u64> = (0..count).map(|i| u64_at(pointers, 8 * i)).collect();
            at += count as u64;
            for entry in pointers {
                let Some(bytes) = self.file.read(entry, ENTRY)? else {
                    lost += 1;
                    continue;
                };
                let kind = usize::from(bytes[0]) | usize::from(bytes[1]) << 8;
                let is_content = matches!(bytes[3], b'C' | b'A');
                if is_content && types.get(kind).copied().unwrap_or(false) {
                    self.pages.push(Page {
                        cluster: u32_at(bytes, 8),
                        blob: u32_at(bytes, 12),
                        entry,
                    });
                }
            }
        }
        Ok(Ok(lost))
    }

    /// Whether each media type is that of pages.
    fn types(&mut self, header: &Header) -> io::Result<Result<Vec<bool>, String>> {
        let left = self.file.size.saturating_sub(header.types);
        let length = usize::try_from(left).unwrap_or(MAX_TYPES).min(MAX_TYPES);
        let Some(bytes) = self.file.read(header.types, length)? else {
            return Ok(Err("the file ends before its list of types".to_string()));
        };
        let names = bytes.split(|b| *b == 0).take_while(|name| !name.is_empty());
        Ok(Ok(names
            .map(|name| name.starts_with(b"text/html"))
            .collect()))
    }

    fn read_page(&mut self, page: Page, batch: &mut Batch) -> io::Result<()> {
        if self
            .cluster
            .as_ref()
            .is_none_or(|(number, _)| *number != page.cluster)
        {
            self.cluster = None;
            match self.expand(page.cluster)? {
                Ok(cluster) => self.cluster = Some((page.cluster, cluster)),
                Err((offset, why)) => {
                    let rest = &self.pages[self.next..];
                    let others = rest
                        .iter()
                        .take_while(|p| p.cluster == page.cluster)
                        .count();
                    self.next += others;
                    let why = format!(
                        "cluster {}: {why}; {} pages are lost",
                        page.cluster,
                        others + 1
                    );
                    self.bad(offset, why, batch);
                    return Ok(());
                }
            }
        }
        let left = self.file.size.saturating_sub(page.entry + ENTRY as u64);
        let length = usize::try_from(left).unwrap_or(NAMES).min(NAMES);
        let names = self.file.read(page.entry + ENTRY as u64, length)?;
        let mut names = names.unwrap_or_default().split(|b| *b == 0);
        let mut name = || String::from_utf8_lossy(names.next().unwrap_or_default()).into_owned();
        let (path, title) = (name(), name());
        let blob = self
            .cluster
            .as_ref()
            .map(|(_, cluster)| cluster.blob(page.blob));
        let html = match blob.flatten() {
            Some(blob) if blob.len() <= self.max => String::from_utf8_lossy(blob).into_owned(),
            Some(_) => {
                let why = format!("page {path}: longer than {} bytes", self.max);
                self.bad(page.entry, why, batch);
                return Ok(());
            }
            None => {
                let why = format!("page {path}: not in its cluster");
                self.bad(page.entry, why, batch);
                return Ok(());
            }
        };
        let mut composed = Composed {
            parts: vec![html],
            ..Composed::default()
        };
        if !title.is_empty() {
            composed.meta.insert("title".to_string(), title.into());
        }
        composed
            .meta
            .insert("zim".to_string(), serde_json::json!({"path": path}));
        let start = batch.data.len();
        // strings and maps of them can be written, and a vector takes them
        match serde_json::to_writer(&mut batch.data, &composed) {
            Ok(()) => batch.push_read(page.entry, self.number, start, None),
            Err(e) => {
                batch.data.truncate(start);
                batch.push_bad(page.entry, self.number, e.to_string());
            }
        }
        self.number += 1;
        Ok(())
    }

    /// A cluster, or its offset and why it cannot be read.
    fn expand(&mut self, number: u32) -> io::Result<Result<Cluster, (u64, String)>> {
        let Some(header) = self.clusters else {
            return Ok(Err((0, "without a header".to_string())));
        };
        let pointer = header
            .cluster_pointers
            .saturating_add(8 * u64::from(number));
        let is_last = number
            .checked_add(1)
            .is_none_or(|next| next >= header.clusters);
        let count = if is_last { 1 } else { 2 };
        let Some(bytes) = self
            .file
            .read(pointer, 8 * count)?
            .filter(|_| number < header.clusters)
        else {
            return Ok(Err((0, "not in the list of clusters".to_string())));
        };
        let start = u64_at(bytes, 0);
        let end = if is_last {
            header.checksum
        } else {
            u64_at(bytes, 8)
        };
        let length = end.min(self.file.size).saturating_sub(start);
        let length = match usize::try_from(length) {
            Ok(length) if (1..=MAX_CLUSTER).contains(&length) => length,
            _ => return Ok(Err((start, format!("{length} bytes long")))),
        };
        let Some(bytes) = self.file.read(start, length)? else {
            return Ok(Err((start, "the file ends inside it".to_string())));
        };
        Ok(Cluster::expand(bytes).map_err(|why| (start, why)))
    }
}

impl Cluster {
    fn expand(stored: &[u8]) -> Result<Cluster, String> {
        let (info, data) = stored.split_first().ok_or("empty")?;
        let width = if info & 0x10 == 0 { 4 } else { 8 };
        let mut bytes = Vec::new();
        let most = MAX_CLUSTER as u64 + 1;
        let read = match info & 0x0f {
            0 | 1 => data.take(most).read_to_end(&mut bytes),
            2 => flate2::read::ZlibDecoder::new(data)
                .take(most)
                .read_to_end(&mut bytes),
            3 => bzip2::read::BzDecoder::new(data)
                .take(most)
                .read_to_end(&mut bytes),
            4 => XzReader::new_mem_limit(data, false, XZ_MEMORY_KIB)
                .take(most)
                .read_to_end(&mut bytes),
            5 => zstd::stream::read::Decoder::new(data)
                .and_then(|mut decoder| {
                    decoder.window_log_max(27)?;
                    Ok(decoder)
                })
                .and_then(|decoder| decoder.single_frame().take(most).read_to_end(&mut bytes)),
            other => return Err(format!("compression {other}, which is not known")),
        };
        read.map_err(|e| e.to_string())?;
        if bytes.len() > MAX_CLUSTER {
            return Err(format!("it expands past {MAX_CLUSTER} bytes"));
        }
        Ok(Cluster { bytes, width })
    }

    /// Offset of a blob, or the end of the one before.
    fn offset(&self, blob: usize) -> Option<usize> {
        let at = blob.checked_mul(self.width)?;
        self.bytes.get(at..at.checked_add(self.width)?)?;
        let offset = match self.width {
            4 => u64::from(u32_at(&self.bytes, at)),
            _ => u64_at(&self.bytes, at),
        };
        usize::try_from(offset).ok()
    }

    fn blob(&self, number: u32) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        let count = self.offset(0)? / self.width;
        if number.checked_add(1)? >= count {
            return None;
        }
        self.bytes
            .get(self.offset(number)?..self.offset(number + 1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_lie_between_their_offsets() {
        let mut stored = vec![1];
        for offset in [12u32, 13, 15] {
            stored.extend(offset.to_le_bytes());
        }
        stored.extend(b"abc");
        let cluster = Cluster::expand(&stored).unwrap();
        let blobs: Vec<Option<&[u8]>> = (0..3).map(|i| cluster.blob(i)).collect();
        assert_eq!(blobs, [Some(&b"a"[..]), Some(&b"bc"[..]), None]);
        let zstd = [&[5u8][..], &zstd::encode_all(&stored[1..], 1).unwrap()].concat();
        assert_eq!(Cluster::expand(&zstd).unwrap().bytes, cluster.bytes);
        let bomb = [
            &[5u8][..],
            &zstd::encode_all(&vec![0; 65 << 20][..], 1).unwrap(),
        ]
        .concat();
        assert!(Cluster::expand(&bomb).is_err_and(|why| why.starts_with("it expands past")));
        assert!(Cluster::expand(&[7, 0]).is_err());
    }
}

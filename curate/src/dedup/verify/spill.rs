//! Candidates on disk between the pass over the texts and the comparison, in parts that hold whole components.
//!
//! A part is two files: `heads`, 40 bytes per document (component, rank, number, offset, bytes; u64 little-endian),
//! and `bodies`. A hash of a component's number selects its part. The files are read back only by the run that
//! wrote them, so they carry no checksum; files of an earlier run are removed first.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::sets::Set;
use crate::error::{At, Result, damaged};
use crate::write::word;

/// A document that shares a band with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) number: u64,
    /// One per band.
    pub(super) keys: Vec<u64>,
    pub(super) set: Set,
    /// Description for reports, a JSON object.
    pub(super) label: String,
}

impl Candidate {
    /// Bytes it takes in memory, nearly.
    pub(super) fn bytes(&self) -> usize {
        8 * (self.keys.len() + self.set.hashes.len()) + self.label.len() + 128
    }
}

/// Location of a document's body, and its rank in its component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    pub(super) component: u64,
    pub(super) rank: u64,
    pub(super) number: u64,
    offset: u64,
    pub(super) bytes: u64,
}

const HEAD: usize = 40;

impl Head {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let numbers = [
            self.component,
            self.rank,
            self.number,
            self.offset,
            self.bytes,
        ];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = number.to_le_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; HEAD]) -> Head {
        let number = |i: usize| u64::from_le_bytes(word(bytes, 8 * i));
        Head {
            component: number(0),
            rank: number(1),
            number: number(2),
            offset: number(3),
            bytes: number(4),
        }
    }
}

struct Part {
    heads: BufWriter<File>,
    bodies: BufWriter<File>,
    written: u64,
}

/// Writes parts.
pub(super) struct Spill {
    folder: PathBuf,
    parts: Vec<Part>,
    buffer: Vec<u8>,
}

/// Maximum number of parts, each with two open files.
pub(super) const MOST_PARTS: usize = 128;

impl Spill {
    pub(super) fn create(folder: &Path, parts: usize) -> Result<Spill> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).at(folder)?;
        }
        std::fs::create_dir_all(folder).at(folder)?;
        let open = |part, kind, buffer| {
            let path = file(folder, part, kind);
            File::create(&path)
                .at(&path)
                .map(|f| BufWriter::with_capacity(buffer, f))
        };
        let parts = (0..parts.clamp(1, MOST_PARTS)).map(|part| {
            Ok(Part {
                heads: open(part, "heads", 1 << 13)?,
                bodies: open(part, "bodies", 1 << 16)?,
                written: 0,
            })
        });
        Ok(Spill {
            folder: folder.to_path_buf(),
            parts: parts.collect::<Result<_>>()?,
            buffer: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, component: u64, rank: u64, candidate: &Candidate) -> Result<()> {
        // A product's upper bits depend on all bits of a factor.
        let mixed = component.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let number = usize::try_from(mixed).unwrap_or(0) % self.parts.len();
        let part = &mut self.parts[number];
        let buffer = &mut self.buffer;
        buffer.clear();
        let numbers = [
            candidate.keys.len() as u64,
            candidate.set.hashes.len() as u64,
            u64::from(candidate.set.scale),
        ];
        let numbers = numbers
            .iter()
            .chain(&candidate.keys)
            .chain(&candidate.set.hashes);
        numbers.for_each(|n| buffer.extend_from_slice(&n.to_le_bytes()));
        buffer.extend_from_slice(candidate.label.as_bytes());
        let head = Head {
            component,
            rank,
            number: candidate.number,
            offset: part.written,
            bytes: buffer.len() as u64,
        };
        part.written += head.bytes;
        let (heads, bodies) = (
            file(&self.folder, number, "heads"),
            file(&self.folder, number, "bodies"),
        );
        part.heads.write_all(&head.to_bytes()).at(&heads)?;
        part.bodies.write_all(buffer).at(&bodies)
    }

    /// Ends writing; returns the number of parts.
    pub(super) fn finish(mut self) -> Result<usize> {
        for (i, part) in self.parts.iter_mut().enumerate() {
            part.heads.flush().at(&file(&self.folder, i, "heads"))?;
            part.bodies.flush().at(&file(&self.folder, i, "bodies"))?;
        }
        Ok(self.parts.len())
    }
}

fn file(folder: &Path, part: usize, kind: &str) -> PathBuf {
    folder.join(format!("{part:03}.{kind}"))
}

/// The heads of a part: component after component, in each the order in which documents are visited.
pub(super) fn heads(folder: &Path, part: usize) -> Result<Vec<Head>> {
    let path = file(folder, part, "heads");
    let bytes = std::fs::read(&path).at(&path)?;
    let mut heads: Vec<Head> = (bytes.as_chunks::<HEAD>().0.iter())
        .map(Head::from_bytes)
        .collect();
    heads.sort_unstable();
    Ok(heads)
}

/// Reads bodies of a part.
pub(super) struct Bodies {
    file: File,
    path: PathBuf,
}

impl Bodies {
    pub(super) fn open(folder: &Path, part: usize) -> Result<Bodies> {
        let path = file(folder, part, "bodies");
        Ok(Bodies {
            file: File::open(&path).at(&path)?,
            path,
        })
    }

    pub(super) fn read(&mut self, head: &Head) -> Result<Candidate> {
        let mut bytes = vec![0; usize::try_from(head.bytes).unwrap_or(usize::MAX)];
        self.file
            .seek(SeekFrom::Start(head.offset))
            .at(&self.path)?;
        self.file.read_exact(&mut bytes).at(&self.path)?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|w| u64::from_le_bytes(*w));
        let mut next = || words.next().unwrap_or(0);
        let (keys, hashes, scale) = (next(), next(), next());
        let size = keys
            .saturating_add(hashes)
            .saturating_add(3)
            .saturating_mul(8);
        let label = usize::try_from(size).ok().and_then(|at| bytes.get(at..));
        let label = label.and_then(|l| std::str::from_utf8(l).ok());
        let Some(label) = label else {
            let found = format!("{keys} bands and {hashes} shingles in {} bytes", head.bytes);
            return Err(damaged(
                &self.path,
                head.offset,
                found,
                "the bytes that were written",
            ));
        };
        Ok(Candidate {
            number: head.number,
            keys: (0..keys).map(|_| next()).collect(),
            set: Set {
                hashes: (0..hashes).map(|_| next()).collect(),
                scale: u32::try_from(scale).unwrap_or(0).min(63),
            },
            label: label.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_come_back_by_component_rank_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("parts");
        let candidate = |number: u64| Candidate {
            number,
            keys: vec![number, 7],
            set: Set::of((0..number * 10).collect()),
            label: format!("{{\"id\":\"{number}\"}}"),
        };
        let mut spill = Spill::create(&folder, 3).unwrap();
        for number in (0..40).rev() {
            spill
                .push(number % 9, u64::from(number % 2 == 0), &candidate(number))
                .unwrap();
        }
        let parts = spill.finish().unwrap();
        let mut seen = Vec::new();
        for part in 0..parts {
            let heads = heads(&folder, part).unwrap();
            let mut bodies = Bodies::open(&folder, part).unwrap();
            assert!(heads.windows(2).all(|w| w[0].component < w[1].component
                || (w[0].rank, w[0].number) < (w[1].rank, w[1].number)));
            for head in &heads {
                assert_eq!(bodies.read(head).unwrap(), candidate(head.number));
                seen.push(head.number);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<u64>>());
    }
}

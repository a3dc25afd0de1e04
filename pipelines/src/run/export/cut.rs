//! Where the files of an export begin: at documents that are known before one is read, so that files are written side by side.
//!
//! A shard's documents count with their mean size, so a file holds about as many bytes as it should.

use serde::{Deserialize, Serialize};

/// A shard's documents, by the job's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardSize {
    /// Kept documents.
    pub documents: u64,
    /// Mean UTF-8 bytes of a text, at least 1.
    pub text_bytes: u64,
}

/// A place between documents: a shard, and the kept documents of it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    pub shard: usize,
    pub documents: u64,
}

/// The documents of a file, from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    /// Number of the file.
    pub number: usize,
    pub start: Place,
    pub end: Place,
}

impl FileRange {
    /// Documents of a shard that the file has: the first, and the one behind the last.
    pub(super) fn of_shard(&self, shard: usize, documents: u64) -> [u64; 2] {
        let first = match shard == self.start.shard {
            true => self.start.documents,
            false => 0,
        };
        let end = match shard == self.end.shard {
            true => self.end.documents,
            false => documents,
        };
        [first, end]
    }
}

/// Cuts all documents into files of about `file_bytes`; without a document there is one empty file.
pub(super) fn cut(shards: &[ShardSize], file_bytes: u64) -> Vec<FileRange> {
    let file_bytes = file_bytes.max(1);
    let mut starts = vec![Place::default()];
    let mut room = file_bytes;
    for (shard, size) in shards.iter().enumerate() {
        let mut documents = 0;
        while documents < size.documents {
            if room == 0 {
                starts.push(Place { shard, documents });
                room = file_bytes;
            }
            let each = size.text_bytes.max(1);
            let fitting = room.div_ceil(each).min(size.documents - documents);
            documents += fitting;
            room = room.saturating_sub(fitting.saturating_mul(each));
        }
    }
    let end = Place {
        shard: shards.len(),
        documents: 0,
    };
    let ends = starts.iter().skip(1).copied().chain([end]);
    let ranges = starts.iter().zip(ends).enumerate();
    ranges
        .map(|(number, (&start, end))| FileRange { number, start, end })
        .collect()
}

/// Files that begin in the same shard, together: they are written one after the other, so that nothing is read twice.
pub(super) fn by_shard(files: &[FileRange]) -> Vec<&[FileRange]> {
    files
        .chunk_by(|a, b| a.start.shard == b.start.shard)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(documents: u64, text_bytes: u64) -> ShardSize {
        ShardSize {
            documents,
            text_bytes,
        }
    }

    fn starts(shards: &[ShardSize], file_bytes: u64) -> Vec<(usize, u64)> {
        let files = cut(shards, file_bytes);
        files
            .iter()
            .map(|file| (file.start.shard, file.start.documents))
            .collect()
    }

    #[test]
    fn a_file_ends_at_the_document_that_fills_it_and_goes_on_over_shards() {
        // 100 bytes: 4 documents of 30 in the first shard; then 2 more and 2 of 25 of the second
        let shards = [size(6, 30), size(0, 1), size(3, 25)];
        assert_eq!(starts(&shards, 100), [(0, 0), (0, 4), (2, 2)]);
        assert_eq!(starts(&shards, 1), {
            let first = (0..6).map(|i| (0, i));
            first.chain((0..3).map(|i| (2, i))).collect::<Vec<_>>()
        });
        assert_eq!(starts(&shards, u64::MAX), [(0, 0)]);
        assert_eq!(starts(&[], 5), [(0, 0)]);
        assert_eq!(starts(&[size(0, 9)], 5), [(0, 0)]);
        assert_eq!(starts(&[size(2, 0)], 5), [(0, 0)]);
        assert_eq!(starts(&[size(3, u64::MAX)], 5), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn every_document_is_in_one_file() {
        let shards = [size(7, 3), size(0, 1), size(11, 8), size(1, 90), size(5, 2)];
        for file_bytes in [1, 7, 10, 64, 1000] {
            let mut next: Vec<u64> = vec![0; shards.len()];
            for file in cut(&shards, file_bytes) {
                for shard in file.start.shard..=file.end.shard.min(shards.len() - 1) {
                    let [first, end] = file.of_shard(shard, shards[shard].documents);
                    assert_eq!(first, next[shard], "{file_bytes}: {file:?}");
                    assert!(first <= end);
                    next[shard] = end;
                }
            }
            let wanted: Vec<u64> = shards.iter().map(|shard| shard.documents).collect();
            assert_eq!(next, wanted, "{file_bytes}");
        }
        let files = cut(&shards, 10);
        let groups = by_shard(&files);
        assert_eq!(groups.concat(), files);
        assert!(groups.len() > 1 && groups.len() < files.len());
    }
}

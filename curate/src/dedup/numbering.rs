//! Global numbers of all documents of a deduplication: those of the indexes of earlier crawls, then those of the
//! shards.

/// Numbers all documents of all files consecutively.
pub(crate) struct Numbering {
    /// First number of each file.
    pub(super) starts: Vec<u64>,
    pub(super) total: u64,
    /// Number of files that are indexes.
    pub(super) indexes: usize,
    /// Number of documents in these, which is the number of this crawl's first document.
    pub(super) earlier: u64,
}

impl Numbering {
    pub(super) fn number(&self, shard: u32, document: u32) -> u64 {
        self.starts[self.indexes + shard as usize] + u64::from(document)
    }

    /// (file, document) of a number.
    pub(super) fn place(&self, number: u64) -> (usize, usize) {
        let file = self.starts.partition_point(|&s| s <= number) - 1;
        (
            file,
            usize::try_from(number - self.starts[file]).unwrap_or(usize::MAX),
        )
    }

    /// Reference to a document in a keep list: its number for one of an earlier crawl, shard << 32 | document for
    /// one of this crawl.
    pub(super) fn packed(&self, number: u64) -> u64 {
        if number < self.earlier {
            return number;
        }
        let (file, document) = self.place(number);
        ((file - self.indexes) as u64) << 32 | document as u64
    }
}

/// One bit per document.
pub(crate) struct Flags {
    bits: Vec<u64>,
}

impl Flags {
    pub(super) fn new(count: u64) -> Flags {
        Flags {
            bits: vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX)],
        }
    }

    pub(super) fn set(&mut self, number: u64) {
        self.bits[usize::try_from(number / 64).unwrap_or(usize::MAX)] |= 1 << (number % 64);
    }

    pub(super) fn clear(&mut self, number: u64) {
        self.bits[usize::try_from(number / 64).unwrap_or(usize::MAX)] &= !(1 << (number % 64));
    }

    /// Number of set flags.
    pub(super) fn count(&self) -> u64 {
        self.bits
            .iter()
            .map(|bits| u64::from(bits.count_ones()))
            .sum()
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> bool {
        self.bits[usize::try_from(number / 64).unwrap_or(usize::MAX)] >> (number % 64) & 1 == 1
    }
}

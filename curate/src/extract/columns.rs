//! Feature columns of a page: one byte per block, and the numbers they are computed from.

use super::blocks::{Block, Page};

/// Blocks that are computed at once.
pub(super) const TOGETHER: usize = 32;

/// Columns of one byte a block, padded to whole groups of them.
#[derive(Default)]
pub(super) struct Columns {
    rows: usize,
    data: Vec<u8>,
}

impl Columns {
    pub(super) fn new(rows: usize) -> Columns {
        Columns {
            rows,
            data: Vec::with_capacity(rows.next_multiple_of(TOGETHER) * 320),
        }
    }

    /// Number of blocks.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub(super) fn len(&self) -> usize {
        self.data.len() / self.apart().max(1)
    }

    /// Bytes of a column.
    fn apart(&self) -> usize {
        self.rows.next_multiple_of(TOGETHER)
    }

    /// One column.
    pub(super) fn column(&self, number: usize) -> &[u8] {
        &self.data[number * self.apart()..][..self.rows]
    }

    /// The same in groups; what fills the last one are no blocks.
    pub(super) fn padded(&self, number: usize) -> &[[u8; TOGETHER]] {
        self.data[number * self.apart()..][..self.apart()]
            .as_chunks()
            .0
    }

    pub(super) fn push(&mut self, value: impl FnMut(usize) -> u8) {
        self.data.extend((0..self.rows).map(value));
        self.data
            .resize(self.data.len().next_multiple_of(TOGETHER), 0);
    }

    pub(crate) fn push_constant(&mut self, value: u8) {
        self.push(|_| value);
    }
}

/// Logarithmic scale: 0 for 0, then four steps a doubling.
pub(super) fn log(x: u64) -> u8 {
    let Some(power) = x.checked_ilog2() else {
        return 0;
    };
    let quarter = if power >= 2 {
        x >> (power - 2) & 3
    } else {
        x << (2 - power) & 3
    };
    u8::try_from(u64::from(power) * 4 + quarter + 1).unwrap_or(u8::MAX)
}

/// Sixtieths of `part` in `whole`; 0 if there is nothing.
pub(super) fn share(part: u64, whole: u64) -> u8 {
    u8::try_from((part * 60 / whole.max(1)).min(60)).unwrap_or(60)
}

pub(crate) fn least(x: u64, most: u8) -> u8 {
    u8::try_from(x).unwrap_or(most).min(most)
}

/// Sums over blocks 0..i at index i.
pub(super) fn sums(page: &Page, value: impl Fn(&Block) -> u64) -> Vec<u64> {
    let mut sum = 0;
    let mut all = vec![0];
    all.extend(page.blocks.iter().map(|b| {
        sum += value(b);
        sum
    }));
    all
}

/// Steps to the nearest true before and behind each block.
pub(super) fn distances(columns: &mut Columns, is_it: &[bool]) {
    let far = 1 << 20;
    let mut since = far;
    let before: Vec<u64> = is_it
        .iter()
        .map(|&it| {
            let now = since;
            since = if it { 1 } else { (since + 1).min(far) };
            now
        })
        .collect();
    since = far;
    let mut behind: Vec<u64> = is_it
        .iter()
        .rev()
        .map(|&it| {
            let now = since;
            since = if it { 1 } else { (since + 1).min(far) };
            now
        })
        .collect();
    behind.reverse();
    columns.push(|i| log(before[i]));
    columns.push(|i| log(behind[i]));
}

//! Software prefetch: requests the cache lines of a matrix that are read later, a few at a time between other work.
//! Requesting many at once would stall on the first.

use super::pack::{Matrix, View, each_kind};
use super::simd::Lanes;
use std::ops::Range;

/// Bytes of a line.
const LINE: usize = 64;

/// Evenly spaced stretches of memory to prefetch, and the position in them.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch {
    /// The next stretch.
    at: *const u8,
    /// Its bytes, and those from its start to the next one's.
    len: usize,
    apart: usize,
    /// Lines of it that have been prefetched.
    asked: usize,
    /// Stretches that are left.
    stretches: usize,
}

impl Prefetch {
    /// Nothing.
    pub(crate) fn none() -> Prefetch {
        Prefetch {
            at: std::ptr::null(),
            len: 0,
            apart: 0,
            asked: 0,
            stretches: 0,
        }
    }

    /// Rows and columns of a matrix, clipped to its edge, if its rows or columns are adjacent.
    pub(crate) fn of(x: Matrix<'_>, rows: Range<usize>, columns: Range<usize>) -> Prefetch {
        each_kind!(x, x => Prefetch::of_view(x, rows, columns))
    }

    fn of_view<E>(x: View<'_, E>, rows: Range<usize>, columns: Range<usize>) -> Prefetch {
        let (rows, columns) = (
            rows.start..rows.end.min(x.rows),
            columns.start..columns.end.min(x.cols),
        );
        if rows.is_empty() || columns.is_empty() {
            return Prefetch::none();
        }
        let start = rows.start * x.row_stride + columns.start * x.col_stride;
        let (len, stretches, apart) = match (x.row_stride, x.col_stride) {
            (_, 1) => (columns.len(), rows.len(), x.row_stride),
            (1, _) => (rows.len(), columns.len(), x.col_stride),
            _ => return Prefetch::none(),
        };
        Prefetch {
            at: x.data.as_ptr().wrapping_add(start).cast(),
            len: len * size_of::<E>(),
            apart: apart * size_of::<E>(),
            asked: 0,
            stretches,
        }
    }

    /// Lines per call so that all have been prefetched after `times` calls.
    pub(crate) fn each(&self, times: usize) -> usize {
        let lines = if self.apart.is_multiple_of(LINE) {
            (self.at.addr() % LINE + self.len).div_ceil(LINE)
        } else {
            // where most of its first line is another's
            (LINE - 1 + self.len).div_ceil(LINE)
        };
        (lines * self.stretches).div_ceil(times.max(1))
    }

    /// Prefetches up to `count` lines.
    #[inline(always)]
    pub(crate) fn ask<L: Lanes>(&mut self, count: usize) {
        for line in self.by_ref().take(count) {
            L::prefetch_to_l2(line.cast());
        }
    }
}

impl Iterator for Prefetch {
    type Item = *const u8;

    #[inline(always)]
    fn next(&mut self) -> Option<*const u8> {
        if self.stretches == 0 {
            return None;
        }
        let before = self.at.addr() % LINE;
        let line = self.at.wrapping_sub(before).wrapping_add(self.asked * LINE);
        self.asked += 1;
        if self.asked * LINE >= before + self.len {
            self.asked = 0;
            self.at = self.at.wrapping_add(self.apart);
            self.stretches -= 1;
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Lines of the elements in a part of a matrix that has 7 more numbers per row.
    fn wanted(
        data: &[f32],
        row: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> BTreeSet<usize> {
        let line = |at: usize| data[at..].as_ptr().addr() / LINE * LINE;
        let of_row = |r: usize| (r * row + columns.start..r * row + columns.end).map(line);
        rows.flat_map(of_row).collect()
    }

    #[test]
    fn all_lines_of_a_part_are_asked_for_and_no_others() {
        let (rows, cols) = (9, 100);
        let data = vec![0.0_f32; rows * (cols + 7)];
        let x = View::new(&data, rows, cols, cols + 7);
        for (first, end, from, to) in [
            (0, 9, 0, 100),
            (2, 5, 33, 34),
            (7, 12, 90, 120),
            (3, 3, 0, 9),
        ] {
            let wanted = wanted(&data, cols + 7, first..end.min(rows), from..to.min(cols));
            let along = Prefetch::of(x.into(), first..end, from..to);
            let across = Prefetch::of(x.transposed().into(), from..to, first..end);
            for mut ahead in [along, across] {
                let each = ahead.each(4);
                let mut found = BTreeSet::new();
                for _ in 0..4 {
                    found.extend(ahead.by_ref().take(each).map(<*const u8>::addr));
                }
                assert!(ahead.next().is_none(), "asked for in four times");
                assert_eq!(found, wanted, "{first}..{end} {from}..{to}");
            }
        }
    }
}

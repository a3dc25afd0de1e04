//! Columns of a table's cells. The text of a row leaves out its first and last empty cells and does not tell how many columns
//! a cell spans; in Markdown every cell stands in its column.

/// Columns that spans may add to all rows of a page.
const MAX_ADDED: usize = 1 << 16;

/// Where the cells of a row are that its text does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    /// Column of each cell of the text, from 0.
    pub(super) columns: Vec<usize>,
    /// Columns of the row.
    pub(super) width: usize,
}

/// The row that is read.
pub(super) struct Row {
    /// Column of each cell so far.
    starts: Vec<usize>,
    width: usize,
    /// The first cell with text.
    first: usize,
    /// Cells of the longest row of the table: no cell spans more columns.
    pub(super) most: usize,
    /// Columns that spans may still add.
    left: usize,
}

impl Row {
    pub(super) fn new() -> Row {
        Row {
            starts: Vec::new(),
            width: 0,
            first: 0,
            most: 1,
            left: MAX_ADDED,
        }
    }

    /// Begins a cell that spans so many columns; `is_blank`: the row has no text so far.
    pub(super) fn cell(&mut self, span: Option<&str>, is_blank: bool) {
        if is_blank {
            self.first = self.starts.len();
        } else if self.starts.is_empty() {
            // text in front of the first cell
            self.starts.push(0);
            self.width = 1;
        }
        self.starts.push(self.width);
        let span = span.and_then(|span| span.trim().parse::<usize>().ok());
        let added = span.unwrap_or(1).clamp(1, self.most.max(1)) - 1;
        let added = added.min(self.left);
        self.left -= added;
        self.width += 1 + added;
    }

    /// Ends the row, whose text has so many cells behind so many that were trimmed off; None if they are all that it has.
    pub(super) fn end(&mut self, trimmed: usize, cells: usize) -> Option<Cells> {
        let (starts, width) = (std::mem::take(&mut self.starts), self.width);
        let first = std::mem::take(&mut self.first) + trimmed;
        self.width = 0;
        let columns = starts.get(first..first.checked_add(cells)?)?;
        let is_shown = width == cells && first == 0;
        (!is_shown).then(|| Cells {
            columns: columns.to_vec(),
            width,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_cells_and_spans_have_their_columns() {
        let row = |spans: &[Option<&str>], blank: usize, cells: usize| {
            let mut row = Row::new();
            row.most = 4;
            for (i, span) in spans.iter().enumerate() {
                row.cell(*span, i < blank + 1);
            }
            row.end(0, cells).map(|cells| (cells.columns, cells.width))
        };
        assert_eq!(row(&[None, None], 0, 2), None);
        assert_eq!(row(&[None, None, None], 1, 2), Some((vec![1, 2], 3)));
        assert_eq!(row(&[None, None, None], 0, 1), Some((vec![0], 3)));
        assert_eq!(row(&[Some("2"), None], 0, 2), Some((vec![0, 2], 3)));
        assert_eq!(
            row(&[Some("99"), Some("x"), Some("0")], 0, 3),
            Some((vec![0, 4, 5], 6))
        );
        assert_eq!(row(&[], 0, 1), None);
    }
}

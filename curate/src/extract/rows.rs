//! Columns of a table's cells. The text of a row leaves out its first and last empty cells and does not tell which columns its
//! cells span, or those of rows above do; rendered, every cell stands in its column.
//!
//! Cells are placed as HTML's algorithm for forming a table does: in the first column that no cell of a row above reaches
//! into. A span leaves its other places empty, as trafilatura does and pandas, which repeats the text there, does not: a
//! text that is read once is no more often in what a model learns from.

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

/// Columns and rows that a cell spans, as its attributes say.
#[derive(Clone, Copy, Default)]
pub(super) struct Span<'a> {
    pub(super) columns: Option<&'a str>,
    pub(super) rows: Option<&'a str>,
}

/// The row that is read.
pub(super) struct Row {
    /// Column of each cell so far.
    starts: Vec<usize>,
    width: usize,
    /// The first cell with text.
    first: usize,
    /// Cells of the longest row of the table: no cell spans more columns.
    most: usize,
    /// Columns that spans may still add.
    left: usize,
    /// Number of the row in its group of rows, from 1.
    number: usize,
    /// Of each column the number of the last row that a cell above reaches into.
    reached: Vec<usize>,
}

fn number_of(attribute: Option<&str>) -> Option<usize> {
    attribute?.trim().parse().ok()
}

impl Row {
    pub(super) fn new() -> Row {
        Row {
            starts: Vec::new(),
            width: 0,
            first: 0,
            most: 1,
            left: MAX_ADDED,
            number: 0,
            reached: Vec::new(),
        }
    }

    /// Begins a table whose longest row has so many cells.
    pub(super) fn begin_table(&mut self, most: usize) {
        self.most = most;
        self.begin_group();
    }

    /// Begins a group of rows, the end of which no cell reaches over.
    pub(super) fn begin_group(&mut self) {
        self.number = 0;
        self.reached.clear();
    }

    /// Begins a row.
    pub(super) fn begin(&mut self) {
        self.number += 1;
    }

    /// Whether a cell of a row above reaches into the column.
    fn is_reached(&self, column: usize) -> bool {
        let last = self.reached.get(column);
        last.is_some_and(|last| *last >= self.number) && self.left > 0
    }

    /// Goes past the columns that cells above reach into.
    fn skip_reached(&mut self) {
        while self.is_reached(self.width) {
            self.width += 1;
            self.left -= 1;
        }
    }

    /// Begins a cell; `is_blank`: the row has no text so far.
    pub(super) fn cell(&mut self, span: Span<'_>, is_blank: bool) {
        if is_blank {
            self.first = self.starts.len();
        } else if self.starts.is_empty() {
            // text in front of the first cell
            self.starts.push(0);
            self.width = 1;
        }
        self.skip_reached();
        self.starts.push(self.width);
        let added = number_of(span.columns)
            .unwrap_or(1)
            .clamp(1, self.most.max(1))
            - 1;
        let added = added.min(self.left);
        self.left -= added;
        let end = self.width + 1 + added;
        let rows = match number_of(span.rows) {
            // to the end of its group
            Some(0) => usize::MAX,
            rows => rows.unwrap_or(1),
        };
        if rows > 1 && self.left > 0 {
            if self.reached.len() < end {
                self.reached.resize(end, 0);
            }
            self.reached[self.width..end].fill(self.number.saturating_add(rows - 1));
        }
        self.width = end;
    }

    /// Ends the row, whose text has so many cells behind so many that were trimmed off; None if they are all that it has.
    pub(super) fn end(&mut self, trimmed: usize, cells: usize) -> Option<Cells> {
        if !self.starts.is_empty() {
            self.skip_reached();
        }
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

    /// Rows of cells with their spans: where the cells are, and the width of the row; None of rows whose text shows it.
    fn placed(rows: &[&[(&str, &str)]]) -> Vec<Option<(Vec<usize>, usize)>> {
        let mut row = Row::new();
        row.begin_table(rows.iter().map(|cells| cells.len()).max().unwrap());
        let mut placed = Vec::new();
        for cells in rows {
            row.begin();
            for (i, (columns, rows)) in cells.iter().enumerate() {
                let span = Span {
                    columns: Some(columns),
                    rows: Some(rows),
                };
                row.cell(span, i == 0);
            }
            let cells = row.end(0, cells.len());
            placed.push(cells.map(|cells| (cells.columns, cells.width)));
        }
        placed
    }

    #[test]
    fn empty_cells_and_spans_have_their_columns() {
        let row = |spans: &[Option<&str>], blank: usize, cells: usize| {
            let mut row = Row::new();
            row.begin_table(4);
            for (i, columns) in spans.iter().enumerate() {
                let span = Span {
                    columns: *columns,
                    rows: None,
                };
                row.cell(span, i < blank + 1);
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

    #[test]
    fn cells_below_a_cell_of_several_rows_are_in_the_next_column() {
        let one = ("1", "1");
        // the first column, one in the middle, the last one
        assert_eq!(
            placed(&[&[("1", "2"), one, one], &[one, one], &[one, one, one]]),
            [None, Some((vec![1, 2], 3)), None]
        );
        assert_eq!(
            placed(&[&[one, ("1", "3"), one], &[one, one], &[one, one]]),
            [None, Some((vec![0, 2], 3)), Some((vec![0, 2], 3))]
        );
        assert_eq!(
            placed(&[&[one, one, ("1", "2")], &[one, one]]),
            [None, Some((vec![0, 1], 3))]
        );
        // of two columns and two rows; to the end
        assert_eq!(
            placed(&[&[("2", "2"), one, one], &[one, one], &[one, one, one]]),
            [Some((vec![0, 2, 3], 4)), Some((vec![2, 3], 4)), None]
        );
        assert_eq!(
            placed(&[&[("1", "0"), one], &[one], &[one]]),
            [None, Some((vec![1], 2)), Some((vec![1], 2))]
        );
    }

    #[test]
    fn no_cell_reaches_out_of_its_group_and_spans_of_a_page_are_bounded() {
        let mut row = Row::new();
        let below = Span {
            columns: None,
            rows: Some("65534"),
        };
        row.begin_table(2);
        row.begin();
        row.cell(below, true);
        assert_eq!(row.end(0, 1), None);
        row.begin_group();
        row.begin();
        row.cell(Span::default(), true);
        assert_eq!(row.end(0, 1), None);
        // rows below a thousand cells: no more columns are gone past than spans may add
        row.begin_table(1000);
        row.begin();
        for i in 0..1000 {
            row.cell(below, i == 0);
        }
        assert_eq!(row.end(0, 1000), None);
        let mut gone = 0;
        for _ in 0..1000 {
            row.begin();
            row.cell(Span::default(), true);
            gone += row.end(0, 1).map_or(0, |cells| cells.columns[0]);
        }
        assert_eq!(gone, MAX_ADDED);
    }
}

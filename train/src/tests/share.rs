//! The share of a table of combinations that a test goes through.

/// With this variable tests go through all combinations: some twenty minutes more on two cores.
const ALL: &str = "MILLRACE_ALL_COMBINATIONS";

/// A table is gone through row by row (a model, a precision), and a row has items (layouts). Of each row one item in
/// `of` is taken, shifted by one from row to row, so that every item is taken in some row where there are `of` rows.
pub(super) struct Share {
    of: usize,
    rows: usize,
}

impl Share {
    pub(super) fn one_in(of: usize) -> Share {
        let of = if std::env::var_os(ALL).is_some() {
            1
        } else {
            of
        };
        Share { of, rows: 0 }
    }

    /// The items of the next row.
    pub(super) fn of<'a>(&mut self, items: &[&'a str]) -> Vec<&'a str> {
        let row = self.rows;
        self.rows += 1;
        let numbered = items.iter().enumerate();
        let taken = numbered.filter(|(number, _)| (number + row).is_multiple_of(self.of));
        taken.map(|(_, item)| *item).collect()
    }
}

#[test]
fn every_item_is_taken_once_in_as_many_rows_as_the_share_has_parts() {
    let items = ["a", "b", "c", "d", "e", "f", "g"];
    let mut share = Share { of: 3, rows: 0 };
    let mut taken: Vec<_> = (0..3).flat_map(|_| share.of(&items)).collect();
    taken.sort_unstable();
    assert_eq!(taken, items);
    let mut all = Share { of: 1, rows: 0 };
    assert_eq!(all.of(&items), items);
}

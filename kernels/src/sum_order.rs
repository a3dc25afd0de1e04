//! The order of additions, as data that a caller decides once and passes on.

/// Order in which the numbers of a sum are added, the freest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SumOrder {
    /// Any order, which may differ from run to run.
    Any,
    /// The same order whenever shapes, ranks and devices are the same.
    Fixed,
    /// The tree over fixed leaves (README.md, promise 2): the same bits for any number of ranks.
    Tree,
}

impl SumOrder {
    /// The name in job files' words, messages and checkpoints.
    pub fn name(self) -> &'static str {
        match self {
            SumOrder::Any => "any",
            SumOrder::Fixed => "fixed",
            SumOrder::Tree => "tree",
        }
    }

    /// True if sums have leaves that no layout changes.
    pub fn is_tree(self) -> bool {
        self == SumOrder::Tree
    }
}

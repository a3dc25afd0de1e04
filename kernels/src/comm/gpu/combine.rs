//! Sums and maxima over ranks on a device: the tree and the comparisons of `comm/sum.rs`, a thread per element.

use std::sync::Arc;

use crate::Result;
use crate::cuda::{Address, Arg, Cuda, Grid, Source};

/// Kernels of collectives.
pub(crate) static SOURCE: Source = Source {
    name: "sum.cu",
    text: include_str!("sum.cu"),
};

/// The rule by which numbers of ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::comm) enum Combine {
    /// The tree by rank.
    Sum,
    /// The largest; NaN if one is.
    Largest,
}

/// Most parts that are anywhere in memory.
pub(in crate::comm) const MOST_PARTS: usize = 8;

impl Combine {
    /// Combines `n` numbers of each part, at most `MOST_PARTS` of them, which `on` can read.
    pub(in crate::comm) fn parts(
        self,
        on: &Arc<Cuda>,
        out: Address,
        parts: &[Address],
        n: usize,
    ) -> Result<()> {
        let mut args = vec![Arg::from(out)];
        let pointers = parts.iter().map(|&part| Arg::from(part));
        args.extend(
            pointers
                .chain(std::iter::repeat(Arg::NULL))
                .take(MOST_PARTS),
        );
        args.extend([count(parts.len()), n.into()]);
        let function = match self {
            Combine::Sum => "add_parts",
            Combine::Largest => "largest_of_parts",
        };
        on.launch(&SOURCE, function, Grid::over(n), &args)
    }

    /// Combines the first `n` numbers of `ranks` rows with stride `step`.
    pub(in crate::comm) fn rows(
        self,
        on: &Arc<Cuda>,
        out: Address,
        (rows, ranks): (Address, usize),
        step: usize,
        n: usize,
    ) -> Result<()> {
        let args = [out.into(), rows.into(), step.into(), count(ranks), n.into()];
        let function = match self {
            Combine::Sum => "add_rows",
            Combine::Largest => "largest_of_rows",
        };
        on.launch(&SOURCE, function, Grid::over(n), &args)
    }
}

fn count(of: usize) -> Arg {
    Arg::U32(u32::try_from(of).unwrap_or(u32::MAX))
}

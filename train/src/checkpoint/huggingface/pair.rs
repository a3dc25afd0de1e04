//! Correspondence of one of our tensors with (part of) a Hugging Face tensor.

use std::sync::Arc;

use crate::config::plan::{FEATURE_CHUNKS, Shape};

/// Order of the rows of a Hugging Face tensor relative to ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    Same,
    /// Theirs: all queries, all keys, all values.
    Packed,
    /// Theirs: all keys, all values.
    KeysValues,
    /// Theirs: all gates, all ups, of this width each.
    Gated(usize),
    /// Theirs: a gate, an up, the next gate, of this width of each.
    Alternating(usize),
    /// Theirs: of each group `still` rows and then `turned` ones, whose pairs are neighbours; ours: those turned first, whose pairs
    /// are halves.
    TurnedLast {
        still: usize,
        turned: usize,
    },
}

/// One tensor of theirs.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub theirs: String,
    /// Dims of theirs.
    pub dims: Vec<usize>,
    pub ours: String,
    rows: Rows,
    /// Number of its first row in theirs' order of rows.
    first: usize,
    count: usize,
    /// Elements per row.
    cols: usize,
    is_transposed: bool,
    /// Number of the part of theirs that this is, of equal ones along its first dim; their other pairs have the others. None:
    /// theirs is no stack.
    part: Option<usize>,
    /// Ours is another tensor of theirs as well, which this one repeats.
    is_copy: bool,
}

impl Pair {
    /// Theirs is ours, but for padding rows at its end.
    pub(crate) fn of(theirs: String, ours: String, dims: &[usize]) -> Pair {
        Pair {
            theirs,
            dims: dims.to_vec(),
            ours,
            rows: Rows::Same,
            first: 0,
            count: dims[0],
            cols: dims[1..].iter().product(),
            is_transposed: false,
            part: None,
            is_copy: false,
        }
    }

    /// Theirs repeats another tensor of theirs, which is ours.
    pub(crate) fn copy(self) -> Pair {
        Pair {
            is_copy: true,
            ..self
        }
    }

    /// Whether theirs repeats another one.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Theirs is the transpose of ours.
    pub(crate) fn transposed(mut self) -> Pair {
        self.dims.reverse();
        self.is_transposed = true;
        self
    }

    /// It is part `number` of `count` equal parts of theirs, which are stacked.
    pub(crate) fn part_of(mut self, number: usize, count: usize) -> Pair {
        self.dims.insert(0, count);
        self.part = Some(number);
        self
    }

    /// Its first element in theirs.
    pub(crate) fn first_element(&self) -> usize {
        self.part() * self.elements()
    }

    /// Number of the part of theirs that it is, 0 if it is all of it.
    pub(crate) fn part(&self) -> usize {
        self.part.unwrap_or(0)
    }

    /// Number of the part of theirs that it is, if theirs is a stack of parts.
    pub(crate) fn stacked(&self) -> Option<usize> {
        self.part
    }

    /// Its rows are rows `first ..` in an order of theirs.
    pub(crate) fn rows(self, rows: Rows, first: usize) -> Pair {
        Pair {
            rows,
            first,
            ..self
        }
    }

    /// Row of ours for each row of theirs, in order.
    pub(crate) fn rows_of_ours(&self, shape: &Shape) -> impl Iterator<Item = usize> {
        let (rows, shape) = (self.rows, *shape);
        (self.first..self.first + self.count).map(move |row| rows.ours(row, &shape))
    }

    pub(crate) fn elements(&self) -> usize {
        self.count * self.cols
    }

    /// Element of ours for each element of theirs, in order.
    pub(crate) fn elements_of_ours(&self, shape: &Shape) -> impl Iterator<Item = usize> + '_ {
        // shared: a copy per row would make large tables take the square of their rows
        let starts: Arc<[usize]> = (self.first..self.first + self.count)
            .map(|row| self.cols * self.rows.ours(row, shape))
            .collect();
        let (outer, inner) = if self.is_transposed {
            (self.cols, self.count)
        } else {
            (self.count, self.cols)
        };
        (0..outer).flat_map(move |i| {
            let starts = Arc::clone(&starts);
            (0..inner).map(move |j| {
                if self.is_transposed {
                    starts[j] + i
                } else {
                    starts[i] + j
                }
            })
        })
    }
}

impl Rows {
    fn ours(self, row: usize, shape: &Shape) -> usize {
        match self {
            Rows::Same => row,
            Rows::Packed => {
                let (e, kv) = (shape.d_head, shape.kv_heads);
                let per = shape.heads / kv;
                let (head, at) = (row / e, row % e);
                let (group, slot) = match head.checked_sub(shape.heads) {
                    None => (head / per, head % per),
                    Some(key) => (key % kv, per + key / kv),
                };
                (group * (per + 2) + slot) * e + at
            }
            Rows::KeysValues => {
                let (head, at) = (row / shape.d_head, row % shape.d_head);
                let (slot, head) = (head / shape.kv_heads, head % shape.kv_heads);
                (2 * head + slot) * shape.d_head + at
            }
            Rows::Gated(width) => {
                let chunk = width / FEATURE_CHUNKS;
                let (half, at) = (row / width, row % width);
                (at / chunk * 2 + half) * chunk + at % chunk
            }
            Rows::TurnedLast { still, turned } => {
                let group = still + turned;
                let (start, at) = (row / group * group, row % group);
                start
                    + match at.checked_sub(still) {
                        None => turned + at,
                        Some(at) => at % 2 * (turned / 2) + at / 2,
                    }
            }
            Rows::Alternating(width) => Rows::Gated(width).ours(row % 2 * width + row / 2, shape),
        }
    }
}

/// Names a tensor of a layer: theirs, ours, dims of ours.
pub(crate) type Own<'a> = &'a dyn Fn(&str, &str, &[usize]) -> Pair;

/// Dims of a gated layer's matrices: `[f, d]`.
#[derive(Clone, Copy)]
pub(crate) struct GatedWidth {
    pub f: usize,
    pub d: usize,
}

/// What the names of a layer's tensors start with.
#[derive(Clone, Copy)]
pub(crate) struct Prefixes<'a> {
    /// In their file.
    pub to: &'a str,
    /// In ours.
    pub from: &'a str,
}

/// Gate, up and down matrices of a gated layer under these names.
pub(crate) fn add_gated(
    pairs: &mut Vec<Pair>,
    own: Own<'_>,
    width: GatedWidth,
    prefixes: Prefixes<'_>,
    [gate, up, down]: [&str; 3],
) {
    let GatedWidth { f, d } = width;
    let Prefixes { to, from } = prefixes;
    let fc1 = format!("{from}fc1.weight");
    for (name, first) in [(gate, 0), (up, f)] {
        let pair = own(&format!("{to}.{name}.weight"), &fc1, &[f, d]);
        pairs.push(pair.rows(Rows::Gated(f), first));
    }
    let fc2 = own(
        &format!("{to}.{down}.weight"),
        &format!("{from}fc2.weight"),
        &[f, d],
    );
    pairs.push(fc2.transposed());
}

/// A linear layer of a block, `[out, in]` in their file.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    theirs: &'a str,
    ours: &'a str,
    /// Dims of our weight.
    dims: [usize; 2],
    /// Its input features are split: ours is `[in, out]`.
    is_row: bool,
}

impl<'a> Linear<'a> {
    /// A layer whose output features are split; dims: `[out, in]`.
    pub(crate) fn by_column(theirs: &'a str, ours: &'a str, dims: [usize; 2]) -> Linear<'a> {
        Linear {
            theirs,
            ours,
            dims,
            is_row: false,
        }
    }

    /// A layer whose input features are split; dims: `[in, out]`.
    pub(crate) fn by_row(theirs: &'a str, ours: &'a str, dims: [usize; 2]) -> Linear<'a> {
        Linear {
            is_row: true,
            ..Linear::by_column(theirs, ours, dims)
        }
    }

    /// Adds its weight, and its bias if it has one.
    pub(crate) fn add(self, pairs: &mut Vec<Pair>, own: Own<'_>, has_bias: bool) {
        let name = |of: &str, kind: &str| format!("{of}.{kind}");
        let (theirs, ours) = (self.theirs, self.ours);
        let weight = own(&name(theirs, "weight"), &name(ours, "weight"), &self.dims);
        let (weight, outputs) = match self.is_row {
            true => (weight.transposed(), self.dims[1]),
            false => (weight, self.dims[0]),
        };
        pairs.push(weight);
        if has_bias {
            pairs.push(own(&name(theirs, "bias"), &name(ours, "bias"), &[outputs]));
        }
    }
}

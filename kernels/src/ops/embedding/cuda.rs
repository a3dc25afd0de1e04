//! Embedding on CUDA: a thread per number. Backward sorts tokens by their rows on the host, which waits for the ids.

use std::sync::Arc;

use super::tokens::grouped;
use crate::cuda::{Cuda, Grid, Source};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "embedding.cu",
    text: include_str!("embedding.cu"),
};

pub(super) fn forward(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    table: &Tensor,
    ids: &Tensor,
    first: usize,
) -> Result<()> {
    let (rows, d) = table.rows_cols();
    let n = ids.elements();
    let args = [
        y.into(),
        table.into(),
        ids.into(),
        n.into(),
        rows.into(),
        d.into(),
        first.into(),
    ];
    on.launch(&SOURCE, "embedding_forward", Grid::over(n * d), &args)
}

pub(super) fn backward(
    on: &Arc<Cuda>,
    dtable: &mut Tensor,
    dy: &Tensor,
    ids: &Tensor,
    first: usize,
    leaf: usize,
) -> Result<()> {
    let (n, d) = dy.rows_cols();
    let leaf = if leaf == 0 { n } else { leaf };
    let tokens = grouped(&ids.download()?, first, dtable.dims()[0]);
    if tokens.is_empty() {
        return Ok(());
    }
    let word = |x: usize| u32::try_from(x).unwrap_or(u32::MAX);
    let (mut rows, mut starts) = (Vec::new(), vec![0]);
    for group in tokens.chunk_by(|a, b| a.row == b.row) {
        rows.push(word(group[0].row));
        starts.push(starts[starts.len() - 1] + word(group.len()));
    }
    let at: Vec<u32> = tokens.iter().map(|token| word(token.at)).collect();
    let upload = |words: &[u32]| Tensor::from_u32(&[words.len()], words, dy.device());
    let groups = rows.len();
    let (rows, starts, at) = (upload(&rows)?, upload(&starts)?, upload(&at)?);
    let args = [
        dtable.into(),
        dy.into(),
        (&rows).into(),
        (&starts).into(),
        (&at).into(),
        groups.into(),
        d.into(),
        leaf.into(),
    ];
    on.launch(&SOURCE, "embedding_backward", Grid::over(groups * d), &args)
}

//! Embedding on CUDA: a thread per number. Backward links the tokens of one id, without sorting them.

use std::sync::Arc;

use crate::cuda::{Cuda, Grid, Source};
use crate::{DType, Result, Tensor};

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
    let words = || Tensor::empty(&[n], DType::U32, dy.device());
    let (mut nexts, mut is_first) = (words()?, words()?);
    let args = [
        (&mut nexts).into(),
        (&mut is_first).into(),
        ids.into(),
        n.into(),
        dtable.dims()[0].into(),
        first.into(),
    ];
    on.launch(&SOURCE, "embedding_links", Grid::over(n * 32), &args)?;
    let args = [
        dtable.into(),
        dy.into(),
        ids.into(),
        (&nexts).into(),
        (&is_first).into(),
        n.into(),
        d.into(),
        first.into(),
        leaf.into(),
    ];
    on.launch(&SOURCE, "embedding_backward", Grid::over(n * d), &args)
}

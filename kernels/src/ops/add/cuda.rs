//! Additions on CUDA: a thread per element.

use std::sync::Arc;

use crate::cuda::{Cuda, Grid, Source};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "add.cu",
    text: include_str!("add.cu"),
};

pub(super) fn bias(on: &Arc<Cuda>, x: &mut Tensor, b: &Tensor) -> Result<()> {
    let n = x.elements();
    let args = [x.into(), b.into(), n.into(), b.elements().into()];
    on.launch(&SOURCE, "add_bias", Grid::over(n), &args)
}

pub(crate) fn add_into(on: &Arc<Cuda>, x: &mut Tensor, y: &Tensor) -> Result<()> {
    let n = x.elements();
    let args = [x.into(), y.into(), n.into()];
    on.launch(&SOURCE, "add_into", Grid::over(n), &args)
}

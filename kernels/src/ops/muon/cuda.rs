//! Muon's elementwise parts on CUDA: a thread per element; the products are `matmul`'s.

use std::sync::Arc;

use super::unit::EPS;
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::{Result, Tensor, View, ViewMut};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "muon.cu",
    text: include_str!("muon.cu"),
};

pub(super) fn momentum(
    on: &Arc<Cuda>,
    m: &mut ViewMut<'_>,
    u: &mut ViewMut<'_>,
    g: View<'_>,
    grad_scale: f32,
    momentum: f32,
) -> Result<()> {
    let args = [
        m.address().into(),
        u.address().into(),
        g.address().into(),
        g.len().into(),
        grad_scale.into(),
        momentum.into(),
    ];
    on.launch(&SOURCE, "muon_momentum", Grid::over(g.len()), &args)
}

/// `squares`: the sum of squares in two words.
pub(super) fn normalize(on: &Arc<Cuda>, x: &mut Tensor, squares: &Tensor) -> Result<()> {
    let count = x.elements();
    let args = [x.into(), count.into(), squares.into(), Arg::F64(EPS)];
    on.launch(&SOURCE, "muon_normalize", Grid::over(count), &args)
}

pub(super) fn combine(
    on: &Arc<Cuda>,
    x: &mut ViewMut<'_>,
    a: f32,
    y: View<'_>,
    b: f32,
) -> Result<()> {
    let args = [
        x.address().into(),
        a.into(),
        y.address().into(),
        b.into(),
        x.len().into(),
    ];
    on.launch(&SOURCE, "muon_combine", Grid::over(x.len()), &args)
}

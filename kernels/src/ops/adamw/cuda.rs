//! AdamW on CUDA: a thread per weight, the operations of `cpu.rs` in its order; 28 bytes of memory per weight.

use std::sync::Arc;

use super::settings::{AdamW, Factors, Moments};
use crate::cuda::{Cuda, Grid, Source};
use crate::{Result, View, ViewMut};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "adamw.cu",
    text: include_str!("adamw.cu"),
};

pub(super) fn step(
    on: &Arc<Cuda>,
    w: &mut ViewMut<'_>,
    g: View<'_>,
    moments: &mut Moments<'_>,
    p: &AdamW,
) -> Result<()> {
    let f = Factors::new(p);
    let args = [
        w.address().into(),
        g.address().into(),
        moments.m.address().into(),
        moments.v.address().into(),
        w.len().into(),
        f.grad_scale.into(),
        f.keep.into(),
        f.one_minus_beta1.into(),
        f.beta2.into(),
        f.one_minus_beta2.into(),
        f.root_correction2.into(),
        f.eps.into(),
        f.step_size.into(),
    ];
    on.launch(&SOURCE, "adamw_step", Grid::over(w.len()), &args)
}

//! Running averages on CUDA: a thread per element, 12 bytes of memory each.

use std::sync::Arc;

use crate::cuda::{Cuda, Grid, Source};
use crate::{Result, View, ViewMut};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "lerp.cu",
    text: include_str!("lerp.cu"),
};

pub(super) fn towards(on: &Arc<Cuda>, x: &mut ViewMut<'_>, y: View<'_>, share: f32) -> Result<()> {
    let args = [
        x.address().into(),
        y.address().into(),
        x.len().into(),
        share.into(),
    ];
    on.launch(&SOURCE, "lerp_towards", Grid::over(x.len()), &args)
}

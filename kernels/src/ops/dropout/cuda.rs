//! Dropout on CUDA: a thread per counter of Philox.

use std::sync::Arc;

use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::dropout::{Constants, Place};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "dropout.cu",
    text: include_str!("dropout.cu"),
};

/// Features per counter block: 16 counters of four words.
const BLOCK: usize = 64;

pub(super) fn apply(
    on: &Arc<Cuda>,
    x: &mut Tensor,
    constants: &Constants,
    place: &Place,
) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let args = [
        x.into(),
        rows.into(),
        d.into(),
        place.feature.into(),
        place.t.into(),
        place.position.into(),
        Arg::U64(place.sequence),
        constants.key[0].into(),
        constants.key[1].into(),
        constants.threshold.into(),
        constants.scale.into(),
    ];
    let blocks = (place.feature + d).div_ceil(BLOCK) - place.feature / BLOCK;
    on.launch(
        &SOURCE,
        "dropout_apply",
        Grid::over(rows * blocks * 16),
        &args,
    )
}

//! Rotary positions on CUDA: a thread per pair. The table of angles is the CPU's, kept on the device.

use std::sync::Arc;

use crate::cpu::rotary;
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::rope::{Positions, Turn, Way};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "rope.cu",
    text: include_str!("rope.cu"),
};

pub(in crate::ops) fn turn(
    on: &Arc<Cuda>,
    qkv: &mut Tensor,
    turn: &Turn<'_>,
    way: Way,
) -> Result<()> {
    let (heads, half) = (turn.heads, turn.frequencies.steps().len());
    let rows = qkv.rows_cols().0;
    let device = qkv.device();
    let table = device.cached_words(rotary::key_of(turn), || rotary::table_of(turn))?;
    let (t, positions) = match turn.positions {
        Positions::Run { t, .. } => (t, None),
        Positions::Each { of, .. } => (1, Some(Tensor::from_u32(&[of.len()], of, device)?)),
    };
    let direction: f32 = match way {
        Way::Forward => 1.0,
        Way::Back => -1.0,
    };
    let args = [
        (&*qkv).into(),
        Arg::Pointer(table.address()),
        positions.as_ref().into(),
        t.into(),
        rows.into(),
        heads.kv_heads.into(),
        heads.per_group().into(),
        heads.width.into(),
        half.into(),
        direction.into(),
    ];
    let pairs = rows * heads.kv_heads * (heads.per_group() + 1) * half;
    on.launch(&SOURCE, "rope_turn", Grid::over(pairs), &args)
}

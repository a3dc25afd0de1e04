//! Rows of the virtual tokens of a checkpoint, as inference and PEFT's folders have them: without the encoder of p-tuning.

use kernels::{Device, Tensor};

use crate::checkpoint::MODEL;
use crate::checkpoint::read::Opened;
use crate::config::plan::Plan;
use crate::dist::launch::cpu_path;
use crate::dist::mesh::Groups;
use crate::error::{OnRank, Result};
use crate::model::context::{Context, Weights};
use crate::model::param;
use crate::model::slots::Slots;
use crate::model::virtual_rows::VirtualRows;

/// The embeddings of the virtual tokens, `[virtual_tokens, d_model]`; the checkpoint's plan is of one rank.
///
/// # Errors
/// A damaged checkpoint; memory.
pub(crate) fn rows(opened: &Opened, plan: &Plan) -> Result<Vec<f32>> {
    let (specs, groups) = (param::specs(plan), Groups::single());
    let device = Device::cpu_with(cpu_path()?.isa());
    let mut tensors = opened.tensors(MODEL)?;
    let mut weights = Vec::new();
    for spec in &specs {
        weights.push(match param::is_of_adapter(&spec.name) {
            false => None,
            true => {
                let mut values = vec![0.0; spec.dims.iter().product()];
                tensors.read_part(&spec.name, &spec.dims, 0, &mut values)?;
                let tensor = Tensor::from_f32(&spec.dims, &values, &device);
                Some(tensor.on_rank(0, "allocate virtual tokens")?)
            }
        });
    }
    let slots = Slots::on(&groups.place, &specs);
    let own = VirtualRows::named(plan, &slots).expect("the model has virtual tokens");
    let cx = Context::of(plan, Weights::Gathered(&weights), &groups);
    let rows = own.all(&cx).and_then(|rows| rows.download());
    rows.on_rank(0, "make virtual tokens")
}

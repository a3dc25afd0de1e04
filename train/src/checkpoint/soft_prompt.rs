//! Rows of the virtual tokens of a checkpoint.

use crate::checkpoint::MODEL;
use crate::checkpoint::read::Opened;
use crate::config::plan::Plan;
use crate::error::Result;
use crate::model::param;

/// The embeddings of the virtual tokens, `[virtual_tokens, d_model]`.
///
/// # Errors
/// A damaged checkpoint.
pub(crate) fn rows(opened: &Opened, plan: &Plan) -> Result<Vec<f32>> {
    let dims = [plan.model.virtual_tokens(), plan.model.d_model];
    let mut values = vec![0.0; dims[0] * dims[1]];
    let mut tensors = opened.tensors(MODEL)?;
    tensors.read_part(param::PROMPT, &dims, 0, &mut values)?;
    Ok(values)
}

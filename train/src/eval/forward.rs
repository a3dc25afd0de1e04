//! Forward pass of whole sequences without caches: the rows before the head, and the logits of rows.

use kernels::{DType, Tensor};

use crate::checkpoint::whole_model::Model;
use crate::data::documents::Documents;

/// Rows before the head of sequences of `time` tokens each; ids: `[b * time]` -> `[b * time, d]`
pub(super) fn hidden(
    model: &Model,
    ids: &Tensor,
    time: usize,
    documents: Option<&Documents>,
) -> kernels::Result<Tensor> {
    let cx = model.context(0..time, documents);
    let embedding = model
        .stage
        .embedding()
        .expect("the only stage is the first");
    let segments = Tensor::zeros(ids.dims(), DType::U32, &model.device)?;
    let (mut x, _) = embedding.forward((ids, Some(&segments)), &cx)?;
    for block in model.stage.blocks() {
        (x, _) = block.forward(x, &cx)?;
    }
    Ok(x)
}

/// Logits of rows that came out of the blocks; x: `[n, d]` -> `[n, padded vocabulary]`, on every rank
pub(super) fn head(model: &Model, x: &Tensor) -> kernels::Result<Tensor> {
    let cx = model.context(0..x.dims()[0], None);
    match (model.stage.head(), model.stage.masked_head()) {
        (Some(head), _) => head.logits(x, &cx),
        (None, Some(head)) => head.logits(x, &cx),
        (None, None) => unreachable!("the only stage is the last"),
    }
}

/// Logits of every token of one sequence: `[tokens, padded vocabulary]`.
pub(super) fn logits(model: &Model, ids: &Tensor, tokens: &[u32]) -> kernels::Result<Tensor> {
    let documents = model.documents(tokens);
    let x = hidden(model, ids, tokens.len(), documents.as_ref())?;
    head(model, &x)
}

//! Tokens to vectors: x = table[token] (+ position table, if positions are learned).
//!
//! Tensor parallel: a rank holds adjacent rows of the table, looks up zeros for the others, and the
//! sum over ranks puts them together. One rank alone adds 0.0 as well: -0.0 must not survive on one
//! layout only. Gradients of a row sum over its tokens in the token tree.

use kernels::{DType, Device, Tensor, add, embedding};

use crate::architecture::Positions;
use crate::model::context::{Context, Slot, Slots};
use crate::model::gradients::Gradients;
use crate::plan::Plan;

pub(crate) struct Embedding {
    table: Slot,
    /// First token id of this rank's rows.
    first: usize,
    positions: Option<Slot>,
}

impl Embedding {
    pub(crate) fn named(plan: &Plan, tp: usize, tp_rank: usize, slots: &Slots<'_>) -> Embedding {
        let has_positions = plan.model.architecture().positions == Positions::Learned;
        Embedding {
            table: slots.get("embedding.weight"),
            first: plan.padded_vocab() / tp * tp_rank,
            positions: has_positions.then(|| slots.get("position.weight")),
        }
    }

    /// tokens: `[n]` -> `[m, d]`; row r of a sequence of `time` rows has position `offset + r`.
    pub(crate) fn forward(
        &self,
        tokens: &Tensor,
        time: usize,
        offset: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let x = embedding::forward(cx.weight(self.table), tokens, self.first)?;
        let mut x = cx.sum_to_rows(x)?;
        if cx.tp.size() == 1 {
            x.f32_mut().iter_mut().for_each(|value| *value += 0.0);
        }
        if let Some(positions) = self.positions {
            let (time, offset) = if cx.is_sequence {
                (cx.row_time(), offset + cx.row_first() - cx.first)
            } else {
                (time, offset)
            };
            let rows = positions_of(x.dims()[0], time, offset, tokens.device())?;
            let rows = embedding::forward(cx.weight(positions), &rows, 0)?;
            add::add_into(&mut x, &rows)?;
        }
        Ok(x)
    }

    /// dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dx: &Tensor,
        tokens: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let mut room = None;
        let dx = cx.gather(dx, &mut room)?;
        let [dtable] = gradients.sums([self.table]);
        embedding::backward(dtable, dx, tokens, self.first, cx.token_leaf)?;
        if let Some(positions) = self.positions {
            let rows = positions_of(tokens.elements(), cx.time, cx.first, tokens.device())?;
            let [dpositions] = gradients.sums([positions]);
            embedding::backward(dpositions, dx, &rows, 0, cx.token_leaf)?;
        }
        Ok(())
    }
}

fn positions_of(n: usize, time: usize, offset: usize, device: &Device) -> kernels::Result<Tensor> {
    let mut rows = Tensor::empty(&[n], DType::U32, device)?;
    for (row, position) in rows.u32_mut().iter_mut().enumerate() {
        *position = u32::try_from(offset + row % time).expect("positions are below seq_length");
    }
    Ok(rows)
}

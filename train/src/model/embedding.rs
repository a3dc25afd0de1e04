//! Tokens to vectors: x = table[token] (+ position table, if positions are learned).
//!
//! Tensor parallel: a rank holds adjacent rows of the table, looks up zeros for the others, and the
//! sum over ranks puts them together. One rank alone adds 0.0 as well: -0.0 must not survive on one
//! layout only. Gradients of a row sum over its tokens in the token tree.

use kernels::rope::Positions;
use kernels::{DType, Device, Tensor, add, embedding};

use crate::architecture;
use crate::model::context::{Context, Slot, Slots};
use crate::model::gradients::Gradients;
use crate::plan::Plan;

pub(crate) struct Embedding {
    table: Slot,
    /// First token id of this rank's rows.
    first: usize,
    positions: Option<Slot>,
    dropout: f32,
}

/// Number of the embedding's dropout.
const DROPOUT: u32 = 0;

impl Embedding {
    pub(crate) fn named(plan: &Plan, tp: usize, tp_rank: usize, slots: &Slots<'_>) -> Embedding {
        let has_positions = plan.model.architecture().positions == architecture::Positions::Learned;
        Embedding {
            table: slots.get("embedding.weight"),
            first: plan.padded_vocab() / tp * tp_rank,
            positions: has_positions.then(|| slots.get("position.weight")),
            dropout: plan.model.dropout,
        }
    }

    /// tokens: `[n]` -> `[m, d]`
    pub(crate) fn forward(&self, tokens: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let x = embedding::forward(cx.weight(self.table), tokens, self.first)?;
        let mut x = cx.sum_to_rows(x)?;
        if cx.tp.size() == 1 {
            x.f32_mut().iter_mut().for_each(|value| *value += 0.0);
        }
        if let Some(positions) = self.positions {
            let rows = positions_of(cx, x.dims()[0], cx.row_time(), tokens.device())?;
            let rows = embedding::forward(cx.weight(positions), &rows, 0)?;
            add::add_into(&mut x, &rows)?;
        }
        cx.drop_rows(&mut x, self.dropout, DROPOUT)?;
        Ok(x)
    }

    /// dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        mut dx: Tensor,
        tokens: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let mut room = None;
        cx.drop_rows(&mut dx, self.dropout, DROPOUT)?;
        let dx = cx.gather(&dx, &mut room)?;
        let [dtable] = gradients.sums([self.table]);
        embedding::backward(dtable, dx, tokens, self.first, cx.token_leaf)?;
        if let Some(positions) = self.positions {
            let rows = positions_of(cx, tokens.elements(), cx.time, tokens.device())?;
            let [dpositions] = gradients.sums([positions]);
            embedding::backward(dpositions, dx, &rows, 0, cx.token_leaf)?;
        }
        Ok(())
    }
}

/// Positions of rows of which each sequence has `time`: all of this rank's, or its share of them.
fn positions_of(
    cx: &Context<'_>,
    n: usize,
    time: usize,
    device: &Device,
) -> kernels::Result<Tensor> {
    let mut rows = Tensor::empty(&[n], DType::U32, device)?;
    let before = if time == cx.time {
        0
    } else {
        cx.row_first() - cx.first
    };
    for (row, position) in rows.u32_mut().iter_mut().enumerate() {
        let (sequence, at) = (row / time, row % time + before);
        *position = match cx.positions() {
            Positions::Run { offset, .. } => {
                u32::try_from(offset + at).expect("positions are below seq_length")
            }
            Positions::Each { of, .. } => of[sequence * cx.time + at],
        };
    }
    Ok(rows)
}

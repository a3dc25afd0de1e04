//! Token embedding: x = scale `table[token]` (+ position table, if positions are learned; + segment table
//! and a norm of the sum for BLOOM and an encoder as published). Virtual tokens (`[model.prompt]`), whose ids are beyond those of the
//! vocabulary, take rows of their own (`virtual_rows.rs`).
//!
//! Tensor parallel: a rank holds adjacent rows of the table, looks up zeros for the others, and an all-reduce
//! combines them. A single rank adds 0.0 as well: -0.0 must not survive on one layout only. Gradients of a row sum
//! over its tokens in the token tree.

use kernels::rope::Positions;
use kernels::rows::{self, Runs};
use kernels::{DType, Device, Tensor, add, embedding};

use crate::config::architecture;
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::{Slot, Slots};
use crate::model::virtual_rows::VirtualRows;

pub(crate) struct Embedding {
    table: Slot,
    /// Slot of the table's gradient by this use of it.
    gradient: Slot,
    /// Factor of the rows: Gemma's is the root of the width.
    scale: f32,
    /// First token id of this rank's rows.
    first: usize,
    positions: Option<Slot>,
    /// Row of the first position in the table.
    first_position: usize,
    segments: Option<Slot>,
    virtual_rows: Option<VirtualRows>,
    norm: Option<Norm>,
    /// Dropout of the rows: probability and tensor number.
    dropout: (f32, u32),
}

/// Dropout tensor number of the embedding.
const DROPOUT: u32 = 0;

/// Kept from forward: the sum before the norm, `[m, d]`, if there is one.
pub(crate) struct Saved(Option<(Tensor, Statistics)>);

impl Embedding {
    pub(crate) fn named(plan: &Plan, tp: usize, tp_rank: usize, slots: &Slots<'_>) -> Embedding {
        let architecture = plan.model.architecture();
        let has_positions = architecture.positions == architecture::Positions::Learned;
        let is_normed = architecture.has_embedding_norm;
        Embedding {
            table: slots.get("embedding.weight"),
            gradient: slots.get("embedding.weight"),
            scale: if architecture.scaled_embedding {
                (plan.model.d_model as f32).sqrt()
            } else {
                1.0
            },
            first: plan.padded_vocab() / tp * tp_rank,
            positions: has_positions.then(|| slots.get("position.weight")),
            first_position: architecture.first_position,
            segments: slots.find("segment.weight"),
            virtual_rows: VirtualRows::named(plan, slots),
            norm: is_normed.then(|| Norm::named("embedding.norm", plan, slots)),
            dropout: match architecture.drops_embedding {
                true => (plan.model.dropout, DROPOUT),
                false => (0.0, DROPOUT),
            },
        }
    }

    /// Another use of the same table, with a gradient and a dropout of its own.
    pub(crate) fn used_again(self, gradient: Slot, dropout: u32) -> Embedding {
        let dropout = (self.dropout.0, dropout);
        Embedding {
            gradient,
            dropout,
            ..self
        }
    }

    /// Slots of the table and of its gradient by this use.
    pub(crate) fn table(&self) -> [Slot; 2] {
        [self.table, self.gradient]
    }

    /// tokens, segments if the model has them: `[n]` -> `[m, d]`
    pub(crate) fn forward(
        &self,
        (tokens, segments): (&Tensor, Option<&Tensor>),
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let x = embedding::forward(cx.weight(self.table), tokens, self.first)?;
        let mut x = cx.sum_to_rows(x)?;
        if cx.groups.tp.size() == 1 {
            rows::shift(x.view_mut(), 0.0)?;
        }
        if self.scale != 1.0 {
            rows::scale(x.view_mut(), self.scale)?;
        }
        if let Some(own) = &self.virtual_rows {
            let here = between_layers(tokens, cx)?;
            add::add_into(&mut x, &own.forward(&here, cx)?)?;
        }
        if let Some(positions) = self.positions {
            let rows = self.position_rows(cx, x.dims()[0], cx.row_time(), tokens.device())?;
            let rows = embedding::forward(cx.weight(positions), &rows, 0)?;
            add::add_into(&mut x, &rows)?;
        }
        if let (Some(table), Some(segments)) = (self.segments, segments) {
            let here = between_layers(segments, cx)?;
            let rows = embedding::forward(cx.weight(table), &here, 0)?;
            add::add_into(&mut x, &rows)?;
        }
        let mut saved = Saved(None);
        if let Some(norm) = &self.norm {
            let (y, statistics) = norm.forward(&x, cx)?;
            saved = Saved(Some((std::mem::replace(&mut x, y), statistics)));
        }
        cx.drop_rows(&mut x, self.dropout.0, self.dropout.1)?;
        Ok((x, saved))
    }

    /// dy: `[m, d]`
    pub(crate) fn backward(
        &self,
        mut dy: Tensor,
        (tokens, segments): (&Tensor, Option<&Tensor>),
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let own = self.virtual_rows.as_ref();
        if !gradients.has(self.gradient) && own.is_none() {
            return Ok(()); // frozen
        }
        cx.drop_rows(&mut dy, self.dropout.0, self.dropout.1)?;
        let dx = match (&self.norm, saved.0) {
            (Some(norm), Some((x, statistics))) => {
                norm.backward(&dy, (&x, &statistics), None, gradients, cx)?
            }
            _ => dy,
        };
        let mut room = None;
        let dx = cx.gather(&dx, &mut room)?;
        if let Some(own) = own {
            // all other weights are frozen
            return own.backward(dx, tokens, gradients, cx);
        }
        if let Some(positions) = self.positions {
            let (n, time) = (tokens.elements(), cx.sequence.time);
            let rows = self.position_rows(cx, n, time, tokens.device())?;
            let [dpositions] = gradients.sums([positions])?;
            embedding::backward(dpositions, dx, &rows, 0, cx.sums.token_leaf)?;
        }
        if let (Some(table), Some(segments)) = (self.segments, segments) {
            let [dsegments] = gradients.sums([table])?;
            embedding::backward(dsegments, dx, segments, 0, cx.sums.token_leaf)?;
        }
        let mut scaled = None;
        let drows = match self.scale {
            1.0 => dx,
            scale => {
                let scaled = scaled.insert(dx.try_clone()?);
                rows::scale(scaled.view_mut(), scale)?;
                scaled
            }
        };
        let [dtable] = gradients.sums([self.gradient])?;
        embedding::backward(dtable, drows, tokens, self.first, cx.sums.token_leaf)
    }

    /// Rows of the table of positions for rows of which each sequence has `time`: all of this rank's, or its share of them.
    fn position_rows(
        &self,
        cx: &Context<'_>,
        n: usize,
        time: usize,
        device: &Device,
    ) -> kernels::Result<Tensor> {
        let mut rows = Tensor::empty(&[n], DType::U32, device)?;
        let before = if time == cx.sequence.time {
            0
        } else {
            cx.row_first() - cx.sequence.first
        };
        let row_of = |position: usize| {
            u32::try_from(self.first_position + position).expect("positions are below seq_length")
        };
        rows.view_mut().renew(|rows: &mut [u32]| {
            for (row, to) in rows.iter_mut().enumerate() {
                let (sequence, at) = (row / time, row % time + before);
                *to = row_of(match cx.positions() {
                    Positions::Run { offset, .. } => offset + at,
                    Positions::Each { of, .. } => of[sequence * cx.sequence.time + at] as usize,
                });
            }
        })?;
        Ok(rows)
    }
}

/// From ids of whole sequences, `[n]`, selects those of the rank's rows between layers, `[m]`.
fn between_layers(ids: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
    let (time, from) = (cx.row_time(), cx.row_first() - cx.sequence.first);
    let sequences = ids.elements() / cx.sequence.time;
    let mut here = Tensor::empty(&[sequences * time], DType::U32, ids.device())?;
    let runs = Runs {
        count: sequences,
        run: time,
        from_stride: cx.sequence.time,
        to_stride: time,
    };
    rows::copy_runs(here.view_mut(), ids.flat(from..ids.elements())?, runs)?;
    Ok(here)
}

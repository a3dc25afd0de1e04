//! Dropout of a layer's rows, features and attention probabilities. Random bits depend on seed, step, sequence, position
//! and feature, so every layout drops the same elements.

use kernels::attention::Dropped;
use kernels::dropout::{self, Dropout};
use kernels::{Heads, Tensor};

use crate::model::context::{Context, Noise};

/// Where in a sequence's rows a tensor begins.
struct Corner {
    position: usize,
    feature: usize,
}

impl Context<'_> {
    /// Dropout, in training, with probability `p` on the rows between layers; `tensor` is the dropout's number in
    /// the model. The same call applies the mask to the gradient's rows.
    pub(crate) fn drop_rows(&self, x: &mut Tensor, p: f32, tensor: u32) -> kernels::Result<()> {
        let from = Corner {
            position: self.row_first(),
            feature: 0,
        };
        self.drop_at(x, (p, tensor), from, self.row_time())
    }

    fn drop_at(
        &self,
        x: &mut Tensor,
        (p, tensor): (f32, u32),
        from: Corner,
        time: usize,
    ) -> kernels::Result<()> {
        let Some(Noise {
            seed,
            step,
            sequence,
        }) = self.noise.filter(|_| p > 0.0)
        else {
            return Ok(());
        };
        let dropout = Dropout {
            p,
            seed,
            step,
            tensor,
        };
        let number = |n| u32::try_from(n).expect("positions and widths are below 2^32");
        let place = dropout::Place {
            sequence,
            position: number(from.position),
            t: time,
            feature: from.feature,
        };
        dropout::forward(x, &dropout, &place)
    }

    /// Dropout of attention's probabilities in training; `heads` are this rank's.
    pub(crate) fn drop_probabilities(&self, p: f32, tensor: u32, heads: &Heads) -> Option<Dropped> {
        let noise = self.noise.filter(|_| p > 0.0)?;
        let first_head = heads.heads * self.groups.tp.rank();
        Some(Dropped {
            dropout: Dropout {
                p,
                seed: noise.seed,
                step: noise.step,
                tensor,
            },
            sequence: noise.sequence,
            first_head: u32::try_from(first_head).expect("the plan's heads are checked"),
        })
    }

    /// Gradient of rows before `drop_rows` and the residual addition; None without dropout.
    pub(crate) fn dropped(
        &self,
        dy: &Tensor,
        p: f32,
        tensor: u32,
    ) -> kernels::Result<Option<Tensor>> {
        if self.noise.is_none() || p == 0.0 {
            return Ok(None);
        }
        let mut dropped = dy.try_clone()?;
        self.drop_rows(&mut dropped, p, tensor)?;
        Ok(Some(dropped))
    }

    /// As `drop_rows`, for `[n, f]` rows whose features are split.
    pub(crate) fn drop_features(&self, x: &mut Tensor, p: f32, tensor: u32) -> kernels::Result<()> {
        let from = Corner {
            position: self.sequence.first,
            feature: self.groups.tp.rank() * x.dims()[1],
        };
        self.drop_at(x, (p, tensor), from, self.sequence.time)
    }

    /// As `drop_rows`, for `[n, d]` rows of which each tensor-parallel rank has all.
    pub(crate) fn drop_whole(&self, x: &mut Tensor, p: f32, tensor: u32) -> kernels::Result<()> {
        let from = Corner {
            position: self.sequence.first,
            feature: 0,
        };
        self.drop_at(x, (p, tensor), from, self.sequence.time)
    }
}

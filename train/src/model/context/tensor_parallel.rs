//! Communication of tensor and sequence parallelism around a layer: the all-reduce of a row-parallel layer's partial sums
//! (Shoeybi et al. 2019, arXiv:1909.08053), and with sequence parallelism the all-gather of rows before a layer with split
//! features and the reduce-scatter after it (Korthikanti et al. 2022, arXiv:2205.05198).

use kernels::comm::Collective;
use kernels::comm::tensors::{self, Part};
use kernels::rows::{self, Runs};
use kernels::{DType, Tensor};

use crate::model::context::Context;

/// Rows of a micro-batch on a rank.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Of its sequences.
    pub n: usize,
    /// Between layers.
    pub m: usize,
}

impl Context<'_> {
    /// All-reduce over tensor-parallel ranks, each of which holds an aligned part of the sum.
    pub(crate) fn sum_over_tp(&self, mut x: Tensor) -> kernels::Result<Tensor> {
        if self.groups.tp.size() > 1 {
            tensors::all_reduce_sum(self.groups.tp, x.view_mut())?;
        }
        Ok(x)
    }

    /// All-gathers the rows that a layer with split features reads: all of this rank's sequences. `room` owns them
    /// if they had to be gathered.
    pub(crate) fn gather<'t>(
        &self,
        x: &'t Tensor,
        room: &'t mut Option<Tensor>,
    ) -> kernels::Result<&'t Tensor> {
        if !self.sequence.is_parallel {
            return Ok(x);
        }
        Ok(room.insert(gather_rows(self.groups.tp, x, self.row_time())?))
    }

    /// From whole rows, which every tensor-parallel rank has, selects the rows that this rank has between layers.
    pub(crate) fn own_rows(&self, x: Tensor) -> kernels::Result<Tensor> {
        if !self.sequence.is_parallel {
            return Ok(x);
        }
        let (size, d) = (self.groups.tp.size(), x.dims()[1]);
        let run = self.row_time() * d;
        let mut own = Tensor::empty(&[x.dims()[0] / size, d], DType::F32, x.device())?;
        let from = x.flat(self.groups.tp.rank() * run..x.elements())?;
        let runs = Runs {
            count: own.elements() / run,
            run,
            from_stride: size * run,
            to_stride: run,
        };
        rows::copy_runs(own.view_mut(), from, runs)?;
        Ok(own)
    }

    /// All-gathers features, of which each tensor-parallel rank has the same number: `[n, d/tp]` -> this rank's rows between
    /// layers, `[m, d]`.
    pub(crate) fn gather_features(&self, x: Tensor) -> kernels::Result<Tensor> {
        let size = self.groups.tp.size();
        if size == 1 {
            return Ok(x);
        }
        let dims = [x.dims()[0], x.dims()[1] * size];
        self.own_rows(gather_rows(self.groups.tp, &x, 1)?.reshape(&dims)?)
    }

    /// This rank's features of all rows: `[m, d]` -> `[n, d/tp]`.
    pub(crate) fn own_features(&self, x: &Tensor) -> kernels::Result<Tensor> {
        let (size, rank) = (self.groups.tp.size(), self.groups.tp.rank());
        let mut room = None;
        let x = self.gather(x, &mut room)?;
        if size == 1 {
            return x.try_clone();
        }
        let (n, d) = (x.dims()[0], x.dims()[1]);
        let run = d / size;
        let mut own = Tensor::empty(&[n, run], DType::F32, x.device())?;
        let runs = Runs {
            count: n,
            run,
            from_stride: d,
            to_stride: run,
        };
        rows::copy_runs(own.view_mut(), x.flat(rank * run..x.elements())?, runs)?;
        Ok(own)
    }

    /// Reduce-scatter over tensor-parallel ranks: this rank keeps the rows that it has between layers.
    pub(crate) fn sum_to_rows(&self, x: Tensor) -> kernels::Result<Tensor> {
        if self.sequence.is_parallel {
            scatter_sum_rows(self.groups.tp, &x, self.row_time())
        } else {
            self.sum_over_tp(x)
        }
    }
}

/// All-gathers sequences of which each rank has `rows` rows, in order of ranks:
/// `[b * rows, d]` -> `[b * rows * size, d]`.
pub(crate) fn gather_rows(
    group: &dyn Collective,
    x: &Tensor,
    rows: usize,
) -> kernels::Result<Tensor> {
    let (size, d) = (group.size(), x.dims()[1]);
    let mut whole = Tensor::empty(&[x.dims()[0] * size, d], DType::F32, x.device())?;
    let run = rows * d;
    let lens = vec![x.elements(); size];
    tensors::all_gather(
        group,
        x.view(),
        &lens,
        &mut [&mut whole],
        |rank, elements| {
            let sequences = elements.start / run..elements.end.div_ceil(run);
            let parts = sequences.map(|sequence| {
                let from =
                    elements.start.max(sequence * run)..elements.end.min((sequence + 1) * run);
                let within = from.start - sequence * run;
                Part {
                    at: (sequence * size + rank) * run + within,
                    target: 0,
                    from,
                }
            });
            parts.collect()
        },
    )?;
    Ok(whole)
}

/// Reduce-scatter: each rank keeps its `rows` rows of every sequence:
/// `[b * rows * size, d]` -> `[b * rows, d]`.
pub(crate) fn scatter_sum_rows(
    group: &dyn Collective,
    x: &Tensor,
    rows: usize,
) -> kernels::Result<Tensor> {
    let (size, d) = (group.size(), x.dims()[1]);
    let run = rows * d;
    let sequences = x.elements() / (run * size);
    let mut by_rank = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let of_rank = sequences * run;
    for rank in 0..size {
        let runs = Runs {
            count: sequences,
            run,
            from_stride: size * run,
            to_stride: run,
        };
        let to = by_rank.flat_mut(rank * of_rank..(rank + 1) * of_rank)?;
        rows::copy_runs(to, x.flat(rank * run..x.elements())?, runs)?;
    }
    let cuts: Vec<usize> = (0..=size).map(|rank| rank * sequences * run).collect();
    let mut sum = Tensor::empty(&[sequences * rows, d], DType::F32, x.device())?;
    tensors::reduce_scatter_sum(group, by_rank.view(), &cuts, sum.view_mut())?;
    Ok(sum)
}

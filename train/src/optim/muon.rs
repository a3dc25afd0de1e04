//! Muon for the blocks' matrices. It orthogonalizes the momentum, which needs the whole matrix: its parts are
//! all-gathered, one rank computes each matrix, and every rank takes its part of the result; the bits do not depend
//! on which rank computed. shards.rs assigns the parts.
//! Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; kernels/ops/muon for the formulas.
//! Scale of an update: 0.2 sqrt(larger side) (Liu et al. 2025, arXiv:2502.16982; torch.optim.Muon's
//! `match_rms_adamw`). We differ: queries, keys and values, and a gate and its values, are one matrix
//! as they are stored.

use kernels::comm::tensors::{self, Part, overlap};
use kernels::{Collective, DType, Device, Tensor, muon};

use crate::config::exact::narrow;
use crate::dist::mesh::Groups;
use crate::model::param::Spec;
use crate::optim::adamw::{Store, within};
use crate::optim::next_step::Update;
use crate::parallel::shards::Piece;
use crate::parallel::zero::LocalShards;

/// A rank's part of the model.
pub(crate) struct Here<'a> {
    pub specs: &'a [Spec],
    pub local_shards: &'a LocalShards,
    pub groups: &'a Groups,
    pub device: &'a Device,
}

/// One matrix of a unit.
struct Matrix {
    spec: usize,
    /// First element of the rank's share among the shares of the unit's matrices.
    first: usize,
    /// Elements of the rank's share.
    local: usize,
    /// Tensor-parallel ranks that have parts of it.
    parts: usize,
}

impl Here<'_> {
    /// Updates momentum and weights of Muon's matrices with flat gradients.
    pub(crate) fn update(
        &self,
        momenta: &mut [Tensor],
        store: &mut Store<'_>,
        gradients: &[Tensor],
        update: Update<'_>,
    ) -> kernels::Result<()> {
        let Update {
            config,
            next,
            factor,
        } = update;
        let local_shards = self.local_shards;
        for (index, local) in local_shards.local.iter().enumerate() {
            let matrices = self.matrices(local.unit);
            if matrices.is_empty() {
                continue;
            }
            let held = local_shards.moments(index);
            let unit = &local_shards.shards.units[local.unit];
            let pieces: Vec<Piece> = unit
                .pieces(held.clone())
                .filter(|piece| self.specs[piece.spec].is_muon)
                .collect();
            let count: usize = pieces.iter().map(|piece| piece.local.len()).sum();
            let mut mine = self.room(count)?;
            let mut start = 0;
            for piece in &pieces {
                let at = within(&held, piece);
                let u = mine.flat_mut(start..start + at.len())?;
                start += at.len();
                let gradient = gradients[index].flat(at.clone())?;
                let momentum = momenta[index].flat_mut(at)?;
                muon::momentum(momentum, u, gradient, factor, config.muon.momentum)?;
            }
            let share = self.over_data(local.unit, &matrices, (mine, count))?;
            let whole = self.orthogonal(index, &matrices, share, config.muon.iterations)?;
            for piece in &pieces {
                let spec = &self.specs[piece.spec];
                let at = matrices.iter().position(|matrix| matrix.spec == piece.spec);
                let matrix = &whole[at.expect("the unit's matrices are all there")];
                let place = &local_shards.place;
                let first = spec.share(place.tp_rank, place.tp).0 * spec.row_elements();
                let direction = matrix.flat(first + piece.local.start..first + piece.local.end)?;
                let side = spec.rows().max(spec.row_elements()) as f64;
                let keep = 1.0 - next.rate * f64::from(config.weight_decay);
                let step = next.rate * 0.2 * side.sqrt();
                let weights = store.piece(local_shards, index, piece)?;
                muon::apply(weights, direction, narrow(keep), narrow(step))?;
            }
        }
        Ok(())
    }

    /// A flat tensor of `count` elements, or one if there are none.
    fn room(&self, count: usize) -> kernels::Result<Tensor> {
        Tensor::empty(&[count.max(1)], DType::F32, self.device)
    }

    fn matrices(&self, unit: usize) -> Vec<Matrix> {
        let (tp, mut first) = (self.local_shards.place.tp, 0);
        let mut matrices = Vec::new();
        for spec in self.local_shards.shards.units[unit].specs.clone() {
            if self.specs[spec].is_muon {
                let local = self.specs[spec].local_dims(tp).iter().product();
                let parts = if self.specs[spec].is_split { tp } else { 1 };
                matrices.push(Matrix {
                    spec,
                    first,
                    local,
                    parts,
                });
                first += local;
            }
        }
        matrices
    }

    /// All-gathers this rank's shares of the unit's matrices from the parts on data-parallel ranks, of which `mine` has
    /// the first elements.
    fn over_data(
        &self,
        unit: usize,
        matrices: &[Matrix],
        (mine, count): (Tensor, usize),
    ) -> kernels::Result<Tensor> {
        let unit = &self.local_shards.shards.units[unit];
        let data = unit.group(self.groups);
        if self.local_shards.shards.zero == 0 || data.size() == 1 {
            return Ok(mine);
        }
        let mut share = self.room(matrices.iter().map(|matrix| matrix.local).sum())?;
        let mine = mine.flat(0..count)?;
        let counted = |piece: &Piece| matrices.iter().any(|matrix| matrix.spec == piece.spec);
        let len_of = |member: usize| {
            let pieces = unit.pieces(unit.shard_of_member(member)).filter(counted);
            pieces.map(|piece| piece.local.len()).sum()
        };
        let lens: Vec<usize> = (0..data.size()).map(len_of).collect();
        tensors::all_gather(data, mine, &lens, &mut [&mut share], |member, elements| {
            let (mut from, mut parts) = (0, Vec::new());
            for piece in unit.pieces(unit.shard_of_member(member)) {
                let Some(matrix) = matrices.iter().find(|matrix| matrix.spec == piece.spec) else {
                    continue;
                };
                let at = matrix.first + piece.local.start;
                let run = from..from + piece.local.len();
                from = run.end;
                parts.extend(overlap(&elements, &run, at, 0));
            }
            parts
        })?;
        Ok(share)
    }

    /// The unit's matrices, whole and orthogonal. The matrices are divided among the ranks that share the unit.
    fn orthogonal(
        &self,
        index: usize,
        matrices: &[Matrix],
        share: Tensor,
        iterations: usize,
    ) -> kernels::Result<Vec<Tensor>> {
        let unit = &self.local_shards.shards.units[self.local_shards.local[index].unit];
        let (tp, data) = (self.groups.tp.as_ref(), unit.group(self.groups));
        let len: usize = matrices.iter().map(|matrix| matrix.local).sum();
        let shares = self.gathered(tp, share, &vec![len; tp.size()])?;
        let workers = tp.size() * data.size();
        // units start with different ranks, to balance the load
        let of_worker = |worker: usize| {
            let all = matrices.iter().enumerate();
            all.filter(move |(number, _)| (number + index) % workers == worker)
        };
        let count_of = |worker: usize| -> usize {
            let all = of_worker(worker).map(|(_, matrix)| matrix.local * matrix.parts);
            all.sum()
        };
        let me = data.rank() * tp.size() + tp.rank();
        let mut made = self.room(count_of(me))?;
        let mut at = 0;
        for (_, matrix) in of_worker(me) {
            let dims = &self.specs[matrix.spec].dims;
            let mut whole = Tensor::empty(dims, DType::F32, self.device)?;
            for part in 0..matrix.parts {
                let from = part * len + matrix.first;
                let to = whole.flat_mut(part * matrix.local..(part + 1) * matrix.local)?;
                kernels::copy(to, shares.flat(from..from + matrix.local)?)?;
            }
            muon::orthogonalize(&mut whole, iterations)?;
            let end = at + whole.elements();
            kernels::copy(made.flat_mut(at..end)?, whole.view())?;
            at = end;
        }
        drop(shares);
        let counts: Vec<usize> = (0..workers).map(count_of).collect();
        let by_data = |data: usize| &counts[data * tp.size()..(data + 1) * tp.size()];
        let made = self.gathered(tp, made, by_data(data.rank()))?;
        let by_data: Vec<usize> = (0..data.size())
            .map(|of| by_data(of).iter().sum())
            .collect();
        let all = self.gathered(data, made, &by_data)?;
        let whole = matrices
            .iter()
            .map(|matrix| self.room(matrix.local * matrix.parts));
        let mut whole = whole.collect::<kernels::Result<Vec<Tensor>>>()?;
        let mut from = 0;
        for worker in 0..workers {
            for (number, _) in of_worker(worker) {
                let to = whole[number].view_mut();
                let end = from + to.len();
                kernels::copy(to, all.flat(from..end)?)?;
                from = end;
            }
        }
        Ok(whole)
    }

    /// All-gathers the first `counts[rank]` elements of every rank, one behind the other.
    fn gathered(
        &self,
        group: &dyn Collective,
        mine: Tensor,
        counts: &[usize],
    ) -> kernels::Result<Tensor> {
        if group.size() == 1 {
            return Ok(mine);
        }
        let mut all = self.room(counts.iter().sum())?;
        let mine = mine.flat(0..counts[group.rank()])?;
        tensors::all_gather(group, mine, counts, &mut [&mut all], |rank, from| {
            let at = counts[..rank].iter().sum::<usize>() + from.start;
            vec![Part {
                from,
                target: 0,
                at,
            }]
        })?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tests/oracles/muon.json: torch.optim.Muon, torch 2.15.0, in f64.
    #[test]
    fn ten_steps_are_torchs() {
        let text = include_str!("../../tests/oracles/muon.json");
        let cases: serde_json::Value = serde_json::from_str(text).unwrap();
        let (lr, decay, momentum) = (0.02f64, 0.1f64, 0.95f32);
        for case in cases.as_array().unwrap() {
            let side = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
            let (rows, cols) = (side("rows"), side("cols"));
            let at = |i: usize| i as f64;
            let device = Device::cpu();
            let flat = |values: Vec<f32>| {
                Tensor::from_f32(&[values.len()], &values, &device).expect("a small tensor")
            };
            let start = (0..rows * cols).map(|i| narrow(0.1 * (0.37 * at(i)).cos()));
            let mut weights = flat(start.collect());
            let mut moment = flat(vec![0.0; rows * cols]);
            for step in 1..=10usize {
                let n = step as f64;
                let slope =
                    (0..rows * cols).map(|i| narrow((0.61 * at(i) * n + n).cos() * 0.01 * n));
                let gradient = flat(slope.collect());
                let mut u = Tensor::empty(&[rows, cols], DType::F32, &device).unwrap();
                let (m, g) = (moment.view_mut(), gradient.view());
                muon::momentum(m, u.view_mut(), g, 1.0, momentum).unwrap();
                muon::orthogonalize(&mut u, 5).unwrap();
                let scale = 0.2 * (rows.max(cols) as f64).sqrt();
                let (keep, step) = (narrow(1.0 - lr * decay), narrow(lr * scale));
                muon::apply(weights.view_mut(), u.view(), keep, step).unwrap();
            }
            let want: Vec<f64> = serde_json::from_value(case["weights"].clone()).unwrap();
            let found = kernels::testing::error(&kernels::testing::values(&weights), &want);
            // errors of a direction grow by up to 3.4445 in each of 5 iterations
            let bound = kernels::tolerance::sum(rows.max(cols)) * 3.4445f64.powi(5);
            assert!(found < bound, "{rows} {cols}: {found} {bound}");
        }
    }
}

//! Muon for the blocks' matrices. It orthogonalizes the momentum, which needs the whole matrix: its parts are
//! all-gathered, one rank computes each matrix, and every rank takes its part of the result; the bits do not depend
//! on which rank computed. shards.rs assigns the parts.
//! Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; kernels/ops/muon for the formulas.
//! Scale of an update: 0.2 sqrt(larger side) (Liu et al. 2025, arXiv:2502.16982; torch.optim.Muon's
//! `match_rms_adamw`). We differ: queries, keys and values, and a gate and its values, are one matrix
//! as they are stored.

use kernels::{Collective, DType, Device, Tensor, muon};

use crate::config::exact::narrow;
use crate::dist::mesh::Groups;
use crate::model::param::Spec;
use crate::optim::adamw::{Store, within};
use crate::optim::next_step::Update;
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
            let mut mine = Vec::new();
            for piece in unit
                .pieces(held.clone())
                .filter(|p| self.specs[p.spec].is_muon)
            {
                let (at, start) = (within(&held, &piece), mine.len());
                mine.resize(start + at.len(), 0.0);
                let gradient = &gradients[index].f32()[at.clone()];
                let momentum = &mut momenta[index].f32_mut()[at];
                let decay = config.muon.momentum;
                muon::momentum(momentum, &mut mine[start..], gradient, factor, decay);
            }
            let share = self.over_data(local.unit, &matrices, mine)?;
            let whole = self.orthogonal(index, &matrices, share, config.muon.iterations)?;
            for piece in unit
                .pieces(held.clone())
                .filter(|p| self.specs[p.spec].is_muon)
            {
                let spec = &self.specs[piece.spec];
                let at = matrices.iter().position(|matrix| matrix.spec == piece.spec);
                let matrix = &whole[at.expect("the unit's matrices are all there")];
                let place = &local_shards.place;
                let first = spec.share(place.tp_rank, place.tp).0 * spec.row_elements();
                let direction = &matrix[first + piece.local.start..first + piece.local.end];
                let side = spec.rows().max(spec.row_elements()) as f64;
                let keep = 1.0 - next.rate * f64::from(config.weight_decay);
                let step = next.rate * 0.2 * side.sqrt();
                let weights = store.piece(local_shards, index, &piece);
                muon::apply(weights, direction, narrow(keep), narrow(step));
            }
        }
        Ok(())
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

    /// All-gathers this rank's shares of the unit's matrices from the parts on data-parallel ranks.
    fn over_data(
        &self,
        unit: usize,
        matrices: &[Matrix],
        mine: Vec<f32>,
    ) -> kernels::Result<Vec<f32>> {
        let unit = &self.local_shards.shards.units[unit];
        let data = unit.group(self.groups);
        if self.local_shards.shards.zero == 0 || data.size() == 1 {
            return Ok(mine);
        }
        let mut share = vec![0.0; matrices.iter().map(|matrix| matrix.local).sum()];
        for (member, part) in data.all_gather(&mine)?.iter().enumerate() {
            let mut from = 0;
            for piece in unit.pieces(unit.shard_of_member(member)) {
                let Some(matrix) = matrices.iter().find(|matrix| matrix.spec == piece.spec) else {
                    continue;
                };
                let (to, count) = (matrix.first + piece.local.start, piece.local.len());
                share[to..to + count].copy_from_slice(&part[from..from + count]);
                from += count;
            }
        }
        Ok(share)
    }

    /// The unit's matrices, whole and orthogonal. The matrices are divided among the ranks that share the unit.
    fn orthogonal(
        &self,
        index: usize,
        matrices: &[Matrix],
        share: Vec<f32>,
        iterations: usize,
    ) -> kernels::Result<Vec<Vec<f32>>> {
        let unit = &self.local_shards.shards.units[self.local_shards.local[index].unit];
        let (tp, data) = (self.groups.tp.as_ref(), unit.group(self.groups));
        let shares = gather(tp, share)?;
        let workers = tp.size() * data.size();
        // units start with different ranks, to balance the load
        let worker_of = |matrix: usize| (matrix + index) % workers;
        let me = data.rank() * tp.size() + tp.rank();
        let mut made = Vec::new();
        for (number, matrix) in matrices.iter().enumerate() {
            if worker_of(number) == me {
                let mut x = Vec::with_capacity(matrix.local * matrix.parts);
                for share in &shares[..matrix.parts] {
                    x.extend_from_slice(&share[matrix.first..matrix.first + matrix.local]);
                }
                let dims = &self.specs[matrix.spec].dims;
                let mut whole = Tensor::empty(dims, DType::F32, self.device)?;
                whole.f32_mut().copy_from_slice(&x);
                muon::orthogonalize(&mut whole, iterations)?;
                made.extend_from_slice(whole.f32());
            }
        }
        let all = gather(data, gather(tp, made)?.concat())?.concat();
        let mut whole = vec![Vec::new(); matrices.len()];
        let mut from = 0;
        for worker in 0..workers {
            for (number, matrix) in matrices.iter().enumerate() {
                if worker_of(number) == worker {
                    let count = matrix.local * matrix.parts;
                    whole[number] = all[from..from + count].to_vec();
                    from += count;
                }
            }
        }
        Ok(whole)
    }
}

/// All-gathers every rank's numbers, by rank.
fn gather(group: &dyn Collective, mine: Vec<f32>) -> kernels::Result<Vec<Vec<f32>>> {
    if group.size() == 1 {
        return Ok(vec![mine]);
    }
    group.all_gather(&mine)
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
            let mut weights: Vec<f32> = (0..rows * cols)
                .map(|i| narrow(0.1 * (0.37 * at(i)).cos()))
                .collect();
            let mut moment = vec![0.0; weights.len()];
            for step in 1..=10usize {
                let n = step as f64;
                let gradient: Vec<f32> = (0..weights.len())
                    .map(|i| narrow((0.61 * at(i) * n + n).cos() * 0.01 * n))
                    .collect();
                let device = Device::cpu();
                let mut u = Tensor::empty(&[rows, cols], DType::F32, &device).unwrap();
                muon::momentum(&mut moment, u.f32_mut(), &gradient, 1.0, momentum);
                muon::orthogonalize(&mut u, 5).unwrap();
                let scale = 0.2 * (rows.max(cols) as f64).sqrt();
                let (keep, step) = (narrow(1.0 - lr * decay), narrow(lr * scale));
                muon::apply(&mut weights, u.f32(), keep, step);
            }
            let want: Vec<f64> = serde_json::from_value(case["weights"].clone()).unwrap();
            let found = kernels::testing::error(&weights, &want);
            // errors of a direction grow by up to 3.4445 in each of 5 iterations
            let bound = kernels::tolerance::sum(rows.max(cols)) * 3.4445f64.powi(5);
            assert!(found < bound, "{rows} {cols}: {found} {bound}");
        }
    }
}

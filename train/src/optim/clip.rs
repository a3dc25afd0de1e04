//! L2 norm of the whole gradient, and the factor that bounds it.
//! factor = clip / (norm + 1e-6) if below 1 (Megatron, torch.nn.utils.clip_grad_norm_).
//!
//! The sum of squares is an f64 per tensor and chunk of its rows; every rank gathers all of them
//! and adds them in the order of the tensor list. Split tensors are cut in FEATURE_CHUNKS chunks
//! (in layout mode), so that a rank owns whole chunks; a replicated tensor is one chunk of its
//! stage's first rank.

use kernels::{Tensor, reduce};

use crate::mesh::{Groups, Place};
use crate::model::param::Spec;
use crate::plan::FEATURE_CHUNKS;

/// Chunks a tensor's sum is cut into.
fn chunks(spec: &Spec, tp: usize, is_exact: bool) -> usize {
    match (spec.is_split, is_exact) {
        (false, _) => 1,
        (true, true) => FEATURE_CHUNKS,
        (true, false) => tp,
    }
}

/// L2 norm over all tensors of the model; the same bits on every rank. `gradients` are those of the
/// specs on this rank's stage, in order.
pub(crate) fn global_norm(
    specs: &[Spec],
    gradients: &[Tensor],
    groups: &Groups,
    is_exact: bool,
) -> kernels::Result<f64> {
    let place = groups.place;
    let mut sums = Vec::new();
    let mut owners = Vec::new();
    let mut local = gradients.iter();
    for spec in specs {
        let count = chunks(spec, place.tp, is_exact);
        let gradient = if spec.is_on(place.pp_rank) {
            local.next()
        } else {
            None
        };
        let at = sums.len();
        sums.resize(at + count, 0.0);
        owners.extend((0..count).map(|chunk| owner(spec, chunk, count, &place)));
        if let Some(gradient) = gradient {
            let mine = if spec.is_split { count / place.tp } else { 1 };
            let first = at
                + if spec.is_split {
                    place.tp_rank * mine
                } else {
                    0
                };
            let values = gradient.f32();
            let size = values.len() / mine;
            for (sum, chunk) in sums[first..first + mine]
                .iter_mut()
                .zip(values.chunks(size))
            {
                *sum = reduce::sum_squares(chunk);
            }
        }
    }
    let all = groups.world.all_gather_f64(&sums)?;
    let total: f64 = owners
        .iter()
        .enumerate()
        .map(|(chunk, &rank)| all[rank][chunk])
        .sum();
    Ok(total.sqrt())
}

/// World rank whose number counts for a chunk.
fn owner(spec: &Spec, chunk: usize, count: usize, place: &Place) -> usize {
    let tp_rank = if spec.is_split {
        chunk * place.tp / count
    } else {
        0
    };
    place.rank_of(tp_rank, 0, spec.stage)
}

/// What gradients are multiplied with; 1 if `clip` is 0 or the norm is within.
pub(crate) fn factor(norm: f64, clip: f64) -> f32 {
    let factor = clip / (norm + 1e-6);
    if clip > 0.0 && factor < 1.0 {
        narrow(factor)
    } else {
        1.0
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, where weights live"
)]
fn narrow(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_bounds_the_norm_and_never_amplifies() {
        assert_eq!(factor(0.5, 1.0), 1.0);
        assert_eq!(factor(100.0, 0.0), 1.0);
        assert!((f64::from(factor(4.0, 1.0)) * 4.0 - 1.0).abs() < 1e-6);
    }
}

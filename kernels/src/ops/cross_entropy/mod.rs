//! Cross entropy over a shard of the vocabulary: loss = ln(sum_v e^(x_v - max)) + max - x_target.
//!
//! A shard's logits `[n, rows]` hold ids first .. first + rows; ids from `vocab` up are padding and count
//! as -inf. Ranks take the largest row_max, gather the slice sums of row_sums, and every rank adds the
//! slices in the same tree (`reduce::tree_sum_slices`), so the bits do not depend on the sharding.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns the largest logit of each row: `[n]`; -inf where the shard is all padding.
/// # Shapes
/// logits: `[.., rows]` with leading dims flattened to n.
/// # Errors
/// `Shape` or `DType` if logits is empty or not f32.
pub fn row_max(logits: &Tensor, first: usize, vocab: usize) -> Result<Tensor> {
    let (n, _) = logits.expect_rows("cross_entropy::row_max", "logits")?;
    let mut max = Tensor::empty(&[n], DType::F32, logits.device())?;
    dispatch!(logits.device(), row_max(&mut max, logits, first, vocab));
    Ok(max)
}

/// Returns the sums of e^(x - max) per slice of `slice` vocabulary rows, `[slices, n]`, and the target's
/// logit, `[n]`, 0.0 where the target is not in this shard.
/// # Shapes
/// logits: `[.., rows]`, max: `[n]`, targets: n u32; slice divides rows.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn row_sums(
    logits: &Tensor,
    max: &Tensor,
    targets: &Tensor,
    first: usize,
    vocab: usize,
    slice: usize,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "cross_entropy::row_sums";
    let (n, rows) = logits.expect_rows(OP, "logits")?;
    max.expect_f32(OP, "max", &[n])?;
    targets.expect_ids(OP, "targets", n)?;
    check_slice(OP, slice, rows)?;
    let mut sums = Tensor::empty(&[rows / slice, n], DType::F32, logits.device())?;
    let mut target = Tensor::empty(&[n], DType::F32, logits.device())?;
    let outs = (&mut sums, &mut target);
    dispatch!(
        logits.device(),
        row_sums(outs, logits, (max, targets), (first, vocab), slice)
    )?;
    Ok((sums, target))
}

/// Returns what `row_max` and `row_sums` do for logits of the whole vocabulary: max `[n]`, sums `[slices, n]` and the
/// target's logit `[n]`; each row is read once.
/// # Shapes
/// logits: `[.., rows]` with leading dims flattened to n, targets: n u32; slice divides rows.
/// # Errors
/// As `row_sums`.
pub fn statistics(
    logits: &Tensor,
    targets: &Tensor,
    vocab: usize,
    slice: usize,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "cross_entropy::statistics";
    let (n, rows) = logits.expect_rows(OP, "logits")?;
    targets.expect_ids(OP, "targets", n)?;
    check_slice(OP, slice, rows)?;
    let empty = |dims: &[usize]| Tensor::empty(dims, DType::F32, logits.device());
    let (mut max, mut sums, mut target) = (empty(&[n])?, empty(&[rows / slice, n])?, empty(&[n])?);
    let outs = (&mut max, &mut sums, &mut target);
    dispatch!(
        logits.device(),
        statistics(outs, logits, targets, vocab, slice)
    )?;
    Ok((max, sums, target))
}

fn check_slice(op: &'static str, slice: usize, rows: usize) -> Result<()> {
    if slice > 0 && rows.is_multiple_of(slice) {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        name: "slice",
        found: slice.to_string(),
        wanted: format!("a divisor of the shard's {rows} rows"),
    })
}

/// Replaces logits by their gradients: e^(x - max) (weight / sum); (e^(x - max) / sum - 1) weight if the id is the
/// target; 0 for padding.
/// With a second weight `pull`, e^(x - max) / sum * pull more: the gradient of a function of the row's
/// ln sum_v e^x_v whose slope is `pull` (z-loss).
/// # Shapes
/// logits: `[.., rows]`, max, sum, both weights: `[n]`, targets: n u32.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    logits: &mut Tensor,
    max: &Tensor,
    sum: &Tensor,
    targets: &Tensor,
    (weights, pull): (&Tensor, Option<&Tensor>),
    first: usize,
    vocab: usize,
) -> Result<()> {
    const OP: &str = "cross_entropy::backward";
    let (n, _) = logits.expect_rows(OP, "logits")?;
    max.expect_f32(OP, "max", &[n])?;
    sum.expect_f32(OP, "sum", &[n])?;
    weights.expect_f32(OP, "weights", &[n])?;
    if let Some(pull) = pull {
        pull.expect_f32(OP, "pull", &[n])?;
    }
    targets.expect_ids(OP, "targets", n)?;
    let device = logits.device().clone();
    dispatch!(
        device,
        backward(logits, (max, sum), (targets, weights, pull), (first, vocab))
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::tree_sum_slices;
    use crate::testing::{assert_same_bits, bits, differences, error, random, wide};
    use crate::{Device, tolerance};

    const VOCAB: usize = 37;
    const ROWS: usize = 48;

    fn inputs(device: &Device) -> (Tensor, Tensor, Tensor) {
        let logits = random(&[6, ROWS], 1, device).unwrap();
        let targets = Tensor::from_u32(&[6], &[0, 36, 5, 11, 12, 30], device).unwrap();
        let weights = Tensor::from_f32(&[6], &[0.2, 0.2, 0.0, 0.1, 0.3, 0.2], device).unwrap();
        (logits, targets, weights)
    }

    fn losses(x: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
        let one = |(x, t): (&[f64], &u32)| {
            x[..vocab].iter().map(|x| x.exp()).sum::<f64>().ln() - x[*t as usize]
        };
        x.chunks(ROWS).zip(targets).map(one).collect()
    }

    #[test]
    fn loss_matches_f64_and_ignores_padding() {
        let (logits, targets, _) = inputs(&Device::cpu());
        let max = row_max(&logits, 0, VOCAB).unwrap();
        let (sums, target) = row_sums(&logits, &max, &targets, 0, VOCAB, 6).unwrap();
        let sum = tree_sum_slices(&sums).unwrap();
        let loss: Vec<f32> = (0..6)
            .map(|r| sum.f32()[r].ln() + max.f32()[r] - target.f32()[r])
            .collect();
        let bound = tolerance::sum(VOCAB) + tolerance::elementwise(4);
        let x = wide(logits.f32());
        assert!(error(&loss, &losses(&x, targets.u32(), VOCAB)) < bound);
        assert!(
            error(&loss, &losses(&x, targets.u32(), VOCAB + 1)) > bound,
            "padding counts"
        );
    }

    #[test]
    fn backward_matches_finite_differences_with_zero_padding() {
        let (mut logits, targets, weights) = inputs(&Device::cpu());
        let max = row_max(&logits, 0, VOCAB).unwrap();
        let (sums, _) = row_sums(&logits, &max, &targets, 0, VOCAB, ROWS).unwrap();
        let sum = tree_sum_slices(&sums).unwrap();
        let x = wide(logits.f32());
        backward(
            &mut logits,
            &max,
            &sum,
            &targets,
            (&weights, None),
            0,
            VOCAB,
        )
        .unwrap();
        let want = differences(&x, 1e-5, |x| {
            let losses = losses(x, targets.u32(), VOCAB);
            losses
                .iter()
                .zip(weights.f32())
                .map(|(l, w)| l * f64::from(*w))
                .sum()
        });
        let bound = tolerance::sum(VOCAB) + tolerance::central_difference(1e-5);
        assert!(error(logits.f32(), &want) < bound);
        for row in logits.f32().chunks(ROWS) {
            assert_eq!(bits(&row[VOCAB..]), bits(&[0.0; ROWS - VOCAB]));
        }
    }

    #[test]
    fn a_pull_adds_the_gradient_of_the_squared_log_of_the_sum() {
        const C: f64 = 0.3;
        let (mut logits, targets, weights) = inputs(&Device::cpu());
        let max = row_max(&logits, 0, VOCAB).unwrap();
        let (sums, _) = row_sums(&logits, &max, &targets, 0, VOCAB, ROWS).unwrap();
        let sum = tree_sum_slices(&sums).unwrap();
        let mut pull = weights.try_clone().unwrap();
        for (r, pull) in pull.f32_mut().iter_mut().enumerate() {
            let log = f64::from(max.f32()[r]) + f64::from(sum.f32()[r]).ln();
            #[expect(clippy::cast_possible_truncation, reason = "test data")]
            let slope = (2.0 * C * log) as f32;
            *pull *= slope;
        }
        let x = wide(logits.f32());
        let both = (&weights, Some(&pull));
        backward(&mut logits, &max, &sum, &targets, both, 0, VOCAB).unwrap();
        let logs = |x: &[f64]| -> Vec<f64> {
            let log = |x: &[f64]| x[..VOCAB].iter().map(|x| x.exp()).sum::<f64>().ln();
            x.chunks(ROWS).map(log).collect()
        };
        let want = differences(&x, 1e-5, |x| {
            let all = losses(x, targets.u32(), VOCAB).into_iter().zip(logs(x));
            all.zip(weights.f32())
                .map(|((loss, log), w)| (loss + C * log * log) * f64::from(*w))
                .sum()
        });
        let bound = tolerance::sum(VOCAB) + tolerance::central_difference(1e-5);
        assert!(error(logits.f32(), &want) < bound);
    }

    /// Shards of 1, 2 and 4 ranks; the last ones are partly or wholly padding.
    #[test]
    fn vocabulary_shards_have_the_bits_of_one_rank() {
        let device = Device::cpu();
        let (logits, targets, weights) = inputs(&device);
        let run = |ranks: usize| {
            let rows = ROWS / ranks;
            let shards: Vec<Tensor> = (0..ranks)
                .map(|rank| {
                    let part = |x: &[f32]| x[rank * rows..(rank + 1) * rows].to_vec();
                    let part: Vec<f32> = logits.f32().chunks(ROWS).flat_map(part).collect();
                    Tensor::from_f32(&[6, rows], &part, &device).unwrap()
                })
                .collect();
            let mut max = row_max(&shards[0], 0, VOCAB).unwrap();
            for (rank, shard) in shards.iter().enumerate() {
                let other = row_max(shard, rank * rows, VOCAB).unwrap();
                for (m, o) in max.f32_mut().iter_mut().zip(other.f32()) {
                    *m = m.max(*o);
                }
            }
            let (mut slices, mut target) = (Vec::new(), vec![0.0; 6]);
            for (rank, shard) in shards.iter().enumerate() {
                let (sums, here) = row_sums(shard, &max, &targets, rank * rows, VOCAB, 6).unwrap();
                slices.extend_from_slice(sums.f32());
                target.iter_mut().zip(here.f32()).for_each(|(t, h)| *t += h);
            }
            let sums = Tensor::from_f32(&[8, 6], &slices, &device).unwrap();
            let sum = tree_sum_slices(&sums).unwrap();
            let mut grads = vec![Vec::new(); 6];
            for (rank, mut shard) in shards.into_iter().enumerate() {
                let first = rank * rows;
                backward(
                    &mut shard,
                    &max,
                    &sum,
                    &targets,
                    (&weights, None),
                    first,
                    VOCAB,
                )
                .unwrap();
                for (all, part) in grads.iter_mut().zip(shard.f32().chunks(rows)) {
                    all.extend_from_slice(part);
                }
            }
            (
                bits(max.f32()),
                bits(sum.f32()),
                bits(&target),
                bits(&grads.concat()),
            )
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(4));
    }

    #[test]
    fn a_row_alone_has_the_bits_of_the_batch_on_every_instruction_set() {
        assert_same_bits(|device| {
            let (logits, targets, weights) = inputs(device);
            let max = row_max(&logits, 0, VOCAB).unwrap();
            let (sums, target) = row_sums(&logits, &max, &targets, 0, VOCAB, 24).unwrap();
            let (same_max, same_sums, same_target) =
                statistics(&logits, &targets, VOCAB, 24).unwrap();
            for (x, y) in [
                (&max, &same_max),
                (&sums, &same_sums),
                (&target, &same_target),
            ] {
                assert_eq!(bits(x.f32()), bits(y.f32()));
            }
            let sum = tree_sum_slices(&sums).unwrap();
            let mut grads = logits.try_clone().unwrap();
            backward(&mut grads, &max, &sum, &targets, (&weights, None), 0, VOCAB).unwrap();
            let row = Tensor::from_f32(&[1, ROWS], &logits.f32()[..ROWS], device).unwrap();
            let first = Tensor::from_f32(&[1], &max.f32()[..1], device).unwrap();
            let one = Tensor::from_u32(&[1], &[0], device).unwrap();
            let (alone, _) = row_sums(&row, &first, &one, 0, VOCAB, 24).unwrap();
            assert_eq!(alone.f32()[0].to_bits(), sums.f32()[0].to_bits());
            assert_eq!(alone.f32()[1].to_bits(), sums.f32()[6].to_bits());
            vec![max, sums, target, sum, grads]
        });
    }

    #[test]
    fn a_slice_that_does_not_divide_is_an_error() {
        let (logits, targets, _) = inputs(&Device::cpu());
        let max = row_max(&logits, 0, VOCAB).unwrap();
        for slice in [0, 5] {
            let found = row_sums(&logits, &max, &targets, 0, VOCAB, slice);
            assert!(matches!(found, Err(Error::Argument { name: "slice", .. })));
            let found = statistics(&logits, &targets, VOCAB, slice);
            assert!(matches!(found, Err(Error::Argument { name: "slice", .. })));
        }
    }
}

//! Cross entropy over a shard of the vocabulary: loss = ln(sum_v e^(x_v - max)) + max - x_target.
//!
//! A shard's logits `[n, rows]` hold ids first .. first + rows; ids from `vocab` up are padding and count as -inf.
//! Online softmax: `statistics` returns for each slice of ids its largest logit m_s and z_s = sum_v e^(x_v - m_s),
//! so that slices can be computed one after the other and dropped; max is the largest m_s, and the row's sum is
//! that of z_s e^(m_s - max) over slices, always in the same tree. The bits depend on the slices, not on which rank
//! has them: ranks merge their own ones relative to the largest maximum of all ranks, and then their sums.
//!
//! Logits may be capped before: cap tanh(x / cap) (Gemma 2, arXiv:2408.00118, sec. 2). Backward then goes through the cap, whose
//! derivative is 1 - (capped / cap)^2.

mod cpu;
pub(super) mod cuda;
mod shard;

use crate::{DType, Error, Result, Tensor, reduce};
use shard::{Found, LossRows, Rows, Shard};

pub use shard::Slopes;

/// Returns for each slice of `slice` vocabulary rows its largest logit and the sum of e^(x - largest), both
/// `[slices, n]` (-inf and 0.0 where a slice is all padding), and the target's logit, `[n]`, 0.0 where the target is not
/// in this shard.
/// # Shapes
/// logits: `[.., rows]` with leading dims flattened to n, targets: n u32; slice divides rows.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn statistics(
    logits: &Tensor,
    targets: &Tensor,
    first: usize,
    vocab: usize,
    slice: usize,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "cross_entropy::statistics";
    let (n, rows) = logits.expect_rows(OP, "logits")?;
    targets.expect_ids(OP, "targets", n)?;
    check_slice(OP, slice, rows)?;
    let empty = |dims: &[usize]| Tensor::empty(dims, DType::F32, logits.device());
    let by_slice = [rows / slice, n];
    let (mut maxima, mut sums, mut target) = (empty(&by_slice)?, empty(&by_slice)?, empty(&[n])?);
    let shard = Shard { first, vocab };
    let found = Found {
        maxima: &mut maxima,
        sums: &mut sums,
        target: &mut target,
    };
    try_dispatch!(
        logits.device(),
        statistics(found, logits, targets, shard, slice)
    );
    Ok((maxima, sums, target))
}

/// Replaces logits by cap tanh(logit / cap), in place.
/// # Errors
/// `DType` if logits are not f32; `Argument` if cap is not a finite number above 0.
pub fn cap(logits: &mut Tensor, cap: f32) -> Result<()> {
    const OP: &str = "cross_entropy::cap";
    logits.expect(OP, "logits", DType::F32)?;
    if !(cap.is_finite() && cap > 0.0) {
        return Err(Error::Argument {
            op: OP,
            name: "cap",
            found: cap.to_string(),
            wanted: "a finite number above 0".to_owned(),
        });
    }
    let device = logits.device().clone();
    dispatch!(device, cap(logits, cap));
    Ok(())
}

/// Returns the largest of the slices of each row.
/// # Shapes
/// maxima: `[slices, n]` -> `[n]`.
/// # Errors
/// `Shape` or `DType` if maxima is empty or not f32.
pub fn merge_maxima(maxima: &Tensor) -> Result<Tensor> {
    let (_, n) = maxima.expect_rows("cross_entropy::merge_maxima", "maxima")?;
    let mut max = Tensor::empty(&[n], DType::F32, maxima.device())?;
    dispatch!(maxima.device(), merge_maxima(&mut max, maxima));
    Ok(max)
}

/// Returns the sums of e^(x - max) of these slices, whose sums are relative to their own maxima.
/// # Shapes
/// sums, maxima: `[slices, n]`, max: `[n]`, no less than any of maxima -> `[n]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn merge_sums(mut sums: Tensor, maxima: &Tensor, max: &Tensor) -> Result<Tensor> {
    const OP: &str = "cross_entropy::merge_sums";
    let (_, n) = sums.expect_rows(OP, "sums")?;
    maxima.expect_like(OP, "maxima", &sums)?;
    max.expect_f32(OP, "max", &[n])?;
    dispatch!(max.device(), rescale(&mut sums, maxima, max));
    reduce::tree_sum_slices(&sums)
}

/// Returns the sums, over each run of `run` rows in order, of the row's loss ln(sum) + max - target and of the square of
/// its ln sum e^x, each times the row's `counts`, in f64; rows whose `counts` is 0 add 0.
/// # Shapes
/// max, sum, target, counts: `[n]` -> `[n / run, 4]` u32, two f64 of two words each (`reduce::numbers`); run divides n.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory`.
pub fn losses(
    max: &Tensor,
    sum: &Tensor,
    target: &Tensor,
    counts: Option<&Tensor>,
    run: usize,
) -> Result<Tensor> {
    const OP: &str = "cross_entropy::losses";
    let n = max.elements();
    max.expect_f32(OP, "max", &[n])?;
    sum.expect_f32(OP, "sum", &[n])?;
    target.expect_f32(OP, "target", &[n])?;
    if let Some(counts) = counts {
        counts.expect_f32(OP, "counts", &[n])?;
    }
    if run == 0 || !n.is_multiple_of(run) {
        return Err(Error::Argument {
            op: OP,
            name: "run",
            found: run.to_string(),
            wanted: format!("a divisor of {n} rows"),
        });
    }
    let mut out = Tensor::empty(&[n / run, 4], DType::U32, max.device())?;
    let rows = LossRows {
        max,
        sum,
        target,
        counts,
    };
    dispatch!(max.device(), losses(&mut out, rows, run));
    Ok(out)
}

/// Returns `factor` ln sum e^x times each row's weight, in f64 and rounded once: the second weight of `backward` for a
/// z-loss.
/// # Shapes
/// max, sum, weights: `[n]` -> `[n]`.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn pull(max: &Tensor, sum: &Tensor, weights: &Tensor, factor: f64) -> Result<Tensor> {
    const OP: &str = "cross_entropy::pull";
    let n = max.elements();
    max.expect_f32(OP, "max", &[n])?;
    sum.expect_f32(OP, "sum", &[n])?;
    weights.expect_f32(OP, "weights", &[n])?;
    let mut out = Tensor::empty(&[n], DType::F32, max.device())?;
    dispatch!(max.device(), pull(&mut out, [max, sum, weights], factor));
    Ok(out)
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
/// ln sum_v e^x_v whose slope is `pull` (z-loss). With a cap, gradients are of the logits before it.
/// # Shapes
/// logits: `[.., rows]`, max, sum, both weights: `[n]`, targets: n u32.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    logits: &mut Tensor,
    max: &Tensor,
    sum: &Tensor,
    targets: &Tensor,
    slopes: Slopes<'_>,
    first: usize,
    vocab: usize,
) -> Result<()> {
    let Slopes { weights, pull, cap } = slopes;
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
    let shard = Shard { first, vocab };
    let rows = Rows {
        max,
        sum,
        targets,
        weights,
        pull,
        cap,
    };
    dispatch!(device, backward(logits, rows, shard));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_same_bits, bits, differences, error, extreme, random, values, wide,
    };
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

    /// Largest logit, sum and target's logit of each row.
    fn merged(logits: &Tensor, targets: &Tensor, slice: usize) -> [Tensor; 3] {
        let (maxima, sums, target) = statistics(logits, targets, 0, VOCAB, slice).unwrap();
        let max = merge_maxima(&maxima).unwrap();
        let sum = merge_sums(sums, &maxima, &max).unwrap();
        [max, sum, target]
    }

    #[test]
    fn loss_matches_f64_and_ignores_padding() {
        let (logits, targets, _) = inputs(&Device::cpu());
        let [max, sum, target] = merged(&logits, &targets, 6);
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
        let [max, sum, _] = merged(&logits, &targets, ROWS);
        let x = wide(logits.f32());
        backward(
            &mut logits,
            &max,
            &sum,
            &targets,
            Slopes::of_loss(&weights),
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
        let [max, sum, _] = merged(&logits, &targets, ROWS);
        let mut pull = weights.try_clone().unwrap();
        for (r, pull) in pull.f32_mut().iter_mut().enumerate() {
            let log = f64::from(max.f32()[r]) + f64::from(sum.f32()[r]).ln();
            #[expect(clippy::cast_possible_truncation, reason = "test data")]
            let slope = (2.0 * C * log) as f32;
            *pull *= slope;
        }
        let x = wide(logits.f32());
        let both = Slopes {
            pull: Some(&pull),
            ..Slopes::of_loss(&weights)
        };
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

    #[test]
    fn backward_goes_through_the_cap() {
        const CAP: f32 = 0.8;
        let (mut logits, targets, weights) = inputs(&Device::cpu());
        let x = wide(logits.f32());
        cap(&mut logits, CAP).unwrap();
        let capped = |x: &[f64]| -> Vec<f64> {
            let cap = f64::from(CAP);
            x.iter().map(|x| cap * (x / cap).tanh()).collect()
        };
        assert!(error(logits.f32(), &capped(&x)) < tolerance::elementwise(8));
        // Must fail: without the cap.
        assert!(error(logits.f32(), &x) > tolerance::elementwise(8));
        let [max, sum, _] = merged(&logits, &targets, ROWS);
        let both = Slopes {
            weights: &weights,
            pull: None,
            cap: CAP,
        };
        backward(&mut logits, &max, &sum, &targets, both, 0, VOCAB).unwrap();
        let want = differences(&x, 1e-5, |x| {
            let all = losses(&capped(x), targets.u32(), VOCAB).into_iter();
            all.zip(weights.f32()).map(|(l, w)| l * f64::from(*w)).sum()
        });
        let bound = tolerance::sum(VOCAB) + tolerance::central_difference(1e-5);
        assert!(error(logits.f32(), &want) < bound);
    }

    #[test]
    fn a_cap_of_nothing_is_refused() {
        let (mut logits, ..) = inputs(&Device::cpu());
        for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let found = cap(&mut logits, bad);
            assert!(matches!(found, Err(Error::Argument { name: "cap", .. })));
        }
    }

    /// Shards of 1, 2, 4 and 8 ranks, or slices one after the other; the last ones are partly or wholly padding.
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
            let (mut maxima, mut sums, mut target) = (Vec::new(), Vec::new(), vec![0.0; 6]);
            for (rank, shard) in shards.iter().enumerate() {
                let of = statistics(shard, &targets, rank * rows, VOCAB, 6).unwrap();
                maxima.extend_from_slice(of.0.f32());
                sums.extend_from_slice(of.1.f32());
                target.iter_mut().zip(of.2.f32()).for_each(|(t, h)| *t += h);
            }
            let maxima = Tensor::from_f32(&[8, 6], &maxima, &device).unwrap();
            let sums = Tensor::from_f32(&[8, 6], &sums, &device).unwrap();
            let max = merge_maxima(&maxima).unwrap();
            let sum = merge_sums(sums, &maxima, &max).unwrap();
            let mut grads = vec![Vec::new(); 6];
            for (rank, mut shard) in shards.into_iter().enumerate() {
                let first = rank * rows;
                backward(
                    &mut shard,
                    &max,
                    &sum,
                    &targets,
                    Slopes::of_loss(&weights),
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
        let one = run(1);
        let [max, sum, _] = merged(&logits, &targets, 6);
        assert_eq!(one.0, bits(max.f32()));
        assert_eq!(one.1, bits(sum.f32()));
        for ranks in [2, 4, 8] {
            assert_eq!(run(ranks), one, "{ranks}");
        }
    }

    #[test]
    fn losses_and_pulls_have_the_bits_of_the_definition() {
        for device in crate::testing::all_devices() {
            let n = 90;
            let of = |seed| random(&[n], seed, &device).unwrap();
            let (max, target, weights) = (of(1), of(2), of(3));
            let sums: Vec<f32> = values(&of(4)).iter().map(|x| 1.0 + x.abs()).collect();
            let sum = Tensor::from_f32(&[n], &sums, &device).unwrap();
            let share = |i: usize| [0.0, 1.0, 1.0 / 3.0, 1.0, 0.2][i % 5];
            let counts: Vec<f32> = (0..n).map(share).collect();
            let counts = Tensor::from_f32(&[n], &counts, &device).unwrap();
            let [m, s, t, c, w] = [&max, &sum, &target, &counts, &weights].map(values);
            let log = |i: usize| f64::from(m[i]) + f64::from(s[i]).ln();
            // shorter than a warp, longer than one, and all
            for run in [1, 9, 45, 90] {
                let found = super::losses(&max, &sum, &target, Some(&counts), run).unwrap();
                let found = reduce::numbers(&found.download::<u32>().unwrap());
                let mut want = Vec::new();
                for first in (0..n).step_by(run) {
                    let mut both = [0.0, 0.0];
                    for i in (first..first + run).filter(|&i| c[i] > 0.0) {
                        both[0] += f64::from(c[i]) * (log(i) - f64::from(t[i]));
                        both[1] += f64::from(c[i]) * (log(i) * log(i));
                    }
                    want.extend(both);
                }
                assert_eq!(found, want, "{device:?} {run}");
            }
            let found = values(&pull(&max, &sum, &weights, 0.3).unwrap());
            #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
            let want: Vec<f32> = (0..n)
                .map(|i| (0.3 * log(i) * f64::from(w[i])) as f32)
                .collect();
            assert_eq!(bits(&found), bits(&want), "{device:?}");
            assert!(super::losses(&max, &sum, &target, None, 7).is_err());
        }
    }

    /// Ranks merge their own slices, then each other's sums.
    #[test]
    fn halves_relative_to_the_largest_of_all_have_the_bits_of_the_whole() {
        let device = Device::cpu();
        let (logits, targets, _) = inputs(&device);
        let (maxima, sums, _) = statistics(&logits, &targets, 0, VOCAB, 6).unwrap();
        let [max, sum, _] = merged(&logits, &targets, 6);
        let half = |x: &Tensor, at: usize| {
            Tensor::from_f32(&[4, 6], &x.f32()[at * 24..][..24], &device).unwrap()
        };
        let of = |at| merge_sums(half(&sums, at), &half(&maxima, at), &max).unwrap();
        let mut both = of(0);
        reduce::tree_add_into(&mut both, &of(1)).unwrap();
        assert_eq!(bits(both.f32()), bits(sum.f32()));
    }

    #[test]
    fn statistics_of_a_slice_are_its_own_and_padding_is_no_number_of_it() {
        for device in crate::testing::devices() {
            let (mut logits, targets, _) = inputs(&device);
            // a slice with only -inf among others
            logits.f32_mut()[6..12].fill(f32::NEG_INFINITY);
            let (maxima, sums, target) = statistics(&logits, &targets, 0, VOCAB, 6).unwrap();
            for s in 0..8 {
                for r in 0..6 {
                    let end = VOCAB.min((s + 1) * 6);
                    let x = wide(&logits.f32()[r * ROWS..][end.min(s * 6)..end]);
                    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let found = (maxima.f32()[s * 6 + r], sums.f32()[s * 6 + r]);
                    assert_eq!(f64::from(found.0), max, "{s} {r}");
                    if max == f64::NEG_INFINITY {
                        assert!(s == 7 || (s, r) == (1, 0));
                        assert_eq!(found.1.to_bits(), 0, "{s} {r}");
                        continue;
                    }
                    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
                    let bound = tolerance::sum(6) + tolerance::elementwise(4);
                    assert!(error(&[found.1], &[sum]) < bound, "{s} {r}");
                }
            }
            let max = merge_maxima(&maxima).unwrap();
            let sum = merge_sums(sums, &maxima, &max).unwrap();
            assert!(sum.f32().iter().all(|sum| sum.is_finite()));
            assert_eq!(target.f32()[1], logits.f32()[ROWS + 36]);
            assert_eq!(maxima.dims(), [8, 6]);
        }
    }

    #[test]
    fn a_slice_that_is_no_number_makes_the_sum_none() {
        let device = Device::cpu();
        for bad in [f32::NAN, f32::INFINITY] {
            let (mut logits, targets, _) = inputs(&device);
            logits.f32_mut()[13] = bad;
            // the other logits all count as zero
            logits.f32_mut()[12] = f32::NEG_INFINITY;
            logits.f32_mut()[14..18].fill(f32::NEG_INFINITY);
            let [_, sum, _] = merged(&logits, &targets, 6);
            assert!(sum.f32()[0].is_nan(), "{bad}");
            assert!(sum.f32()[1..].iter().all(|sum| sum.is_finite()));
        }
    }

    #[test]
    fn a_row_alone_has_the_bits_of_the_batch_on_every_instruction_set() {
        assert_same_bits(|device| {
            let (logits, targets, weights) = inputs(device);
            let (maxima, sums, target) = statistics(&logits, &targets, 0, VOCAB, 24).unwrap();
            let [max, sum, _] = merged(&logits, &targets, 24);
            let mut grads = logits.try_clone().unwrap();
            backward(
                &mut grads,
                &max,
                &sum,
                &targets,
                Slopes::of_loss(&weights),
                0,
                VOCAB,
            )
            .unwrap();
            let row = Tensor::from_f32(&[1, ROWS], &values(&logits)[..ROWS], device).unwrap();
            let one = Tensor::from_u32(&[1], &[0], device).unwrap();
            let (alone, alone_sums, _) = statistics(&row, &one, 0, VOCAB, 24).unwrap();
            for (alone, batch) in [(&alone, &maxima), (&alone_sums, &sums)] {
                let (alone, batch) = (bits(&values(alone)), bits(&values(batch)));
                assert_eq!(alone, [batch[0], batch[6]]);
            }
            let [_, alone, _] = merged(&row, &one, 24);
            assert_eq!(bits(&values(&alone))[0], bits(&values(&sum))[0]);
            vec![maxima, sums, target, max, sum, grads]
        });
        // slices of odd lengths, a pull, a shard that holds few of the targets, numbers that overflow
        assert_same_bits(|device| {
            let mut all = Vec::new();
            for (slice, first, vocab) in [(1, 0, 37), (3, 20, 57), (16, 5, 200), (48, 0, 40)] {
                for logits in [
                    random(&[5, ROWS], 1, device).unwrap(),
                    extreme(&[5, ROWS], 2, true, device).unwrap(),
                ] {
                    let targets = Tensor::from_u32(&[5], &[0, 36, 5, 56, 30], device).unwrap();
                    let weights = random(&[5], 3, device).unwrap();
                    let pull = random(&[5], 4, device).unwrap();
                    let (maxima, sums, target) =
                        statistics(&logits, &targets, first, vocab, slice).unwrap();
                    let max = merge_maxima(&maxima).unwrap();
                    let sum = merge_sums(sums.try_clone().unwrap(), &maxima, &max).unwrap();
                    let mut grads = logits.try_clone().unwrap();
                    let both = Slopes {
                        pull: Some(&pull),
                        ..Slopes::of_loss(&weights)
                    };
                    backward(&mut grads, &max, &sum, &targets, both, first, vocab).unwrap();
                    let mut capped = logits.try_clone().unwrap();
                    cap(&mut capped, 0.7).unwrap();
                    let mut of_capped = capped.try_clone().unwrap();
                    let slopes = Slopes {
                        weights: &weights,
                        pull: Some(&pull),
                        cap: 0.7,
                    };
                    backward(&mut of_capped, &max, &sum, &targets, slopes, first, vocab).unwrap();
                    all.extend([maxima, sums, target, max, sum, grads, capped, of_capped]);
                }
            }
            all
        });
    }

    #[test]
    fn a_slice_that_does_not_divide_is_an_error() {
        let (logits, targets, _) = inputs(&Device::cpu());
        for slice in [0, 5] {
            let found = statistics(&logits, &targets, 0, VOCAB, slice);
            assert!(matches!(found, Err(Error::Argument { name: "slice", .. })));
        }
        let (maxima, sums, _) = statistics(&logits, &targets, 0, VOCAB, 6).unwrap();
        let max = merge_maxima(&maxima).unwrap();
        let found = merge_sums(sums, &max, &max);
        assert!(matches!(found, Err(Error::Shape { name: "maxima", .. })));
    }
}

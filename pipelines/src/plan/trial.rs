//! Layouts that were run: measured times beside predicted ones, the winner by value, and the correction of the predictions.

use crate::plan::layout::Layout;

/// Steps at the start of a run that do not count: they allocate and touch memory for the first time.
pub(crate) const WARM_UP: usize = 2;

/// A layout that was to be run.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub layout: Layout,
    /// Predicted seconds of a step.
    pub predicted_s: f64,
    /// Predicted bytes of all ranks together: weights, optimizer, gradients, activations and packed weights.
    pub predicted_bytes: usize,
    /// The measurement, or the reason why there is none.
    pub outcome: Result<Measured, String>,
}

/// A run of a few steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Median seconds of a step after the first `WARM_UP`.
    pub step_s: f64,
    /// Peak bytes of tensors of all ranks together.
    pub bytes: u64,
    /// Steps that the median is of.
    pub steps: usize,
}

impl Measured {
    /// The measurement of a run by the seconds of its steps in order, and its bytes.
    ///
    /// # Errors
    /// The reason: too few steps, or a time that is not above 0.
    pub(crate) fn of(seconds: &[f64], bytes: u64) -> Result<Measured, String> {
        let counted = seconds.get(WARM_UP..).unwrap_or_default();
        if let Some(wrong) = seconds.iter().find(|of| !is_time(**of)) {
            return Err(format!("step_s: found {wrong}, want a time above 0"));
        }
        let step_s = median(counted).ok_or_else(|| {
            format!(
                "{} steps in metrics.jsonl, want more than the {WARM_UP} that do not count",
                seconds.len()
            )
        })?;
        Ok(Measured {
            step_s,
            bytes,
            steps: counted.len(),
        })
    }
}

impl Trial {
    /// Measured seconds of a step, if the run has them.
    pub(crate) fn measured_s(&self) -> Option<f64> {
        let found = self.outcome.as_ref().ok()?.step_s;
        is_time(found).then_some(found)
    }

    /// Measured over predicted seconds.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.measured_s()? / self.predicted_s)
    }
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

/// The middle of some numbers, of an even count the mean of the two in the middle; `None` of none.
fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some((sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0)
}

/// Indices of the trials with a measured time, the fastest first; equal ones in their order.
pub(crate) fn by_time(trials: &[Trial]) -> Vec<usize> {
    let mut found: Vec<(usize, f64)> = (trials.iter().enumerate())
        .filter_map(|(at, trial)| Some((at, trial.measured_s()?)))
        .collect();
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    found.into_iter().map(|(at, _)| at).collect()
}

/// The trial with the least measured time.
pub(crate) fn winner(trials: &[Trial]) -> Option<&Trial> {
    by_time(trials).first().map(|at| &trials[*at])
}

/// Factor between measured and predicted times: the median over the trials.
pub(crate) fn correction(trials: &[Trial]) -> Option<f64> {
    let ratios: Vec<f64> = trials.iter().filter_map(Trial::ratio).collect();
    median(&ratios)
}

/// Agreement of the predicted order with the measured one: Kendall's tau-b (Kendall 1945, Biometrika 33(3)), 1 for the same
/// order, -1 for the opposite one. `None` with fewer than two measured trials, or if all times of one side are equal.
pub(crate) fn kendall_tau(trials: &[Trial]) -> Option<f64> {
    let pairs: Vec<(f64, f64)> = trials
        .iter()
        .filter_map(|trial| Some((trial.predicted_s, trial.measured_s()?)))
        .collect();
    let (mut agree, mut by_predicted, mut by_measured) = (0.0, 0.0_f64, 0.0_f64);
    for (at, one) in pairs.iter().enumerate() {
        for other in &pairs[at + 1..] {
            let predicted = one.0.total_cmp(&other.0) as i8;
            let measured = one.1.total_cmp(&other.1) as i8;
            agree += f64::from(predicted * measured);
            by_predicted += f64::from(predicted.abs());
            by_measured += f64::from(measured.abs());
        }
    }
    let scale = (by_predicted * by_measured).sqrt();
    (scale > 0.0).then(|| agree / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(micro_batch: usize, predicted_s: f64, outcome: Result<f64, &str>) -> Trial {
        Trial {
            layout: Layout {
                dp: 8,
                micro_batch,
                overlap: true,
                ..Layout::one(64)
            },
            predicted_s,
            predicted_bytes: 1,
            outcome: outcome.map_err(str::to_owned).map(|step_s| Measured {
                step_s,
                bytes: 1,
                steps: 6,
            }),
        }
    }

    /// NeMo's tool sorted the rows of its table by a column, which an inserted one had moved: by the devices per node, of which all
    /// rows have as many, so that the first row won. As texts, "10.2" < "100.0" < "9.8".
    #[test]
    fn the_winner_is_found_by_the_value_of_its_time() {
        let trials = [
            trial(1, 9.0, Ok(100.0)),
            trial(2, 10.0, Ok(10.2)),
            trial(4, 11.0, Ok(9.8)),
        ];
        assert_eq!(by_time(&trials), [2, 1, 0]);
        assert_eq!(winner(&trials).unwrap().layout.micro_batch, 4);
        let mut texts = trials
            .each_ref()
            .map(|of| of.measured_s().unwrap().to_string());
        texts.sort();
        assert_ne!(texts[0], "9.8", "the case has to break a sort of texts");
    }

    #[test]
    fn rows_that_failed_or_have_no_time_never_win() {
        let trials = [
            trial(1, 1.0, Err("out of memory")),
            trial(2, 1.0, Ok(f64::NAN)),
            trial(4, 1.0, Ok(0.0)),
            trial(8, 1.0, Ok(-1.0)),
            trial(16, 1.0, Ok(3.0)),
            trial(32, 1.0, Ok(3.0)),
        ];
        assert_eq!(by_time(&trials), [4, 5]);
        assert_eq!(winner(&trials).unwrap().layout.micro_batch, 16);
        assert!(winner(&trials[..4]).is_none());
        assert_eq!(correction(&trials[..4]), None);
        assert_eq!(correction(&trials), Some(3.0));
    }

    #[test]
    fn the_first_steps_do_not_count_and_wrong_times_are_refused() {
        let found = Measured::of(&[50.0, 9.0, 2.0, 1.0, 4.0, 3.0], 7).unwrap();
        let wanted = Measured {
            step_s: 2.5,
            bytes: 7,
            steps: 4,
        };
        assert_eq!(found, wanted);
        assert!(
            Measured::of(&[1.0, 1.0], 7)
                .unwrap_err()
                .starts_with("2 steps")
        );
        for wrong in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let reason = Measured::of(&[1.0, 1.0, 1.0, wrong], 7).unwrap_err();
            assert!(reason.starts_with("step_s: found"), "{reason}");
        }
    }

    #[test]
    fn tau_counts_the_pairs_in_the_same_order() {
        let of = |measured: &[f64]| {
            let pairs = measured.iter().zip(1..);
            let trials: Vec<Trial> = pairs
                .map(|(measured, at)| trial(1, f64::from(at), Ok(*measured)))
                .collect();
            kendall_tau(&trials)
        };
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0]), Some(1.0));
        assert_eq!(of(&[4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        // of six pairs, five agree
        assert_eq!(of(&[2.0, 1.0, 3.0, 4.0]), Some(4.0 / 6.0));
        // a tie of one pair: 5 / sqrt(6 * 5)
        let tied = of(&[1.0, 1.0, 3.0, 4.0]).unwrap();
        assert!((tied - 5.0 / 30.0_f64.sqrt()).abs() < 1e-12, "{tied}");
        assert_eq!(of(&[1.0]), None);
        assert_eq!(of(&[1.0, 1.0]), None);
    }
}

//! Bad-step guard: skips updates whose loss or gradient norm is not finite, or far above the median of the last
//! good steps (PaLM skips such batches by hand: Chowdhery et al. 2022, arXiv:2204.02311, sec. 5.1). All ranks have
//! the same numbers and decide alike.

use crate::config::train::OnBadStep;
use crate::optim::next_step::GoodStep;

/// Why the step is bad, if it is; `recent`: the good steps before it.
pub(crate) fn judge(
    config: &OnBadStep,
    recent: &[GoodStep],
    loss: f64,
    norm: f64,
) -> Option<String> {
    for (what, value) in [("the loss", loss), ("the gradient norm", norm)] {
        if !value.is_finite() {
            return Some(format!("{what} is {value}"));
        }
    }
    if config.factor == 0.0 || recent.len() < config.window {
        return None;
    }
    let losses = median(recent.iter().map(|step| step.loss.0));
    let norms = median(recent.iter().map(|step| step.grad_norm.0));
    for (what, value, median) in [
        ("the loss", loss, losses),
        ("the gradient norm", norm, norms),
    ] {
        if value > config.factor * median {
            let (factor, window) = (config.factor, config.window);
            return Some(format!(
                "{what} is {value}, above {factor} times the median {median} of {window} good steps"
            ));
        }
    }
    None
}

/// Median; the mean of the two in the middle for an even count.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    f64::midpoint(sorted[low], sorted[high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_are_measured_against_the_median_of_a_full_window() {
        let config = OnBadStep {
            factor: 3.0,
            window: 4,
            ..OnBadStep::default()
        };
        let recent: Vec<_> = [(1.0, 1.0), (2.0, 1.0), (4.0, 9.0), (9.0, 1.0)]
            .map(|(loss, norm)| GoodStep::new(loss, norm))
            .into();
        assert_eq!(judge(&config, &recent, 9.0, 3.0), None);
        let told = judge(&config, &recent, 9.1, 0.0).unwrap();
        assert_eq!(
            told,
            "the loss is 9.1, above 3 times the median 3 of 4 good steps"
        );
        let told = judge(&config, &recent, 0.0, 3.5).unwrap();
        assert!(told.starts_with("the gradient norm is 3.5"), "{told}");
        assert_eq!(judge(&config, &recent[1..], 1e9, 1e9), None);
        assert_eq!(
            judge(&config, &[], 1.0, f64::NAN).as_deref(),
            Some("the gradient norm is NaN")
        );
        assert!(judge(&OnBadStep::default(), &recent, f64::INFINITY, 1.0).is_some());
    }
}

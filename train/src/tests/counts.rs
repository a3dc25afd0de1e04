//! Predictions that do not count: the loss is the mean over the others, of the whole batch, for every layout.

use std::error::Error as StdError;

use crate::config::Plan;
use crate::data::{Sample, Samples};
use crate::eval::{evaluate, logits};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::tests::layouts::{assert_same, train_on, with};
use crate::trainer::run;

/// A chain of which some predictions do not count: very different numbers per sample, in some none.
struct Patchy {
    chain: Chain,
    /// Put in place of the last token, whose prediction never counts.
    last: u32,
}

impl Samples for Patchy {
    fn len(&self) -> u64 {
        self.chain.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.chain.read(index, sample)?;
        let text = sample.text()?;
        for (at, counts) in (0u64..).zip(&mut text.counts) {
            *counts = index % 5 != 3 && (at * 7 + index * 3).is_multiple_of(index % 4 + 1);
        }
        *text.counts.last_mut().unwrap() = false;
        *text.tokens.last_mut().unwrap() = self.last;
        Ok(())
    }
}

fn patchy(plan: &Plan, last: u32) -> Patchy {
    let chain = Chain::of(plan);
    Patchy { chain, last }
}

#[test]
fn what_does_not_count_leaves_no_trace() {
    let plan = with(tiny_gpt(), "mb=3");
    let one = train_on(&plan, &patchy(&plan, 7));
    assert_same(
        &train_on(&plan, &patchy(&plan, 8)),
        &one,
        "another last token",
    );
    let counted = train_on(&plan, &Chain::of(&plan));
    assert_ne!(counted.metrics, one.metrics);
}

#[test]
fn the_loss_is_the_mean_over_what_counts() {
    let plan = tiny_llama();
    let folder = tempfile::tempdir().unwrap();
    let samples = patchy(&plan, 0);
    let done = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
    let mut sample = Sample::of(&plan);
    let (mut total, mut counted) = (0.0, 0);
    for index in 0..6 {
        samples.read(index, &mut sample).unwrap();
        let text = sample.text().unwrap();
        let rows = logits(&done.checkpoint, &text.tokens[..plan.seq_length]).unwrap();
        for (at, row) in rows.iter().enumerate().filter(|(at, _)| text.counts[*at]) {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            total += sum.ln() - f64::from(row[text.tokens[at + 1] as usize]);
            counted += 1;
        }
    }
    let wanted = total / f64::from(counted);
    let found = evaluate(&done.checkpoint, &samples, 6).unwrap();
    assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
}

#[test]
fn layouts_agree_whoever_has_the_predictions_that_count() {
    let mut plan = tiny_llama();
    plan.model.layers = 4;
    let samples = patchy(&plan, 0);
    let want = train_on(&with(plan.clone(), "mb=12"), &samples);
    for layout in [
        "mb=1",
        "dp=4 mb=1",
        "tp=2 sp mb=2",
        "pp=2 vs=2 mb=3",
        "cp=4 mb=2",
        "dp=3 zero=3 mb=2",
        "dp=2 zero=2 tp=2 pp=2 mb=3",
    ] {
        assert_same(
            &train_on(&with(plan.clone(), layout), &samples),
            &want,
            layout,
        );
    }
}

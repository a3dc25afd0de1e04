//! Several texts in a sample (`TextSample::ends`): they are as if alone, have the weights of `train.loss_mean`, and every
//! layout gives the same bits.

use std::error::Error as StdError;
use std::ops::Range;

use kernels::Device;

use crate::config::{LossMean, Plan};
use crate::data::{Sample, Samples};
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::{LanguageModel, Query, Scorer, logits};
use crate::fixtures::{Chain, Log, nth_step, options, tiny_gpt, tiny_llama};
use crate::model::param;
use crate::tests::layouts::{assert_same, train_on, with};
use crate::tests::parity::by_tensor;
use crate::trainer::run;
use crate::trainer::step::Trainer;

/// Texts of a sample, the last of which is padding, and the first prediction of each that counts.
const TEXTS: [(Range<usize>, usize); 3] = [(0..5, 3), (5..13, 6), (13..16, 16)];

/// A chain's sequences, cut into texts. Alone, each text but the padding is a sample and stands at its start.
struct Cut {
    chain: Chain,
    is_alone: bool,
}

impl Samples for Cut {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let number = if self.is_alone { index / 2 } else { index };
        let mut whole = sample.clone();
        self.chain.read(number, &mut whole)?;
        let (whole, to) = (whole.text()?, sample.text()?);
        to.counts.fill(false);
        if !self.is_alone {
            to.tokens.copy_from_slice(&whole.tokens);
            for (inputs, first) in &TEXTS {
                to.counts[*first..inputs.end.max(*first)].fill(true);
                to.ends.push(inputs.end);
            }
            return Ok(());
        }
        let (inputs, first) = &TEXTS[usize::try_from(index % 2)?];
        let length = inputs.len();
        to.tokens.fill(0);
        to.tokens[..=length].copy_from_slice(&whole.tokens[inputs.start..=inputs.end]);
        to.counts[first - inputs.start..length].fill(true);
        Ok(())
    }
}

fn packed(mut plan: Plan, mean: LossMean) -> Plan {
    (plan.eod, plan.train.loss_mean) = (Some(3), mean);
    (
        plan.train.reset_attention_mask,
        plan.train.reset_position_ids,
    ) = (true, true);
    plan
}

fn cut(plan: &Plan, is_alone: bool) -> Cut {
    Cut {
        chain: Chain::of(plan),
        is_alone,
    }
}

/// Loss and gradients of a step.
fn step_of(plan: &Plan, is_alone: bool) -> (f64, Vec<f32>) {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let next = nth_step(plan, 1);
    let samples = cut(plan, is_alone);
    let (loss, gradients) = trainer.gradients(&samples, &next).unwrap();
    let tensors = by_tensor(&trainer, &gradients);
    let values = tensors
        .iter()
        .flat_map(|tensor| tensor.host::<f32>().unwrap().to_vec());
    (loss, values.collect())
}

#[test]
fn texts_of_a_sample_train_as_if_each_were_alone() {
    for plan in [tiny_gpt(), tiny_llama()] {
        for mean in [LossMean::Token, LossMean::Text] {
            let mut plan = packed(plan.clone(), mean);
            (plan.train.global_batch, plan.model.dropout) = (4, 0.0);
            let (loss, gradients) = step_of(&plan, false);
            plan.train.global_batch = 8;
            // the padding after a text is not seen by it: as without documents
            (
                plan.train.reset_attention_mask,
                plan.train.reset_position_ids,
            ) = (false, false);
            let (alone, wanted) = step_of(&plan, true);
            assert!(
                (loss - alone).abs() < 1e-6 * alone,
                "{mean:?}: {loss} {alone}"
            );
            let largest = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let off = gradients.iter().zip(&wanted);
            let off = off.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            // the order of the sums differs
            assert!(
                off < 8.0 * f32::EPSILON * largest,
                "{mean:?}: {off} of {largest}"
            );
        }
    }
}

#[test]
fn the_mean_over_texts_is_the_mean_of_their_means() {
    // one text a step gives each text's mean
    let mut plan = tiny_llama();
    (plan.train.global_batch, plan.train.micro_batch) = (1, 1);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let samples = cut(&plan, true);
    let mut sum = 0.0;
    for text in 0..4 {
        let mut next = nth_step(&plan, 1);
        next.first = text;
        sum += trainer.gradients(&samples, &next).unwrap().0;
    }
    let mut plan = packed(tiny_llama(), LossMean::Text);
    plan.train.global_batch = 2;
    let (loss, _) = step_of(&plan, false);
    assert!((loss - sum / 4.0).abs() < 1e-6 * loss, "{loss} {sum}");
    plan.train.loss_mean = LossMean::Token;
    let (by_token, _) = step_of(&plan, false);
    assert!(
        (loss - by_token).abs() > 1e-4,
        "the texts' lengths differ, so both means do"
    );
}

#[test]
fn every_layout_of_packed_texts_gives_the_same_bits() {
    for plan in [
        packed(tiny_gpt(), LossMean::Text),
        packed(tiny_llama(), LossMean::Text),
        packed(options().remove(0), LossMean::Token),
    ] {
        let samples = cut(&plan, false);
        let want = train_on(&with(plan.clone(), "mb=12"), &samples);
        for layout in [
            "mb=1",
            "dp=3 mb=2",
            "tp=2 sp mb=3",
            "cp=2 mb=4",
            "cp=8 mb=12",
            "pp=2 mb=3",
            "dp=2 zero=3 mb=2",
            "cp=2 dp=2 zero=2 mb=3",
        ] {
            let found = train_on(&with(plan.clone(), layout), &samples);
            assert_same(&found, &want, layout);
        }
    }
}

#[test]
fn texts_that_do_not_fit_the_sample_are_refused() {
    struct Wrong(Vec<usize>);
    impl Samples for Wrong {
        fn len(&self) -> u64 {
            10
        }
        fn read(&self, _: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
            sample.text()?.ends.clone_from(&self.0);
            Ok(())
        }
    }
    let plan = packed(tiny_gpt(), LossMean::Text);
    for (ends, wanted) in [
        (vec![0], "a text that ends at 0 after 0, want up to 16"),
        (vec![9, 7], "a text that ends at 7 after 9, want up to 16"),
        (vec![17], "a text that ends at 17 after 0, want up to 16"),
    ] {
        let specs = param::specs(&plan);
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
        let error = trainer.gradients(&Wrong(ends), &nth_step(&plan, 1));
        let error = error.map(drop).unwrap_err().with_causes();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_model_of_texts_with_ends_reads_past_a_token_that_ends_others() {
    // training changes nothing at these rates
    let logits_of = |eod: Option<u32>, starts_over: bool| {
        let mut plan = tiny_llama();
        (plan.train.lr, plan.train.min_lr, plan.train.warmup_steps) = (1e-30, 0.0, 0);
        plan.eod = eod;
        (
            plan.train.reset_attention_mask,
            plan.train.reset_position_ids,
        ) = (starts_over, starts_over);
        let folder = tempfile::tempdir().unwrap();
        let samples = cut(&plan, false);
        let done = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
        let tokens = [7, 9, 3, 11, 5];
        let scorer = Scorer::open(&done.checkpoint, Devices::Cpu.whole()).unwrap();
        let query = Query {
            context: tokens[..4].to_vec(),
            continuation: tokens[4..].to_vec(),
        };
        let scores = scorer.log_likelihoods(&[query], &mut |_| {}).unwrap();
        (logits(&done.checkpoint, &tokens).unwrap(), scores[0].log)
    };
    let whole = logits_of(None, false);
    assert_eq!(logits_of(None, true), whole);
    let cut_at_3 = logits_of(Some(3), true);
    assert!(cut_at_3.0[4] != whole.0[4] && cut_at_3.1 != whole.1);
}

//! Preference pairs (`train.preference`): gradients by the chain rule, the reference, and the same bits on every layout, after
//! resuming and with a reference that is computed again. Ten steps of TRL: `dpo_goldens.py`.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;

use kernels::Device;

use crate::config::{LoraConfig, Plan, PreferenceConfig, PreferenceLoss};
use crate::data::{Pair, Sample, Samples};
use crate::dist::mesh::Groups;
use crate::fixtures::{Chain, Log, nth_step, tiny_gpt, tiny_llama};
use crate::model::param;
use crate::tests::layouts::{assert_same, reproducible, train_on, with};
use crate::tests::parity::by_tensor;
use crate::trainer::reference::Referenced;
use crate::trainer::step::Trainer;
use crate::trainer::{ValidationSet, memory, run_with_sets};

/// Texts of a sample of two pairs: the end of each, and the first prediction of its answer.
const TEXTS: [(usize, usize); 4] = [(4, 2), (7, 5), (12, 9), (15, 13)];

/// Two pairs in each of `samples` samples of a chain, again and again; or each sample once.
struct Pairs {
    chain: Chain,
    samples: u64,
    once: Option<Box<Pairs>>,
}

impl Pairs {
    fn of(plan: &Plan, samples: u64) -> Pairs {
        let once = || Pairs {
            chain: Chain::of(plan),
            samples,
            once: None,
        };
        Pairs {
            once: Some(Box::new(once())),
            ..once()
        }
    }
}

impl Samples for Pairs {
    fn len(&self) -> u64 {
        match self.once {
            Some(_) => 1000,
            None => self.samples,
        }
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let number = index % self.samples;
        self.chain.read(number, sample)?;
        let text = sample.text()?;
        text.counts.fill(false);
        let mut start = 0;
        for (end, first) in TEXTS {
            // the last input of a text predicts nothing
            text.counts[first..end - 1].fill(true);
            assert!(start < first && first < end);
            text.ends.push(end);
            start = end;
        }
        text.pairs
            .extend([0, 1].map(|pair| Pair::numbered(2 * number + pair)));
        Ok(())
    }

    fn pairs(&self) -> Option<&dyn Samples> {
        Some(self.once.as_deref().unwrap_or(self))
    }
}

fn preferring(mut plan: Plan, loss: PreferenceLoss) -> Plan {
    plan.eod = Some(3);
    plan.model.dropout = 0.0;
    plan.train.preference = Some(PreferenceConfig {
        loss,
        beta: 0.4,
        ..PreferenceConfig::default()
    });
    (
        plan.train.reset_attention_mask,
        plan.train.reset_position_ids,
    ) = (true, true);
    plan
}

/// Loss of a step and its gradients, with references that are not the model's own.
fn step_of(plan: &Plan, references: &[[f64; 2]]) -> (f64, Vec<f32>) {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let pairs = Pairs::of(plan, plan.train.global_batch as u64);
    let samples = Referenced {
        samples: &pairs,
        references,
    };
    let (loss, gradients) = trainer.gradients(&samples, &nth_step(plan, 1)).unwrap();
    let tensors = by_tensor(&trainer, &gradients);
    let values = tensors
        .iter()
        .flat_map(|tensor| tensor.host::<f32>().unwrap().to_vec());
    (loss, values.collect())
}

/// Pairs without an answer that is preferred learn nothing of it: the gradient of a pair is that of its answers' losses, each
/// times the slope of the loss by the margin.
#[test]
fn the_gradient_is_the_slope_times_the_difference_of_the_answers_gradients() {
    /// The answers of one text of each pair, as ordinary texts.
    struct Side<'a>(&'a Pairs, usize);
    impl Samples for Side<'_> {
        fn len(&self) -> u64 {
            1000
        }
        fn read(
            &self,
            index: u64,
            sample: &mut Sample,
        ) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.read(index, sample)?;
            let text = sample.text()?;
            text.pairs.clear();
            let other = TEXTS[1 - self.1];
            text.counts[other.1..other.0].fill(false);
            text.counts[TEXTS[1].0..].fill(false);
            Ok(())
        }
    }
    /// The first pair alone.
    struct First<'a>(&'a Pairs);
    impl Samples for First<'_> {
        fn len(&self) -> u64 {
            1000
        }
        fn read(
            &self,
            index: u64,
            sample: &mut Sample,
        ) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.read(index, sample)?;
            sample.text()?.pairs.truncate(1);
            Ok(())
        }
    }
    for loss in [
        PreferenceLoss::Sigmoid,
        PreferenceLoss::Hinge,
        PreferenceLoss::Ipo,
    ] {
        let mut plan = preferring(tiny_llama(), loss);
        (plan.train.global_batch, plan.train.micro_batch) = (1, 1);
        let pairs = Pairs::of(&plan, 1);
        let config = plan.train.preference.clone().unwrap();
        let gradients = |plan: &Plan, samples: &dyn Samples| {
            let specs = param::specs(plan);
            let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
            let (loss, gradients) = trainer.gradients(samples, &nth_step(plan, 1)).unwrap();
            let tensors = by_tensor(&trainer, &gradients);
            let values = tensors
                .iter()
                .flat_map(|tensor| tensor.host::<f32>().unwrap().to_vec());
            (loss, values.collect::<Vec<f32>>())
        };
        let references = [[-7.0, -9.5], [0.0, 0.0]];
        let samples = Referenced {
            samples: &First(&pairs),
            references: &references,
        };
        let (found, of_pair) = gradients(&plan, &samples);
        let mut plain = plan.clone();
        plain.train.preference = None;
        // means over the tokens of the chosen answer and of the rejected one
        let sides = [0, 1].map(|side| gradients(&plain, &Side(&pairs, side)));
        let counts = [0, 1].map(|side| (TEXTS[side].0 - 1 - TEXTS[side].1) as f64);
        let scale = |side: usize| match loss {
            PreferenceLoss::Ipo => 1.0,
            _ => counts[side],
        };
        let apart = |side: usize| {
            let log = -sides[side].0 * counts[side] - references[0][side];
            log / counts[side] * scale(side)
        };
        let wanted = config.loss_of(apart(0) - apart(1));
        assert!(
            (found - wanted.loss).abs() < 1e-6 * wanted.loss.max(1.0),
            "{loss:?}: {found} {}",
            wanted.loss
        );
        let largest = of_pair.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!(largest > 1e-3, "{loss:?}: {largest}");
        let both = sides[0].1.iter().zip(&sides[1].1);
        for (at, ((chosen, rejected), found)) in both.zip(&of_pair).enumerate() {
            let [chosen, rejected] = [(chosen, 0), (rejected, 1)]
                .map(|(gradient, side)| f64::from(*gradient) * scale(side));
            let wanted = wanted.slope * (rejected - chosen);
            let off = (f64::from(*found) - wanted).abs();
            assert!(
                off < 16.0 * f64::from(f32::EPSILON * largest),
                "{loss:?}, element {at}: {found} {wanted}"
            );
        }
    }
}

#[test]
fn the_loss_is_the_mean_over_pairs_whatever_the_micro_batch() {
    let references: Vec<[f64; 2]> = (0..16).map(|n| [-3.0 - f64::from(n), -9.0]).collect();
    let mut plan = preferring(tiny_gpt(), PreferenceLoss::Sigmoid);
    let (whole, gradients) = step_of(&plan, &references);
    plan.train.micro_batch = 8;
    assert_eq!(step_of(&plan, &references), (whole, gradients));
    let mut sum = 0.0;
    plan.train.global_batch = 1;
    plan.train.micro_batch = 1;
    for sample in 0..8 {
        let specs = param::specs(&plan);
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
        let pairs = Pairs::of(&plan, 8);
        let samples = Referenced {
            samples: &pairs,
            references: &references,
        };
        let mut next = nth_step(&plan, 1);
        next.first = sample;
        sum += trainer.gradients(&samples, &next).unwrap().0;
    }
    assert!((whole - sum / 8.0).abs() < 1e-12, "{whole} {}", sum / 8.0);
}

#[test]
fn every_layout_of_pairs_gives_the_same_bits() {
    let mut adapted = preferring(tiny_llama(), PreferenceLoss::Sigmoid);
    adapted.model.lora = Some(LoraConfig::default());
    for plan in [
        preferring(tiny_gpt(), PreferenceLoss::Sigmoid),
        preferring(tiny_llama(), PreferenceLoss::Ipo),
        adapted,
    ] {
        let samples = Pairs::of(&plan, 17);
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
            "chunked mb=3",
        ] {
            let found = train_on(&with(plan.clone(), layout), &samples);
            assert_same(&found, &want, layout);
        }
    }
}

#[test]
fn ranks_hold_the_bytes_that_the_formulas_say() {
    let mut plan = preferring(tiny_llama(), PreferenceLoss::Sigmoid);
    (plan.model.layers, plan.train.micro_batch) = (4, 1);
    for layout in ["mb=1", "dp=2 zero=1 mb=1", "tp=2 sp pp=2 mb=1", "cp=2 mb=2"] {
        let plan = with(plan.clone(), layout);
        let predicted = memory::predict(&plan).unwrap();
        let measured = memory::measure(&plan, &Pairs::of(&plan, 17)).unwrap();
        assert_eq!(measured, predicted, "{layout}");
    }
}

fn trained(plan: &Plan, pairs: &Pairs, out: &Path) {
    let sets = [ValidationSet {
        name: "valid",
        samples: pairs.pairs().unwrap(),
    }];
    let done = run_with_sets(plan, pairs, &sets, out, &Log::default());
    done.unwrap_or_else(|error| panic!("{}", error.with_causes()));
}

#[test]
fn the_reference_is_kept_read_again_and_computed_again_if_it_is_lost() {
    let plan = preferring(tiny_llama(), PreferenceLoss::Sigmoid);
    let pairs = Pairs::of(&plan, 9);
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    trained(&plan, &pairs, &whole);
    let want = reproducible(&whole);
    let text = fs::read_to_string(whole.join("reference.jsonl")).unwrap();
    // 18 pairs of two sets after the head
    assert_eq!(text.lines().count(), 1 + 2 * 18);

    // before the first update the model is its own reference
    let first: serde_json::Value = serde_json::from_str(&want[0]).unwrap();
    let ln_2 = std::f64::consts::LN_2;
    assert!(
        (first["loss"].as_f64().unwrap() - ln_2).abs() < 1e-15,
        "{first}"
    );
    for (key, value) in [
        ("accuracy", 0.0),
        ("chosen_reward", 0.0),
        ("rejected_reward", 0.0),
        ("margin", 0.0),
    ] {
        assert_eq!(first["preference"][key], value, "{key}: {first}");
    }
    let last: serde_json::Value = serde_json::from_str(want.last().unwrap()).unwrap();
    assert!(last["valid_accuracy"].as_f64().unwrap() > 0.5, "{last}");
    assert!(
        last["preference"]["margin"].as_f64().unwrap() > 0.0,
        "{last}"
    );

    for damage in ["kept", "lost", "cut", "of another run"] {
        let out = dir.path().join(damage);
        let mut half = plan.clone();
        half.train.steps = 2;
        half.train.schedule = plan.train.schedule;
        half.train.decay_steps = plan.train.steps;
        let mut rest = plan.clone();
        rest.train.decay_steps = plan.train.steps;
        trained(&half, &pairs, &out);
        let path = out.join("reference.jsonl");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{damage}");
        match damage {
            "lost" => fs::remove_file(&path).unwrap(),
            "cut" => fs::write(&path, &text[..text.len() / 2]).unwrap(),
            "of another run" => {
                let other = text.replacen("\"identity\":\"", "\"identity\":\"0", 1);
                fs::write(&path, other).unwrap();
            }
            _ => {}
        }
        trained(&rest, &pairs, &out);
        let found = reproducible(&out);
        let steps = |lines: &[String]| -> Vec<String> {
            let is_step = |line: &&String| line.contains("grad_norm");
            lines.iter().filter(is_step).cloned().collect()
        };
        assert_eq!(steps(&found), steps(&want), "{damage}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{damage}");
    }
}

#[test]
fn sets_without_pairs_and_settings_that_do_not_go_with_pairs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = preferring(tiny_gpt(), PreferenceLoss::Sigmoid);
    plan.train.eval_every = 0;
    let chain = Chain::of(&plan);
    let error = run_with_sets(&plan, &chain, &[], dir.path(), &Log::default()).unwrap_err();
    assert!(
        error.to_string().contains("the set train without pairs"),
        "{error}"
    );
    plan.train.reset_attention_mask = false;
    plan.train.z_loss = 0.1;
    let found = plan.problems();
    assert!(
        found
            .iter()
            .any(|line| line.starts_with("train.reset_attention_mask: found false"))
            && found
                .iter()
                .any(|line| line.starts_with("train.z_loss: found 0.1")),
        "{found:?}"
    );
}

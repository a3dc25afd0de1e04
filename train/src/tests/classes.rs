//! Classification heads: parity with transformers (`BertForSequenceClassification`, `MegatronBertForSequenceClassification`,
//! `BertForMultipleChoice`, `GPT2ForSequenceClassification`), layouts, memory, resuming, weights of a language model to
//! start from, accuracy. The goldens are described in tests/oracles/classes_goldens.py. Tolerances as in `parity`.

use std::error::Error as StdError;

use kernels::{Device, Tensor};
use rayon::prelude::*;

use crate::checkpoint::huggingface::outs::{Out, Source, tensors};
use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::{MODEL, export_hf, import_hf};
use crate::config::{ClassifyConfig, Determinism, Family, Plan};
use crate::data::{LabelledSample, Sample, Samples};
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::Classifier;
use crate::fixtures::{Blanks, Chain, Labels, Log, nth_step, tiny_bert, tiny_gpt, tiny_llama};
use crate::model::param;
use crate::parallel::pipeline::Worker;
use crate::parallel::zero::Parameters;
use crate::tests::layouts::{assert_same, train_on, with};
use crate::tests::parity::{self, Golden, by_tensor, set_weights};
use crate::tests::resume;
use crate::tests::share::Share;
use crate::trainer::step::Trainer;
use crate::trainer::{memory, run};

/// A change that makes it wrong, and a part of the refusal.
type Change<T> = (fn(&mut T), &'static str);

/// Samples of classes_goldens.py.
struct Formula {
    labels: u64,
    choices: u64,
}

impl Samples for Formula {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let to = sample.labelled()?;
        to.length = 16 - usize::try_from(index % 4)?;
        for at in 0..16 {
            let j = at as u64;
            let token = u32::try_from((index * 7919 + j * j * 31 + j * 17) % 61 % 60)?;
            to.tokens[at] = if at < to.length { token } else { 60 };
            to.segments[at] = u32::from(j >= 7 + index % 3);
        }
        let first = index / self.choices * self.choices;
        to.label = u32::try_from((first * 5 + 1) % self.labels)?;
        to.number = f32::from(u8::try_from((index * 5 + 1) % 9)?) / 4.0 - 1.0;
        Ok(())
    }
}

fn golden_plan(family: Family, post_norm: bool, head: ClassifyConfig) -> Plan {
    let mut plan = parity::plan(family, Determinism::Layout);
    (plan.model.kv_heads, plan.train.steps) = (0, 10);
    (plan.model.post_norm, plan.model.classify) = (post_norm, Some(head));
    plan
}

/// Scores of the first samples under a trainer's weights.
fn scores(trainer: &Trainer<'_>, plan: &Plan, samples: &dyn Samples, count: usize) -> Vec<f32> {
    let worker = Worker {
        plan,
        stages: &trainer.stages,
        groups: &trainer.state.groups,
        device: &trainer.state.device,
        loss_scale: 1.0,
        scratch: None,
        parameters: Parameters::Whole(&trainer.state.weights, None),
        delayed: None,
    };
    worker.scores(samples, count).unwrap()
}

/// Tensors whose exact gradient is 0, as they shift everything that a softmax sees: there is nothing in it but rounding, of
/// numbers of the size of other gradients.
fn is_without_gradient(name: &str, head: &ClassifyConfig) -> bool {
    name.ends_with("attention.self.key.bias") || head.choices > 1 && name == "classifier.bias"
}

fn follows_transformers(name: &str, plan: &Plan) {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let mut golden = Golden::open(name);
    let hf = |of: &[Tensor]| {
        tensors(&Source {
            plan,
            specs: &specs,
            tensors: of,
        })
    };
    for out in hf(&trainer.state.weights) {
        let wanted = golden.tensor(&format!("weight.{}", out.name), &out.dims);
        assert!(out.values == wanted, "export of {}", out.name);
    }
    let head = plan.model.classify.clone().unwrap();
    let samples = Formula {
        labels: head.labels() as u64,
        choices: head.choices as u64,
    };
    let found = scores(&trainer, plan, &samples, 4);
    let dims = [4 / head.choices, head.labels()];
    let off = golden.difference("logits", &dims, &found);
    assert!(off <= 1.0, "scores are {off} tolerances off");
    for step in 0..10 {
        let next = nth_step(plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&samples, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            let (none, some): (Vec<Out>, Vec<Out>) = hf(&by_tensor(&trainer, &gradients))
                .into_iter()
                .partition(|out| is_without_gradient(&out.name, &head));
            golden.assert_close("grad", &some);
            let largest = |outs: &[Out]| {
                let values = outs.iter().flat_map(|out| &out.values);
                values.fold(0.0f32, |most, x| most.max(x.abs()))
            };
            let rounding = 4.0 * f32::EPSILON * largest(&some);
            assert!(largest(&none) <= rounding, "{name}: {}", largest(&none));
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    golden.assert_close("final", &hf(&trainer.state.weights));
}

const THREE: ClassifyConfig = ClassifyConfig::of(3);

const NUMBER: ClassifyConfig = ClassifyConfig::of(1);

const FOUR_CHOICES: ClassifyConfig = ClassifyConfig::choosing(4);

#[test]
fn classes_of_a_bert_as_published_follow_transformers_through_ten_steps() {
    follows_transformers("classes_bert", &golden_plan(Family::Bert, true, THREE));
}

#[test]
fn classes_of_a_pre_norm_bert_follow_transformers_through_ten_steps() {
    follows_transformers("classes_bert_pre", &golden_plan(Family::Bert, false, THREE));
}

#[test]
fn choices_of_a_bert_follow_transformers_through_ten_steps() {
    let head = ClassifyConfig::choosing(2);
    follows_transformers("classes_choices", &golden_plan(Family::Bert, true, head));
}

#[test]
fn classes_of_a_gpt_follow_transformers_through_ten_steps() {
    follows_transformers("classes_gpt2", &golden_plan(Family::Gpt, false, THREE));
}

#[test]
fn a_regression_of_a_bert_follows_transformers_through_ten_steps() {
    follows_transformers("classes_number", &golden_plan(Family::Bert, true, NUMBER));
}

#[test]
#[should_panic(expected = "tolerances off")]
fn the_row_of_another_token_is_noticed() {
    struct Shorter(Formula);
    impl Samples for Shorter {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(
            &self,
            index: u64,
            sample: &mut Sample,
        ) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.read(index, sample)?;
            sample.labelled()?.length -= 1;
            Ok(())
        }
    }
    let plan = golden_plan(Family::Gpt, false, THREE);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let samples = Shorter(Formula {
        labels: 3,
        choices: 1,
    });
    let found = scores(&trainer, &plan, &samples, 4);
    let off = Golden::open("classes_gpt2").difference("logits", &[4, 3], &found);
    assert!(off <= 1.0, "scores are {off} tolerances off");
}

/// Encoders of both kinds and decoders, with classes and with choices, with dropout.
fn kinds() -> Vec<Plan> {
    let mut post = tiny_bert();
    post.model.post_norm = true;
    let all = [
        (tiny_bert(), THREE),
        (post.clone(), FOUR_CHOICES),
        (tiny_gpt(), THREE),
        (post, NUMBER),
    ];
    let all = all
        .into_iter()
        .chain([(tiny_llama(), FOUR_CHOICES), (tiny_bert(), FOUR_CHOICES)]);
    all.map(|(mut plan, head)| {
        (plan.predictions, plan.model.classify) = (0, Some(head));
        plan.train.eval_samples = 8;
        if plan.model.family == Family::Bert {
            plan.model.dropout = 0.1;
        }
        plan
    })
    .collect()
}

fn four_layers(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan
}

#[test]
fn every_layout_of_a_classification_head_gives_the_same_bits() {
    let mut share = Share::one_in(3);
    for plan in kinds().into_iter().map(four_layers) {
        let chooses = plan.model.choices() > 1;
        let samples = Labels::of(&plan);
        let want = train_on(&with(plan.clone(), "mb=12"), &samples);
        assert_eq!(want.metrics.len(), 6, "4 steps, 2 validations");
        let accuracy = want
            .metrics
            .iter()
            .filter(|line| line.contains("valid_accuracy"));
        let regression = plan.model.is_regression();
        assert_eq!(accuracy.count(), if regression { 0 } else { 2 });
        let layouts = [
            "mb=4",
            "dp=3 mb=4",
            "tp=2 mb=4",
            "tp=2 sp dp=3 mb=4",
            "pp=4 gpipe mb=4",
            "pp=2 vs=2 mb=4",
            "dp=3 zero=1 mb=4",
            "dp=3 zero=2 mb=4",
            "dp=3 zero=3 pp=2 mb=4",
            "full tp=2 mb=4",
            "mb=1",
            "dp=12 mb=1",
            "dp=2 mb=3",
            "dp=2 zero=3 tp=2 sp pp=2 mb=3",
            "cp=2 mb=1",
            "cp=2 tp=2 sp dp=2 zero=2 mb=2",
            "cp=8 mb=12",
        ];
        for layout in share.of(&layouts) {
            let plan = with(plan.clone(), layout);
            if chooses && (!plan.train.micro_batch.is_multiple_of(4) || plan.parallel.cp > 1) {
                assert!(!plan.problems().is_empty(), "{layout}");
                continue;
            }
            assert_same(&train_on(&plan, &samples), &want, layout);
        }
    }
}

#[test]
fn memory_is_what_the_formulas_say() {
    for plan in kinds() {
        for layout in ["mb=4", "mb=12", "tp=2 sp pp=2 mb=4", "dp=3 zero=2 mb=4"] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &Labels::of(&plan)).unwrap();
            assert_eq!(measured, predicted, "{layout} {:?}", plan.model);
        }
    }
}

#[test]
fn a_run_that_was_stopped_at_any_step_ends_with_the_bits_of_one_that_was_not() {
    for mut plan in [kinds().remove(0), kinds().remove(1)] {
        (plan.train.steps, plan.train.eval_every) = (8, 3);
        plan.train.checkpoint.every = 2;
        plan.train.micro_batch = 4;
        let whole = tempfile::tempdir().unwrap();
        run(
            &plan,
            &Labels::of(&plan),
            None,
            whole.path(),
            &Log::default(),
        )
        .unwrap();
        let wanted = resume::remains(whole.path());
        for step in [1, 3, 4, 7] {
            let out = tempfile::tempdir().unwrap();
            let mut killed = Labels::of(&plan);
            killed.chain.fails_at = Some(step * 8 + 2);
            run(&plan, &killed, None, out.path(), &Log::default()).unwrap_err();
            let log = Log::default();
            run(&plan, &Labels::of(&plan), None, out.path(), &log).unwrap();
            resume::assert_same(out.path(), &wanted, &format!("killed in step {step}"));
        }
    }
}

/// The tensors of a model file.
fn tensors_of(path: &std::path::Path) -> Vec<(String, Vec<f32>)> {
    let mut reader = Reader::open(&path.join(MODEL)).unwrap();
    let entries: Vec<_> = reader.entries().cloned().collect();
    let read = |entry: &crate::checkpoint::safetensors::Entry| {
        let mut values = vec![0.0; entry.dims.iter().product()];
        reader
            .read_part(&entry.name, &entry.dims, 0, &mut values)
            .unwrap();
        (entry.name.clone(), values)
    };
    entries.iter().map(read).collect()
}

#[test]
fn a_head_starts_from_the_seed_on_the_weights_of_a_language_model() {
    let mut language = tiny_bert();
    (language.model.next_sentence, language.train.steps) = (true, 2);
    let source = tempfile::tempdir().unwrap();
    let samples = Blanks::of(&language);
    let done = run(&language, &samples, None, source.path(), &Log::default()).unwrap();
    let before = tensors_of(&done.checkpoint);
    let mut plan = kinds().remove(0);
    plan.train.init_from = source.path().join("checkpoints").display().to_string();
    // so that the first step changes nothing
    (plan.train.steps, plan.train.lr, plan.train.min_lr) = (1, 1e-30, 0.0);
    (plan.train.warmup_steps, plan.train.weight_decay) = (0, 0.0);
    let out = tempfile::tempdir().unwrap();
    let done = run(&plan, &Labels::of(&plan), None, out.path(), &Log::default()).unwrap();
    let after = tensors_of(&done.checkpoint);
    let drawn = param::specs(&plan);
    let mut shared = 0;
    for (name, values) in &after {
        match before.iter().find(|(other, _)| other == name) {
            // the pooler of next-sentence prediction is one of them
            Some((_, wanted)) => {
                assert!(values == wanted, "{name}");
                shared += 1;
            }
            None => {
                assert!(param::is_of_classes(name), "{name}");
                let spec = drawn.iter().find(|spec| &spec.name == name).unwrap();
                let place = crate::dist::mesh::RankCoord::of(0, &plan.parallel);
                let wanted = spec.initial(plan.seed, &place, &Device::cpu()).unwrap();
                assert!(values == wanted.host::<f32>().unwrap(), "{name}");
            }
        }
    }
    assert_eq!(after.len() - shared, 2, "weight and bias of the classes");
    // and back: a language model finds no head there
    let mut back = tiny_bert();
    back.train.init_from = out.path().join("checkpoints").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let refused = run(
        &back,
        &Blanks::of(&back),
        None,
        folder.path(),
        &Log::default(),
    );
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("model.classify"), "{text}");
}

#[test]
fn accuracy_rises_and_an_export_scores_as_the_checkpoint_does() {
    for mut plan in [0, 2, 3].map(|kind| kinds().remove(kind)) {
        let steps = if plan.model.is_regression() { 120 } else { 240 };
        (plan.train.steps, plan.train.lr, plan.train.micro_batch) = (steps, 3e-3, 8);
        (plan.train.eval_every, plan.train.eval_samples) = (steps, 64);
        plan.model.dropout = 0.0;
        let out = tempfile::tempdir().unwrap();
        let mut samples = Labels::of(&plan);
        samples.chain.count = 2000;
        let done = run(&plan, &samples, Some(&samples), out.path(), &Log::default()).unwrap();
        let metrics = std::fs::read_to_string(out.path().join("metrics.jsonl")).unwrap();
        let last: serde_json::Value =
            serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
        let accuracy = last["valid_accuracy"].as_f64();
        if plan.model.is_regression() {
            // half of the numbers are 0, half are 1: their mean has an error of 1/4
            let error = last["valid_loss"].as_f64().unwrap();
            assert!(error < 0.05 && accuracy.is_none(), "{last}");
        } else {
            let family = plan.model.family;
            assert!(
                accuracy > Some(0.8),
                "{accuracy:?} of three classes, {family:?}"
            );
        }
        let mut scored = Labels::of(&plan);
        scored.chain.count = 64;
        let ours = Classifier::open(&done.checkpoint, Devices::Cpu.whole()).unwrap();
        let ours = ours.scores(&scored).unwrap();
        let mut sample = Sample::of(&plan);
        let right = ours.iter().enumerate().filter(|(at, scores)| {
            scored.read(*at as u64, &mut sample).unwrap();
            let sample = sample.labelled().unwrap();
            let label = sample.label as usize;
            match plan.model.is_regression() {
                true => (scores[0] - sample.number).abs() < 0.5,
                false => scores.iter().all(|score| *score <= scores[label]),
            }
        });
        let right = right.count() as f64 / 64.0;
        assert!(right == accuracy.unwrap_or(right) && right > 0.8, "{right}");
        let hf = tempfile::tempdir().unwrap();
        export_hf(&done.checkpoint, hf.path()).unwrap();
        let back = tempfile::tempdir().unwrap();
        let imported = import_hf(hf.path(), back.path()).unwrap();
        assert!(tensors_of(&imported.checkpoint) == tensors_of(&done.checkpoint));
        let theirs = Classifier::open(hf.path(), Devices::Cpu.whole()).unwrap();
        // the imported plan adds up attention in other blocks
        let theirs = theirs.scores(&scored).unwrap();
        for (a, b) in theirs.iter().flatten().zip(ours.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

#[test]
fn labelled_samples_that_do_not_fit_are_refused_by_name() {
    struct Bad(Labels, fn(&mut LabelledSample));
    impl Samples for Bad {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(
            &self,
            index: u64,
            sample: &mut Sample,
        ) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.read(index, sample)?;
            self.1(sample.labelled()?);
            Ok(())
        }
    }
    let plan = kinds().remove(0);
    let cases: [Change<LabelledSample>; 5] = [
        (|s| s.length = 0, "a length of 0, want 1 to 16"),
        (|s| s.length = 17, "a length of 17, want 1 to 16"),
        (|s| s.label = 3, "label 3, want below 3"),
        (|s| s.segments[2] = 2, "segment 2, want 0 or 1"),
        (|s| s.tokens[2] = 200, "token 200, vocabulary is 200"),
    ];
    cases.par_iter().for_each(|(change, wanted)| {
        let folder = tempfile::tempdir().unwrap();
        let samples = Bad(Labels::of(&plan), *change);
        let error = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap_err();
        let text = error.with_causes();
        assert!(text.contains(wanted), "{text} wants {wanted}");
    });
    let number = kinds().remove(3);
    let samples = Bad(Labels::of(&number), |s| s.number = f32::NAN);
    let folder = tempfile::tempdir().unwrap();
    let error = run(&number, &samples, None, folder.path(), &Log::default()).unwrap_err();
    let text = error.with_causes();
    assert!(text.contains("number NaN, want a finite one"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let text = Chain::of(&plan);
    let error = run(&plan, &text, None, folder.path(), &Log::default()).unwrap_err();
    let wanted = "the source has text samples, the model learns from labelled";
    assert!(
        error.with_causes().contains(wanted),
        "{}",
        error.with_causes()
    );
}

#[test]
fn a_classification_head_predicts_no_tokens() {
    let mut plan = kinds().remove(2);
    plan.train.steps = 1;
    plan.train.warmup_steps = 0;
    let folder = tempfile::tempdir().unwrap();
    let done = run(
        &plan,
        &Labels::of(&plan),
        None,
        folder.path(),
        &Log::default(),
    )
    .unwrap();
    let texts = [
        crate::eval::logits(&done.checkpoint, &[1, 2])
            .unwrap_err()
            .to_string(),
        crate::eval::Scorer::open(&done.checkpoint, Devices::Cpu.whole())
            .err()
            .unwrap()
            .to_string(),
    ];
    for text in texts {
        assert!(text.contains("one with a classification head"), "{text}");
    }
}

#[test]
fn plans_that_contradict_a_classification_head_are_refused() {
    let refused = |change: fn(&mut Plan)| {
        let mut plan = kinds().remove(0);
        change(&mut plan);
        plan.problems().join("\n")
    };
    assert_eq!(refused(|_| ()), "");
    let cases: [Change<Plan>; 8] = [
        (
            |p| p.model.classify.as_mut().unwrap().classes = 0,
            "model.classify.classes: found 0",
        ),
        (
            |p| p.model.classify.as_mut().unwrap().choices = 3,
            "model.classify.choices: found 3",
        ),
        (
            |p| p.model.classify.as_mut().unwrap().choices = 2,
            "found 3 with choices = 2",
        ),
        (
            |p| p.model.classify.as_mut().unwrap().names = vec!["a".into()],
            "names: found 1 with classes = 3",
        ),
        (|p| p.train.z_loss = 0.1, "train.z_loss"),
        (|p| p.predictions = 2, "predictions: found 2"),
        (|p| p.model.next_sentence = true, "model.next_sentence"),
        (
            |p| p.model.family = Family::T5,
            "model.classify: found a table with family = T5",
        ),
    ];
    for (change, wanted) in cases {
        let found = refused(change);
        assert!(found.contains(wanted), "{found}\nwants {wanted}");
    }
}

//! Masked language models: parity with transformers (norms after the sums: `BertForMaskedLM`; before the layers:
//! `MegatronBertForMaskedLM`), layouts, and refused samples. The goldens are described in
//! tests/oracles/bert_goldens.py. Tolerances as in `parity`.

use std::error::Error as StdError;

use kernels::{Device, Tensor};

use crate::Error;
use crate::checkpoint::huggingface::outs::{Source, tensors};
use crate::config::Plan;
use crate::config::{Determinism, Family};
use crate::data::{Sample, Samples};
use crate::dist::mesh::Groups;
use crate::fixtures::{Blanks, Log, nth_step, tiny_bert};
use crate::model::context::{Context, Weights};
use crate::model::param;
use crate::tests::layouts::{assert_same, train_on, with};
use crate::tests::parity::{self, Golden, by_tensor, set_weights, with_padding_cut};
use crate::tests::share::Share;
use crate::trainer::step::Trainer;
use crate::trainer::{memory, run};

/// The plan of `parity` as a BERT, for ten steps.
fn plan((post_norm, next_sentence): (bool, bool), determinism: Determinism) -> Plan {
    let mut plan = parity::plan(Family::Bert, determinism);
    (plan.model.kv_heads, plan.predictions, plan.train.steps) = (0, 5, 10);
    (plan.model.post_norm, plan.model.next_sentence) = (post_norm, next_sentence);
    plan
}

/// The samples of bert_goldens.py.
struct Formula;

impl Samples for Formula {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let masked = sample.masked()?;
        masked.is_swapped = (index * 7 + 1).is_multiple_of(3);
        masked.length = 16 - usize::try_from(index % 4)?;
        for at in 0..16 {
            let j = at as u64;
            let token = u32::try_from((index * 7919 + j * j * 31 + j * 17) % 61)?;
            masked.targets[at] = token;
            masked.counts[at] = at < masked.length && (index * 5 + j * 3) % 4 == 1;
            let hidden = masked.counts[at] && !j.is_multiple_of(3);
            masked.tokens[at] = if hidden { 5 } else { token };
            masked.segments[at] = u32::from(j >= 7 + index % 3);
        }
        Ok(())
    }
}

/// Logits of every place of the first batch.
fn logits(trainer: &Trainer<'_>, plan: &Plan) -> Tensor {
    let at = (&trainer.state.device, &trainer.state.groups.place);
    let batch = crate::data::read(&Formula, 0, 0..4, plan, at).unwrap();
    let mut cx = Context::of(
        plan,
        Weights::All(&trainer.state.weights, None),
        &trainer.state.groups,
    );
    cx.sequence.documents = batch.documents.as_ref();
    let stage = &trainer.stages[0];
    let inputs = (batch.inputs.as_ref().unwrap(), batch.segments.as_ref());
    let (mut x, _) = stage.embedding().unwrap().forward(inputs, &cx).unwrap();
    for block in stage.blocks() {
        (x, _) = block.forward(x, &cx).unwrap();
    }
    stage.masked_head().unwrap().logits(&x, &cx).unwrap()
}

fn matches_transformers(name: &str, kind: (bool, bool), determinism: Determinism) {
    let plan = plan(kind, determinism);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let mut golden = Golden::open(name);
    let hf = |of: &[Tensor]| {
        tensors(&Source {
            plan: &plan,
            specs: &specs,
            tensors: of,
        })
    };
    for out in hf(&trainer.state.weights) {
        let wanted = golden.tensor(&format!("weight.{}", out.name), &out.dims);
        assert!(out.values == wanted, "export of {}", out.name);
    }
    let found = with_padding_cut(&logits(&trainer, &plan), &plan);
    let off = golden.difference("logits", &[4, 16, 61], &found);
    assert!(off <= 1.0, "logits are {off} tolerances off");
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            golden.assert_close("grad", &hf(&by_tensor(&trainer, &gradients)));
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    golden.assert_close("final", &hf(&trainer.state.weights));
}

#[test]
fn a_bert_as_published_follows_transformers_through_ten_steps() {
    matches_transformers("bert", (true, false), Determinism::Layout);
    matches_transformers("bert", (true, false), Determinism::Off);
}

#[test]
fn a_pre_norm_bert_follows_transformers_through_ten_steps() {
    matches_transformers("bert_pre", (false, false), Determinism::Layout);
    matches_transformers("bert_pre", (false, false), Determinism::Off);
}

#[test]
fn a_bert_that_tells_the_order_of_segments_follows_transformers_through_ten_steps() {
    matches_transformers("bert_order", (false, true), Determinism::Layout);
    matches_transformers("bert_order", (false, true), Determinism::Off);
}

#[test]
#[should_panic(expected = "tolerances off")]
fn the_other_place_of_norms_is_noticed() {
    let mut plan = plan((false, false), Determinism::Layout);
    plan.model.norm_eps = 1e-4;
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let (_, gradients) = trainer.gradients(&Formula, &nth_step(&plan, 1)).unwrap();
    let gradients = by_tensor(&trainer, &gradients);
    let found = tensors(&Source {
        plan: &plan,
        specs: &specs,
        tensors: &gradients,
    });
    Golden::open("bert_pre").assert_close("grad", &found);
}

/// At least one layout of each parallel axis; `tests::layouts` has them all for decoders.
pub(super) const LAYOUTS: [&str; 24] = [
    "mb=1",
    "mb=3",
    "mb=6",
    "dp=2 mb=3",
    "dp=3 mb=2",
    "dp=12 mb=1",
    "tp=2 mb=2",
    "tp=4 mb=12",
    "tp=2 sp mb=4",
    "tp=4 sp dp=2 mb=3",
    "pp=2 mb=1",
    "pp=4 gpipe mb=3",
    "pp=2 vs=2 mb=4",
    "pp=2 layers=3,1 mb=2",
    "dp=2 zero=1 mb=3",
    "dp=3 zero=2 mb=4",
    "dp=4 zero=3 mb=1",
    "dp=2 zero=3 tp=2 sp pp=2 mb=3",
    "cp=2 mb=1",
    "cp=8 mb=12",
    "cp=2 tp=2 sp dp=2 zero=2 mb=2",
    "selective mb=3",
    "full tp=2 mb=2",
    "full=1,2 pp=2 cp=2 dp=2 zero=1 mb=1",
];

/// Norms before and after, next-sentence prediction on and off.
fn all_kinds() -> Vec<Plan> {
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let of = |(post_norm, next_sentence)| {
        let mut plan = tiny_bert();
        plan.model.layers = 4;
        (plan.model.post_norm, plan.model.next_sentence) = (post_norm, next_sentence);
        plan
    };
    kinds.map(of).into()
}

#[test]
fn every_layout_of_a_bert_gives_the_same_bits() {
    let mut share = Share::one_in(3);
    for plan in all_kinds() {
        let samples = Blanks::of(&plan);
        let want = train_on(&with(plan.clone(), "mb=12"), &samples);
        assert_eq!(want.metrics.len(), 6, "4 steps, 2 validations");
        for layout in share.of(&LAYOUTS) {
            assert_same(
                &train_on(&with(plan.clone(), layout), &samples),
                &want,
                layout,
            );
        }
    }
}

#[test]
fn memory_is_what_the_formulas_say() {
    for plan in all_kinds() {
        for layout in [
            "mb=1",
            "mb=3",
            "tp=2 sp pp=2 mb=2",
            "cp=2 dp=2 zero=2 mb=1",
            "full mb=2",
        ] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &Blanks::of(&plan)).unwrap();
            assert_eq!(measured, predicted, "{layout} {:?}", plan.model);
        }
    }
}

/// Ids in padding, and targets of unmasked tokens, change nothing.
#[test]
fn padding_leaves_no_trace() {
    struct Padded(Blanks, u32);
    impl Samples for Padded {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(
            &self,
            index: u64,
            sample: &mut Sample,
        ) -> Result<(), Box<dyn StdError + Send + Sync>> {
            self.0.read(index, sample)?;
            let masked = sample.masked()?;
            masked.tokens[masked.length..].fill(self.1);
            for (target, counts) in masked.targets.iter_mut().zip(&masked.counts) {
                if !counts {
                    *target = 7 * self.1;
                }
            }
            Ok(())
        }
    }
    let plan = with(tiny_bert(), "mb=3");
    let of = |token| train_on(&plan, &Padded(Blanks::of(&plan), token));
    assert_same(&of(150), &of(3), "another token as padding");
}

#[test]
fn samples_that_do_not_fit_are_refused_by_name() {
    struct Bad(Blanks, fn(&mut crate::data::MaskedSample));
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
            self.1(sample.masked()?);
            Ok(())
        }
    }
    let plan = tiny_bert();
    let refused = |change: fn(&mut crate::data::MaskedSample)| {
        let folder = tempfile::tempdir().unwrap();
        let samples = Bad(Blanks::of(&plan), change);
        let error = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap_err();
        let mut text = error.to_string();
        if let Error::Sample { source, .. } = &error {
            text += &format!(": {source}");
        }
        text
    };
    for (change, wanted) in [
        (
            (|s| s.length = 0) as fn(&mut crate::data::MaskedSample),
            "a length of 0, want 1 to 16",
        ),
        (
            |s| {
                s.length = 8;
                s.counts[9] = true;
            },
            "a prediction at 9, in the padding after 8 tokens",
        ),
        (
            |s| {
                s.length = 16;
                s.counts.fill(true);
            },
            "16 predictions, want 4 at most",
        ),
        (|s| s.segments[1] = 2, "segment 2, want 0 or 1"),
        (|s| s.tokens[3] = 200, "token 200, vocabulary is 200"),
    ] {
        let found = refused(change);
        assert!(found.contains(wanted), "{found:?} wants {wanted:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let text = crate::fixtures::Chain::of(&plan);
    let error = run(&plan, &text, None, folder.path(), &Log::default()).unwrap_err();
    let Error::Sample { source, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(
        source.to_string(),
        "the source has text samples, the model learns from masked"
    );
}

#[test]
fn a_masked_model_is_asked_for_logits_but_not_for_more_text() {
    let plan = tiny_bert();
    let folder = tempfile::tempdir().unwrap();
    let samples = Blanks::of(&plan);
    let done = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
    let rows = crate::eval::logits(&done.checkpoint, &[1, 2, 3]).unwrap();
    assert_eq!((rows.len(), rows[0].len()), (3, plan.vocab));
    let asked = crate::infer::GenerateOptions::default();
    let error = crate::infer::generate(&done.checkpoint, &[1, 2], &asked, &mut |_| {}).unwrap_err();
    let found = error.to_string();
    assert!(
        found.contains("a masked model does not continue a text"),
        "{found}"
    );
}

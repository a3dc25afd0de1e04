//! Encoder-decoder models: layouts, memory, generation, and refused samples.

use std::error::Error as StdError;

use crate::Error;
use crate::config::{Activation, Plan, TieEmbeddings};
use crate::data::{Sample, Samples, SpanSample};
use crate::eval::{decoder_logits, logits};
use crate::fixtures::{Gaps, Log, tiny_t5};
use crate::infer::{GenerateOptions, generate};
use crate::tests::layouts::{assert_same, train_on, with};
use crate::tests::share::Share;
use crate::trainer::{memory, run};

/// At least one layout of each parallel axis, with model chunks that end within the encoder, between the stacks and
/// within the decoder.
pub(super) const LAYOUTS: [&str; 28] = [
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
    "pp=2 layers=1,3 mb=2",
    "pp=3 layers=1,3,0 mb=3",
    "pp=2 vs=2 layers=0,3,1,0 mb=2",
    "pp=3 count mb=2",
    "dp=2 zero=1 mb=3",
    "dp=3 zero=2 mb=4",
    "dp=4 zero=3 mb=1",
    "dp=2 zero=1 pp=4 mb=3 here",
    "dp=2 zero=3 tp=2 sp pp=2 mb=3",
    "cp=2 mb=1",
    "cp=8 mb=12",
    "cp=2 tp=2 sp dp=2 zero=2 mb=2",
    "selective mb=3",
    "full tp=2 mb=2",
    "full=1,2 pp=2 cp=2 dp=2 zero=1 mb=1",
];

/// As published first and as T5 1.1, with and without dropout, stacks of different heights.
fn kinds() -> Vec<Plan> {
    let first = tiny_t5();
    let mut second = tiny_t5();
    second.model.activation = Some(Activation::GegluTanh);
    second.model.tie_embeddings = TieEmbeddings::Untied;
    (second.model.layers, second.model.decoder_layers) = (1, 3);
    (second.model.dropout, second.model.attention_dropout) = (0.2, 0.1);
    vec![first, second]
}

#[test]
fn every_layout_of_a_t5_gives_the_same_bits() {
    let mut share = Share::one_in(2);
    for plan in kinds() {
        let samples = Gaps::of(&plan);
        let want = train_on(&with(plan.clone(), "mb=12"), &samples);
        assert_eq!(want.metrics.len(), 6, "4 steps, 2 validations");
        for layout in share.of(&LAYOUTS) {
            let found = train_on(&with(plan.clone(), layout), &samples);
            assert_same(&found, &want, layout);
        }
    }
}

#[test]
fn memory_is_what_the_formulas_say() {
    for plan in kinds() {
        for layout in [
            "mb=1",
            "mb=3",
            "tp=2 sp pp=2 mb=2",
            "pp=4 mb=2",
            "cp=2 dp=2 zero=2 mb=1",
            "dp=2 zero=3 mb=1",
            "selective mb=2",
            "full pp=2 mb=2",
        ] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &Gaps::of(&plan)).unwrap();
            assert_eq!(measured, predicted, "{layout} {:?}", plan.model);
        }
    }
}

/// Samples that another has changed.
struct Changed(Gaps, fn(&mut SpanSample));

impl Samples for Changed {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.0.read(index, sample)?;
        self.1(sample.spans()?);
        Ok(())
    }
}

#[test]
fn padding_leaves_no_trace() {
    let plan = with(tiny_t5(), "mb=3");
    let of = |change| train_on(&plan, &Changed(Gaps::of(&plan), change));
    let other = of(|spans| {
        spans.tokens[spans.length..].fill(150);
        let end = spans.counts.iter().position(|counts| !counts);
        if let Some(end) = end {
            spans.targets[end..].fill(u32::MAX);
            spans.decoder_tokens[end..].fill(9);
        }
    });
    assert_same(&other, &of(|_| {}), "other padding");
}

#[test]
fn samples_that_do_not_fit_are_refused_by_name() {
    let plan = tiny_t5();
    let refused = |change: fn(&mut SpanSample)| {
        let folder = tempfile::tempdir().unwrap();
        let samples = Changed(Gaps::of(&plan), change);
        let error = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap_err();
        match &error {
            Error::Sample { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        }
    };
    for (change, wanted) in [
        (
            (|s| s.length = 0) as fn(&mut SpanSample),
            "a length of 0, want 1 to 24",
        ),
        (|s| s.length = 25, "a length of 25, want 1 to 24"),
        (|s| s.tokens[3] = 200, "token 200, vocabulary is 200"),
        (
            |s| s.decoder_tokens[3] = 201,
            "token 201, vocabulary is 200",
        ),
        (|s| s.targets[0] = 202, "token 202, vocabulary is 200"),
    ] {
        let found = refused(change);
        assert!(found.contains(wanted), "{found:?} wants {wanted:?}");
    }
}

#[test]
fn contradictions_are_told_at_once() {
    let mut plan = tiny_t5();
    (plan.model.sliding_window, plan.model.relative_buckets) = (4, 7);
    (plan.model.init_std, plan.decoder_length) = (0.1, 12);
    (plan.train.eod_mask_loss, plan.start) = (true, Some(200));
    let found = plan.problems().join("\n");
    for key in [
        "model.sliding_window",
        "model.relative_buckets: found 7, want even, at least 4",
        "model.init_std",
        "decoder_length: found 12, want a multiple of 8",
        "train.eod_mask_loss",
        "start: found 200, want below the vocabulary of 200",
    ] {
        assert!(found.contains(key), "{key} in {found}");
    }
    let mut gpt = crate::fixtures::tiny_gpt();
    (gpt.decoder_length, gpt.model.decoder_layers) = (8, 2);
    let found = gpt.problems().join("\n");
    assert!(found.contains("decoder_length: found 8"), "{found}");
    assert!(found.contains("model.decoder_layers: found 2"), "{found}");
}

/// Greedy decoding with the cache gives the likeliest token of the whole run each time.
#[test]
fn an_answer_is_what_the_whole_model_would_write() {
    for plan in kinds() {
        let folder = tempfile::tempdir().unwrap();
        let samples = Gaps::of(&plan);
        let done = run(&plan, &samples, None, folder.path(), &Log::default()).unwrap();
        let asked = GenerateOptions {
            max_tokens: 20, // more than the decoder's sequence: positions are relative
            temperature: 0.0,
            ..GenerateOptions::default()
        };
        let prompt = [7, 3, 11, 150, 2];
        let found = generate(&done.checkpoint, &prompt, &asked, &mut |_| {}).unwrap();
        let mut written = vec![0];
        for (at, token) in found.iter().enumerate() {
            let rows = decoder_logits(&done.checkpoint, &prompt, &written).unwrap();
            let row = &rows[at];
            let best =
                (0..row.len()).fold(0, |best, id| if row[id] > row[best] { id } else { best });
            assert_eq!(*token as usize, best, "token {at}");
            written.push(*token);
        }
        assert_eq!(found.len(), 20);
        let long = vec![1; 25];
        let error = generate(&done.checkpoint, &long, &asked, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("25 tokens"), "{error}");
        let error = logits(&done.checkpoint, &prompt).unwrap_err();
        assert!(error.to_string().contains("decoder_logits"), "{error}");
    }
}

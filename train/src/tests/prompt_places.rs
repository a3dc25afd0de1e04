//! Virtual tokens at several places of a text, as a task template has them: torch's steps and logits, the same bits on every layout,
//! resuming, answers to texts that place them, and refusals. The goldens are described in tests/oracles/template_goldens.py.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;

use crate::checkpoint::{check_init, export_peft, import_hf};
use crate::config::{EncoderKind, LossMean, Plan, PromptEncoder};
use crate::data::{Sample, Samples, virtual_tokens};
use crate::dist::devices::Devices;
use crate::eval::{LanguageModel, Query, Scorer, logits};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::infer::engine::{Engine, Event, Limits, Request};
use crate::infer::{BeamOptions, GenerateOptions, beam_search, generate};
use crate::tests::layouts::{assert_same, train_in};
use crate::tests::parity::{Formula, Golden};
use crate::tests::prompt::{encoded, packed, prompted, same_in_every_layout};
use crate::tests::prompt_parity::{five, follows_torch, saved};
use crate::tests::share::Share;
use crate::trainer::run;

/// Tokens of a text, and virtual ones behind them.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub text: usize,
    pub virtual_tokens: usize,
}

/// Those of the goldens.
pub(super) const PLACES: [Place; 2] = [
    Place {
        text: 3,
        virtual_tokens: 3,
    },
    Place {
        text: 4,
        virtual_tokens: 2,
    },
];

/// A text with virtual tokens at its places.
fn placed(text: &[u32], places: &[Place]) -> Vec<u32> {
    placed_from(0, text, places)
}

/// The same with virtual tokens from this one on.
pub(super) fn placed_from(first: usize, text: &[u32], places: &[Place]) -> Vec<u32> {
    let count: usize = places.iter().map(|place| place.virtual_tokens).sum();
    let (mut rest, mut ids) = (text, Vec::new());
    let mut own = virtual_tokens(first + count).skip(first);
    for place in places {
        let (before, after) = rest.split_at(place.text);
        ids.extend(before);
        ids.extend(own.by_ref().take(place.virtual_tokens));
        rest = after;
    }
    ids.extend(rest);
    ids
}

/// Samples of texts with virtual tokens at these places, of which those behind the last of them are predicted.
struct Placed<S> {
    of: S,
    texts: usize,
    places: Vec<Place>,
}

impl<S: Samples> Samples for Placed<S> {
    fn len(&self) -> u64 {
        self.of.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.of.read(index, sample)?;
        let to = sample.text()?;
        let (inputs, tokens) = (to.counts.len(), to.tokens.clone());
        let before: usize = self.places.iter().map(|place| place.text).sum();
        let own: usize = self.places.iter().map(|place| place.virtual_tokens).sum();
        to.counts.fill(false);
        let (mut from, mut at) = (0, 0);
        for number in 0..self.texts {
            let end = match number + 1 == self.texts {
                true => inputs + 1,
                false => inputs * (number + 1) / self.texts - usize::try_from(index % 3)?,
            };
            let count = end - from - own;
            let text = placed(&tokens[at..at + count], &self.places);
            to.tokens[from..end].copy_from_slice(&text);
            to.counts[from + before + own - 1..end - 1].fill(true);
            to.ends.push(end.min(inputs));
            (from, at) = (end, at + count);
        }
        Ok(())
    }
}

/// The plan with its virtual tokens at two markers, and samples for it.
fn at_two(mut plan: Plan) -> (Plan, Placed<Chain>) {
    let is_packed = plan.train.reset_attention_mask;
    let places = match is_packed {
        true => [[1, 2], [1, 1]],
        false => [[2, 3], [3, 2]],
    };
    let places = places.map(|[text, virtual_tokens]| Place {
        text,
        virtual_tokens,
    });
    let prompt = plan.model.prompt.as_mut().unwrap();
    prompt.splits = places.map(|place| place.virtual_tokens).to_vec();
    prompt.virtual_tokens = prompt.splits.iter().sum();
    prompt.template = "a<|VIRTUAL_PROMPT_0|>b<|VIRTUAL_PROMPT_1|>{c}".into();
    let samples = Placed {
        of: Chain::of(&plan),
        texts: if is_packed { 2 } else { 1 },
        places: places.to_vec(),
    };
    (plan, samples)
}

#[test]
fn virtual_tokens_at_two_places_follow_torch_through_ten_steps() {
    let samples = Placed {
        of: Formula,
        texts: 1,
        places: PLACES.to_vec(),
    };
    follows_torch("template_gpt2", five(None), &samples);
    let encoder = PromptEncoder {
        kind: EncoderKind::Lstm,
        hidden: 6,
        layers: 2,
    };
    follows_torch("template_lstm", five(Some(encoder)), &samples);
}

#[test]
fn logits_of_a_text_that_places_virtual_tokens_are_torchs() {
    for name in ["template_gpt2", "template_lstm"] {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let rows = golden.tensor("first", &[5, 16]);
        golden.record["adapter_config"] = serde_json::json!({
            "peft_type": "PROMPT_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 5
        });
        let [_, adapter] = saved(&mut golden, folder.path(), &rows);
        let read = import_hf(&adapter, &folder.path().join("out")).unwrap();
        let mut found = Vec::new();
        for sample in 0..4 {
            let text: Vec<u32> = (0..11).map(|at| Formula::token(sample, at)).collect();
            let text = placed(&text, &PLACES);
            found.extend(logits(&read.checkpoint, &text).unwrap().concat());
        }
        let off = golden.difference("logits", &[4, 16, 61], &found);
        assert!(off <= 1.0, "{name}: logits are {off} tolerances off");
    }
}

#[test]
fn every_layout_gives_the_same_bits_with_virtual_tokens_at_two_places() {
    let mut share = Share::one_in(3);
    for (plan, mean) in [
        (prompted(tiny_gpt(), 5), LossMean::Token),
        (packed(tiny_llama()), LossMean::Text),
        (
            encoded(tiny_llama(), EncoderKind::Lstm, 12),
            LossMean::Token,
        ),
    ] {
        let (mut plan, samples) = at_two(plan);
        plan.model.layers = 4;
        plan.train.loss_mean = mean;
        same_in_every_layout(&plan, &samples, &mut share);
    }
}

#[test]
fn virtual_tokens_at_two_places_resume_and_answer_where_the_text_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let (mut plan, samples) = at_two(prompted(tiny_llama(), 5));
    plan.train.steps = 6;
    let whole = dir.path().join("whole");
    let want = train_in(&plan, &whole, &samples);
    let killed = dir.path().join("killed");
    let fails = Placed {
        of: Chain {
            fails_at: Some(5 * 8),
            ..Chain::of(&plan)
        },
        texts: 1,
        places: samples.places.clone(),
    };
    run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
    assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");
    let last = whole.join("checkpoints/step-00000006");
    // other places are another task
    let mut other = plan.clone();
    other.model.prompt.as_mut().unwrap().splits = vec![4, 1];
    let error = check_init(&last, &other, true).unwrap_err().with_causes();
    assert!(error.contains("splits"), "{error}");
    check_init(&last, &plan, true).unwrap();
    answers_follow_the_places(&last, &samples.places);
    refuses_other_texts(&last, &samples.places);
}

/// The likeliest id of a row.
pub(super) fn best(row: &[f32]) -> u32 {
    let best = row.iter().enumerate();
    let best = best.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    u32::try_from(best.unwrap().0).unwrap()
}

/// Every way to ask gives the numbers of the logits of the whole text.
fn answers_follow_the_places(checkpoint: &Path, places: &[Place]) {
    let prompt = placed(&[3, 24, 171, 9, 40, 7], places);
    let mut text = prompt.clone();
    for _ in 0..5 {
        text.push(best(logits(checkpoint, &text).unwrap().last().unwrap()));
    }
    let moved = [
        Place {
            text: 1,
            ..places[0]
        },
        Place {
            text: 4,
            ..places[1]
        },
    ];
    let moved = placed(&[3, 24, 171, 9, 40, 7], &moved);
    assert_ne!(
        logits(checkpoint, &moved).unwrap().last(),
        logits(checkpoint, &prompt).unwrap().last(),
        "the places matter"
    );
    let options = GenerateOptions::greedy(5);
    let found = generate(checkpoint, &prompt, &options, &mut |_| {}).unwrap();
    assert_eq!(found, text[11..]);

    let rows = logits(checkpoint, &text[..15]).unwrap();
    let log = |row: &[f32], id: u32| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        f64::from(row[id as usize]) - sum.ln()
    };
    let scorer = Scorer::open(checkpoint, Devices::Cpu.whole()).unwrap();
    assert_eq!(scorer.markers()[0].counts, [3, 2]);
    let query = |from: usize, to: usize| Query {
        context: text[..from].to_vec(),
        continuation: text[from..to].to_vec(),
    };
    // texts of several lengths share a batch, and the longest fills the model
    let queries = [query(11, 14), query(10, 11), query(12, 16)];
    let scored = scorer.log_likelihoods(&queries, &mut |_| {}).unwrap();
    for (scored, range) in scored.iter().zip([11..14, 10..11, 12..16]) {
        let wanted: f64 = range.map(|at| log(&rows[at - 1], text[at])).sum();
        assert!((scored.log - wanted).abs() < 1e-4, "{scored:?} {wanted}");
    }
    let new = scorer
        .generate(
            std::slice::from_ref(&prompt),
            5,
            &mut |_, _| false,
            &mut || {},
        )
        .unwrap();
    assert_eq!(new, [&text[11..]]);

    // on two ranks, with guesses and a cached beginning
    let limits = Limits {
        draft_tokens: 2,
        ..Limits::default()
    };
    let mut engine = Engine::open(checkpoint, Devices::Cpu.split(2), limits).unwrap();
    assert_eq!(engine.markers()[0].counts, [3, 2]);
    for _ in 0..2 {
        engine
            .submit(Request {
                prompt: prompt.clone(),
                options: options.clone(),
                beginning: Vec::new(),
                slides: true,
                adapter: None,
            })
            .unwrap();
        let mut answer = Vec::new();
        while !engine.is_idle() {
            for event in engine.step().unwrap() {
                if let Event::Token { token, .. } = event {
                    answer.push(token);
                }
            }
        }
        assert_eq!(answer, text[11..]);
    }
    let beams = BeamOptions {
        width: 1,
        max_tokens: 5,
        stop: None,
        length_penalty: 1.0,
    };
    let beams = beam_search(&mut engine, &prompt, &beams).unwrap();
    assert_eq!(beams[0].tokens, text[11..]);
}

/// Texts that do not have the model's virtual tokens, or would lose them, are refused with a reason.
fn refuses_other_texts(checkpoint: &Path, places: &[Place]) {
    let mut engine = Engine::open(checkpoint, Devices::Cpu.whole(), Limits::default()).unwrap();
    let prompt = placed(&[3, 24, 171, 9, 40, 7], places);
    let swapped: Vec<u32> = prompt.iter().rev().copied().collect();
    let scores = GenerateOptions {
        prompt_logprobs: Some(0),
        ..GenerateOptions::greedy(1)
    };
    let greedy = GenerateOptions::greedy;
    for (prompt, beginning, options, wanted) in [
        (
            vec![3, 24],
            vec![],
            greedy(1),
            "found a text without virtual tokens, want the 2 markers of the task template in it: \"a<|VIRTUAL_PROMPT_0|>b",
        ),
        (
            prompt[..5].to_vec(),
            vec![],
            greedy(1),
            "found 3 of them, want all 5",
        ),
        (swapped, vec![], greedy(1), "each once and in order"),
        (
            prompt.clone(),
            vec![prompt[2]],
            greedy(1),
            "want below the vocabulary of 200",
        ),
        (
            prompt.clone(),
            vec![],
            greedy(6),
            "found 11 tokens and 6 to add, want at most 16 together",
        ),
        (prompt.clone(), vec![], scores, "want one without them"),
    ] {
        let request = Request {
            prompt,
            options,
            beginning,
            slides: true,
            adapter: None,
        };
        let error = engine.submit(request).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    assert!(engine.is_idle());
    let error = logits(checkpoint, &[3, 24]).unwrap_err().to_string();
    assert!(error.contains("2 markers"), "{error}");
    let scorer = Scorer::open(checkpoint, Devices::Cpu.whole()).unwrap();
    for (context, answer, wanted) in [
        (vec![3, 24], 1, "2 markers"),
        (prompt.clone(), 7, "want at most 16"),
    ] {
        let query = Query {
            context,
            continuation: vec![5; answer],
        };
        let error = scorer.log_likelihoods(&[query], &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let long = scorer.generate(&[prompt], 6, &mut |_, _| false, &mut || {});
    let error = long.unwrap_err().to_string();
    assert!(error.contains("at most 16 together"), "{error}");

    let peft = tempfile::tempdir().unwrap();
    let to = peft.path().join("peft");
    let error = export_peft(checkpoint, &to).unwrap_err().to_string();
    assert!(
        error.contains("PEFT's folders have no other place for them"),
        "{error}"
    );
    assert!(fs::metadata(&to).is_err(), "nothing is written");
}

#[test]
fn splits_that_are_not_all_virtual_tokens_are_refused() {
    for splits in [vec![5, 1], vec![5, 0], vec![usize::MAX, 6]] {
        let mut plan = prompted(tiny_llama(), 5);
        plan.model.prompt.as_mut().unwrap().splits = splits.clone();
        let problems = plan.problems().join("\n");
        let wanted = format!(
            "model.prompt.splits: found {splits:?}, want numbers above 0 whose sum is virtual_tokens = 5"
        );
        assert!(problems.contains(&wanted), "{problems}");
    }
}

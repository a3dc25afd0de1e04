//! Prompt tuning: frozen weights untouched, the same bits on every layout, memory, resuming, initial rows from embeddings, and
//! answers after the virtual tokens. `prompt_parity` compares with PEFT.

use std::error::Error as StdError;
use std::fs;
use std::path::Path;

use kernels::{Device, Tensor};
use serde_json::Value;

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, check_init, export_peft};
use crate::config::{
    Bf16Sums, EncoderKind, LoraConfig, LossMean, Plan, Precision, PromptConfig, PromptEncoder,
};
use crate::data::{Sample, Samples, virtual_tokens};
use crate::dist::devices::Devices;
use crate::dist::mesh::RankCoord;
use crate::eval::{LanguageModel, Query, Scorer, logits};
use crate::fixtures::{Chain, Log, options, tiny_bert, tiny_gpt, tiny_llama, tiny_moe};
use crate::infer::engine::{Engine, Event, Limits, Request};
use crate::infer::{GenerateOptions, generate};
use crate::model::param;
use crate::tests::layouts::{assert_same, train_in, train_on, with};
use crate::tests::share::Share;
use crate::trainer::{memory, run};

pub(super) fn prompted(mut plan: Plan, count: usize) -> Plan {
    plan.model.prompt = Some(PromptConfig {
        virtual_tokens: count,
        ..PromptConfig::default()
    });
    plan
}

/// The same with an encoder.
pub(super) fn encoded(plan: Plan, kind: EncoderKind, hidden: usize) -> Plan {
    let mut plan = prompted(plan, 5);
    plan.model.prompt.as_mut().unwrap().encoder = Some(PromptEncoder {
        kind,
        hidden,
        layers: 2,
    });
    plan
}

/// The same with two texts in each sample, none of which sees the other.
pub(super) fn packed(plan: Plan) -> Plan {
    let mut plan = prompted(plan, 3);
    (plan.eod, plan.train.reset_attention_mask) = (Some(0), true);
    plan.train.reset_position_ids = true;
    plan
}

/// Samples with virtual tokens in front of each of `texts` texts.
pub(super) struct Prompted<S> {
    pub of: S,
    pub count: usize,
    pub texts: usize,
}

impl Prompted<Chain> {
    fn of(plan: &Plan) -> Prompted<Chain> {
        Prompted {
            of: Chain::of(plan),
            count: plan.model.virtual_tokens(),
            texts: if plan.train.reset_attention_mask {
                2
            } else {
                1
            },
        }
    }
}

impl<S: Samples> Samples for Prompted<S> {
    fn len(&self) -> u64 {
        self.of.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.of.read(index, sample)?;
        let text = sample.text()?;
        let (inputs, tokens) = (text.counts.len(), text.tokens.clone());
        let (mut from, mut at) = (0, 0);
        for number in 0..self.texts {
            let end = match number + 1 == self.texts {
                true => inputs + 1,
                false => inputs * (number + 1) / self.texts - usize::try_from(index % 3)?,
            };
            for (to, id) in text.tokens[from..]
                .iter_mut()
                .zip(virtual_tokens(self.count))
            {
                *to = id;
            }
            let ids = end - from - self.count;
            text.tokens[from + self.count..end].copy_from_slice(&tokens[at..at + ids]);
            // virtual tokens are not predicted
            let first = from.saturating_sub(1);
            text.counts[first..from + self.count - 1].fill(false);
            text.ends.push(end.min(inputs));
            (from, at) = (end, at + ids);
        }
        Ok(())
    }
}

pub(super) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.host::<f32>().unwrap().to_vec()
}

#[test]
fn every_layout_gives_the_same_bits_and_frozen_weights_keep_theirs() {
    let mut share = Share::one_in(3);
    for mut plan in [
        prompted(tiny_gpt(), 5),
        packed(tiny_llama()),
        packed(options().remove(0)),
        encoded(tiny_gpt(), EncoderKind::Mlp, 12),
        encoded(packed(tiny_llama()), EncoderKind::Lstm, 0),
    ] {
        plan.model.layers = 4;
        plan.train.loss_mean = match plan.train.reset_attention_mask {
            true => LossMean::Text,
            false => LossMean::Token,
        };
        same_in_every_layout(&plan, &Prompted::of(&plan), &mut share);
    }
}

/// A run on one rank and those of a share of the layouts have the same bits, and only virtual tokens and encoder move.
pub(super) fn same_in_every_layout(plan: &Plan, samples: &dyn Samples, share: &mut Share) {
    let want = train_on(&with(plan.clone(), "mb=12"), samples);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MODEL);
    std::fs::write(&path, &want.model).unwrap();
    let mut file = Reader::open(&path).unwrap();
    for spec in param::specs(plan) {
        let whole = spec.initial(plan.seed, &RankCoord::single(), &Device::cpu());
        let mut found = vec![0.0; spec.dims.iter().product()];
        file.read_part(&spec.name, &spec.dims, 0, &mut found)
            .unwrap();
        assert_eq!(
            values(&whole.unwrap()) == found,
            spec.is_frozen,
            "{}",
            spec.name
        );
        assert_eq!(spec.is_frozen, !spec.name.starts_with("prompt."));
    }
    let layouts = [
        "mb=1",
        "mb=3",
        "dp=3 mb=2",
        "tp=2 mb=2",
        "tp=2 sp mb=3",
        "pp=2 mb=1",
        "pp=2 vs=2 tp=2 sp dp=2 mb=2",
        "dp=2 zero=1 mb=3",
        "dp=3 zero=2 mb=4",
        "dp=2 zero=3 tp=2 sp pp=2 mb=3",
        "cp=2 mb=4",
        "cp=8 mb=12",
        "cp=2 dp=2 zero=2 mb=3",
        "full mb=2",
        "selective cp=2 tp=2 mb=1",
        "chunked mb=3",
    ];
    for layout in share.of(&layouts) {
        let found = train_on(&with(plan.clone(), layout), samples);
        assert_same(&found, &want, layout);
    }
}

#[test]
fn a_text_of_a_packed_model_is_one_document_with_its_virtual_tokens() {
    let plan = packed(tiny_llama());
    let dir = tempfile::tempdir().unwrap();
    let done = run(
        &plan,
        &Prompted::of(&plan),
        None,
        dir.path(),
        &Log::default(),
    );
    let checkpoint = done.unwrap().checkpoint;
    // token 0 ends documents of texts without `ends`
    let last = |text: &[u32]| logits(&checkpoint, text).unwrap().pop().unwrap();
    assert_ne!(last(&[5, 0, 9]), last(&[6, 0, 9]));
    let options = GenerateOptions::greedy(1);
    let found = generate(&checkpoint, &[5, 0, 9], &options, &mut |_| {}).unwrap();
    let row = last(&[5, 0, 9]);
    let best = row.iter().enumerate();
    let best = best.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    assert_eq!(found[0] as usize, best.unwrap().0);
}

#[test]
fn layouts_agree_in_bf16() {
    for mut plan in [
        packed(tiny_llama()),
        encoded(tiny_llama(), EncoderKind::Mlp, 12),
    ] {
        (plan.train.precision, plan.train.bf16_sums) = (Precision::Bf16, Bf16Sums::Pairs);
        let samples = Prompted::of(&plan);
        let want = train_on(&with(plan.clone(), "mb=12"), &samples);
        for layout in ["tp=2 sp mb=3", "pp=2 mb=1", "dp=2 zero=3 mb=2", "cp=2 mb=4"] {
            let found = train_on(&with(plan.clone(), layout), &samples);
            assert_same(&found, &want, layout);
        }
    }
}

#[test]
fn ranks_hold_the_bytes_that_the_formulas_say() {
    for mut plan in [
        packed(tiny_llama()),
        encoded(tiny_llama(), EncoderKind::Mlp, 12),
        encoded(tiny_gpt(), EncoderKind::Lstm, 0),
        prompted(tiny_gpt(), 5),
    ] {
        plan.model.layers = 4;
        (plan.train.global_batch, plan.train.micro_batch) = (12, 1);
        for layout in [
            "mb=1",
            "dp=2 zero=1 mb=1",
            "dp=3 zero=3 mb=2",
            "tp=2 sp pp=2 mb=1",
            "cp=2 mb=2",
        ] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &Prompted::of(&plan)).unwrap();
            assert_eq!(measured, predicted, "{layout}");
        }
        let d = plan.model.d_model;
        let prompt = plan.model.prompt.as_ref().unwrap();
        let encoder = match prompt.encoder.map(|encoder| encoder.kind) {
            None => 0,
            Some(EncoderKind::Mlp) => 12 * d + 12 + 12 * 12 + 12 + d * 12 + d,
            Some(EncoderKind::Lstm) => {
                let layer = |input: usize| 2 * (4 * d * input + 4 * d * d + 2 * 4 * d);
                layer(d) + layer(2 * d) + 4 * d * d + 2 * d + 2 * d * d + d
            }
        };
        let count = prompt.virtual_tokens * d + encoder;
        assert_eq!(plan.trained_parameters(), count as u64);
    }
}

#[test]
fn an_encoder_resumes_and_its_rows_are_what_others_see() {
    for kind in [EncoderKind::Mlp, EncoderKind::Lstm] {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = encoded(tiny_llama(), kind, 12);
        plan.train.steps = 6;
        let samples = Prompted::of(&plan);
        let whole = dir.path().join("whole");
        let want = train_in(&plan, &whole, &samples);
        let killed = dir.path().join("killed");
        let fails = Prompted {
            of: Chain {
                fails_at: Some(5 * 8),
                ..Chain::of(&plan)
            },
            count: 5,
            texts: 1,
        };
        run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
        assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");

        let last = whole.join("checkpoints/step-00000006");
        let model = Model::load(&last, &Devices::Cpu).unwrap();
        assert_eq!(model.plan.model.prompt.as_ref().unwrap().encoder, None);
        let specs = param::specs(&model.plan);
        assert_eq!(specs.len(), model.weights.len());
        let at = specs.iter().position(|spec| spec.name == param::PROMPT);
        let rows = values(&model.weights[at.unwrap()]);
        let folder = dir.path().join("peft");
        export_peft(&last, &folder).unwrap();
        let mut file = Reader::open(&folder.join("adapter_model.safetensors")).unwrap();
        let mut found = vec![0.0; 5 * 32];
        file.read_part("prompt_embeddings", &[5, 32], 0, &mut found)
            .unwrap();
        assert!(found == rows, "the encoder's rows");
        let config = fs::read(folder.join("adapter_config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["peft_type"], "P_TUNING");
        assert_eq!(config["encoder_hidden_size"], 12);
        // on two ranks, too
        let options = GenerateOptions::greedy(5);
        let wanted = generate(&last, &[3, 4, 5], &options, &mut |_| {}).unwrap();
        let two = Devices::Cpu.split(2);
        let mut engine = Engine::open(&last, two, Limits::default()).unwrap();
        let request = Request {
            prompt: vec![3, 4, 5],
            options,
            beginning: Vec::new(),
            slides: false,
            adapter: None,
        };
        engine.submit(request).unwrap();
        let mut found = Vec::new();
        while !engine.is_idle() {
            let events = engine.step().unwrap();
            found.extend(events.into_iter().filter_map(|event| match event {
                Event::Token { token, .. } => Some(token),
                _ => None,
            }));
        }
        assert_eq!(found, wanted);
        // the rows depend on the encoder, and go on being trained with it alone
        check_init(&last, &plan, true).unwrap();
        let error = check_init(&last, &prompted(tiny_llama(), 5), true).unwrap_err();
        assert!(error.to_string().contains("encoder"), "{error}");
    }
}

#[test]
fn virtual_tokens_start_from_embeddings_resume_and_answer() {
    let dir = tempfile::tempdir().unwrap();
    let base = tiny_llama();
    let done = run(
        &base,
        &Chain::of(&base),
        None,
        &dir.path().join("base"),
        &Log::default(),
    );
    let checkpoint = done.unwrap().checkpoint;
    let mut plan = prompted(base.clone(), 5);
    plan.model.prompt.as_mut().unwrap().init_ids = vec![7, 199];
    plan.train.init_from = checkpoint.display().to_string();
    (plan.train.steps, plan.train.checkpoint.keep) = (6, 10);
    let samples = Prompted::of(&plan);
    let whole = dir.path().join("whole");
    let want = train_in(&plan, &whole, &samples);

    // the same after an error in step 5
    let killed = dir.path().join("killed");
    let fails = Prompted {
        of: Chain {
            fails_at: Some(5 * 8),
            ..Chain::of(&base)
        },
        count: 5,
        texts: 1,
    };
    run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
    assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");

    // rows with a learning rate too small to move them are still those of the ids in turn
    let mut still = plan.clone();
    (still.train.lr, still.train.min_lr, still.train.steps) = (1e-30, 0.0, 2);
    let done = run(
        &still,
        &samples,
        None,
        &dir.path().join("still"),
        &Log::default(),
    )
    .unwrap();
    let rows = |checkpoint: &Path, name: &str| {
        let model = Model::load(checkpoint, &Devices::Cpu).unwrap();
        let specs = param::specs(&model.plan);
        let at = specs.iter().position(|spec| spec.name == name).unwrap();
        values(&model.weights[at])
    };
    let (table, found) = (
        rows(&checkpoint, "embedding.weight"),
        rows(&done.checkpoint, param::PROMPT),
    );
    for (row, id) in found.chunks(32).zip([7, 199, 7, 199, 7]) {
        assert!(row == &table[id * 32..(id + 1) * 32], "{id}");
    }

    let last = whole.join("checkpoints/step-00000006");
    check_init(&last, &plan, true).unwrap();
    let error = check_init(&last, &base, true).unwrap_err();
    assert!(error.to_string().contains("prompt"), "{error}");
    answers_follow_the_virtual_tokens(&last, &checkpoint);
}

/// Every way to ask gives the numbers of the logits after the virtual tokens.
fn answers_follow_the_virtual_tokens(checkpoint: &Path, base: &Path) {
    let prompt = [3, 24, 171];
    let mut text = prompt.to_vec();
    for _ in 0..6 {
        let rows = logits(checkpoint, &text).unwrap();
        let best = rows.last().unwrap().iter().enumerate();
        let best = best.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        text.push(u32::try_from(best.unwrap().0).unwrap());
    }
    let options = GenerateOptions::greedy(6);
    let found = generate(checkpoint, &prompt, &options, &mut |_| {}).unwrap();
    assert_eq!(found, text[3..]);

    let rows = logits(checkpoint, &text[..8]).unwrap();
    let of_base = logits(base, &text[..8]).unwrap().concat();
    let apart = of_base.iter().zip(rows.concat());
    let apart = apart.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(apart > 1e-2, "the virtual tokens matter: {apart}");
    let log = |row: &[f32], id: u32| {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        f64::from(row[id as usize]) - sum.ln()
    };
    let scorer = Scorer::open(checkpoint, Devices::Cpu.whole()).unwrap();
    assert_eq!(scorer.max_length(), 11);
    let query = Query {
        context: text[..2].to_vec(),
        continuation: text[2..5].to_vec(),
    };
    let scored = scorer.log_likelihoods(&[query], &mut |_| {}).unwrap();
    let wanted: f64 = (2..5).map(|at| log(&rows[at - 1], text[at])).sum();
    assert!((scored[0].log - wanted).abs() < 1e-4, "{scored:?} {wanted}");

    // the log-probabilities of a prompt, alone and with a cached beginning, and guesses
    let limits = Limits {
        draft_tokens: 2,
        ..Limits::default()
    };
    let mut engine = Engine::open(checkpoint, Devices::Cpu.whole(), limits).unwrap();
    for prompt_logprobs in [Some(0), None, Some(0)] {
        let options = GenerateOptions {
            prompt_logprobs,
            ..GenerateOptions::greedy(3)
        };
        let request = |prompt: &[u32]| Request {
            prompt: prompt.to_vec(),
            options: options.clone(),
            beginning: Vec::new(),
            slides: true,
            adapter: None,
        };
        engine.submit(request(&text[..6])).unwrap();
        let mut answer = Vec::new();
        while !engine.is_idle() {
            for event in engine.step().unwrap() {
                match event {
                    Event::Prompt { scores, .. } if prompt_logprobs.is_some() => {
                        assert_eq!(scores.len(), 6);
                        assert!(scores[0].is_none());
                        for at in 1..6 {
                            let found = f64::from(scores[at].as_ref().unwrap().logprob);
                            let wanted = log(&rows[at - 1], text[at]);
                            assert!((found - wanted).abs() < 1e-4, "{at}: {found} {wanted}");
                        }
                    }
                    Event::Token { token, .. } => answer.push(token),
                    _ => {}
                }
            }
        }
        assert_eq!(answer, text[6..]);
        if prompt_logprobs.is_some() {
            let long = engine.submit(request(&[5; 9])).unwrap_err().to_string();
            assert!(long.contains("at most 11 together"), "{long}");
        }
        let unknown = engine.submit(request(&[1 << 29])).unwrap_err().to_string();
        assert!(unknown.contains("vocabulary"), "{unknown}");
        let part = engine.submit(request(&[1 << 30])).unwrap_err().to_string();
        assert!(part.contains("found 1 of them, want all 5"), "{part}");
    }
    assert_eq!(engine.counts().prompt_tokens, 18);

    // a text that grows beyond the model's sequences goes on with its newest half, after the virtual tokens
    let mut seen = [9, 40, 77, 130].to_vec();
    let options = GenerateOptions::greedy(12);
    let found = generate(checkpoint, &seen, &options, &mut |_| {}).unwrap();
    for token in found {
        if seen.len() > 11 {
            seen.drain(..seen.len() - 6);
        }
        let rows = logits(checkpoint, &seen).unwrap();
        let best = rows.last().unwrap().iter().enumerate();
        let best = best.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        assert_eq!(best.unwrap().0, token as usize, "{seen:?}");
        seen.push(token);
    }
    let long: Vec<u32> = (0..20).collect();
    let options = GenerateOptions::greedy(1);
    let found = generate(checkpoint, &long, &options, &mut |_| {}).unwrap();
    let of_last = generate(checkpoint, &long[9..], &options, &mut |_| {}).unwrap();
    assert_eq!(found, of_last);
}

#[test]
fn virtual_tokens_that_do_not_fit_are_refused() {
    for (plan, wanted) in [
        (
            prompted(tiny_bert(), 3),
            "model.prompt: found a table with family = Bert",
        ),
        (
            prompted(tiny_moe(), 3),
            "model.prompt: found a table with family = Llama",
        ),
        (
            prompted(tiny_gpt(), 0),
            "model.prompt.virtual_tokens: found 0, want at least 1",
        ),
        (
            prompted(tiny_gpt(), 16),
            "model.prompt.virtual_tokens: found 16, want fewer than seq_length = 16",
        ),
    ] {
        let problems = plan.problems().join("\n");
        assert!(problems.contains(wanted), "{problems}");
    }
    let mut plan = prompted(tiny_llama(), 3);
    plan.model.lora = Some(LoraConfig::default());
    plan.model.prompt.as_mut().unwrap().init_ids = vec![5, 200];
    plan.train.ema_decay = 0.9;
    let problems = plan.problems().join("\n");
    for key in [
        "model.prompt: found a table beside model.lora",
        "model.prompt.init_ids: found 200",
        "model.prompt.init_ids: found 2 ids without train.init_from",
        "train.ema_decay: found 0.9 with model.lora",
    ] {
        assert!(problems.contains(key), "{key} in {problems}");
    }
    let of_encoder = |kind, layers, ids: &[u32]| {
        let mut plan = encoded(tiny_llama(), kind, 8);
        let prompt = plan.model.prompt.as_mut().unwrap();
        prompt.encoder.as_mut().unwrap().layers = layers;
        prompt.init_ids = ids.to_vec();
        plan.problems().join("\n")
    };
    for (problems, wanted) in [
        (
            of_encoder(EncoderKind::Mlp, 3, &[]),
            "model.prompt.encoder.layers: found 3, want 2",
        ),
        (
            of_encoder(EncoderKind::Lstm, 0, &[]),
            "model.prompt.encoder.layers: found 0, want 1 to 16",
        ),
        (
            of_encoder(EncoderKind::Lstm, 1, &[4]),
            "model.prompt.init_ids: found 1 ids with an encoder",
        ),
    ] {
        assert!(problems.contains(wanted), "{problems}");
    }
    // virtual tokens that the model does not have, and predictions of them
    struct Wrong(usize, bool);
    impl Samples for Wrong {
        fn len(&self) -> u64 {
            100
        }
        fn read(&self, _: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
            let text = sample.text()?;
            text.tokens.fill(1);
            for (to, id) in text.tokens.iter_mut().zip(virtual_tokens(self.0)) {
                *to = id;
            }
            if !self.1 {
                text.counts[..self.0].fill(false);
            }
            Ok(())
        }
    }
    let plan = prompted(tiny_llama(), 3);
    let dir = tempfile::tempdir().unwrap();
    for (samples, wanted) in [
        (Wrong(4, false), "1073741827"),
        (Wrong(3, true), "a prediction of a virtual token at 0"),
    ] {
        let error = run(&plan, &samples, None, dir.path(), &Log::default()).unwrap_err();
        let text = error.with_causes();
        assert!(text.contains(wanted), "{text}");
    }
    let error = run(
        &tiny_llama(),
        &Wrong(1, false),
        None,
        dir.path(),
        &Log::default(),
    );
    let text = error.unwrap_err().with_causes();
    assert!(text.contains("1073741824"), "{text}");
}

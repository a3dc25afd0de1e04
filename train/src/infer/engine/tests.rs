//! Tests of the engine: every answer has the bits of the forward pass of its text alone, whatever runs beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::checkpoint::{
    FileType, GgufOptions, WeightFormat, export_gguf, export_hf, export_quantized,
};
use crate::config::{ParallelConfig, Plan};
use crate::dist::devices::Devices;
use crate::eval::logits;
use crate::fixtures::{
    Log, options, samples_of, tiny_deepseek, tiny_gpt, tiny_llama, tiny_moe, tiny_t5,
};
use crate::infer::engine::{Counts, Engine, Event, Finish, Limits, Request};
use crate::infer::sample::{Scored, scored};
use crate::infer::{BeamOptions, GenerateOptions, beam_search, generate};
use crate::trainer::run;

fn trained(mut plan: Plan, folder: &tempfile::TempDir) -> PathBuf {
    plan.train.steps = 20;
    if !plan.model.architecture().is_encoder_decoder {
        plan.seq_length = 64;
    }
    plan.parallel = ParallelConfig::default();
    let samples = samples_of(&plan);
    let out = folder.path();
    let outcome = run(&plan, samples.as_ref(), None, out, &Log::default());
    outcome.unwrap().checkpoint
}

fn engine(checkpoint: &Path, limits: Limits) -> Engine {
    Engine::open(checkpoint, Devices::Cpu.whole(), limits).unwrap()
}

fn request(prompt: &[u32], options: GenerateOptions) -> Request {
    Request {
        prompt: prompt.to_vec(),
        options,
        beginning: Vec::new(),
        slides: false,
        adapter: None,
    }
}

/// All that a request got.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    prompt: Vec<Option<Scored>>,
    tokens: Vec<u32>,
    scored: Vec<Option<Scored>>,
    finish: Option<Finish>,
}

/// Runs until idle; answers by request.
fn answers(engine: &mut Engine) -> BTreeMap<u64, Answer> {
    let mut answers = BTreeMap::<u64, Answer>::new();
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            match event {
                Event::Started { .. } => {}
                Event::Prompt { id, scores, .. } => answers.entry(id).or_default().prompt = scores,
                Event::Token { id, token, scored } => {
                    let answer = answers.get_mut(&id).expect("the prompt is reported first");
                    answer.tokens.push(token);
                    answer.scored.push(scored);
                }
                Event::Finished { id, finish } => {
                    let answer = answers.entry(id).or_default();
                    assert_eq!(answer.finish.replace(finish), None, "finished once");
                }
            }
        }
    }
    answers
}

/// Prompts of many lengths; some begin alike over whole blocks.
fn prompts() -> Vec<Vec<u32>> {
    let long: Vec<u32> = (0..25).map(|i| (i * 37 + 11) % 190).collect();
    let other = [&long[..20], &[9, 8, 7]].concat();
    vec![
        vec![3, 24, 171],
        long.clone(),
        other,
        vec![5; 17],
        vec![190],
        long[..16].to_vec(),
        vec![7, 7, 8, 7, 7, 8, 7, 7],
    ]
}

/// Log-probabilities of the prompt and of a greedy answer by forward passes alone.
fn by_forward(checkpoint: &Path, prompt: &[u32], answer: &[u32], top: usize) -> Answer {
    let whole = [prompt, answer].concat();
    let rows = logits(checkpoint, &whole[..whole.len() - 1]).unwrap();
    let score = |at: usize| Some(scored(&rows[at - 1], whole[at], top));
    let scores = (1..prompt.len()).map(score);
    Answer {
        prompt: std::iter::once(None).chain(scores).collect(),
        tokens: answer.to_vec(),
        scored: (prompt.len()..whole.len()).map(score).collect(),
        finish: Some(Finish::Length),
    }
}

#[test]
fn answers_have_the_bits_of_the_forward_pass_in_any_company() {
    let wide = Limits::default();
    let narrow = Limits {
        max_sequences: 3,
        max_batch_tokens: 7,
        ..wide.clone()
    };
    let tight = Limits {
        cache_tokens: 64,
        ..wide.clone()
    };
    let guessing = Limits {
        draft_tokens: 3,
        ..wide.clone()
    };
    let own = vec![tiny_gpt(), tiny_llama(), tiny_moe(), tiny_deepseek()];
    for plan in [own, options()].concat() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = trained(plan, &folder);
        let prompts = prompts();
        let mut wanted: Option<Vec<Answer>> = None;
        for limits in [&wide, &narrow, &tight, &guessing] {
            let mut engine = engine(&checkpoint, limits.clone());
            // the second round finds the first one's blocks
            for round in 0..2 {
                let mut ids = Vec::new();
                for (number, prompt) in prompts.iter().enumerate() {
                    let options = GenerateOptions {
                        logprobs: Some(3),
                        prompt_logprobs: (number % 2 == 0).then_some(2),
                        ..GenerateOptions::greedy(20)
                    };
                    ids.push(engine.submit(request(prompt, options)).unwrap());
                }
                let mut found = answers(&mut engine);
                let found: Vec<Answer> = ids.iter().map(|id| found.remove(id).unwrap()).collect();
                let Some(wanted) = &wanted else {
                    for (number, (answer, prompt)) in found.iter().zip(&prompts).enumerate() {
                        let mut alone = by_forward(&checkpoint, prompt, &answer.tokens, 3);
                        if number % 2 == 0 {
                            for scored in alone.prompt.iter_mut().flatten() {
                                scored.top.truncate(2);
                            }
                        } else {
                            alone.prompt.clear();
                        }
                        assert_eq!(*answer, alone);
                        for scored in answer.scored.iter().flatten() {
                            assert_eq!(scored.rank, 0, "greedy");
                        }
                    }
                    wanted = Some(found);
                    continue;
                };
                assert_eq!(&found, wanted, "{limits:?}, round {round}");
            }
            let counts = engine.counts();
            assert_eq!((counts.blocks_held, counts.running), (0, 0));
            assert!(counts.cached_tokens > 0, "{counts:?}");
            if *limits == tight {
                assert!(counts.preemptions > 0, "{counts:?}");
            }
            assert_eq!(counts.drafted_tokens > 0, *limits == guessing, "{counts:?}");
        }
    }
}

#[test]
fn a_draft_model_changes_no_bits_and_saves_steps() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_llama(), &folder);
    let limits = Limits {
        draft_tokens: 3,
        ..Limits::default()
    };
    let ask = |engine: &mut Engine| {
        let sampled = GenerateOptions {
            max_tokens: 20,
            temperature: 1.3,
            seed: 5,
            logprobs: Some(0),
            ..GenerateOptions::default()
        };
        let greedy = GenerateOptions::greedy(20);
        for options in [sampled, greedy] {
            engine.submit(request(&[3, 24, 171], options)).unwrap();
        }
        answers(engine)
    };
    let mut plain = engine(&checkpoint, Limits::default());
    let wanted = ask(&mut plain);
    // a model that is its own draft guesses every greedy token
    let draft = engine(&checkpoint, Limits::default());
    let mut guessing = engine(&checkpoint, limits).with_draft(draft).unwrap();
    assert_eq!(ask(&mut guessing), wanted);
    let (plain, guessing) = (plain.counts(), guessing.counts());
    assert!(guessing.accepted_tokens >= 14, "{guessing:?}");
    assert!(guessing.accepted_tokens <= guessing.drafted_tokens);
    assert_eq!(plain.generated_tokens, guessing.generated_tokens);
    let other = tempfile::tempdir().unwrap();
    let mut plan = tiny_llama();
    plan.vocab -= 1;
    let other = engine(&trained(plan, &other), Limits::default());
    let refused = engine(&checkpoint, Limits::default()).with_draft(other);
    assert!(matches!(refused, Err(Error::Request { .. })));
}

#[test]
fn an_encoder_decoder_answers_in_company_as_alone() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_t5(), &folder);
    let mut engine = engine(&checkpoint, Limits::default());
    let prompts: [&[u32]; 3] = [&[3, 24, 171], &[9, 8], &[5; 10]];
    let mut ids = Vec::new();
    for (seed, prompt) in (0..).zip(prompts) {
        let options = GenerateOptions {
            max_tokens: 6,
            seed,
            ..GenerateOptions::default()
        };
        ids.push(engine.submit(request(prompt, options)).unwrap());
    }
    let found = answers(&mut engine);
    for ((seed, prompt), id) in (0..).zip(prompts).zip(ids) {
        let options = GenerateOptions {
            max_tokens: 6,
            seed,
            ..GenerateOptions::default()
        };
        let alone = generate(&checkpoint, prompt, &options, &mut |_| {}).unwrap();
        assert_eq!(found[&id].tokens, alone);
        assert_eq!(alone.len(), 6);
    }
}

#[test]
fn requests_end_at_stops_are_cancelled_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_gpt(), &folder);
    let limits = Limits {
        cache_tokens: 32,
        ..Limits::default()
    };
    let mut engine = engine(&checkpoint, limits);
    let limit = engine.max_length();
    let prompt = [3, 24];
    let go = |engine: &mut Engine, options: GenerateOptions| {
        let id = engine.submit(request(&prompt, options)).unwrap();
        answers(engine).remove(&id).unwrap()
    };
    let free = go(&mut engine, GenerateOptions::greedy(10));
    let stop = GenerateOptions {
        stop: vec![vec![], free.tokens[3..5].to_vec()],
        ..GenerateOptions::greedy(10)
    };
    let stopped = go(&mut engine, stop);
    let end = (0..9)
        .find(|&at| free.tokens[at..at + 2] == free.tokens[3..5])
        .unwrap()
        + 2;
    assert_eq!(stopped.tokens, free.tokens[..end]);
    assert_eq!(stopped.finish, Some(Finish::Stop(1)));
    let first = free.tokens[0];
    let later = GenerateOptions {
        stop: vec![vec![first]],
        min_tokens: 2,
        ..GenerateOptions::greedy(10)
    };
    assert!(!go(&mut engine, later).tokens[..2].contains(&first));
    let banned = GenerateOptions {
        never_after: vec![[24, first]],
        ..GenerateOptions::greedy(1)
    };
    assert_ne!(go(&mut engine, banned).tokens, [first]);
    let biased = GenerateOptions {
        logit_bias: vec![(77, 1e4)],
        ..GenerateOptions::greedy(3)
    };
    assert_eq!(go(&mut engine, biased).tokens, [77; 3]);
    let empty = go(&mut engine, GenerateOptions::greedy(0));
    assert_eq!(
        (empty.tokens.len(), empty.finish),
        (0, Some(Finish::Length))
    );

    let kept = engine
        .submit(request(&prompt, GenerateOptions::greedy(10)))
        .unwrap();
    let left = engine
        .submit(request(&[7; 3], GenerateOptions::greedy(10)))
        .unwrap();
    engine.step().unwrap();
    assert_eq!(engine.counts().running, 2);
    assert!(engine.cancel(left) && !engine.cancel(left));
    let mut tokens = 0;
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            match event {
                Event::Token { id, .. } if id == kept => tokens += 1,
                Event::Finished { id, .. } if id == kept => {}
                other => panic!("{other:?} of another request"),
            }
        }
    }
    assert_eq!(tokens, 9, "the first came before");
    assert_eq!(engine.counts().blocks_held, 0);

    let greedy = GenerateOptions::greedy;
    let nan = GenerateOptions {
        temperature: f64::NAN,
        ..greedy(1)
    };
    let foreign = GenerateOptions {
        logit_bias: vec![(1 << 20, 1.0)],
        ..greedy(1)
    };
    for (prompt, options) in [
        (vec![], greedy(1)),
        (vec![1 << 20], greedy(1)),
        (vec![1; limit], greedy(1)),
        (vec![1], greedy(usize::MAX)),
        (vec![1; 30], greedy(10)),
        (vec![1], nan),
        (vec![1], foreign),
    ] {
        let refused = engine.submit(request(&prompt, options));
        assert!(matches!(refused, Err(Error::Request { .. })), "{refused:?}");
    }
    assert!(engine.is_idle());
    assert_eq!(
        Counts {
            steps: 0,
            batch_rows: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            generated_tokens: 0,
            ..engine.counts()
        },
        Counts {
            blocks: 2,
            ..Counts::default()
        }
    );
}

#[test]
fn the_widest_beam_finds_the_likeliest_pair_of_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_gpt(), &folder);
    let mut engine = engine(&checkpoint, Limits::default());
    let prompt = [3, 24, 171];
    let options = BeamOptions {
        width: engine.vocab(),
        max_tokens: 2,
        stop: None,
        length_penalty: 1.0,
    };
    let found = beam_search(&mut engine, &prompt, &options).unwrap();
    let last = |tokens: &[u32]| logits(&checkpoint, tokens).unwrap().pop().unwrap();
    let log = |row: &[f32], token: u32| f64::from(scored(row, token, 0).logprob);
    let first = last(&prompt);
    let mut best = (f64::NEG_INFINITY, [0, 0]);
    for a in 0..u32::try_from(engine.vocab()).unwrap() {
        let second = last(&[&prompt[..], &[a]].concat());
        for b in 0..u32::try_from(engine.vocab()).unwrap() {
            let score = log(&first, a) + log(&second, b);
            if score > best.0 {
                best = (score, [a, b]);
            }
        }
    }
    assert_eq!(found[0].tokens, best.1);
    assert_eq!(found[0].score, best.0 / 2.0);
    assert!(found.is_sorted_by(|a, b| a.score >= b.score));

    // one beam is the greedy answer; a stop that comes first ends it with an empty answer
    let narrow = BeamOptions {
        width: 1,
        max_tokens: 8,
        ..options
    };
    let greedy = generate(
        &checkpoint,
        &prompt,
        &GenerateOptions::greedy(8),
        &mut |_| {},
    )
    .unwrap();
    let found = beam_search(&mut engine, &prompt, &narrow).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].tokens, greedy);
    let stopped = BeamOptions {
        stop: Some(greedy[0]),
        ..narrow
    };
    let found = beam_search(&mut engine, &prompt, &stopped).unwrap();
    assert_eq!(found[0].tokens, [0u32; 0]);
    assert_eq!(found[0].score, log(&first, greedy[0]));
}

/// Compares the answers of the model on one, two and four ranks.
fn ranks_change_no_bits(path: &Path, is_pair: bool) {
    let limits = Limits {
        draft_tokens: 2,
        ..Limits::default()
    };
    let mut wanted = None;
    for ranks in [1, 2, 4] {
        let opened = Engine::open(path, Devices::Cpu.split(ranks), limits.clone());
        let mut engine = match opened {
            Ok(engine) => engine,
            // fewer heads than ranks
            Err(Error::Request { wanted, .. }) if ranks == 4 => {
                assert!(wanted.contains("divides the model"), "{wanted}");
                continue;
            }
            Err(error) => panic!("{}", error.with_causes()),
        };
        for (number, prompt) in prompts().iter().enumerate() {
            let prompt = &prompt[..prompt.len().min(8)];
            let options = GenerateOptions {
                logprobs: Some(3),
                prompt_logprobs: (!is_pair).then_some(2),
                temperature: if number % 2 == 0 { 0.0 } else { 1.1 },
                seed: number as u64,
                ..GenerateOptions::greedy(6)
            };
            engine.submit(request(prompt, options)).unwrap();
        }
        let found = answers(&mut engine);
        assert_eq!(engine.counts().blocks_held, 0);
        match &wanted {
            None => wanted = Some(found),
            Some(wanted) => assert_eq!(&found, wanted, "{ranks} ranks"),
        }
    }
}

#[test]
fn tensor_parallel_ranks_change_no_bits() {
    for plan in [
        vec![
            tiny_gpt(),
            tiny_llama(),
            tiny_moe(),
            tiny_deepseek(),
            tiny_t5(),
        ],
        options(),
    ]
    .concat()
    {
        let folder = tempfile::tempdir().unwrap();
        let is_pair = plan.model.architecture().is_encoder_decoder;
        ranks_change_no_bits(&trained(plan, &folder), is_pair);
    }
}

#[test]
fn tensor_parallel_ranks_change_no_bits_of_a_hugging_face_folder() {
    for plan in [tiny_gpt(), tiny_llama(), tiny_t5()] {
        let folder = tempfile::tempdir().unwrap();
        let is_pair = plan.model.architecture().is_encoder_decoder;
        let exported = folder.path().join("exported");
        export_hf(&trained(plan, &folder), &exported).unwrap();
        ranks_change_no_bits(&exported, is_pair);
    }
}

/// A checkpoint's weights in blocks, in a GGUF file.
fn in_blocks(checkpoint: &Path, file_type: FileType, folder: &tempfile::TempDir) -> PathBuf {
    let file = folder.path().join(format!("{file_type:?}.gguf"));
    let options = GgufOptions {
        file_type,
        name: None,
        tokenizer: None,
        pre: None,
    };
    export_gguf(checkpoint, &file, &options).unwrap();
    file
}

/// A checkpoint's weights in eight bits, in a folder of Hugging Face.
fn in_eight_bits(checkpoint: &Path, format: WeightFormat, folder: &tempfile::TempDir) -> PathBuf {
    let out = folder.path().join(format!("{format:?}"));
    export_quantized(checkpoint, &out, format).unwrap();
    out
}

#[test]
fn rounded_activations_change_bits_by_their_rounding_alone() {
    let mut plan = tiny_llama();
    // eighths of whole groups
    (plan.model.d_model, plan.model.d_ffn) = (256, 512);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(plan, &folder);
    for file in [
        in_blocks(&checkpoint, FileType::Q8_0, &folder),
        in_blocks(&checkpoint, FileType::Q4_0, &folder),
        in_eight_bits(&checkpoint, WeightFormat::Int8, &folder),
    ] {
        let asked = |ranks, is_rounded, prompts: &[Vec<u32>]| {
            let on = Devices::Cpu.split(ranks);
            let on = on.with_rounded_activations(is_rounded);
            let mut engine = Engine::open(&file, on, Limits::default()).unwrap();
            assert_eq!(engine.rounds_activations(), is_rounded);
            for prompt in prompts {
                let options = GenerateOptions {
                    logprobs: Some(1),
                    prompt_logprobs: Some(1),
                    ..GenerateOptions::greedy(6)
                };
                engine.submit(request(prompt, options)).unwrap();
            }
            answers(&mut engine).into_values().collect::<Vec<_>>()
        };
        let together = asked(1, true, &prompts());
        assert_eq!(asked(2, true, &prompts()), together, "{file:?}");
        for (prompt, wanted) in prompts().into_iter().zip(&together) {
            assert_eq!(&asked(1, true, &[prompt])[0], wanted, "{file:?}");
        }
        let exact = asked(1, false, &prompts());
        let scores = |answers: &[Answer]| -> Vec<f64> {
            let all = answers
                .iter()
                .flat_map(|answer| answer.prompt.iter().flatten());
            all.map(|scored| f64::from(scored.logprob)).collect()
        };
        let (found, wanted) = (scores(&together), scores(&exact));
        let farthest =
            (found.iter().zip(&wanted)).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        // a step of 1/127 in each of two layers
        assert!(farthest > 1e-5 && farthest < 0.05, "{file:?} {farthest}");
    }
}

#[test]
fn rounded_activations_want_weights_of_whole_numbers_and_whole_groups_on_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let on = |ranks| Devices::Cpu.split(ranks).with_rounded_activations(true);
    let checkpoint = trained(tiny_llama(), &folder);
    let engine = Engine::open(&checkpoint, on(1), Limits::default()).unwrap();
    assert!(!engine.rounds_activations());
    let fp8 = in_eight_bits(&checkpoint, WeightFormat::Fp8, &folder);
    let engine = Engine::open(&fp8, on(1), Limits::default()).unwrap();
    assert!(!engine.rounds_activations());
    match Engine::open(&checkpoint, on(2), Limits::default()) {
        Err(Error::Request { wanted, .. }) => assert!(
            wanted.starts_with("1: an eighth of the ") && wanted.ends_with("no multiple of 32"),
            "{wanted}"
        ),
        Err(error) => panic!("{}", error.with_causes()),
        Ok(_) => panic!("groups are cut"),
    }
}

#[test]
fn a_draft_model_has_the_ranks_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_llama(), &folder);
    let limits = Limits {
        draft_tokens: 3,
        ..Limits::default()
    };
    let on = |ranks| Engine::open(&checkpoint, Devices::Cpu.split(ranks), limits.clone()).unwrap();
    let ask = |mut engine: Engine| {
        engine
            .submit(request(&[3, 24, 171], GenerateOptions::greedy(20)))
            .unwrap();
        let found = answers(&mut engine);
        (found, engine.counts().accepted_tokens)
    };
    let (alone, _) = ask(on(1));
    let (found, accepted) = ask(on(2).with_draft(on(2)).unwrap());
    assert_eq!(found, alone);
    assert!(accepted >= 14, "{accepted}");
    assert!(matches!(
        on(2).with_draft(on(1)),
        Err(Error::Request { .. })
    ));
    for wrong in [0, 3, 1 << 40] {
        let refused = Engine::open(&checkpoint, Devices::Cpu.split(wrong), limits.clone());
        assert!(matches!(refused, Err(Error::Request { .. })), "{wrong}");
    }
}

//! Adapters that requests choose: answers beside others equal those of each tuned model alone, and those of PEFT.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::checkpoint::safetensors::{Entry, Writer};
use crate::checkpoint::{export_hf, export_peft};
use crate::config::precision::Precision;
use crate::config::{LoraConfig, LoraTarget, Plan};
use crate::dist::devices::Devices;
use crate::fixtures::{Chain, Log, tiny_deepseek, tiny_gpt, tiny_llama};
use crate::infer::engine::{AdapterId, Engine, Event, Limits, Request};
use crate::infer::{GenerateOptions, Scored};
use crate::tests::parity::{Formula, Golden};
use crate::tests::peft::{of_qwen, saved};
use crate::trainer::run;

/// All that a request got.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    prompt: Vec<Option<Scored>>,
    tokens: Vec<u32>,
    scored: Vec<Option<Scored>>,
    cached: usize,
}

impl Answer {
    /// The same from an empty cache.
    fn uncached(mut self) -> Answer {
        self.cached = 0;
        self
    }
}

fn request(prompt: &[u32], adapter: Option<AdapterId>) -> Request {
    Request {
        prompt: prompt.to_vec(),
        options: GenerateOptions {
            logprobs: Some(2),
            ..GenerateOptions::greedy(12)
        },
        beginning: Vec::new(),
        slides: false,
        adapter,
    }
}

/// Submits everything at once; the answers in the order of the requests.
fn answers(engine: &mut Engine, requests: Vec<Request>) -> Vec<Answer> {
    let ids: Vec<u64> = requests
        .into_iter()
        .map(|request| engine.submit(request).unwrap())
        .collect();
    let mut found: BTreeMap<u64, Answer> = BTreeMap::new();
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            match event {
                Event::Started { .. } | Event::Finished { .. } => {}
                Event::Prompt { id, scores, cached } => {
                    let answer = found.entry(id).or_default();
                    (answer.prompt, answer.cached) = (scores, cached);
                }
                Event::Token { id, token, scored } => {
                    let answer = found.entry(id).or_default();
                    answer.tokens.push(token);
                    answer.scored.push(scored);
                }
            }
        }
    }
    ids.iter().map(|id| found.remove(id).unwrap()).collect()
}

/// A base model, and checkpoints of it with adapters.
struct Tuned {
    folder: tempfile::TempDir,
    base: PathBuf,
    adapters: Vec<PathBuf>,
}

fn tuned(plan: &Plan, configs: &[LoraConfig]) -> Tuned {
    let mut plan = Plan {
        seq_length: 64,
        ..plan.clone()
    };
    (plan.train.steps, plan.train.global_batch) = (2, 2);
    let plan = &plan;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let train = |plan: &Plan, name: &str| {
        let done = run(plan, &Chain::of(plan), None, &path(name), &Log::default());
        done.unwrap().checkpoint
    };
    let base = train(plan, "base");
    export_hf(&base, &path("from")).unwrap();
    let adapters = configs.iter().enumerate().map(|(number, config)| {
        let mut plan = plan.clone();
        plan.train.init_from = path("from").display().to_string();
        plan.train.lr *= 20.0;
        plan.seed += number as u64;
        plan.model.lora = Some(config.clone());
        train(&plan, &format!("tuned-{number}"))
    });
    let adapters = adapters.collect();
    Tuned {
        folder,
        base,
        adapters,
    }
}

fn configs() -> [LoraConfig; 2] {
    let first = LoraConfig {
        rank: 3,
        alpha: 7.0,
        ..LoraConfig::default()
    };
    let second = LoraConfig {
        rank: 4,
        alpha: 32.0,
        rs_lora: true,
        targets: vec![LoraTarget::Qkv, LoraTarget::Fc2],
        ..LoraConfig::default()
    };
    [first, second]
}

fn open(path: &Path, ranks: usize, limits: &Limits) -> Engine {
    Engine::open(path, Devices::Cpu.split(ranks), limits.clone()).unwrap()
}

fn open_for_adapters(path: &Path, ranks: usize, limits: &Limits) -> Engine {
    let on = Devices::Cpu.split(ranks);
    Engine::open_for_adapters(path, on, limits.clone()).unwrap()
}

#[test]
fn answers_have_the_bits_of_each_tuned_model_in_any_company() {
    let wide = Limits::default();
    let narrow = Limits {
        max_sequences: 3,
        max_batch_tokens: 7,
        ..wide.clone()
    };
    let tight = Limits {
        cache_tokens: 64,
        draft_tokens: 3,
        ..wide.clone()
    };
    let long: Vec<u32> = (0..18).map(|i| (i * 37 + 11) % 190).collect();
    let prompts = [&long[..], &[3, 24, 171], &long[..17], &[7, 7, 8, 7, 7, 8]];
    let mut in_bf16 = tiny_llama();
    in_bf16.train.precision = Precision::Bf16;
    for plan in [tiny_gpt(), tiny_llama(), in_bf16] {
        let is_f32 = plan.train.precision == Precision::F32;
        let tuned = tuned(&plan, &configs());
        let peft = tuned.folder.path().join("peft");
        export_peft(&tuned.adapters[1], &peft).unwrap();
        let own = [&tuned.base, &tuned.adapters[0], &tuned.adapters[1]];
        let wanted = own.map(|path| {
            // without adapters a model in bf16 stores more in bf16
            let mut engine = match is_f32 || path != &tuned.base {
                true => open(path, 1, &wide),
                false => open_for_adapters(path, 1, &wide),
            };
            engine.clear_prefix_cache();
            let requests = prompts.iter().map(|prompt| request(prompt, None));
            let found = answers(&mut engine, requests.collect()).into_iter();
            found.map(Answer::uncached).collect::<Vec<Answer>>()
        });
        assert_ne!(wanted[1], wanted[2], "the adapters differ");
        assert_ne!(wanted[0], wanted[1]);
        for (limits, ranks) in [(&wide, 1), (&narrow, 1), (&tight, 1), (&wide, 2)] {
            let mut engine = open_for_adapters(&tuned.base, ranks, limits);
            let first = engine.load_adapter(&tuned.adapters[0]).unwrap();
            let second = engine.load_adapter(&peft).unwrap();
            let all = [None, Some(first), Some(second)];
            // the second round finds the first one's blocks
            for round in 0..2 {
                let requests = prompts
                    .iter()
                    .flat_map(|prompt| all.map(|adapter| request(prompt, adapter)));
                let found = answers(&mut engine, requests.collect());
                for (number, answer) in found.into_iter().enumerate() {
                    let (prompt, which) = (number / 3, number % 3);
                    let of = format!("{limits:?}, {ranks} ranks, round {round}, {number}");
                    assert_eq!(answer.uncached(), wanted[which][prompt], "{of}");
                }
            }
            assert_eq!(engine.counts().blocks_held, 0);
        }
    }
}

#[test]
fn beginnings_are_shared_among_requests_with_the_same_adapter_alone() {
    let tuned = tuned(&tiny_llama(), &configs()[..1]);
    let mut engine = open_for_adapters(&tuned.base, 1, &Limits::default());
    let first = engine.load_adapter(&tuned.adapters[0]).unwrap();
    let again = engine.load_adapter(&tuned.adapters[0]).unwrap();
    assert_ne!(first, again);
    let prompt: Vec<u32> = (0..17).collect();
    let mut cached = |adapter| {
        let found = answers(&mut engine, vec![request(&prompt, adapter)]);
        found[0].cached
    };
    for adapter in [None, Some(first), Some(again)] {
        assert_eq!(cached(adapter), 0, "{adapter:?}");
        assert_eq!(cached(adapter), 16, "{adapter:?}");
    }
    // a request keeps its adapter to the end; a number is never used again
    let wanted = answers(&mut engine, vec![request(&prompt, Some(first))]);
    engine.submit(request(&prompt, Some(first))).unwrap();
    engine.step().unwrap();
    engine.unload_adapter(first).unwrap();
    let error = engine.submit(request(&prompt, Some(first))).unwrap_err();
    assert!(error.to_string().contains("not loaded"), "{error}");
    let mut tokens = 1;
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            if let Event::Token { token, .. } = event {
                assert_eq!(token, wanted[0].tokens[tokens]);
                tokens += 1;
            }
        }
    }
    assert_eq!(tokens, 12);
    let third = engine.load_adapter(&tuned.adapters[0]).unwrap();
    assert!(third > again);
    // an adapter that still has a request counts among those in memory
    let mut full = open_for_adapters(
        &tuned.base,
        2,
        &Limits {
            max_adapters: 1,
            ..Limits::default()
        },
    );
    let only = full.load_adapter(&tuned.adapters[0]).unwrap();
    full.submit(request(&prompt, Some(only))).unwrap();
    full.unload_adapter(only).unwrap();
    let error = full.load_adapter(&tuned.adapters[0]).unwrap_err();
    assert!(error.to_string().contains("at most 1"), "{error}");
    while !full.is_idle() {
        full.step().unwrap();
    }
    full.load_adapter(&tuned.adapters[0]).unwrap();
    let found = answers(&mut engine, vec![request(&prompt, Some(third))]);
    assert_eq!(found[0].cached, 0, "the blocks of the first are not its");
}

#[test]
fn adapters_of_peft_answer_as_in_peft() {
    for name in ["lora_gpt2", "lora_llama", "lora_patterns"] {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let [base, adapter] = saved(&mut golden, folder.path());
        let logits = golden.tensor("logits", &[4, 16, 61]);
        let mut engine = open_for_adapters(&base, 1, &Limits::default());
        let id = engine.load_adapter(&adapter).unwrap();
        let requests = (0..4).map(|sample| Request {
            options: GenerateOptions {
                prompt_logprobs: Some(0),
                ..GenerateOptions::greedy(0)
            },
            ..request(
                &(0..16)
                    .map(|at| Formula::token(sample, at))
                    .collect::<Vec<u32>>(),
                Some(id),
            )
        });
        let requests: Vec<Request> = requests.collect();
        let found = answers(&mut engine, requests.clone());
        let mut compared = 0;
        for (sample, (answer, request)) in found.iter().zip(&requests).enumerate() {
            for (at, scored) in answer.prompt.iter().enumerate().skip(1) {
                let row = &logits[(sample * 16 + at - 1) * 61..][..61];
                let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
                let wanted = f64::from(row[request.prompt[at] as usize]) - sum.ln();
                let found = f64::from(scored.as_ref().unwrap().logprob);
                assert!((found - wanted).abs() < 1e-5, "{name}: {found}, {wanted}");
                compared += 1;
            }
        }
        assert_eq!(compared, 60);
    }
}

#[test]
fn adapters_and_models_that_do_not_go_together_are_refused_by_name() {
    let llama = tuned(&tiny_llama(), &configs()[..1]);
    let mut other = tiny_llama();
    other.model.d_ffn *= 2;
    let other = tuned(&other, &configs()[..1]);
    let limits = Limits::default();
    let mut plain = open(&llama.base, 1, &limits);
    let error = plain.load_adapter(&llama.adapters[0]).unwrap_err();
    assert!(error.to_string().contains("without adapters"), "{error}");
    let mut engine = open_for_adapters(&llama.base, 2, &limits);
    let mut refused = |path: &Path| engine.load_adapter(path).unwrap_err().with_causes();
    let error = refused(&other.adapters[0]);
    assert!(error.contains("layers.0.fc1.weight"), "{error}");
    assert!(error.contains("as the model's"), "{error}");
    let error = refused(&llama.base);
    assert!(error.contains("without [model.lora]"), "{error}");
    // the same tensors, another model
    let mut turned = tiny_llama();
    turned.model.rope_theta = 500.0;
    let turned = tuned(&turned, &configs()[..1]);
    let error = refused(&turned.adapters[0]);
    let wanted = "rope_theta: found 500, want 10000, as the model's";
    assert!(error.contains(wanted), "{error}");
    let peft = other.folder.path().join("peft");
    export_peft(&other.adapters[0], &peft).unwrap();
    let error = refused(&peft);
    assert!(error.contains("gate_proj: found lora_A"), "{error}");
    let shape = tiny_llama().shape();
    let (vocab, d) = (tiny_llama().vocab, shape.d_model);
    let a = |module: &str| (format!("{module}.lora_A.weight"), [2, d]);
    let b = |module: &str, out| (format!("{module}.lora_B.weight"), [out, 2]);
    let head = ("lm_head.base_layer.weight".to_owned(), [vocab, d]);
    let qkv = "model.layers.0.self_attn.q_proj";
    for (tensors, wanted) in [
        // those of the embedding and of the head are merged, not chosen by request
        (
            vec![a("model.embed_tokens"), b("model.embed_tokens", vocab)],
            "model.embed_tokens: found, want an adapter of qkv, out, fc1 and fc2 alone",
        ),
        (
            vec![head.clone(), a("lm_head"), b("lm_head", vocab)],
            "lm_head.base_layer.weight: found, want an adapter of qkv, out, fc1 and fc2 alone",
        ),
        (
            vec![head, a(qkv), b(qkv, d)],
            "lm_head.base_layer.weight: found alone, want lora_A and lora_B",
        ),
    ] {
        let entries = tensors.into_iter().map(|(name, dims)| Entry {
            name: format!("base_model.model.{name}"),
            dims: dims.to_vec(),
        });
        let entries: Vec<Entry> = entries.collect();
        let weights = peft.join("adapter_model.safetensors");
        let mut writer = Writer::create(&weights, entries.clone(), None).unwrap();
        for entry in entries {
            writer.write(&vec![0.5; entry.elements()]).unwrap();
        }
        writer.finish().unwrap();
        let config = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 2}"#;
        std::fs::write(peft.join("adapter_config.json"), config).unwrap();
        let error = refused(&peft);
        assert!(error.contains(wanted), "{error}");
    }
    // a refusal leaves the engine as it was
    assert_eq!(answers(&mut engine, vec![request(&[1, 2], None)]).len(), 1);
    let opened_for_adapters = |path: &Path| {
        let on = Devices::Cpu.whole();
        match Engine::open_for_adapters(path, on, limits.clone()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    let error = opened_for_adapters(&llama.adapters[0]);
    assert!(error.contains("adapters of its own"), "{error}");
}

#[test]
fn requests_choose_adapters_beside_experts_and_latents_but_none_of_experts_themselves() {
    for plan in [of_qwen(), tiny_deepseek()] {
        let [first, second] = configs();
        let with_experts = LoraConfig {
            targets: vec![LoraTarget::Out, LoraTarget::Experts],
            ..LoraConfig::default()
        };
        let tuned = tuned(&plan, &[first, second, with_experts]);
        let folder = |name: &str| tuned.folder.path().join(name);
        let limits = Limits::default();
        let prompts: [&[u32]; 2] = [&[3, 24, 171], &[7, 7, 8, 7, 7, 8]];
        let requests = |adapter| prompts.map(|prompt| request(prompt, adapter));
        let own = [&tuned.base, &tuned.adapters[0], &tuned.adapters[1]];
        let wanted = own.map(|path| {
            let mut engine = open(path, 1, &limits);
            answers(&mut engine, requests(None).into())
        });
        assert_ne!(wanted[1], wanted[2]);
        assert_ne!(wanted[0], wanted[1]);
        export_peft(&tuned.adapters[1], &folder("peft")).unwrap();
        let mut engine = open_for_adapters(&tuned.base, 2, &limits);
        let first = engine.load_adapter(&tuned.adapters[0]).unwrap();
        let second = engine.load_adapter(&folder("peft")).unwrap();
        let all = [None, Some(first), Some(second)];
        let found = answers(&mut engine, all.map(requests).concat());
        assert_eq!(found, wanted.concat());
        export_peft(&tuned.adapters[2], &folder("experts")).unwrap();
        for (path, wanted) in [
            (&tuned.adapters[2], "with Experts among its targets"),
            (&folder("experts"), "mlp.experts.0.gate_proj: found"),
        ] {
            let error = engine.load_adapter(path).unwrap_err().with_causes();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains("requests choose none of experts"), "{error}");
        }
    }
}

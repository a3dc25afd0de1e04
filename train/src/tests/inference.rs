//! Generation, evaluation and inspection of a checkpoint agree with each other and with training.

use std::fs;
use std::path::PathBuf;

use crate::Error;
use crate::config::{ParallelConfig, Plan};
use crate::eval::{evaluate, inspect, logits};
use crate::fixtures::{
    Chain, Log, options, tiny_bloom, tiny_deepseek, tiny_deepseek_v2, tiny_falcon, tiny_gpt,
    tiny_gpt_oss, tiny_llama, tiny_moe, tiny_neox, tiny_opt,
};
use crate::infer::{GenerateOptions, generate};
use crate::trainer::run;

struct Trained {
    plan: Plan,
    checkpoint: PathBuf,
    valid_loss: f64,
    _folder: tempfile::TempDir,
}

fn trained(mut plan: Plan) -> Trained {
    plan.train.steps = 30;
    plan.parallel = ParallelConfig {
        tp: 2,
        pp: 2,
        dp: 1,
        ..Default::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let outcome = run(
        &plan,
        &samples,
        Some(&samples),
        folder.path(),
        &Log::default(),
    )
    .unwrap();
    let valid_loss = outcome.valid_loss.unwrap();
    Trained {
        plan,
        checkpoint: outcome.checkpoint,
        valid_loss,
        _folder: folder,
    }
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        temperature: 0.0,
        ..GenerateOptions::default()
    }
}

fn likeliest(row: &[f32]) -> u32 {
    let best = row.iter().fold(f32::MIN, |best, &x| best.max(x));
    u32::try_from(row.iter().position(|&x| x == best).unwrap()).unwrap()
}

#[test]
fn greedy_generation_with_caches_follows_the_full_forward_pass() {
    for plan in [
        vec![
            tiny_gpt(),
            tiny_neox(),
            tiny_opt(),
            tiny_falcon(),
            tiny_bloom(),
            tiny_llama(),
            tiny_moe(),
            tiny_gpt_oss(),
            tiny_deepseek(),
            tiny_deepseek_v2(),
        ],
        options(),
    ]
    .concat()
    {
        let model = trained(plan);
        let mut seen = Vec::new();
        let prompt = [3, 24, 171];
        let found = generate(&model.checkpoint, &prompt, &greedy(13), &mut |t| {
            seen.push(t)
        })
        .unwrap();
        assert_eq!(seen, found);
        assert_eq!(found.len(), 13);
        let mut tokens = prompt.to_vec();
        for &token in &found {
            let rows = logits(&model.checkpoint, &tokens).unwrap();
            assert_eq!(likeliest(rows.last().unwrap()), token, "after {tokens:?}");
            tokens.push(token);
        }
    }
}

#[test]
fn generation_goes_on_past_the_sequence_length_and_stops_at_the_stop_token() {
    let model = trained(tiny_gpt());
    let options = GenerateOptions {
        max_tokens: 50,
        seed: 3,
        ..GenerateOptions::default()
    };
    let go = |options: &GenerateOptions| {
        generate(&model.checkpoint, &[5; 40], options, &mut |_| {}).unwrap()
    };
    let found = go(&options);
    assert_eq!(found.len(), 50);
    assert_eq!(go(&options), found, "same seed");
    assert_ne!(
        go(&GenerateOptions {
            seed: 4,
            ..options.clone()
        }),
        found,
        "other seed"
    );
    let stop = found[10];
    let first = found.iter().position(|&token| token == stop).unwrap();
    assert_eq!(
        go(&GenerateOptions {
            stop: vec![vec![stop]],
            ..options.clone()
        }),
        found[..=first]
    );
    assert!(
        go(&GenerateOptions {
            max_tokens: 0,
            ..options
        })
        .is_empty()
    );
}

#[test]
fn evaluate_gives_the_validation_loss_of_the_run_to_the_bit() {
    for plan in [vec![tiny_gpt(), tiny_llama(), tiny_moe()], options()].concat() {
        let model = trained(plan);
        let samples = Chain::of(&model.plan);
        let found = evaluate(&model.checkpoint, &samples, 5).unwrap();
        assert_eq!(found.to_bits(), model.valid_loss.to_bits());
        assert!(
            found < (model.plan.vocab as f64).ln() - 0.3,
            "it learned: {found}"
        );
    }
}

#[test]
fn evaluate_is_the_mean_of_minus_log_softmax() {
    let model = trained(tiny_llama());
    let samples = Chain::of(&model.plan);
    let mut sample = crate::data::Sample::of(&model.plan);
    let mut total = 0.0;
    for index in 0..3 {
        crate::data::Samples::read(&samples, index, &mut sample).unwrap();
        let tokens = &sample.text().unwrap().tokens;
        let rows = logits(&model.checkpoint, &tokens[..model.plan.seq_length]).unwrap();
        for (row, &target) in rows.iter().zip(&tokens[1..]) {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            total += sum.ln() - f64::from(row[target as usize]);
        }
    }
    let wanted = total / (3 * model.plan.seq_length) as f64;
    let found = evaluate(&model.checkpoint, &samples, 3).unwrap();
    assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
}

#[test]
fn inspect_tells_step_plan_and_tensors() {
    let model = trained(tiny_gpt());
    let value = inspect(&model.checkpoint).unwrap();
    assert_eq!(value["step"], 30);
    assert_eq!(value["tokens"], 30 * 8 * 16);
    assert_eq!(value["parameters"], model.plan.parameters());
    assert_eq!(value["active_parameters"], model.plan.parameters());
    assert_eq!(value["plan"]["fingerprint"], "fixture");
    assert_eq!(value["tensors"][0]["name"], "embedding.weight");
    assert_eq!(value["tensors"][0]["shape"], serde_json::json!([256, 32]));
}

#[test]
fn bad_requests_and_damage_are_errors() {
    let model = trained(tiny_gpt());
    let at = &model.checkpoint;
    let refused = |result: crate::Result<Vec<u32>>| {
        assert!(matches!(result, Err(Error::Request { .. })), "{result:?}");
    };
    refused(generate(at, &[], &greedy(1), &mut |_| {}));
    refused(generate(at, &[200], &greedy(1), &mut |_| {}));
    let options = GenerateOptions {
        top_p: 0.0,
        ..greedy(1)
    };
    refused(generate(at, &[1], &options, &mut |_| {}));
    assert!(matches!(logits(at, &[1; 17]), Err(Error::Request { .. })));
    assert!(matches!(
        inspect(&at.join("nothing")),
        Err(Error::Io { .. })
    ));
    let path = at.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(
        generate(at, &[1], &greedy(1), &mut |_| {}),
        Err(Error::Damaged { .. })
    ));
}

//! Quantization by activations: GPTQ, AWQ and SmoothQuant of trained models.

use std::fs;
use std::path::Path;

use crate::calibrate::{Calibration, GptqOptions, LayerError, Method, export_calibrated};
use crate::checkpoint::{Int4Form, MODEL, WeightFormat, export_quantized, import_hf};
use crate::config::plan::Plan;
use crate::eval::logits;
use crate::fixtures::{Chain, Log, tiny_deepseek, tiny_deepseek_v2, tiny_gpt, tiny_llama};
use crate::trainer::run;

/// Texts of the chain that models are trained on, and of which some inputs are much larger than others.
fn texts(plan: &Plan, count: usize) -> Vec<Vec<u32>> {
    let vocab = plan.vocab;
    let next = move |id: usize| u32::try_from(id % vocab).unwrap();
    let of =
        |text: usize| (0..plan.seq_length).map(move |at| next(text * 31 + at * 7 + at * at % 5));
    (0..count).map(|text| of(text).collect()).collect()
}

fn trained(plan: &Plan, folder: &Path) -> std::path::PathBuf {
    run(plan, &Chain::of(plan), None, folder, &Log::default())
        .unwrap()
        .checkpoint
}

/// A LLaMA as many heads of values as of queries, so that AWQ has all its folds.
fn plan() -> Plan {
    let mut plan = tiny_llama();
    plan.model.kv_heads = 4;
    plan.train.steps = 30;
    plan
}

const GROUP: usize = 16;

fn gptq(act_order: bool) -> Method {
    Method::Gptq(GptqOptions {
        group: GROUP,
        damping: 0.01,
        act_order,
    })
}

fn by(method: Method, texts: &[Vec<u32>]) -> Calibration<'_> {
    Calibration {
        method,
        form: Int4Form::CompressedTensors,
        texts,
    }
}

/// Quantizes a checkpoint; returns the layers' errors, the file's bytes and the mean square of the change of logits.
fn quantized(
    checkpoint: &Path,
    plan: &Plan,
    method: Method,
    out: &Path,
) -> (Vec<LayerError>, Vec<u8>, f64) {
    let texts = texts(plan, 24);
    let mut blocks = Vec::new();
    let errors = export_calibrated(checkpoint, out, by(method, &texts), &mut |block| {
        blocks.push(block);
    });
    assert_eq!(blocks, [0, 1]);
    let bytes = fs::read(out.join(MODEL)).unwrap();
    (errors.unwrap(), bytes, moved(checkpoint, plan, out))
}

fn moved(checkpoint: &Path, plan: &Plan, out: &Path) -> f64 {
    let read = import_hf(out, &out.join("read")).unwrap().checkpoint;
    let mut sum = 0.0;
    for text in texts(plan, 30).split_off(24) {
        let [a, b] = [checkpoint, &read].map(|path| logits(path, &text).unwrap().concat());
        let squares = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2));
        sum += squares.sum::<f64>() / a.len() as f64;
    }
    sum
}

#[test]
fn gptq_and_awq_move_outputs_less_than_rounding_to_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let plan = plan();
    let checkpoint = trained(&plan, &path("run"));
    let format = WeightFormat::Int4 {
        group: GROUP,
        form: Int4Form::CompressedTensors,
    };
    export_quantized(&checkpoint, &path("nearest"), format).unwrap();
    let nearest = moved(&checkpoint, &plan, &path("nearest"));
    // AWQ has one factor for layers with the same inputs, so that a single one may lose
    for (name, method, part, of_one) in [
        ("gptq", gptq(false), 0.8, 1.02),
        ("ordered", gptq(true), 0.8, 1.02),
        ("awq", Method::Awq { group: GROUP }, 0.99, 1.2),
    ] {
        let (errors, _, moved) = quantized(&checkpoint, &plan, method, &path(name));
        assert_eq!(errors.len(), 14, "{name}");
        let sum = |of: fn(&LayerError) -> f64| errors.iter().map(of).sum::<f64>();
        let [ours, theirs] = [sum(|layer| layer.error), sum(|layer| layer.nearest)];
        assert!(ours < part * theirs, "{name}: {ours} and {theirs}");
        for layer in &errors {
            assert!(layer.error <= of_one * layer.nearest, "{name}: {layer:?}");
            assert!(layer.nearest > 1e-4, "{name}: {layer:?}");
        }
        assert!(moved < nearest, "{name}: {moved} and {nearest}");
    }
}

#[test]
fn smooth_scales_change_the_model_only_by_rounding() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // grouped heads and biases of queries, keys and values
    let mut plan = tiny_llama();
    plan.model.family = crate::config::Family::Qwen2;
    plan.train.steps = 30;
    let checkpoint = trained(&plan, &path("run"));
    export_quantized(&checkpoint, &path("nearest"), WeightFormat::Int8).unwrap();
    let nearest = moved(&checkpoint, &plan, &path("nearest"));
    let method = Method::SmoothQuant { alpha: 0.5 };
    let (errors, bytes, moved) = quantized(&checkpoint, &plan, method, &path("smooth"));
    assert_eq!(errors, []);
    assert_ne!(bytes, fs::read(path("nearest").join(MODEL)).unwrap());
    assert!(moved < 2.0 * nearest, "{moved} and {nearest}");
    let (errors, _, moved) = quantized(
        &checkpoint,
        &plan,
        Method::Awq { group: GROUP },
        &path("awq"),
    );
    // values of grouped heads are not folded
    let out = errors
        .iter()
        .find(|layer| layer.name.contains("o_proj"))
        .unwrap();
    assert!(
        (out.error - out.nearest).abs() < 1e-6 * out.nearest,
        "{out:?}"
    );
    assert!(moved < 1.0, "{moved}");
}

/// Projections to latents and up from them, each expert by the rows that chose it, and shared experts; with and without a latent of
/// queries.
#[test]
fn latents_and_experts_are_calibrated() {
    const GROUP: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    for (mut plan, layers) in [(tiny_deepseek(), 40), (tiny_deepseek_v2(), 38)] {
        let family = plan.model.family;
        let path = |name: &str| dir.path().join(format!("{family:?}-{name}"));
        plan.train.steps = 30;
        let checkpoint = trained(&plan, &path("run"));
        let form = Int4Form::CompressedTensors;
        let format = WeightFormat::Int4 { group: GROUP, form };
        export_quantized(&checkpoint, &path("nearest"), format).unwrap();
        let nearest = moved(&checkpoint, &plan, &path("nearest"));
        let method = Method::Gptq(GptqOptions {
            group: GROUP,
            damping: 0.01,
            act_order: false,
        });
        let (errors, _, by_gptq) = quantized(&checkpoint, &plan, method, &path("gptq"));
        assert_eq!(errors.len(), layers);
        let sum = |of: fn(&LayerError) -> f64| errors.iter().map(of).sum::<f64>();
        let [ours, theirs] = [sum(|layer| layer.error), sum(|layer| layer.nearest)];
        assert!(ours < 0.9 * theirs, "{family:?}: {ours} and {theirs}");
        for name in ["kv_a_proj", "kv_b_proj", ".experts.", "shared_experts"] {
            let sum = |of: fn(&LayerError) -> f64| {
                let own = errors.iter().filter(|layer| layer.name.contains(name));
                own.map(of).sum::<f64>()
            };
            let [ours, theirs] = [sum(|layer| layer.error), sum(|layer| layer.nearest)];
            assert!(ours < theirs, "{family:?} {name}: {ours} and {theirs}");
        }
        assert!(by_gptq < 1.1 * nearest, "{family:?}: {by_gptq} {nearest}");

        let method = Method::Awq { group: GROUP };
        let (errors, _, by_awq) = quantized(&checkpoint, &plan, method, &path("awq"));
        assert_eq!(errors.len(), layers);
        let moves = |at: &str, name: &str| {
            let is_it = |layer: &&LayerError| layer.name.contains(at) && layer.name.contains(name);
            let mut own = errors.iter().filter(is_it);
            own.any(|layer| (layer.error - layer.nearest).abs() > 1e-6 * layer.nearest)
        };
        // nothing is folded where the router reads the same rows, and values of latents are not folded
        for name in ["o_proj", "experts.1.gate", "shared_experts.gate"] {
            assert!(!moves("model.", name), "{family:?}: {name}");
        }
        assert!(moves("self_attn.kv", "b_proj"), "{family:?}");
        assert!(moves(".experts.", "down"), "{family:?}");
        assert!(by_awq < 2.0 * nearest, "{family:?}: {by_awq} {nearest}");

        let method = Method::SmoothQuant { alpha: 0.5 };
        let (errors, _, smooth) = quantized(&checkpoint, &plan, method, &path("smooth"));
        assert_eq!(errors, []);
        // of eight bits, beside four
        assert!(smooth < nearest, "{family:?}: {smooth} {nearest}");
    }
}

#[test]
fn calibrated_files_do_not_depend_on_the_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut plan = plan();
    plan.train.steps = 2;
    let checkpoint = trained(&plan, &path("run"));
    for (name, method) in [
        ("gptq", gptq(true)),
        ("awq", Method::Awq { group: GROUP }),
        ("smooth", Method::SmoothQuant { alpha: 0.5 }),
    ] {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            let out = path(&format!("{name}-{threads}"));
            pool.install(|| quantized(&checkpoint, &plan, method, &out))
                .1
        };
        assert!(with(1) == with(3), "{name}");
    }
}

#[test]
fn calibration_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut plan = plan();
    plan.train.steps = 2;
    let checkpoint = trained(&plan, &path("run"));
    let refused = |method: Method, texts: &[Vec<u32>], wanted: &str| {
        let out = path("no");
        let error = export_calibrated(&checkpoint, &out, by(method, texts), &mut |_| {});
        let error = error.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error} wants {wanted}");
        assert!(!out.join(MODEL).exists());
    };
    let good = texts(&plan, 2);
    refused(gptq(false), &[], "calibration texts: found none");
    refused(
        gptq(false),
        &[vec![]],
        "found 0 tokens, want 1 to 16 tokens",
    );
    refused(gptq(false), &[vec![1; 17]], "found 17 tokens");
    refused(
        gptq(false),
        &[vec![200]],
        "found 200, want below the vocabulary of 200",
    );
    refused(
        Method::Awq { group: 7 },
        &good,
        "7 with linear layers of [32, 48] inputs",
    );
    refused(
        Method::SmoothQuant { alpha: 1.5 },
        &good,
        "alpha of SmoothQuant: found 1.5",
    );
    let damping = Method::Gptq(GptqOptions {
        group: GROUP,
        damping: 0.0,
        act_order: false,
    });
    refused(damping, &good, "damping of GPTQ: found 0");
    let plan = tiny_gpt();
    let gpt = trained(&plan, &path("gpt"));
    let error = export_calibrated(&gpt, &path("no"), by(gptq(false), &good), &mut |_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("without experts"), "{error}");
}

#[test]
fn gptq_form_has_the_numbers_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut plan = plan();
    plan.train.steps = 2;
    let checkpoint = trained(&plan, &path("run"));
    let texts = texts(&plan, 4);
    let weights = [Int4Form::CompressedTensors, Int4Form::Gptq].map(|form| {
        let calibration = Calibration {
            form,
            ..by(gptq(true), &texts)
        };
        let out = path(&format!("{form:?}"));
        export_calibrated(&checkpoint, &out, calibration, &mut |_| {}).unwrap();
        let read = import_hf(&out, &out.join("read")).unwrap().checkpoint;
        fs::read(read.join(MODEL)).unwrap()
    });
    assert!(weights[0] == weights[1]);
}

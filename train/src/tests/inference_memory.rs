//! Weights of a model that is opened for inference: in which number format they are multiplied, and how many bytes they
//! take.

use std::path::{Path, PathBuf};

use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{
    FileType, GgufOptions, WeightFormat, export_gguf, export_quantized, import_gguf, import_hf,
};
use crate::config::mtp::is_of_depth;
use crate::config::{ParallelConfig, Plan, Precision};
use crate::dist::Devices;
use crate::fixtures::{
    Log, options, samples_of, tiny_deepseek, tiny_gpt, tiny_llama, tiny_moe, tiny_t5,
};
use crate::infer::GenerateOptions;
use crate::infer::engine::{Engine, Event, Limits, Request};
use crate::infer::sample::Scored;
use crate::model::param;
use crate::model::prepacked::ReadAs;
use crate::trainer::run;

/// A checkpoint of the model's initial values, which do not depend on the number format.
fn initial(mut plan: Plan, folder: &tempfile::TempDir) -> PathBuf {
    plan.train.steps = 1;
    plan.train.warmup_steps = 0;
    // rounded away by all values but zeros, which stay far below the last bit of what they are added to
    (plan.train.lr, plan.train.min_lr) = (1e-30, 0.0);
    plan.parallel = ParallelConfig::default();
    let samples = samples_of(&plan);
    let outcome = run(
        &plan,
        samples.as_ref(),
        None,
        folder.path(),
        &Log::default(),
    );
    outcome.unwrap().checkpoint
}

/// Greedy tokens of several prompts with their log-probabilities.
fn answers(checkpoint: &Path, ranks: usize, precision: Option<Precision>) -> Vec<Option<Scored>> {
    let on = Devices::Cpu.split(ranks).in_precision(precision);
    let mut engine = Engine::open(checkpoint, on, Limits::default()).unwrap();
    for prompt in [&[3, 24, 171][..], &[5; 9], &[190]] {
        let request = Request {
            prompt: prompt.to_vec(),
            options: GenerateOptions {
                logprobs: Some(5),
                ..GenerateOptions::greedy(6)
            },
            beginning: Vec::new(),
            slides: false,
            adapter: None,
        };
        engine.submit(request).unwrap();
    }
    let mut found = Vec::new();
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            if let Event::Token { scored, .. } = event {
                found.push(scored);
            }
        }
    }
    assert_eq!(found.len(), 18);
    found
}

#[test]
fn a_model_asked_for_in_another_precision_has_the_bits_of_one_trained_in_it() {
    for plan in [
        tiny_gpt(),
        tiny_llama(),
        tiny_moe(),
        tiny_deepseek(),
        tiny_t5(),
    ] {
        let in_precision = |precision| {
            let mut plan = plan.clone();
            plan.train.precision = precision;
            plan
        };
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let single = initial(in_precision(Precision::F32), &folders[0]);
        let half = initial(in_precision(Precision::Bf16), &folders[1]);
        let of_single = answers(&single, 1, None);
        let of_half = answers(&half, 1, None);
        assert_ne!(of_single, of_half, "bf16 rounds");
        for ranks in [1, 2] {
            assert_eq!(answers(&single, ranks, Some(Precision::Bf16)), of_half);
            assert_eq!(answers(&half, ranks, Some(Precision::F32)), of_single);
            assert_eq!(answers(&single, ranks, Some(Precision::F32)), of_single);
        }
    }
}

/// Compares what a rank holds with the model's tensors.
fn check(model: &Model) {
    let tp = model.groups.place.tp;
    let packs = model.packs.as_ref().unwrap();
    let (mut packed, mut least) = (0, 0);
    let specs = param::specs(&model.plan);
    for ((slot, spec), weight) in specs.iter().enumerate().zip(&model.weights) {
        if is_of_depth(&spec.name) {
            assert_eq!(weight.elements(), 1, "{}", spec.name);
            continue;
        }
        let dims = spec.local_dims(tp);
        if ReadAs::alone(&model.plan, spec).is_none() {
            assert_eq!(weight.dims(), dims, "{}", spec.name);
            assert_eq!(packs.dims_alone(slot), None, "{}", spec.name);
            continue;
        }
        assert_eq!(weight.elements(), 1, "{}", spec.name);
        assert_eq!(packs.dims_alone(slot), Some(&dims[..]), "{}", spec.name);
        packed += 1;
        // bf16 at least
        least += 2 * dims.iter().product::<usize>();
    }
    // two products of attention in each block at the least
    assert!(packed >= 2 * model.plan.model.blocks(), "{packed}");
    assert!(packs.bytes() >= least, "{} {least}", packs.bytes());
}

#[test]
fn weights_of_linear_layers_are_held_as_packed_copies_alone() {
    let own = vec![
        tiny_gpt(),
        tiny_llama(),
        tiny_moe(),
        tiny_deepseek(),
        tiny_t5(),
    ];
    let mut with_depths = tiny_deepseek();
    with_depths.model.mtp_num_layers = 1;
    for plan in [own, options(), vec![with_depths]].concat() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = initial(plan, &folder);
        for ranks in [1, 2] {
            let opened = Model::open(&checkpoint, Devices::Cpu.split(ranks)).unwrap();
            let checked = opened.map(|model| {
                check(&model);
                Ok(())
            });
            checked.unwrap();
        }
    }
}

/// Numbers of block formats take the bytes of their codes and scales, whatever file they come from, and a rank's part of
/// them too.
#[test]
fn weights_of_block_formats_are_held_as_codes() {
    let mut plan = tiny_llama();
    // whole groups of 32 on each of two ranks
    (plan.model.d_model, plan.model.d_ffn) = (64, 192);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = initial(plan, &folder);
    let path = |name: &str| folder.path().join(name);
    for (file_type, bytes) in [(FileType::Q8_0, 34), (FileType::Q4_0, 18)] {
        let file = path(&format!("{file_type:?}.gguf"));
        let options = GgufOptions {
            file_type,
            name: None,
            tokenizer: None,
            pre: None,
        };
        export_gguf(&checkpoint, &file, &options).unwrap();
        let read = import_gguf(&file, &path(&format!("{file_type:?}"))).unwrap();
        check_sources(&[&file, &read.checkpoint], bytes);
    }
}

/// So do numbers of eight bits with an f32 scale for each output or block.
#[test]
fn weights_of_folders_in_eight_bits_are_held_as_codes() {
    let mut plan = tiny_llama();
    (plan.model.d_model, plan.model.d_ffn) = (64, 192);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = initial(plan, &folder);
    for format in [
        WeightFormat::Int8,
        WeightFormat::Fp8,
        WeightFormat::Fp8Blocks,
    ] {
        let path = |name: &str| folder.path().join(format!("{format:?} {name}"));
        export_quantized(&checkpoint, &path("folder"), format).unwrap();
        let read = import_hf(&path("folder"), &path("read")).unwrap();
        check_sources(&[&path("folder"), &read.checkpoint], 36);
    }
}

/// All give the same answers on one and on two ranks, and their linear layers take so many bytes for 32 numbers.
fn check_sources(sources: &[&Path], bytes: usize) {
    let want = answers(sources[0], 1, None);
    for source in sources {
        for ranks in [1, 2] {
            assert_eq!(answers(source, ranks, None), want, "{source:?} {ranks}");
            let opened = Model::open(source, Devices::Cpu.split(ranks)).unwrap();
            let checked = opened.map(|model| {
                check_codes(&model, bytes);
                Ok(())
            });
            checked.unwrap();
        }
    }
}

/// Linear layers but for the head, which has another format in some files, take so many bytes for 32 numbers.
fn check_codes(model: &Model, bytes: usize) {
    let packs = model.packs.as_ref().unwrap();
    let specs = param::specs(&model.plan);
    let mut layers = 0;
    for (slot, spec) in specs.iter().enumerate() {
        if spec.name != "head.weight" && packs.dims_alone(slot).is_some() {
            let numbers: usize = spec.local_dims(model.groups.place.tp).iter().product();
            // panels are padded to 32 columns
            let most = numbers.next_multiple_of(32 * 32) / 32 * bytes;
            let found = packs.bytes_of(slot);
            assert!(found <= most, "{} {found} {most}", spec.name);
            layers += 1;
        }
    }
    assert!(layers >= 4 * model.plan.model.blocks(), "{layers}");
}

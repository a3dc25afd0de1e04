//! GGUF files of trained models of every architecture: an f32 file comes back with the bits of the checkpoint, and models
//! that llama.cpp lacks are refused by setting.

use std::path::{Path, PathBuf};

use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::{FileType, GgufOptions, export_gguf, export_hf, import_gguf};
use crate::config::moe::{MoeConfig, RouterScore};
use crate::config::{Biases, Family, Plan, RopeScaling, TieEmbeddings};
use crate::error::Error;
use crate::fixtures::{
    Chain, Log, options, tiny_bert, tiny_bloom, tiny_deepseek, tiny_falcon, tiny_gemma,
    tiny_gemma2, tiny_gpt, tiny_gpt_oss, tiny_llama, tiny_moe, tiny_neox, tiny_olmo, tiny_opt,
};
use crate::model::param;
use crate::trainer::run;

const F32: FileType = FileType::F32;

fn as_type(file_type: FileType) -> GgufOptions {
    GgufOptions {
        file_type,
        name: None,
        tokenizer: None,
        pre: None,
    }
}

fn trained(plan: &Plan, folder: &Path) -> PathBuf {
    let done = run(plan, &Chain::of(plan), None, folder, &Log::default());
    done.unwrap().checkpoint
}

/// A plan of each architecture of llama.cpp, and of each option that its files have.
fn plans() -> Vec<(&'static str, Plan)> {
    let of = |family: Family| {
        let mut plan = tiny_llama();
        plan.model.family = family;
        plan
    };
    let mut biased = of(Family::Llama);
    biased.model.bias = Some(Biases::All);
    biased.model.rope_theta = 5e5;
    biased.model.rope_scaling = Some(RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_length: 8192,
    });
    let mut tied = of(Family::Qwen2);
    tied.model.tie_embeddings = TieEmbeddings::Tied;
    tied.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let mut wide = of(Family::Qwen3);
    wide.model.head_dim = 12;
    let mut mixtral = of(Family::Llama);
    mixtral.model.moe = Some(MoeConfig {
        experts: 4,
        top_k: 2,
        score: RouterScore::TopKSoftmax,
        ..MoeConfig::default()
    });
    let mut qwen_moe = of(Family::Qwen2);
    qwen_moe.model.moe = Some(MoeConfig {
        experts: 4,
        d_ffn: 24,
        shared_d_ffn: 16,
        shared_gate: true,
        score: RouterScore::SoftmaxTopK,
        ..MoeConfig::default()
    });
    vec![
        ("gpt2", tiny_gpt()),
        ("llama", tiny_llama()),
        ("biased", biased),
        ("mistral", of(Family::Mistral)),
        ("qwen2", tied),
        ("qwen3", wide),
        ("mixtral", mixtral),
        ("qwen2moe", qwen_moe),
    ]
}

#[test]
fn models_come_back_from_f32_files_with_the_same_bits() {
    for (name, plan) in plans() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = trained(&plan, folder.path());
        let file = folder.path().join("model.gguf");
        export_gguf(&checkpoint, &file, &as_type(F32)).unwrap();
        let hf = folder.path().join("hf");
        export_hf(&checkpoint, &hf).unwrap();
        let of_hf = folder.path().join("hf.gguf");
        export_gguf(&hf, &of_hf, &as_type(F32)).unwrap();
        let imported = import_gguf(&file, &folder.path().join("back")).unwrap();
        let mut ours = WeightSource::open(&checkpoint).unwrap();
        for theirs in [&file, &of_hf, &imported.checkpoint] {
            let mut theirs = WeightSource::open(theirs).unwrap();
            let (found, want) = (&theirs.plan.model, &ours.plan.model);
            assert_eq!(found.rope_scaling, want.rope_scaling, "{name}");
            assert_eq!(found.norm_eps.to_bits(), want.norm_eps.to_bits(), "{name}");
            assert_eq!(found.architecture(), want.architecture(), "{name}");
            let plan = theirs.plan.clone();
            assert_eq!(plan.seq_length, ours.plan.seq_length, "{name}");
            for spec in param::specs(&ours.plan.clone()) {
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                let want = bits(ours.read(&spec.name).unwrap());
                let found = bits(theirs.read(&spec.name).unwrap());
                assert!(found == want, "{name} {}", spec.name);
            }
        }
    }
}

/// Every number of a quantized file is near the checkpoint's: within the step of its block, which is at most the largest
/// magnitude of a row over 8, 32 or 127.
#[test]
fn quantized_files_are_near_the_model() {
    let mut plan = tiny_llama();
    (plan.model.d_model, plan.model.d_ffn) = (256, 256);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    for (file_type, levels) in [
        (FileType::F16, 2048.0),
        (FileType::Bf16, 256.0),
        (FileType::Q8_0, 127.0),
        (FileType::Q6_K, 30.0),
        (FileType::Q4_K_M, 7.0),
        (FileType::Q4_0, 7.0),
    ] {
        let file = folder.path().join("model.gguf");
        export_gguf(&checkpoint, &file, &as_type(file_type)).unwrap();
        let mut ours = WeightSource::open(&checkpoint).unwrap();
        let mut theirs = WeightSource::open(&file).unwrap();
        let mut differs = false;
        for spec in param::specs(&plan) {
            let want = ours.read(&spec.name).unwrap();
            let found = theirs.read(&spec.name).unwrap();
            let largest = want.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            for (found, want) in found.iter().zip(want) {
                let off = (found - want).abs();
                assert!(
                    off <= largest / levels,
                    "{file_type:?} {}: {found} beside {want}",
                    spec.name
                );
                differs |= off > 0.0;
            }
        }
        assert!(differs, "{file_type:?}");
    }
}

#[test]
fn models_that_llama_cpp_lacks_are_refused_by_setting() {
    let [gpt_with_gate, partly_rotary, window, parallel, ..] = &options()[..] else {
        panic!("four plans and more");
    };
    let mut sinks = tiny_llama();
    sinks.model.attention_sinks = Some(true);
    for (plan, setting) in [
        (&tiny_bert(), "family = Bert"),
        (gpt_with_gate, "activation"),
        (partly_rotary, "activation"),
        (window, "sliding_window = 7"),
        (parallel, "parallel_residual = true in llama"),
        (&tiny_neox(), "family = GptNeox"),
        (&tiny_opt(), "family = Opt"),
        (&tiny_falcon(), "family = Falcon"),
        (&tiny_bloom(), "family = Bloom"),
        (&tiny_olmo(), "family = Olmo2"),
        (&tiny_gemma(), "family = Gemma3"),
        (&tiny_gemma2(), "family = Gemma2"),
        (&tiny_moe(), "family = Llama as Qwen2Moe"),
        (&tiny_gpt_oss(), "family = GptOss as GptOss"),
        (&tiny_deepseek(), "family = DeepseekV3 as Deepseek"),
        (&sinks, "attention_sinks = true in llama"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let samples = crate::fixtures::samples_of(plan);
        let done = run(plan, samples.as_ref(), None, folder.path(), &Log::default()).unwrap();
        let file = folder.path().join("model.gguf");
        match export_gguf(&done.checkpoint, &file, &as_type(F32)) {
            Err(Error::Request { found, .. }) => assert!(found.contains(setting), "{found}"),
            other => panic!("{setting}: {other:?}"),
        }
        assert!(!file.exists());
    }
}

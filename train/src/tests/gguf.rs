//! GGUF files of trained models of every architecture: an f32 file comes back with the bits of the checkpoint, and models
//! that llama.cpp lacks are refused by setting. Files of llama.cpp's converter: tests/oracles/gguf_deepseek.py.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::{FileType, GgufOptions, export_gguf, export_hf, import_gguf};
use crate::config::moe::{MoeConfig, RouterScore};
use crate::config::{Biases, Family, ModelConfig, Plan, RopeScaling, TieEmbeddings};
use crate::error::Error;
use crate::fixtures::{
    Chain, Log, options, tiny_bert, tiny_bloom, tiny_deepseek, tiny_deepseek_v2, tiny_falcon,
    tiny_gemma, tiny_gemma2, tiny_gpt, tiny_gpt_oss, tiny_llama, tiny_moe, tiny_neox, tiny_olmo,
    tiny_opt,
};
use crate::model::param;
use crate::tests::hugging_face::saved;
use crate::tests::parity::{Golden, oracle};
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

/// DeepSeek-V3, with positions that llama.cpp stretches alike.
fn deepseek_v3() -> Plan {
    let mut plan = tiny_deepseek();
    plan.model.norm_eps = 1e-6;
    if let Some(RopeScaling::Yarn {
        mscale,
        mscale_all_dim,
        ..
    }) = &mut plan.model.rope_scaling
    {
        (*mscale, *mscale_all_dim) = (Some(0.9), Some(0.9));
    }
    plan
}

/// DeepSeek-V2-Lite, whose experts have no groups.
fn deepseek_v2() -> Plan {
    let mut plan = tiny_deepseek_v2();
    plan.model.norm_eps = 1e-6;
    if let Some(moe) = &mut plan.model.moe {
        (moe.num_groups, moe.group_topk) = (1, 1);
    }
    plan
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
    // another length than that of Llama 3's models
    let mut short = of(Family::Llama);
    short.model.rope_scaling = Some(RopeScaling::Llama3 {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_length: 128,
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
        ("short", short),
        ("mistral", of(Family::Mistral)),
        ("qwen2", tied),
        ("qwen3", wide),
        ("mixtral", mixtral),
        ("qwen2moe", qwen_moe),
        ("deepseek_v2", deepseek_v2()),
        ("deepseek_v3", deepseek_v3()),
    ]
}

/// The settings that a file states.
fn assert_same_model(found: &ModelConfig, want: &ModelConfig, name: &str) {
    assert_eq!(found.rope_scaling, want.rope_scaling, "{name}");
    assert_eq!(found.norm_eps.to_bits(), want.norm_eps.to_bits(), "{name}");
    assert_eq!(found.architecture(), want.architecture(), "{name}");
    assert_eq!(found.latents(), want.latents(), "{name}");
    let of_moe = |model: &ModelConfig| {
        let moe = model.moe.clone()?;
        let choices = (moe.experts, moe.top_k, moe.num_groups, moe.group_topk);
        let widths = (moe.dense_first, model.d_expert(), moe.shared_d_ffn);
        Some((choices, widths, moe.score, moe.scale.to_bits()))
    };
    assert_eq!(of_moe(found), of_moe(want), "{name}");
}

/// All numbers of both models have the same bits.
fn assert_same_bits(ours: &mut WeightSource, theirs: &mut WeightSource, name: &str) {
    for spec in param::specs(&ours.plan.clone()) {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let want = bits(ours.read(&spec.name).unwrap());
        let found = bits(theirs.read(&spec.name).unwrap());
        assert!(found == want, "{name} {}", spec.name);
    }
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
            assert_same_model(&theirs.plan.model, &ours.plan.model, name);
            assert_eq!(theirs.plan.seq_length, ours.plan.seq_length, "{name}");
            assert_same_bits(&mut ours, &mut theirs, name);
        }
    }
}

/// llama.cpp's own converter splits the matrix up from the latent, transposes its keys and stacks experts; V2's file has groups too.
#[test]
fn files_of_llama_cpps_converter_have_the_numbers_and_settings_of_their_folder() {
    for name in ["deepseek_v2", "deepseek_v3"] {
        let folder = tempfile::tempdir().unwrap();
        let mut golden = Golden::open(&format!("hf_{name}"));
        let scaling = &mut golden.record["config"]["rope_scaling"];
        if scaling.is_object() {
            // as the script has it: a file has one number for both
            scaling["mscale"] = scaling["mscale_all_dim"].clone();
        }
        saved(&mut golden, folder.path());
        let mut ours = WeightSource::open(folder.path()).unwrap();
        let mut theirs = WeightSource::open(&oracle(&format!("gguf_{name}.gguf"))).unwrap();
        assert_same_model(&theirs.plan.model, &ours.plan.model, name);
        assert_eq!(theirs.plan.seq_length, ours.plan.seq_length, "{name}");
        assert_same_bits(&mut ours, &mut theirs, name);
    }
}

/// Replaces the whole number of 32 bits of a key.
fn with_number(file: &[u8], key: &str, number: u32) -> Vec<u8> {
    let at = file
        .windows(key.len())
        .position(|window| window == key.as_bytes());
    let mut file = file.to_vec();
    // behind the key are its type and the number
    let value = at.unwrap() + key.len() + 4;
    file[value..value + 4].copy_from_slice(&number.to_le_bytes());
    file
}

#[test]
fn files_of_latents_that_are_cut_short_or_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&deepseek_v3(), folder.path());
    let path = folder.path().join("model.gguf");
    export_gguf(&checkpoint, &path, &as_type(F32)).unwrap();
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        WeightSource::open(&path).err().unwrap()
    };
    for length in (64..whole.len() - 32).step_by(whole.len() / 40) {
        let error = refused(&whole[..length]);
        assert!(matches!(error, Error::Damaged { .. }), "{length}: {error}");
    }
    for (key, number, wanted) in [
        (
            "attention.kv_lora_rank",
            13,
            "attention.key_length: found 18, want 19",
        ),
        (
            "attention.kv_lora_rank",
            u32::MAX,
            "attention.key_length: found 18",
        ),
        (
            "attention.value_length",
            13,
            "attention.value_length: found 13, want 12",
        ),
        (
            "attention.head_count_kv",
            4,
            "attention.head_count_kv: found 4, want 1",
        ),
        (
            "attention.key_length_mla",
            6,
            "attention.key_length_mla: found 6, want more than",
        ),
        (
            "attention.value_length_mla",
            13,
            "attn_v_b.weight: found [4, 14, 12]",
        ),
        (
            "attention.value_length_mla",
            u32::MAX,
            "heads x features of a value",
        ),
        ("attention.q_lora_rank", 0, "attn_q.weight: found nothing"),
        ("attention.q_lora_rank", u32::MAX, "latent of queries"),
        (
            "rope.dimension_count",
            8,
            "attention.key_length: found 18, want 20",
        ),
        (
            "leading_dense_block_count",
            0,
            "blk.0.exp_probs_b.bias: found nothing",
        ),
        (
            "expert_count",
            16,
            "ffn_gate_exps.weight: found [8, 16, 32]",
        ),
        ("expert_count", u32::MAX, "experts: found 4294967295"),
        ("expert_shared_count", 0, "n_shared_experts"),
        ("expert_shared_count", 2, "ffn_gate_shexp.weight: found"),
        (
            "expert_gating_func",
            3,
            "expert_gating_func: found 3, want 1 (softmax) or 2 (sigmoid)",
        ),
        ("expert_gating_func", 1, "norm_topk_prob"),
        ("expert_group_count", 3, "num_groups"),
        ("expert_group_used_count", 9, "group_topk"),
    ] {
        let error = refused(&with_number(&whole, &format!("deepseek2.{key}"), number));
        let error = error.with_causes();
        assert!(error.contains(wanted), "{key} = {number}: {error}");
    }
}

/// Every number of a quantized file is near the checkpoint's: within the step of its block, which is at most the largest
/// magnitude of a row over 8, 32 or 127.
#[test]
fn quantized_files_are_near_the_model() {
    let mut wide = tiny_llama();
    (wide.model.d_model, wide.model.d_ffn) = (256, 256);
    let mut latents = deepseek_v3();
    (latents.model.d_model, latents.model.q_lora_rank) = (256, 256);
    latents.model.qk_head_dim = 32;
    for plan in [wide, latents] {
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
}

#[test]
fn formats_that_take_the_place_of_others_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = tiny_llama();
    // rows of 256 numbers in the second feed-forward matrix alone
    plan.model.d_ffn = 256;
    let checkpoint = trained(&plan, folder.path());
    let notes = |file_type| {
        let file = folder.path().join("model.gguf");
        export_gguf(&checkpoint, &file, &as_type(file_type)).unwrap()
    };
    // llama.cpp: a matrix whose rows are no multiple of 256 is Q5_0 instead of Q4_K and Q8_0 instead of Q6_K
    let [of_embedding, of_values] = &notes(FileType::Q4_K_M)[..] else {
        panic!("two lines");
    };
    let line = "are in Q5_0, not in Q4_K: their rows (32 numbers there) are no multiples of 256";
    assert!(of_embedding.contains(line), "{of_embedding}");
    assert!(
        of_values.contains("are in Q8_0, not in Q6_K"),
        "{of_values}"
    );
    let [only] = &notes(FileType::Q6_K)[..] else {
        panic!("one line");
    };
    // 2 layers of 6 matrices, embedding and head
    assert!(
        only.starts_with("14 matrices, such as token_embd.weight, are in Q8_0"),
        "{only}"
    );
    for file_type in [F32, FileType::Q8_0, FileType::Q4_0] {
        let found = notes(file_type);
        // the head of Q4_0 is Q6_K
        assert_eq!(
            found.len(),
            usize::from(file_type == FileType::Q4_0),
            "{found:?}"
        );
    }
}

#[test]
fn models_that_llama_cpp_lacks_are_refused_by_setting() {
    let [gpt_with_gate, partly_rotary, window, parallel, ..] = &options()[..] else {
        panic!("four plans and more");
    };
    let mut sinks = tiny_llama();
    sinks.model.attention_sinks = Some(true);
    let mut linear = deepseek_v3();
    linear.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let mut deep = deepseek_v3();
    deep.model.layers = 26;
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
        (
            &tiny_deepseek(),
            "norm_eps = 0.00001 beside latent_norm_eps = 0.000001",
        ),
        (&tiny_deepseek(), "rope_scaling = yarn beside latents"),
        (&linear, "rope_scaling = linear beside latents"),
        (&tiny_deepseek_v2(), "num_groups = 4 without sigmoid scores"),
        (&deep, "q_lora_rank = 20 with 26 layers"),
        (&sinks, "attention_sinks = true in llama"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let samples = crate::fixtures::samples_of(plan);
        let done = run(plan, samples.as_ref(), None, folder.path(), &Log::default()).unwrap();
        let file = folder.path().join("model.gguf");
        match export_gguf(&done.checkpoint, &file, &as_type(F32)) {
            Err(Error::Request { found, wanted, .. }) => {
                assert!(found.contains(setting), "{found}");
                let names = "(gpt2, llama, qwen2, qwen2moe, qwen3, deepseek2)";
                assert!(wanted.contains(names), "{wanted}");
            }
            other => panic!("{setting}: {other:?}"),
        }
        assert!(!file.exists());
    }
}

//! Trains a tiny GPT-2, GPT-NeoX, OPT, Falcon, BLOOM, LLaMA, OLMo 2, Gemma 2, Gemma 3, gpt-oss, DeepSeek-V2, DeepSeek-V3, Mixtral, Qwen MoE, T5 and T5 1.1 for a few steps, exports them for transformers, and
//! writes our logits and generated tokens beside them: OUT/NAME/{config.json, model.safetensors,logits.json}.
//!
//!     cargo run --release -p millrace-train --example export_parity -- OUT
//!     python train/tests/oracles/check_export.py OUT

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use train::config::{
    Activation, Determinism, Family, ModelConfig, MoeConfig, ParallelConfig, Plan, RouterScore,
    TieEmbeddings, TrainConfig,
};
use train::data::{Sample, Samples};
use train::infer::GenerateOptions;
use train::metrics::{Events, StepRecord};

struct Squares;

impl Samples for Squares {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let square = |at: usize| u32::try_from((index * 31 + (at * at) as u64) % 1000);
        match sample {
            Sample::Spans(spans) => {
                for (at, token) in spans.tokens.iter_mut().enumerate() {
                    *token = square(at)?;
                }
                // the answer: the same squares, a few positions later
                for (at, target) in spans.targets.iter_mut().enumerate() {
                    *target = square(at + 5)?;
                }
                let places = spans.targets.len();
                spans.decoder_tokens[1..].copy_from_slice(&spans.targets[..places - 1]);
            }
            other => {
                for (at, token) in other.text()?.tokens.iter_mut().enumerate() {
                    *token = square(at)?;
                }
            }
        }
        Ok(())
    }
}

struct Quiet;

impl Events for Quiet {
    fn step(&self, _record: &StepRecord) {}
    fn validation(&self, _set: &str, _step: u64, _loss: f64) {}
    fn checkpoint(&self, _step: u64, _path: &Path) {}
    fn resumed(&self, _step: u64) {}
    fn note(&self, _note: &str) {}
}

fn main() -> Result<(), Box<dyn StdError>> {
    let out = PathBuf::from(std::env::args().nth(1).ok_or("usage: export_parity OUT")?);
    let mixtral = MoeConfig {
        experts: 4,
        d_ffn: 352,
        ..Default::default()
    };
    let qwen = MoeConfig {
        every: 2,
        score: RouterScore::SoftmaxTopK,
        shared_d_ffn: 256,
        shared_gate: true,
        ..mixtral.clone()
    };
    let gpt_oss = MoeConfig {
        biases: true,
        ..mixtral.clone()
    };
    let deepseek_v2 = MoeConfig {
        d_ffn: 128,
        dense_first: 1,
        score: RouterScore::SoftmaxTopK,
        num_groups: 2,
        group_topk: 1,
        shared_d_ffn: 256,
        ..mixtral.clone()
    };
    let deepseek_v3 = MoeConfig {
        score: RouterScore::Sigmoid,
        expert_bias: true,
        scale: 2.5,
        ..deepseek_v2.clone()
    };
    let gated = Some(Activation::GegluTanh);
    for (name, family, kv_heads, moe, activation) in [
        ("gpt", Family::Gpt, 0, None, None),
        ("gpt_neox", Family::GptNeox, 0, None, None),
        ("opt", Family::Opt, 0, None, None),
        ("falcon", Family::Falcon, 4, None, None),
        ("bloom", Family::Bloom, 0, None, None),
        ("llama", Family::Llama, 4, None, None),
        ("olmo2", Family::Olmo2, 4, None, None),
        ("gemma2", Family::Gemma2, 4, None, None),
        ("gemma3", Family::Gemma3, 4, None, None),
        ("gpt_oss", Family::GptOss, 4, Some(gpt_oss), None),
        (
            "deepseek_v2",
            Family::DeepseekV2,
            0,
            Some(deepseek_v2),
            None,
        ),
        (
            "deepseek_v3",
            Family::DeepseekV3,
            0,
            Some(deepseek_v3),
            None,
        ),
        ("mixtral", Family::Llama, 4, Some(mixtral), None),
        ("qwen2_moe", Family::Llama, 4, Some(qwen), None),
        ("t5", Family::T5, 0, None, None),
        ("t5_gated", Family::T5, 0, None, gated),
    ] {
        let has_windows = matches!(family, Family::Gemma2 | Family::Gemma3 | Family::GptOss);
        let has_latents = matches!(family, Family::DeepseekV2 | Family::DeepseekV3);
        let model = ModelConfig {
            family,
            q_lora_rank: if family == Family::DeepseekV3 { 96 } else { 0 },
            // as in the classes of models with latents
            latent_norm_eps: if has_latents { 1e-6 } else { 0.0 },
            layers: 4,
            d_model: 256,
            heads: 8,
            kv_heads,
            moe,
            activation,
            rotary_percent: match family {
                Family::GptNeox => 0.25,
                _ => 1.0,
            },
            sliding_window: if has_windows { 24 } else { 0 },
            global_every: if has_windows { 3 } else { 0 },
            attention_cap: if family == Family::Gemma2 { 0.5 } else { 0.0 },
            logit_cap: if family == Family::Gemma2 { 2.0 } else { 0.0 },
            tie_embeddings: match activation {
                None => TieEmbeddings::Family,
                Some(_) => TieEmbeddings::Untied,
            },
            ..Default::default()
        };
        export(&plan(model), &out.join(name))?;
    }
    Ok(())
}

fn plan(model: ModelConfig) -> Plan {
    let is_pair = model.family == Family::T5;
    Plan {
        model,
        train: TrainConfig {
            steps: 20,
            global_batch: 8,
            warmup_steps: 5,
            ..Default::default()
        },
        parallel: ParallelConfig {
            tp: 2,
            pp: 2,
            dp: 1,
            ..Default::default()
        },
        vocab: 1000,
        seq_length: 128,
        decoder_length: if is_pair { 64 } else { 0 },
        start: is_pair.then_some(0),
        predictions: 0,
        eod: None,
        seed: 7,
        determinism: Determinism::Layout,
        fingerprint: "squares".into(),
    }
}

fn export(plan: &Plan, folder: &Path) -> Result<(), Box<dyn StdError>> {
    let done = train::trainer::run(plan, &Squares, None, &folder.join("run"), &Quiet)?;
    train::checkpoint::export_hf(&done.checkpoint, folder)?;
    let mut sample = Sample::of(plan);
    let read = Squares.read(999, &mut sample);
    read.map_err(|error| error.to_string())?;
    let (tokens, given) = match &sample {
        Sample::Spans(spans) => (&spans.tokens[..], Some(&spans.decoder_tokens[..])),
        Sample::Text(text) => (&text.tokens[..plan.seq_length], None),
        _ => return Err("a masked model writes no text".into()),
    };
    let logits = match given {
        Some(given) => train::eval::decoder_logits(&done.checkpoint, tokens, given)?,
        None => train::eval::logits(&done.checkpoint, tokens)?,
    };
    let options = GenerateOptions {
        max_tokens: 32,
        temperature: 0.0,
        ..Default::default()
    };
    let greedy = train::infer::generate(&done.checkpoint, &tokens[..16], &options, &mut |_| {})?;
    let record = serde_json::json!({"tokens": tokens, "decoder_tokens": given,
        "logits": logits, "greedy": greedy});
    std::fs::write(folder.join("logits.json"), record.to_string())?;
    Ok(())
}

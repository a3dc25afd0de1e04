//! Trains a tiny GPT-2, Mixtral and DeepSeek-V3, then adapters and virtual tokens on them, and writes them as PEFT loads them, with our
//! logits beside them: OUT/base_FAMILY and OUT/NAME/{adapter_config.json, adapter_model.safetensors, logits.json}.
//!
//!     cargo run -p millrace-train --example peft_parity -- OUT
//!     python train/tests/oracles/check_peft.py OUT

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use train::config::{
    Determinism, EncoderKind, Family, LoraConfig, LoraTarget, ModelConfig, MoeConfig,
    ParallelConfig, Plan, PromptConfig, PromptEncoder, RouterScore, TrainConfig,
};
use train::data::{Sample, Samples, virtual_tokens};
use train::metrics::{Events, StepRecord};

/// Squares after this many virtual tokens.
struct Squares(usize);

impl Samples for Squares {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let text = sample.text()?;
        for (at, token) in text.tokens.iter_mut().enumerate() {
            *token = u32::try_from((index * 31 + (at * at) as u64) % 500)?;
        }
        for (token, id) in text.tokens.iter_mut().zip(virtual_tokens(self.0)) {
            *token = id;
        }
        text.counts[..self.0].fill(false);
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

/// The folder of a model without adapters and virtual tokens, trained unless it is there.
fn base_of(plan: &Plan, out: &Path) -> Result<PathBuf, Box<dyn StdError>> {
    let mut plan = plan.clone();
    (plan.model.lora, plan.model.prompt) = (None, None);
    let family = format!("{:?}", plan.model.family);
    let folder = out.join(format!("base_{family}"));
    if !folder.exists() {
        let run = out.join(format!("run_{family}"));
        let done = train::trainer::run(&plan, &Squares(0), None, &run, &Quiet)?;
        train::checkpoint::export_hf(&done.checkpoint, &folder)?;
    }
    Ok(folder)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let out = PathBuf::from(std::env::args().nth(1).ok_or("usage: peft_parity OUT")?);
    let base = Plan {
        model: ModelConfig {
            layers: 2,
            d_model: 64,
            heads: 4,
            ..Default::default()
        },
        train: TrainConfig {
            steps: 20,
            global_batch: 8,
            warmup_steps: 5,
            lr: 1e-2,
            ..Default::default()
        },
        parallel: ParallelConfig::default(),
        vocab: 500,
        seq_length: 64,
        decoder_length: 0,
        start: None,
        predictions: 0,
        eod: None,
        seed: 7,
        determinism: Determinism::Layout,
        fingerprint: "squares".into(),
    };
    let lora = ModelConfig {
        lora: Some(LoraConfig::default()),
        ..base.model.clone()
    };
    let moe = MoeConfig {
        experts: 4,
        d_ffn: 32,
        ..Default::default()
    };
    let with_targets = |without: &[LoraTarget]| {
        let mut targets = LoraTarget::ALL.to_vec();
        targets.retain(|target| !without.contains(target));
        LoraConfig {
            targets,
            ..Default::default()
        }
    };
    // Mixtral has no dense layers
    let mixture = ModelConfig {
        family: Family::Llama,
        d_ffn: 32,
        moe: Some(moe.clone()),
        lora: Some(with_targets(&[LoraTarget::Fc1, LoraTarget::Fc2])),
        ..base.model.clone()
    };
    // a router of DeepSeek is no linear layer in transformers
    let latents = ModelConfig {
        family: Family::DeepseekV3,
        q_lora_rank: 24,
        kv_lora_rank: 16,
        qk_head_dim: 8,
        qk_pos_emb_head_dim: 8,
        v_head_dim: 16,
        latent_norm_eps: 1e-6,
        moe: Some(MoeConfig {
            dense_first: 1,
            score: RouterScore::Sigmoid,
            expert_bias: true,
            num_groups: 2,
            group_topk: 2,
            shared_d_ffn: 32,
            ..moe
        }),
        lora: Some(with_targets(&[LoraTarget::Router])),
        ..base.model.clone()
    };
    let encoder = |kind| PromptEncoder {
        kind,
        hidden: 48,
        layers: 2,
    };
    let prompt = |encoder| ModelConfig {
        prompt: Some(PromptConfig {
            virtual_tokens: 9,
            encoder,
            ..Default::default()
        }),
        ..base.model.clone()
    };
    for (name, model) in [
        ("lora", lora),
        ("lora_mixture", mixture),
        ("lora_latents", latents),
        ("prompt", prompt(None)),
        ("p_tuning_mlp", prompt(Some(encoder(EncoderKind::Mlp)))),
        ("p_tuning_lstm", prompt(Some(encoder(EncoderKind::Lstm)))),
    ] {
        let mut plan = Plan {
            model,
            ..base.clone()
        };
        let folder = base_of(&plan, &out)?;
        plan.train.init_from = folder.display().to_string();
        let samples = Squares(plan.model.virtual_tokens());
        let run = out.join(format!("run_{name}"));
        let done = train::trainer::run(&plan, &samples, None, &run, &Quiet)?;
        let adapter = out.join(name);
        train::checkpoint::export_peft(&done.checkpoint, &adapter)?;
        let tokens: Vec<u32> = (0..40).map(|at| at * at % 500).collect();
        let logits = train::eval::logits(&done.checkpoint, &tokens)?;
        let record = serde_json::json!({"tokens": tokens, "logits": logits});
        std::fs::write(adapter.join("logits.json"), record.to_string())?;
    }
    Ok(())
}

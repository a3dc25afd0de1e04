//! Trains a tiny GPT-2, LLaMA, Mixtral and Qwen MoE for a few steps, exports them for transformers, and
//! writes our logits and what we generate beside them: OUT/NAME/{config.json,model.safetensors,
//! logits.json}.
//!
//!     cargo run --release -p millrace-train --example export_parity -- OUT
//!     python train/tests/oracles/check_export.py OUT

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use train::{
    Determinism, Events, Family, GenerateOptions, ModelConfig, MoeConfig, ParallelConfig, Plan,
    RouterScore, Sample, Samples, StepRecord, TrainConfig,
};

struct Squares;

impl Samples for Squares {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        for (at, token) in (0u64..).zip(&mut sample.text()?.tokens) {
            *token = u32::try_from((index * 31 + at * at) % 1000)?;
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
    for (name, family, kv_heads, moe) in [
        ("gpt", Family::Gpt, 0, None),
        ("llama", Family::Llama, 4, None),
        ("mixtral", Family::Llama, 4, Some(mixtral)),
        ("qwen2_moe", Family::Llama, 4, Some(qwen)),
    ] {
        let model = ModelConfig {
            family,
            layers: 4,
            d_model: 256,
            heads: 8,
            kv_heads,
            moe,
            ..Default::default()
        };
        let train = TrainConfig {
            steps: 20,
            global_batch: 8,
            warmup_steps: 5,
            ..Default::default()
        };
        let plan = Plan {
            model,
            train,
            parallel: ParallelConfig {
                tp: 2,
                pp: 2,
                dp: 1,
                ..Default::default()
            },
            vocab: 1000,
            seq_length: 128,
            decoder_length: 0,
            start: None,
            predictions: 0,
            eod: None,
            seed: 7,
            determinism: Determinism::Layout,
            fingerprint: "squares".into(),
        };
        let folder = out.join(name);
        let done = train::run(&plan, &Squares, None, &folder.join("run"), &Quiet)?;
        train::export_hf(&done.checkpoint, &folder)?;
        let mut sample = Sample::of(&plan);
        let read = Squares.read(999, &mut sample);
        read.map_err(|error| error.to_string())?;
        let tokens = &sample.text()?.tokens[..plan.seq_length];
        let logits = train::logits(&done.checkpoint, tokens)?;
        let options = GenerateOptions {
            max_tokens: 32,
            temperature: 0.0,
            ..Default::default()
        };
        let greedy = train::generate(&done.checkpoint, &tokens[..16], &options, &mut |_| {})?;
        let record = serde_json::json!({"tokens": tokens, "logits": logits, "greedy": greedy});
        std::fs::write(folder.join("logits.json"), record.to_string())?;
    }
    Ok(())
}

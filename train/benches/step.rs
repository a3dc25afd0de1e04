//! Tokens per second of whole training steps: forward, backward, clipping, AdamW.
//!
//!     cargo bench -p millrace-train --bench step -- --threads 1
//!     cargo bench -p millrace-train --bench step -- --threads 2 --model 124M --mode layout
//!
//! Shapes `10M` (L6 D384 V256, 4 x 256 tokens) and `124M` (GPT-2 small, 4 x 256 tokens) are those of
//! a torch loop with the same model, AdamW (fused) and clipping. One JSON line per case: best and
//! median of the steps after two to warm up, and tokens per CPU second over all of these (Linux;
//! hardly affected by what else runs). Options: --threads --model --mode --steps --batch (sequences),
//! --precision bf16, --tp --pp --dp --cp --virtual-stages --zero, --sequence true, --overlap false,
//! --recompute full, --chunked-cross-entropy true, --trace FILE (a Chrome trace of the last case).

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Mutex;

use train::config::{
    CheckpointConfig, Determinism, Family, ModelConfig, ParallelConfig, Plan, Precision, Profile,
    Recompute, TrainConfig,
};
use train::data::{Sample, Samples};
use train::metrics::{Events, StepRecord};

const WARM: usize = 2;

/// Pseudo-random tokens of any vocabulary.
struct Noise(u64);

impl Samples for Noise {
    fn len(&self) -> u64 {
        1 << 40
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let mut state = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
        for token in &mut sample.text()?.tokens {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *token = u32::try_from(state % self.0)?;
        }
        Ok(())
    }
}

/// Each step's record with the process's CPU seconds at that point.
#[derive(Default)]
struct Times(Mutex<Vec<(StepRecord, f64)>>);

/// User and system time in ticks of 10 ms are fields 14 and 15 of /proc/self/stat.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

impl Events for Times {
    fn step(&self, record: &StepRecord) {
        self.0
            .lock()
            .expect("no thread panics with the lock")
            .push((record.clone(), cpu_seconds()));
    }

    fn validation(&self, _set: &str, _step: u64, _loss: f64) {}
    fn checkpoint(&self, _step: u64, _path: &Path) {}
    fn resumed(&self, _step: u64) {}
    fn note(&self, _note: &str) {}
}

fn plan(
    model: &str,
    (steps, batch): (u64, usize),
    (determinism, recompute, precision): (Determinism, Recompute, Precision),
    parallel: ParallelConfig,
) -> Plan {
    let (layers, d_model, heads, vocab) = if model == "10M" {
        (6, 384, 6, 256)
    } else {
        (12, 768, 12, 50257)
    };
    Plan {
        model: ModelConfig {
            family: Family::Gpt,
            layers,
            d_model,
            heads,
            ..Default::default()
        },
        train: TrainConfig {
            steps,
            global_batch: batch,
            micro_batch: if parallel.pp > 1 {
                1
            } else {
                batch / parallel.dp
            },
            recompute,
            precision,
            warmup_steps: 1,
            eval_every: 0,
            checkpoint: CheckpointConfig {
                every: 0,
                keep: 1,
                ..CheckpointConfig::default()
            },
            ..TrainConfig::default()
        },
        parallel,
        vocab,
        seq_length: 256,
        decoder_length: 0,
        start: None,
        predictions: 0,
        eod: None,
        seed: 1,
        determinism,
        fingerprint: "bench".into(),
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
            .map_or(default, String::as_str)
            .to_owned()
    };
    let threads: usize = option("--threads", "1").parse()?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()?;
    let steps: u64 = option("--steps", "7").parse()?;
    let size = |name: &str| option(name, "1").parse::<usize>();
    let parallel = ParallelConfig {
        tp: size("--tp")?,
        pp: size("--pp")?,
        dp: size("--dp")?,
        cp: size("--cp")?,
        virtual_stages: size("--virtual-stages")?,
        zero: option("--zero", "0").parse()?,
        sequence: option("--sequence", "false").parse()?,
        overlap: option("--overlap", "true").parse()?,
        ..Default::default()
    };
    let batch: usize = option("--batch", "4").parse()?;
    let recompute = match option("--recompute", "none").as_str() {
        "none" => Recompute::None,
        "selective" => Recompute::Selective,
        "full" => Recompute::Full,
        other => return Err(format!("--recompute {other}").into()),
    };
    let precision = match option("--precision", "f32").as_str() {
        "f32" => Precision::F32,
        "bf16" => Precision::Bf16,
        "fp16" => Precision::Fp16,
        "fp8" => Precision::Fp8,
        other => return Err(format!("--precision {other}").into()),
    };
    let trace = option("--trace", "");
    let (only_model, only_mode) = (option("--model", ""), option("--mode", ""));
    for model in ["10M", "124M"] {
        for (mode, determinism) in [("off", Determinism::Off), ("layout", Determinism::Layout)] {
            if !only_model.is_empty() && only_model != model
                || !only_mode.is_empty() && only_mode != mode
            {
                continue;
            }
            let mut plan = plan(
                model,
                (steps, batch),
                (determinism, recompute, precision),
                parallel.clone(),
            );
            plan.train.chunked_cross_entropy =
                option("--chunked-cross-entropy", "false").parse()?;
            plan.train.profile = Profile::Switch(!trace.is_empty());
            let (folder, times) = (tempfile::tempdir()?, Times::default());
            train::trainer::run(
                &plan,
                &Noise(plan.vocab as u64),
                None,
                folder.path(),
                &times,
            )?;
            if !trace.is_empty() {
                std::fs::copy(folder.path().join("profile/rank-000.json"), &trace)?;
            }
            let records = times
                .0
                .into_inner()
                .expect("no thread panics with the lock");
            let mut seconds: Vec<f64> = records[WARM..].iter().map(|(r, _)| r.step_s).collect();
            seconds.sort_by(f64::total_cmp);
            let tokens = (plan.train.global_batch * plan.seq_length) as f64;
            let cpu = records[records.len() - 1].1 - records[WARM - 1].1;
            let (best, median) = (seconds[0], seconds[seconds.len() / 2]);
            println!(
                "{{\"model\":\"{model}\",\"mode\":\"{mode}\",\"threads\":{threads},\
                 \"best_tok_s\":{:.0},\"median_tok_s\":{:.0},\"cpu_tok_s\":{:.0},\"best_gflops\":{:.1},\
                 \"memory_mib\":{}}}",
                tokens / best,
                tokens / median,
                tokens * seconds.len() as f64 / cpu,
                tokens / best * plan.flops_per_token() / 1e9,
                records[records.len() - 1].0.memory_bytes >> 20,
            );
        }
    }
    Ok(())
}

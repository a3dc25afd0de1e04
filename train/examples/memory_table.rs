//! Memory of each choice of recomputation and ZeRO, in bytes, for the rank that holds most: predicted by formula,
//! and measured in one step.
//!
//!     cargo run --release -p millrace-train --example memory_table

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error as StdError;

use train::config::{
    Determinism, Family, ModelConfig, ParallelConfig, Plan, Recompute, TrainConfig,
};
use train::data::{Sample, Samples};
use train::trainer::memory::{RankMemory, measure, predict};

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

fn most(ranks: &[RankMemory]) -> RankMemory {
    *ranks
        .iter()
        .max_by_key(|rank| rank.total())
        .unwrap_or(&ranks[0])
}

fn main() -> Result<(), Box<dyn StdError>> {
    let job = Plan {
        model: ModelConfig {
            family: Family::Gpt,
            layers: 8,
            d_model: 256,
            heads: 8,
            ..Default::default()
        },
        train: TrainConfig {
            steps: 1,
            global_batch: 16,
            micro_batch: 2,
            warmup_steps: 1,
            ..Default::default()
        },
        parallel: ParallelConfig::default(),
        vocab: 1000,
        seq_length: 128,
        decoder_length: 0,
        start: None,
        predictions: 0,
        eod: None,
        seed: 7,
        determinism: Determinism::Run,
        fingerprint: "squares".into(),
    };
    println!(
        "| dp | pp | zero | recompute | weights | optimizer | gradients | activations | packs | snapshot | total |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full];
    let choices = (0..=3).map(|zero| (4, 1, zero, Recompute::None));
    let pipelines = recomputes.map(|recompute| (1, 2, 0, recompute));
    for (dp, pp, zero, recompute) in choices.chain(pipelines).chain([(2, 2, 3, Recompute::Full)]) {
        let mut plan = job.clone();
        (plan.parallel.dp, plan.parallel.pp, plan.parallel.zero) = (dp, pp, zero);
        plan.train.recompute = recompute;
        let (found, wanted) = (most(&measure(&plan, &Squares)?), most(&predict(&plan)?));
        let cell = |of: fn(&RankMemory) -> usize| format!("{} / {}", of(&wanted), of(&found));
        println!(
            "| {dp} | {pp} | {zero} | {recompute:?} | {} | {} | {} | {} | {} | {} | {} |",
            cell(|m| m.weights),
            cell(|m| m.optimizer),
            cell(|m| m.gradients),
            cell(|m| m.activations),
            cell(|m| m.packs),
            cell(|m| m.snapshot),
            cell(RankMemory::total),
        );
    }
    Ok(())
}

//! `eval`: validation or test loss of the newest checkpoint beside the unigram entropy of the same tokens.
//!
//! The unigram entropy H = - sum p log p, with p the frequencies of the predicted validation tokens themselves, is the
//! least loss that any model without context can reach on them: a model that learnt nothing from context stays above.

use super::blend::Blended;
use super::blend_samples::{BlendSamples, plan};
use crate::context::Context;
use crate::generation::newest_checkpoint;
use crate::job::WrongUse;
use crate::machine::write_atomically;
use crate::manifest::{fingerprint, identity};
use anyhow::Result;
use index::split::Part;
use serde_json::json;

pub(super) fn run(cx: &Context) -> Result<()> {
    let table = cx
        .job
        .eval
        .as_ref()
        .ok_or_else(|| WrongUse::new("the job has no [eval] table"))?;
    let blended = Blended::open(cx)?;
    let plan = plan(cx, &blended)?;
    let checkpoint = newest_checkpoint(&cx.out, "eval")?;
    let part = table.part.of_index();
    let measured = blended.part(part)?;
    let state = identity(&checkpoint.join("state.json"));
    let print = fingerprint(&json!([
        blended.fingerprint(Part::Train),
        blended.fingerprint(part),
        table,
        state
    ]));
    if cx.manifest.done("eval", &print)?.is_some() {
        log!("eval: done before");
        return Ok(());
    }
    let started = std::time::Instant::now();
    let is_whole = cx.job.blend.as_ref().is_some_and(|b| b.full_validation);
    let count = match is_whole && part == Part::Valid {
        true => measured.len(),
        false => table.samples.min(measured.len()),
    };
    let samples = BlendSamples(measured, None);
    let weights = match table.use_ema {
        true => checkpoint.join("ema.safetensors"),
        false => checkpoint,
    };
    let loss = train::eval::evaluate_on(&crate::devices::of(&cx.job), &weights, &samples, count)?;
    let entropy = unigram_entropy(&samples, count, &plan)?;
    let result = json!({
        "samples": count, "tokens": count * plan.seq_length as u64,
        (table.part.loss_key()): loss, "perplexity": loss.exp(),
        "unigram_entropy": entropy, "uniform_entropy": (plan.vocab as f64).ln(),
    });
    let text = format!("{result:#}\n");
    write_atomically(&cx.out.join("eval.json"), text.as_bytes())?;
    let seconds = started.elapsed().as_secs_f64();
    cx.manifest
        .record("eval", &print, &["eval.json".into()], result, seconds)?;
    log!(
        "eval: {} loss {loss:.4} nats, unigram entropy of the same tokens {entropy:.4} nats ({:+.4})",
        table.part.in_words(),
        loss - entropy
    );
    Ok(())
}

/// Entropy in nats of the predicted tokens of the first `count` samples.
fn unigram_entropy(
    samples: &dyn train::data::Samples,
    count: u64,
    plan: &train::config::Plan,
) -> Result<f64> {
    let mut counts = vec![0u64; plan.vocab];
    let mut sample = train::data::Sample::of(plan);
    for k in 0..count {
        let read = samples.read(k, &mut sample);
        read.map_err(|error| anyhow::anyhow!("sample {k}: {error}"))?;
        for id in sample.predicted() {
            counts[id as usize] += 1;
        }
    }
    Ok(entropy(&counts))
}

fn entropy(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let share = |n: &u64| *n as f64 / total.max(1) as f64;
    counts
        .iter()
        .filter(|n| **n > 0)
        .map(|n| -share(n) * share(n).ln())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_of_four_equal_tokens_is_ln_4_and_of_one_is_0() {
        assert!((entropy(&[5, 5, 0, 5, 5]) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(entropy(&[0, 9]), 0.0);
    }
}

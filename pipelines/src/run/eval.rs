//! `eval`: validation or test loss of the newest checkpoint beside the unigram entropy of the same tokens.
//!
//! The unigram entropy H = - sum p log p, with p the frequencies of the predicted validation tokens themselves, is the
//! least loss that any model without context can reach on them: a model that learnt nothing from context stays above.
//! Bits per byte compare models of different tokenizers: the loss of all tokens over the bytes of their text.

use super::blend::Blended;
use super::blend_samples::{BlendSamples, plan};
use super::decision::{Decision, Reason, files_there};
use super::setting_changes;
use crate::context::Context;
use crate::generation::{known_tokenizer_of, newest_checkpoint};
use crate::job::{Eval, EvalPart, WrongUse};
use crate::machine::write_atomically;
use crate::manifest::{fingerprint, identity};
use anyhow::Result;
use index::split::Part;
use serde_json::{Value, json};
use std::path::Path;

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
    let print = print_of(&blended, table, &checkpoint);
    if let Some(before) = cx.done("eval", &print)? {
        info!(
            "eval: done before: {}",
            in_words(table.part, &before.counts)
        );
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
    let predicted = Predicted::read(cx, &samples, count, &plan)?;
    let mut result = json!({
        "samples": count, "tokens": count * plan.seq_length as u64,
        (table.part.loss_key()): loss, "perplexity": loss.exp(),
        "unigram_entropy": entropy(&predicted.counts), "uniform_entropy": (plan.vocab as f64).ln(),
    });
    if let Some(bits) = predicted.bits_per_byte(loss) {
        result["bits_per_byte"] = json!(bits);
    }
    let text = format!("{result:#}\n");
    cx.accept()?;
    write_atomically(&cx.out.join("eval.json"), text.as_bytes())?;
    let seconds = started.elapsed().as_secs_f64();
    log!("eval: {}", in_words(table.part, &result));
    if !cx.is_owner() {
        log!(
            "eval: note: another process is running a job in {}: eval.json is written, and not recorded",
            cx.out.display()
        );
        return Ok(());
    }
    cx.manifest
        .record("eval", &print, &["eval.json".into()], result, seconds)?;
    Ok(())
}

/// Fingerprint of an evaluation of a checkpoint.
fn print_of(blended: &Blended, table: &Eval, checkpoint: &Path) -> String {
    fingerprint(&json!([
        blended.fingerprint(Part::Train),
        blended.fingerprint(table.part.of_index()),
        table,
        identity(&checkpoint.join("state.json"))
    ]))
}

/// The decision of the stage if the checkpoints stay as they are.
///
/// # Errors
/// No checkpoint, or none that is whole.
pub(super) fn decision(cx: &Context, blended: &Blended) -> Result<Decision> {
    let Some(table) = &cx.job.eval else {
        return Ok(Decision::skip("eval"));
    };
    let checkpoint = newest_checkpoint(&cx.out, "eval")?;
    let print = print_of(blended, table, &checkpoint);
    if cx.done("eval", &print)?.is_some() {
        return Ok(Decision::skip("eval"));
    }
    Ok(of_run(cx, Vec::new()))
}

/// The decision to run for these reasons.
pub(super) fn of_run(cx: &Context, mut reasons: Vec<Reason>) -> Decision {
    let changed = setting_changes::of(&cx.job, &cx.out);
    let changed = setting_changes::within(&changed, &["eval"]);
    reasons.extend(changed.into_iter().map(Reason::other));
    if reasons.is_empty() {
        let text = "its figures are not those of the newest checkpoint";
        reasons.push(Reason::perhaps(text));
    }
    let mut decision = Decision::run("eval", reasons);
    decision.replaces = files_there(&cx.out, std::iter::once("eval.json".into()));
    decision
}

/// The figures of `eval.json` in a line.
fn in_words(part: EvalPart, result: &Value) -> String {
    let number = |key: &str| result[key].as_f64().unwrap_or(f64::NAN);
    let (loss, entropy) = (number(part.loss_key()), number("unigram_entropy"));
    let bits = result["bits_per_byte"].as_f64();
    let bits = bits.map_or_else(String::new, |bits| format!(", {bits:.4} bits per byte"));
    format!(
        "{} loss {loss:.4} nats, unigram entropy of the same tokens {entropy:.4} nats ({:+.4}){bits}",
        part.in_words(),
        loss - entropy
    )
}

/// The predicted tokens of the first samples.
struct Predicted {
    /// By id.
    counts: Vec<u64>,
    /// Bytes of their text without special tokens; None if it is no running text or has no tokenizer. A character that a sample's end cuts
    /// counts as the three bytes of U+FFFD.
    bytes: Option<u64>,
}

impl Predicted {
    fn read(
        cx: &Context,
        samples: &dyn train::data::Samples,
        count: u64,
        plan: &train::config::Plan,
    ) -> Result<Predicted> {
        let mut sample = train::data::Sample::of(plan);
        let is_text = matches!(sample, train::data::Sample::Text(_));
        let tokenizer = match is_text {
            true => known_tokenizer_of(cx)?,
            false => None,
        };
        let mut found = Predicted {
            counts: vec![0; plan.vocab],
            bytes: tokenizer.as_ref().map(|_| 0),
        };
        for k in 0..count {
            let read = samples.read(k, &mut sample);
            read.map_err(|error| anyhow::anyhow!("sample {k}: {error}"))?;
            let ids: Vec<u32> = sample.predicted().collect();
            for id in &ids {
                found.counts[*id as usize] += 1;
            }
            if let (Some(tokenizer), Some(bytes)) = (&tokenizer, &mut found.bytes) {
                *bytes += tokenizer.decode_text(&ids)?.len() as u64;
            }
        }
        Ok(found)
    }

    /// Of tokens with this mean loss in nats.
    fn bits_per_byte(&self, loss: f64) -> Option<f64> {
        let tokens: u64 = self.counts.iter().sum();
        let bytes = self.bytes.filter(|bytes| *bytes > 0)?;
        Some(loss * tokens as f64 / std::f64::consts::LN_2 / bytes as f64)
    }
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
    fn bits_per_byte_are_the_loss_of_all_tokens_over_the_bytes_of_their_text() {
        let predicted = Predicted {
            counts: vec![3, 0, 5],
            bytes: Some(32),
        };
        // eight tokens of two bits each
        let bits = predicted.bits_per_byte(4f64.ln()).unwrap();
        assert!((bits - 0.5).abs() < 1e-12, "{bits}");
        let none = Predicted {
            bytes: None,
            ..predicted
        };
        assert_eq!(none.bits_per_byte(1.0), None);
    }

    #[test]
    fn entropy_of_four_equal_tokens_is_ln_4_and_of_one_is_0() {
        assert!((entropy(&[5, 5, 0, 5, 5]) - 4f64.ln()).abs() < 1e-12);
        assert_eq!(entropy(&[0, 9]), 0.0);
    }
}

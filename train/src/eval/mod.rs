//! Evaluation of a checkpoint: mean loss over samples, logits of one sequence, log-likelihoods of texts (`scorer`),
//! scores of a classification head (`classifier`), a summary of its contents.

mod classifier;
mod forward;
mod language_model;
mod rows;
mod scorer;

pub use classifier::Classifier;
pub use language_model::{LanguageModel, Likelihood, Query};
pub use scorer::Scorer;

use std::path::Path;

use kernels::Tensor;
use serde_json::{Value, json};

use crate::checkpoint::files::names_of;
use crate::checkpoint::read::Opened;
use crate::checkpoint::state::State;
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, OPTIMIZER};
use crate::data::Samples;
use crate::data::virtual_tokens::{Prompted, is_known, prompted};
use crate::dist::devices::Devices;
use crate::error::{Error, OnRank, Result};
use crate::infer::pair;
use crate::parallel::pipeline::Worker;
use crate::parallel::zero::Parameters;

/// Mean loss in nats per token over the first `count` samples (all, if there are fewer). As everywhere,
/// `ema.safetensors` in a checkpoint's folder selects the averages in it.
///
/// # Errors
/// A damaged checkpoint, no samples, and errors of the samples.
pub fn evaluate(checkpoint: &Path, samples: &dyn Samples, count: u64) -> Result<f64> {
    evaluate_on(&Devices::Cpu, checkpoint, samples, count)
}

/// Like `evaluate`, on the first of these devices.
///
/// # Errors
/// As `evaluate`; `Device` if there is none.
pub fn evaluate_on(
    devices: &Devices,
    checkpoint: &Path,
    samples: &dyn Samples,
    count: u64,
) -> Result<f64> {
    let model = Model::load(checkpoint, devices)?;
    let sequences = usize::try_from(count.min(samples.len())).unwrap_or(usize::MAX);
    if sequences == 0 {
        return Err(Error::NoSamples { wanted: count });
    }
    Ok(worker(&model).evaluate(samples, sequences)?.loss)
}

/// Runs validation passes of a loaded model, as training does.
fn worker(model: &Model) -> Worker<'_> {
    Worker {
        plan: &model.plan,
        stages: std::slice::from_ref(&model.stage),
        groups: &model.groups,
        device: &model.device,
        loss_scale: 1.0,
        scratch: None,
        parameters: Parameters::Whole(&model.weights, model.packs.as_ref()),
        delayed: model.delayed.as_ref(),
    }
}

/// Logits after each token of one sequence, or at each token for a masked model (all of one segment):
/// `tokens.len()` rows of `vocab` numbers. The model's virtual tokens stand in front of the sequence, if it has none itself.
///
/// # Errors
/// A damaged checkpoint; an empty or too long sequence; a token outside the vocabulary.
pub fn logits(checkpoint: &Path, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let model = Model::load(checkpoint, &Devices::Cpu)?;
    model.expect_pair(false)?;
    model.expect_vocabulary()?;
    let Prompted { ids, in_front } = prompted(&model.plan, tokens)?;
    let most = model.plan.seq_length.saturating_sub(in_front);
    if tokens.is_empty() || tokens.len() > most {
        let wanted = format!("1 to {most} tokens");
        let found = tokens.len().to_string();
        return Err(Error::Request {
            what: "sequence",
            found,
            wanted,
        });
    }
    if let Some(&id) = tokens.iter().find(|&&id| !is_known(&model.plan, id)) {
        model.tokens(&[id])?; // refuses it
    }
    let rows = model.rows_of(&ids)?;
    let logits = forward::logits(&model, &rows, &ids).on_rank(0, "logits")?;
    Ok(rows_of(&logits, &model)?.split_off(in_front))
}

/// Logits of an encoder-decoder whose encoder reads `tokens` and whose decoder has written `decoder_tokens` so far:
/// `decoder_tokens.len()` rows of `vocab` numbers, each after its token.
///
/// # Errors
/// A damaged checkpoint; a model without an encoder; an empty or too long text; a token outside the
/// vocabulary.
pub fn decoder_logits(
    checkpoint: &Path,
    tokens: &[u32],
    decoder_tokens: &[u32],
) -> Result<Vec<Vec<f32>>> {
    let model = Model::load(checkpoint, &Devices::Cpu)?;
    model.expect_pair(true)?;
    if decoder_tokens.is_empty() {
        let wanted = "at least 1".into();
        return Err(Error::Request {
            what: "text for the decoder",
            found: "0 tokens".into(),
            wanted,
        });
    }
    let logits = pair::logits(&model, tokens, decoder_tokens)?;
    rows_of(&logits, &model)
}

/// The logits of each row, without padding.
fn rows_of(logits: &Tensor, model: &Model) -> Result<Vec<Vec<f32>>> {
    let all = logits.view().read::<f32>().on_rank(0, "read logits")?;
    let rows = all.chunks(model.plan.padded_vocab());
    Ok(rows.map(|row| row[..model.plan.vocab].to_vec()).collect())
}

/// Describes a checkpoint: step, plan, loss, tensors. Verifies the state and the model.
///
/// # Errors
/// A checkpoint that is damaged or not there.
pub fn inspect(checkpoint: &Path) -> Result<Value> {
    let opened = Opened::open(checkpoint)?;
    let State {
        plan, train_state, ..
    } = &opened.state;
    let whole = opened.plan_of_one_rank();
    let bytes = |kind| {
        let of = |name: &&str| opened.digests.of(name).map(|digest| digest.bytes);
        let sizes: Vec<u64> = names_of(&opened.digests, kind)
            .iter()
            .filter_map(of)
            .collect();
        (!sizes.is_empty()).then(|| sizes.iter().sum::<u64>())
    };
    // through text: a value made directly would show 0.02f32 as 0.019999999552965164
    let text = serde_json::to_string(plan).expect("a plan is plain data");
    let shown: Value = serde_json::from_str(&text).expect("just written");
    let tensors = opened.tensors(MODEL)?.entries();
    let tensors: Vec<Value> = tensors
        .iter()
        .map(|entry| json!({"name": entry.name, "shape": entry.dims}))
        .collect();
    Ok(json!({
        "format": opened.state.format,
        "step": train_state.step,
        "consumed_samples": train_state.consumed_samples,
        "tokens": train_state.consumed_samples.saturating_mul(plan.sample_tokens() as u64),
        "skipped_steps": train_state.skipped,
        "init": opened.state.init,
        "loss": train_state.loss.0,
        "valid_loss": train_state.valid_loss(),
        "best_valid_loss": train_state.best_valid_loss(),
        "parameters": whole.parameters(),
        "active_parameters": whole.active_parameters(),
        "model_bytes": bytes(MODEL),
        "optimizer_bytes": bytes(OPTIMIZER),
        "files": opened.digests.0.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "plan": shown,
        "tensors": tensors,
    }))
}

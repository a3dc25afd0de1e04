//! Text generation from a checkpoint, one sequence on one rank. An encoder-decoder answers its prompt (`pair`); a
//! decoder continues it:
//!
//! Prefill runs the prompt through the model at once and fills the key-value cache; decoding then runs one row per
//! token. When the sequence reaches `seq_length`, its newest half is kept and prefilled again, as the model has not
//! seen longer ones.

pub(crate) mod kv_cache;
pub(crate) mod options;
pub(crate) mod pair;
mod sample;

pub use options::GenerateOptions;

use std::path::Path;

use crate::checkpoint::whole_model::Model;
use crate::dist::devices::Devices;
use crate::error::{Error, OnRank, Result};
use crate::infer::kv_cache::Decoder;

/// Continues `prompt`, or answers it if the model has an encoder; calls `on_token` with each token as it is
/// chosen and returns them all.
///
/// # Errors
/// A damaged checkpoint, an empty prompt, a token outside the vocabulary, options out of range.
pub fn generate(
    checkpoint: &Path,
    prompt: &[u32],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(u32),
) -> Result<Vec<u32>> {
    generate_on(&Devices::Cpu, checkpoint, prompt, options, on_token)
}

/// Like `generate`, on the first of these devices.
///
/// # Errors
/// As `generate`; `Device` if there is none.
pub fn generate_on(
    devices: &Devices,
    checkpoint: &Path,
    prompt: &[u32],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(u32),
) -> Result<Vec<u32>> {
    options.check()?;
    if prompt.is_empty() {
        let (found, wanted) = ("0 tokens".to_owned(), "at least 1".to_owned());
        return Err(Error::Request {
            what: "prompt",
            found,
            wanted,
        });
    }
    let model = Model::load(checkpoint, devices)?;
    if model.plan.model.architecture().is_masked {
        return Err(Error::Request {
            what: "model to generate with",
            found: format!("{:?}", model.plan.model.family),
            wanted: "a decoder: a masked model does not continue a text".into(),
        });
    }
    model.tokens(prompt)?;
    if model.plan.model.architecture().is_encoder_decoder {
        return pair::answer(&model, prompt, options, on_token);
    }
    let limit = model.plan.seq_length;
    let mut tokens = prompt.to_vec();
    let window = prompt.len().min(limit);
    // the longest sequence of a model with rotary positions is not bounded by any tensor
    let room = window.saturating_add(options.max_tokens).min(limit);
    let mut decoder = Decoder::new(&model, room).on_rank(0, "allocate caches")?;
    let mut logits = decoder.prefill(&prompt[prompt.len() - window..])?;
    while tokens.len() < prompt.len() + options.max_tokens {
        let index = (tokens.len() - prompt.len()) as u64;
        let token = sample::choose(&logits, options, index);
        tokens.push(token);
        on_token(token);
        if options.stop == Some(token) || tokens.len() == prompt.len() + options.max_tokens {
            break;
        }
        logits = if decoder.position() < limit {
            decoder.step(token)?
        } else {
            decoder.prefill(&tokens[tokens.len() - limit.div_ceil(2)..])?
        };
    }
    Ok(tokens.split_off(prompt.len()))
}

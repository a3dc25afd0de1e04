//! Text generation from a checkpoint: the engine continues prompts, or answers them if the model has an encoder; beam
//! search looks for the likeliest whole answer. `classifier` scores sequences with an encoder of another program.

mod beam;
pub mod classifier;
pub mod engine;
pub(crate) mod options;
pub(crate) mod pair;
pub(crate) mod sample;

pub use beam::{Beam, BeamOptions, BeamSearch, beam_search};
pub use options::GenerateOptions;
pub use sample::Scored;

use std::path::Path;

use crate::checkpoint::whole_model::Model;
use crate::data::virtual_tokens::most_of_text;
use crate::dist::devices::Devices;
use crate::error::Result;
use crate::infer::engine::{Engine, Event, Limits, Request};

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

/// Like `generate`, on the first of these devices. When the text reaches the length of the model's sequences, its newest
/// half goes on, as the model has not seen longer ones.
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
    let models = Model::open(checkpoint, devices.whole())?;
    let plan = models.first().map(|model| &model.plan);
    let longest = plan.map_or(1, |plan| plan.seq_length);
    let before = plan.map_or(0, most_of_text);
    // the longest sequence of a model with rotary positions is not bounded by any tensor
    let room = (before + prompt.len()).saturating_add(options.max_tokens);
    let limits = Limits {
        max_sequences: 1,
        cache_tokens: room.min(longest).max(1),
        ..Limits::default()
    };
    let mut engine = Engine::of(models, limits)?;
    engine.submit(Request {
        prompt: prompt.to_vec(),
        options: options.clone(),
        beginning: Vec::new(),
        slides: true,
        adapter: None,
    })?;
    let mut tokens = Vec::new();
    while !engine.is_idle() {
        for event in engine.step()? {
            if let Event::Token { token, .. } = event {
                tokens.push(token);
                on_token(token);
            }
        }
    }
    Ok(tokens)
}

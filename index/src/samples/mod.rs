//! Documents to training samples, in Megatron's order.

mod gpt;

pub use gpt::{GptIndices, GptSamples, Request};

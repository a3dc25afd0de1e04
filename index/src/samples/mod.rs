//! Documents to training samples, in Megatron's order.

mod gpt;

pub use gpt::{GptIndices, GptItem, GptSamples, ItemOptions, Order, PAD, Places, Request, Starts};
pub(crate) use gpt::{Sizes, starts};

//! Documents to training samples, in Megatron's order.

mod gpt;
mod masked;

pub use gpt::{GptIndices, GptItem, GptSamples, ItemOptions, Order, PAD, Places, Request, Starts};
pub(crate) use gpt::{Sizes, starts};
pub use masked::{BertItem, BertSamples, MaskTokens, MaskedRequest, Masking, T5Item, T5Samples};

//! Training samples from documents, in Megatron's order.

mod fim;
mod gpt;
mod masked;

pub use fim::{Fim, FimText};
pub(crate) use gpt::Sizes;
pub(crate) use gpt::epoch_tokens;
pub use gpt::{GptIndices, GptItem, GptSamples, ItemOptions, Order, PAD, Places, Request, Starts};
pub use masked::{BertItem, BertSamples, MaskTokens, MaskedRequest, Masking, T5Item, T5Samples};

//! Types of tokens in `tokenizer.ggml.token_type` (llama.cpp's `llama_token_type`).

pub(super) const NORMAL: i128 = 1;
pub(super) const UNKNOWN: i128 = 2;
/// Special tokens, such as the one that ends a text.
pub(super) const CONTROL: i128 = 3;
/// Added tokens that are text.
pub(super) const USER: i128 = 4;
pub(super) const UNUSED: i128 = 5;
/// A byte, `<0x0A>`.
pub(super) const BYTE: i128 = 6;

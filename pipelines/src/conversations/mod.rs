//! Conversations for fine-tuning: rows in the usual forms, by a chat template to tokens whose answers count in the loss, packed
//! into samples.

mod comparisons;
mod encode;
mod forms;
mod pack;
mod read;
mod tokens;

pub(crate) use encode::Encoding;
pub(crate) use pack::pack;
pub(crate) use read::{LeftOut, Prompt, Read, Reading, read};
pub(crate) use tokens::{Tokens, is_answer};

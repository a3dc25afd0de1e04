//! Texts from a model: the files around its weights, texts cut out of a stream of tokens, stop strings, chat templates,
//! sampling settings.

mod chat_template;
mod model_files;
mod sampling;
mod session;
mod stops;
mod text_stream;

pub(crate) use chat_template::{ChatTemplate, Message};
pub(crate) use model_files::{ModelFiles, tokenizer_beside};
pub(crate) use sampling::SamplingArgs;
pub(crate) use session::{Prompt, Session};
pub(crate) use stops::Stops;
pub(crate) use text_stream::TextStream;

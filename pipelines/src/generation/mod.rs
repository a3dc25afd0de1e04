//! Texts from a model: where it is and the files around its weights, prompts, sampling flags, texts cut out of a stream of
//! tokens, stop strings, chat templates.

mod answers;
mod chat_template;
mod dtype;
mod hugging_face;
mod located;
mod model_files;
mod prompt;
mod sampling_args;
mod stops;
mod text_stream;
pub(crate) mod trained_tokenizer;

pub(crate) use answers::{Answer, answer};
pub(crate) use chat_template::{ChatTemplate, Message};
pub(crate) use dtype::Dtype;
pub(crate) use hugging_face::{HuggingFaceFiles, tokenizer_for};
pub(crate) use located::{
    Located, checkpoints_in, known_tokenizer_of, named_tokenizer, newest_checkpoint, tokenizer_of,
    tokenizer_path,
};
pub(crate) use model_files::ModelFiles;
pub(crate) use prompt::{encode, encode_marked, encode_with_sentinels, ids_at_markers};
pub(crate) use sampling_args::SamplingArgs;
pub(crate) use stops::Stops;
pub(crate) use text_stream::{TextStream, text_of};

//! Texts from a model: where it is and the files around its weights, texts cut out of a stream of tokens, stop strings,
//! chat templates.

mod chat_template;
mod located;
mod model_files;
mod stops;
mod text_stream;

pub(crate) use chat_template::Message;
pub(crate) use located::{
    Located, named_tokenizer, newest_checkpoint, tokenizer_of, tokenizer_path,
};
pub(crate) use model_files::ModelFiles;
pub(crate) use stops::Stops;
pub(crate) use text_stream::{TextStream, text_of};

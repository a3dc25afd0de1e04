//! GGUF files, as llama.cpp reads and writes them (`ggml/include/gguf.h`, `gguf-py/gguf/constants.py`).

mod deepseek;
pub(crate) mod export;
mod file;
pub(crate) mod import;
mod kind;
pub(crate) mod mix;
mod names;
mod settings;
mod split_names;
#[cfg(test)]
mod tests;
mod token_type;
mod tokenizer;
mod value;
pub(crate) mod vocabulary;
#[cfg(test)]
mod vocabulary_tests;

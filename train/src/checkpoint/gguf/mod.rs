//! GGUF files, as llama.cpp reads and writes them (`ggml/include/gguf.h`, `gguf-py/gguf/constants.py`).

pub(crate) mod export;
mod file;
pub(crate) mod import;
mod kind;
pub(crate) mod mix;
mod names;
mod settings;
#[cfg(test)]
mod tests;
mod tokenizer;
mod value;

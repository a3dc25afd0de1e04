//! Linear layers in few bits, in the forms of Hugging Face folders: compressed-tensors, blocks of FP8, GPTQ and AWQ read, the first two
//! written too.

pub(crate) mod eight_bits;
pub(crate) mod int4;
pub(crate) mod packed;
pub(crate) mod scheme;
pub(crate) mod write;

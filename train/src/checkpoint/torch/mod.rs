//! Readers for files that torch writes: zip archives of pickles and tensors, and distributed checkpoints.

pub(crate) mod dist;
pub(crate) mod pickle;
pub(crate) mod save;
pub(crate) mod zip;

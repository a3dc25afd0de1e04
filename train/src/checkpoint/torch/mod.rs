//! Readers and writers of files of torch: zip archives of pickles and tensors, and distributed checkpoints.

mod crc32;
pub(crate) mod dist;
pub(crate) mod dist_writer;
pub(crate) mod pickle;
pub(crate) mod pickle_writer;
pub(crate) mod save;
pub(crate) mod save_writer;
pub(crate) mod zip;
mod zip_writer;

//! Models as explicit layers with hand-written backward passes; no tape.
//!
//! Letters: b batch (sequences), t time, n = b*t, d model width, h heads, k kv heads, e head width,
//! f feed-forward width, v padded vocabulary. Where a layer is split, f, h, k, v mean this rank's
//! share and the header of the file says so; t is the context-parallel rank's share of a sequence.
//! Activations between layers are `[m, d]`: m = n, or n/tp with sequence parallelism.
//!
//! Every weight is stored so that tensor parallelism splits its first dim:
//! column-parallel `[out, in]`, row-parallel `[in, out]`.

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod context;
pub(crate) mod cross;
pub(crate) mod decoder_block;
pub(crate) mod depth;
pub(crate) mod embedding;
pub(crate) mod encoder_norm;
pub(crate) mod feed_forward;
pub(crate) mod flops;
pub(crate) mod fp8;
pub(crate) mod fp8_delayed;
pub(crate) mod gradients;
pub(crate) mod head;
pub(crate) mod latent;
pub(crate) mod leaf_rows;
pub(crate) mod linear;
pub(crate) mod lora;
pub(crate) mod lstm;
pub(crate) mod mlp;
pub(crate) mod moe;
pub(crate) mod norm;
pub(crate) mod packed_rows;
pub(crate) mod param;
mod parameter_counts;
pub(crate) mod precision;
pub(crate) mod prepacked;
pub(crate) mod qk_norms;
pub(crate) mod ring;
pub(crate) mod row_adapters;
pub(crate) mod slots;
pub(crate) mod stage;
pub(crate) mod virtual_rows;

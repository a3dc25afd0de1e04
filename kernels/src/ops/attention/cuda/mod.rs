//! Attention on CUDA. Exact: the sums of `cpu/` in its order, by tiles of 32 query rows and 32 keys. On tensor cores:
//! `flash.rs`. Masks, biases and dropout are computed where they are used; only the bounds of rows and the buckets of
//! distances are uploaded.

pub(in crate::ops) mod backward;
mod call;
pub(in crate::ops) mod flash;
pub(in crate::ops) mod forward;
mod pages;
pub(in crate::ops) mod rows;

pub(super) use backward::{backward, backward_end, backward_whole, sink_gradients};
pub(super) use forward::{begin, decode, forward, forward_end, forward_whole};
pub(super) use pages::forward_paged;
pub(super) use rows::{put_kv, settle_rows, take_kv};

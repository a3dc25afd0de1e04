//! Attention on the CPU (flash attention): a tile of query rows is multiplied with block after block of keys. Its
//! scores are transposed, a row of 32 queries for each key, so that sums over keys need no sum over lanes and the
//! next product reads them as they are.
//!
//! Within a block, a tile visits the keys from the first that one of its rows attends to (rounded down to even, or
//! for tile-order sums to a multiple of 32 from the block's start) to the last; a hidden key has probability 0. A
//! chain that starts with zeros is the chain that starts later, and results carry no sign of zero, so the visited
//! range changes no bits. For tile-order sums, a chain over keys takes them in 32s from each block's start, one
//! over query rows in 32s from each leaf's start, the last of which are padded with zeros: both are the same
//! whichever rank has the keys or the rows.

mod alibi;
mod backward;
mod bias;
mod forward;
mod one_row;
mod operand;
mod pages;
mod queries;
mod rows;
mod sinks;
mod softmax;
mod source;
mod tile;
mod tree;
mod turn;

pub(super) use backward::{backward, backward_end, backward_whole};
pub(super) use forward::{begin, decode, forward, forward_end, forward_whole};
pub(super) use pages::forward_paged;
pub(super) use sinks::sink_gradients;
pub(super) use turn::{put_kv, settle_rows, take_kv};

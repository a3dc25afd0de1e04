//! Attention on the CPU. A tile of query rows meets block after block of keys; its scores stand turned,
//! a row of 32 queries for each key, so that sums over keys need no sum over lanes and the next product
//! reads them as they are.
//!
//! Within a block a tile visits the keys from the first that one of its rows sees (rounded down to even, where sums
//! are made in tiles to a multiple of 32 from the block's start) to the last; a hidden key has probability 0. A chain
//! that starts with zeros is the chain that starts later, and results are given without the sign of zero: the visited
//! range changes no bits. Where sums are made in tiles a chain over keys takes them in 32s from each block's start,
//! one over query rows in 32s from each leaf's start, whose last ones are filled with zeros: both are the same
//! whoever has the keys or the rows.

mod backward;
mod bias;
mod forward;
mod operand;
mod queries;
mod rows;
mod softmax;
mod tile;
mod tree;
mod turn;

pub(super) use backward::{Slopes, backward, backward_end, backward_whole};
pub(super) use forward::{Running, decode, forward, forward_end, forward_whole};
pub(super) use turn::settle_rows;

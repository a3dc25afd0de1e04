//! Takedown: documents of a finished corpus that a list of opt-outs names are removed from it.
//!
//! [`search()`] finds the documents of a shard and the number of texts that it gives to a dataset; [`rewrite()`] writes the
//! shard without them into another folder: the clean file, signatures, keep list and cuts, the lines of dropped documents.
//! References between shards are renumbered by [`Removals`]. Files of the corpus are only read; moving the new ones to
//! their places is the caller's work, so that it can be done for all at once.
//!
//! A document that repeats a removed one stays removed until deduplication runs again: its keep list then says that it
//! repeats no known document.
//!
//! Memory: the list, 16 bytes per removed document, and the buffers of one shard per thread.

mod inspection;
mod lists;
mod removals;
mod rewrite;
mod samples;
mod search;

pub use crate::takedown_list::{FoundBy, TakedownList};
pub use inspection::{INSPECTED, rewrite_lines, without_ids};
pub use lists::{ListCounts, rewrite_index, rewrite_lists, smaller};
pub use removals::Removals;
pub use rewrite::{Counts, Taken, rewrite, rewrite_dropped};
pub use samples::{Gone, rewrite_samples, rewrite_shard_samples};
pub use search::{Found, Removed, search};

//! Integration tests of the curation stage, one binary.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bad_input;
mod files;
mod golden;
mod shard;

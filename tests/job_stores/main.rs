//! Jobs with `[store]` on an S3 server in this process.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../curate/tests/stores/s3.rs"]
mod s3;
#[path = "../../curate/tests/stores/server.rs"]
mod server;
mod takedown;

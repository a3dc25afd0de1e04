//! Integration tests of HTTP and object stores, which are a feature: a binary of their own, so that a build with the feature need
//! not compile all other tests again.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod crawl;
mod http;
mod s3;
mod server;
mod store;

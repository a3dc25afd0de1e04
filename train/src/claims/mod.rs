//! Tests of what this crate promises, each over the whole of `run`.

mod layouts;
mod resume;

//! Tests of what this crate promises, each over the whole of `run`.

mod counts;
mod hugging_face;
mod inference;
mod kill;
mod layouts;
mod mixture;
mod parity;
mod resume;

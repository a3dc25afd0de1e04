//! The work of a server on each token of a streamed answer: connections by hyper, and the JSON of events.
//!
//! hyper and serde are generic, so that their code is compiled where it is called. This is a crate of its own because it must
//! be optimised, and the rest of `pipelines` need not be.

mod connection;
mod events;

pub use connection::connection;
pub use events::{ChatChoice, Choices, Chunk, CompletionChoice, Delta};

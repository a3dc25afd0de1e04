//! Tests of what this crate promises, each over the whole of `run`.

mod bert;
mod bf16_sums;
mod chunked;
mod counts;
mod differences;
mod hugging_face;
mod inference;
mod init;
mod kill;
mod layouts;
mod lead;
mod megatron;
mod mixture;
mod mixture_parity;
mod offload;
mod optimizers;
mod parity;
mod paths;
mod policies;
mod precision;
mod processes;
mod profile;
mod resume;
mod sharded;
mod t5;
mod t5_parity;

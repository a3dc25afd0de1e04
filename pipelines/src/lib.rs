#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[macro_use]
mod log;

mod cli;
mod context;
mod conversations;
mod devices;
mod executor;
mod exit_code;
mod flag_numbers;
mod folder_lock;
mod generation;
mod job;
mod journal;
mod machine;
mod manifest;
mod panics;
mod plan;
mod progress;
mod report;
mod repository;
mod run;
mod serve;
mod signals;
mod submission;
mod tasks;
mod watch;

pub use cli::main;
pub use job::{Job, Problem, load};

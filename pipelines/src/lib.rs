#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[macro_use]
mod log;

mod cli;
mod context;
mod executor;
mod job;
mod machine;
mod manifest;
mod panics;
mod progress;
mod report;
mod run;
mod signals;
mod submission;

pub use job::{Job, Problem, load};

/// Parses `args`, runs the verb, reports. Exit code 0 done, 1 failed, 2 bad usage or job, 128 + N stopped by signal N.
pub fn main(args: impl IntoIterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    panics::hide_expected();
    cli::main(args)
}

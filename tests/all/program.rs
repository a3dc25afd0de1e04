//! `millrace` built by this crate: Cargo tells a test the path only of its own package's programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipelines::main(std::env::args_os())
}

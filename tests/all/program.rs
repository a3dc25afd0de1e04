//! The `millrace` binary, built by this crate because Cargo gives a test only the paths of its own package's
//! binaries.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipelines::main(std::env::args_os())
}

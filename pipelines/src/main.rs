//! The `millrace` binary; all of it is in `pipelines::main`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipelines::main(std::env::args_os())
}

//! The one binary: everything it does starts in `pipelines::main`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipelines::main(std::env::args_os())
}

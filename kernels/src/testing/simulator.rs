//! The simulated GPU (`kernels/sim`): stand-ins of NVIDIA's libraries that run kernels on the CPU, built at first use by
//! the system's C++ compiler and opened like the real ones.

#![expect(unsafe_code, reason = "sets a variable of the environment")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Device, cuda};

/// Devices that tests have, unless `MILLRACE_SIM_DEVICES` says otherwise.
const DEVICES: &str = "8";

/// The folder of the built simulator; `None` without a C++ compiler.
/// # Panics
/// If it does not build although there is a compiler, or `MILLRACE_REQUIRE_SIMULATOR` is set and there is none.
pub fn folder() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(build).clone()
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("sim");
    let program = std::env::current_exe().expect("a test knows its program");
    // target/PROFILE/deps/PROGRAM
    let target = program
        .ancestors()
        .nth(3)
        .expect("tests are built under target");
    let folder = target.join("simulator");
    let built = Command::new("bash")
        .arg(source.join("build.sh"))
        .arg(&folder)
        .output()
        .expect("bash starts");
    match built.status.code() {
        Some(0) => {
            if std::env::var_os("MILLRACE_SIM_DEVICES").is_none() {
                // SAFETY: once in a process, before the simulator, which reads it, is opened.
                unsafe { std::env::set_var("MILLRACE_SIM_DEVICES", DEVICES) };
            }
            Some(folder)
        }
        Some(3) => {
            assert!(
                std::env::var_os("MILLRACE_REQUIRE_SIMULATOR").is_none(),
                "the simulated GPU needs a C++ compiler"
            );
            println!("skipped: the simulated GPU needs a C++ compiler");
            None
        }
        _ => panic!("{}", String::from_utf8_lossy(&built.stderr)),
    }
}

/// A simulated GPU of its own, `None` without a C++ compiler; or the card, if `MILLRACE_TEST_CARD` has the folders of
/// NVIDIA's libraries (`kernels/gpu.sh`).
/// # Panics
/// If it does not open.
pub fn device() -> Option<Device> {
    if let Some(folders) = std::env::var_os("MILLRACE_TEST_CARD") {
        let options = cuda::Options {
            libraries: std::env::split_paths(&folders).collect(),
            ..cuda::Options::default()
        };
        return Some(Device::cuda(&options).expect("the card opens"));
    }
    device_of(0)
}

/// A handle of one of the simulated GPUs, by number.
/// # Panics
/// If it does not open.
pub fn device_of(ordinal: usize) -> Option<Device> {
    let folder = folder()?;
    let options = cuda::Options {
        ordinal,
        cache: Some(folder.join("kernels")),
        libraries: vec![folder],
    };
    Some(Device::cuda(&options).expect("the simulated GPU opens"))
}

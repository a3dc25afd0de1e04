//! NVIDIA's libraries, opened at run time: found in given folders, such as those of Python's `nvidia` packages, or by
//! the system's loader.
//!
//! cudarc opens a library by its name and panics if there is none. So each is opened here first, by its path; the
//! system's loader then finds it by its name, as it is loaded already.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::{Error, Result};

/// A library that was looked for.
#[derive(Clone, Debug)]
pub struct Found {
    /// Such as `libnvrtc`.
    pub library: &'static str,
    /// Its use.
    pub purpose: &'static str,
    /// True if training needs it.
    pub is_needed: bool,
    /// File or name by which it was opened; `None` if it was not found.
    pub opened: Option<String>,
}

/// A library and the file names that cudarc looks for, newest first.
struct Wanted {
    library: &'static str,
    purpose: &'static str,
    is_needed: bool,
    /// Opened before the library, from the same folder, if it is there.
    before: Option<&'static str>,
    files: &'static [&'static str],
    /// Advice to somebody who lacks it.
    hint: &'static str,
}

const DRIVER: Wanted = Wanted {
    library: "libcuda",
    purpose: "the driver",
    is_needed: true,
    before: None,
    files: &["libcuda.so.1", "libcuda.so"],
    hint: "install NVIDIA's driver, or set device = \"cpu\"",
};

const NVRTC: Wanted = Wanted {
    library: "libnvrtc",
    purpose: "compiles kernels",
    is_needed: true,
    before: Some("libnvrtc-builtins.so.13.0"),
    files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    hint: "install it (pip install nvidia-cuda-nvrtc), or set CUDA_HOME to the toolkit's folder",
};

const NCCL: Wanted = Wanted {
    library: "libnccl",
    purpose: "collectives between devices",
    is_needed: false,
    before: None,
    files: &["libnccl.so.2", "libnccl.so"],
    hint: "install it (pip install nvidia-nccl-cu13), or set launch.collectives = \"host\"",
};

const WANTED: [Wanted; 5] = [
    DRIVER,
    NVRTC,
    Wanted {
        library: "libcublasLt",
        purpose: "matrix products",
        is_needed: false,
        before: None,
        files: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
        hint: "pip install nvidia-cublas",
    },
    Wanted {
        library: "libcudnn",
        purpose: "attention",
        is_needed: false,
        before: None,
        files: &["libcudnn.so.9", "libcudnn.so"],
        hint: "pip install nvidia-cudnn-cu13",
    },
    NCCL,
];

/// Opens what there is of NVIDIA's libraries, in `folders` first.
pub fn libraries(folders: &[PathBuf]) -> Vec<Found> {
    let found = WANTED.iter().map(|wanted| Found {
        library: wanted.library,
        purpose: wanted.purpose,
        is_needed: wanted.is_needed,
        opened: open(wanted, folders),
    });
    found.collect()
}

/// Opens what a device needs.
/// # Errors
/// `NotAvailable` with the names and folders that were tried.
pub(super) fn require(folders: &[PathBuf]) -> Result<()> {
    let needed = WANTED.iter().filter(|wanted| wanted.is_needed);
    needed
        .into_iter()
        .try_for_each(|wanted| require_one(wanted, folders))
}

/// Opens NVRTC.
/// # Errors
/// As `require`.
pub(super) fn require_compiler(folders: &[PathBuf]) -> Result<()> {
    require_one(&NVRTC, folders)
}

/// Opens NCCL. Returns the file or name by which it was found, and the library.
/// # Errors
/// As `require`.
pub(super) fn open_nccl(folders: &[PathBuf]) -> Result<(String, Library)> {
    let Some(opened) = open(&NCCL, folders) else {
        return Err(missing(&NCCL, folders));
    };
    #[expect(unsafe_code, reason = "opens a library")]
    // SAFETY: as in `load`, which has opened it before.
    let library = unsafe { Library::open(Some(&opened), RTLD_NOW | RTLD_GLOBAL) };
    match library {
        Ok(library) => Ok((opened, library)),
        Err(_) => Err(missing(&NCCL, folders)),
    }
}

fn require_one(wanted: &Wanted, folders: &[PathBuf]) -> Result<()> {
    if open(wanted, folders).is_some() {
        return Ok(());
    }
    Err(missing(wanted, folders))
}

fn missing(wanted: &Wanted, folders: &[PathBuf]) -> Error {
    let mut tried = wanted.files.join(", ");
    for folder in folders {
        tried.push_str(&format!(" in {}", folder.display()));
    }
    Error::NotAvailable {
        library: format!("{} ({})", wanted.library, wanted.purpose),
        tried,
        hint: wanted.hint.to_owned(),
    }
}

fn open(wanted: &Wanted, folders: &[PathBuf]) -> Option<String> {
    let in_folders = folders.iter().flat_map(|folder| {
        wanted
            .files
            .iter()
            .map(move |file| (Some(folder.as_path()), *file))
    });
    let by_name = wanted.files.iter().map(|file| (None, *file));
    in_folders.chain(by_name).find_map(|(folder, file)| {
        let path = match folder {
            Some(folder) => {
                if let Some(before) = wanted.before {
                    let _ = load(&folder.join(before));
                }
                folder.join(file)
            }
            None => PathBuf::from(file),
        };
        load(&path).then(|| path.display().to_string())
    })
}

/// Loads a library for the rest of the process.
#[expect(unsafe_code, reason = "opens a library")]
fn load(path: &Path) -> bool {
    // SAFETY: NVIDIA's libraries may be opened by any thread at any time; the library is never closed.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => {
            std::mem::forget(library);
            true
        }
        Err(_) => false,
    }
}

//! Devices of a job, and where NVIDIA's libraries and compiled kernels are on this machine: folders of the toolkit
//! (`CUDA_HOME`) and of Python's `nvidia` packages, in the active environment and the system's; the cache folder.

use crate::job::Job;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use train::dist::{Collectives, CudaPaths, DeviceKind, Devices};

/// Folders under which Python versions have their packages.
const PREFIXES: [&str; 2] = ["/usr/lib", "/usr/local/lib"];

/// Names of the folder of a Python version's packages.
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

/// The devices of a job.
pub(crate) fn of(job: &Job) -> Devices {
    match job.device {
        DeviceKind::Cpu => Devices::Cpu,
        DeviceKind::Cuda => Devices::Cuda(CudaPaths {
            collectives: job.launch.collectives,
            ..here()
        }),
    }
}

/// The folders of this machine.
pub(crate) fn here() -> CudaPaths {
    from(&|name| std::env::var_os(name).filter(|text| !text.is_empty()))
}

fn from(variable: &dyn Fn(&str) -> Option<OsString>) -> CudaPaths {
    let mut libraries = Vec::new();
    if let Some(home) = variable("CUDA_HOME").map(PathBuf::from) {
        libraries.extend(["lib64", "lib"].map(|folder| home.join(folder)));
    }
    let active = variable("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("lib"));
    let prefixes = active.into_iter().chain(PREFIXES.map(PathBuf::from));
    libraries.extend(prefixes.flat_map(|prefix| of_python(&prefix)));
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
    CudaPaths {
        libraries,
        cache: cache.map(|folder| folder.join("millrace").join("kernels")),
        collectives: Collectives::Auto,
        most: None,
    }
}

/// Folders `PREFIX/python3*/site-packages/nvidia/*/lib`, in order of their names.
fn of_python(prefix: &Path) -> Vec<PathBuf> {
    let versions = folders(prefix).into_iter();
    let versions = versions.filter(|folder| {
        let name = folder.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("python3"))
    });
    let nvidia = versions.flat_map(|version| PACKAGES.map(|of| version.join(of).join("nvidia")));
    let packages = nvidia.flat_map(|folder| folders(&folder));
    let libraries = packages.map(|package| package.join("lib"));
    libraries.filter(|folder| folder.is_dir()).collect()
}

/// Entries of a folder, sorted; none if it cannot be read.
fn folders(of: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(of).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_looked_for_in_the_toolkit_and_in_packages_of_python() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("lib/python3.13/site-packages/nvidia");
        for name in ["cuda_nvrtc/lib", "nccl/lib", "no_libraries"] {
            std::fs::create_dir_all(packages.join(name)).unwrap();
        }
        let variable = |name: &str| match name {
            "CUDA_HOME" => Some("/opt/cuda".into()),
            "VIRTUAL_ENV" => Some(folder.path().as_os_str().to_owned()),
            "HOME" => Some("/home/someone".into()),
            _ => None,
        };
        let found = from(&variable);
        let wanted = [
            PathBuf::from("/opt/cuda/lib64"),
            "/opt/cuda/lib".into(),
            packages.join("cuda_nvrtc/lib"),
            packages.join("nccl/lib"),
        ];
        assert_eq!(found.libraries[..4], wanted);
        let cache = Path::new("/home/someone/.cache/millrace/kernels");
        assert_eq!(found.cache.as_deref(), Some(cache));
        let elsewhere = |name: &str| (name == "XDG_CACHE_HOME").then(|| "/tmp/x".into());
        let cache = Path::new("/tmp/x/millrace/kernels");
        assert_eq!(from(&elsewhere).cache.as_deref(), Some(cache));
        assert_eq!(from(&|_| None).cache, None);
    }
}

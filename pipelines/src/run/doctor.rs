//! `doctor`: processor, memory, GPUs and libraries of this machine, and which of them a run would use.

use crate::log::print;
use crate::machine::{grouped, memory_bytes, processor};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

fn command(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path)
        .map(|f| f.join(name))
        .filter(|p| p.is_file());
    found.next().map(|p| p.display().to_string())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let all = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("avx512vbmi", is_x86_feature_detected!("avx512vbmi")),
    ];
    let all = all.into_iter().filter(|f| f.1).map(|f| f.0);
    all.chain(tile_features(leaf_7())).collect()
}

/// EDX of CPUID's leaf 7: stable Rust has no names for tiles.
#[cfg(target_arch = "x86_64")]
fn leaf_7() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    match __cpuid(0).eax {
        7.. => __cpuid_count(7, 0).edx,
        _ => 0,
    }
}

/// Source: Intel SDM, CPUID.
#[cfg(target_arch = "x86_64")]
fn tile_features(edx: u32) -> impl Iterator<Item = &'static str> {
    let all = [("amx_bf16", 22), ("amx_tile", 24)];
    let there = move |f: &(&str, u32)| edx & 1 << f.1 != 0;
    all.into_iter().filter(there).map(|f| f.0)
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    let all = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("bf16", is_aarch64_feature_detected!("bf16")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
        ("sve", is_aarch64_feature_detected!("sve")),
        ("sve2", is_aarch64_feature_detected!("sve2")),
    ];
    let there = all.into_iter().filter(|f| f.1);
    there.map(|f| f.0).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Free bytes of the working directory's file system, from `df`.
fn free_bytes() -> Option<u64> {
    let out = std::process::Command::new("df")
        .args(["-Pk", "."])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).to_string();
    let kib: u64 = text
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    Some(kib * 1024)
}

/// Compiles all CUDA kernels for an architecture into a folder.
pub(crate) fn compile_kernels(folder: &Path, architecture: &str) -> Result<()> {
    let paths = crate::devices::here();
    let count = paths.compile_kernels(folder, architecture)?;
    print(&format!(
        "{}: {count} files of kernels for {architecture}\n",
        folder.display()
    ))
}

/// The verb.
pub(crate) fn doctor(as_json: bool) -> Result<()> {
    let path = train::dist::cpu_path()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cuda = crate::devices::here();
    let libraries: serde_json::Map<String, Value> = cuda
        .found()
        .into_iter()
        .map(|found| (found.library.to_owned(), json!(found.opened)))
        .collect();
    let (gpus, no_gpus) = match cuda.devices() {
        Ok(names) => (names, None),
        Err(error) => (Vec::new(), Some(error.with_causes())),
    };
    let mpi: Vec<Value> = train::dist::mpi_here()
        .iter()
        .map(|found| json!({"library": found.name, "version": found.version, "abi": found.abi}))
        .collect();
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processor": processor(), "cores": cores, "features": features(),
        "memory_bytes": memory_bytes(), "disk_free_bytes": free_bytes(),
        "libraries": libraries, "gpus": gpus, "no_gpus": no_gpus, "mpi": mpi,
        "commands": {"sbatch": command("sbatch"), "mpirun": command("mpirun"), "nvidia-smi": command("nvidia-smi")},
        "would_use": {"device": "cpu", "threads": cores, "kernels": path.isa().name(), "why": path.to_string()},
    });
    if as_json {
        return print(&format!("{report}\n"));
    }
    let or_none = |v: &Value| v.as_str().unwrap_or("not found").to_string();
    let mut text = format!(
        "processor  {} ({cores} cores)\nfeatures   {}\nmemory     {} MB\ndisk free  {} MB\n",
        processor(),
        features().join(" "),
        grouped(memory_bytes() / 1_000_000),
        free_bytes().map_or("unknown".into(), |b| grouped(b / 1_000_000)),
    );
    for table in ["libraries", "commands"] {
        for (name, found) in report[table].as_object().into_iter().flatten() {
            text.push_str(&format!("{name:<11} {}\n", or_none(found)));
        }
    }
    for gpu in &gpus {
        text.push_str(&format!("GPU        {gpu}\n"));
    }
    if let Some(why) = &no_gpus {
        text.push_str(&format!("GPU        none: {why}\n"));
    }
    if mpi.is_empty() {
        text.push_str("MPI        none that can be opened by its usual name\n");
    }
    for found in &mpi {
        let of = |key: &str| or_none(&found[key]);
        let (library, version, abi) = (of("library"), of("version"), of("abi"));
        text.push_str(&format!(
            "MPI        {library}: {version}, interface of {abi}\n"
        ));
    }
    text.push_str(&format!(
        "would use  CPU, {cores} threads, kernels: {path}\n"
    ));
    print(&text)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn features_of_tiles_are_those_of_cpuid_and_as_linux_tells_them() {
        let named = |edx| tile_features(edx).collect::<Vec<_>>();
        assert_eq!(named(1 << 22 | 1 << 24), ["amx_bf16", "amx_tile"]);
        assert_eq!(named(1 << 24), ["amx_tile"]);
        assert_eq!(named(!(1 << 22 | 1 << 24)), [""; 0]);
        let Ok(of_linux) = std::fs::read_to_string("/proc/cpuinfo") else {
            return;
        };
        let flags = of_linux.lines().find(|line| line.starts_with("flags"));
        for name in ["amx_bf16", "amx_tile", "avx2", "fma", "avx512f"] {
            let is_there = flags.is_some_and(|line| line.split(' ').any(|flag| flag == name));
            assert_eq!(features().contains(&name), is_there, "{name}");
        }
    }
}

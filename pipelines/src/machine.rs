//! Facts about the machine (memory, processor) and atomic file writes.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Peak resident set of this process so far, in bytes; 0 where the system does not report it.
pub(crate) fn peak_rss_bytes() -> u64 {
    status_bytes("/proc/self/status", "VmHWM:")
}

/// Memory of the machine, in bytes; 0 where the system does not report it.
pub(crate) fn memory_bytes() -> u64 {
    status_bytes("/proc/meminfo", "MemTotal:")
}

/// Memory that new processes of this machine can have, in bytes; 0 where the system does not report it.
pub(crate) fn available_memory_bytes() -> u64 {
    status_bytes("/proc/meminfo", "MemAvailable:")
}

fn status_bytes(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Name of this machine; empty where the system does not report it.
pub(crate) fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// Model name of the processor.
pub(crate) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(
        || std::env::consts::ARCH.to_string(),
        |(_, n)| n.trim().to_string(),
    )
}

/// Writes a file atomically: after a crash either the old file or all of the new one is there.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    publish(path, |file| file.write_all(bytes))
}

/// Concatenates the files `parts` into one, atomically; missing parts are left out.
pub(crate) fn concatenate(path: &Path, parts: impl Iterator<Item = PathBuf>) -> Result<()> {
    publish(path, |file| {
        for part in parts.filter(|p| p.exists()) {
            std::io::copy(&mut File::open(part)?, file)?;
        }
        Ok(())
    })
}

/// Writes a file atomically through `fill`: it appears whole or not at all.
pub(crate) fn publish(
    path: &Path,
    fill: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut file = temporary_in(folder)?;
        fill(file.as_file_mut())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// A temporary file with a name that the next run's cleanup recognizes, and the mode that the umask gives new
/// files.
pub(crate) fn temporary_in(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".millrace-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Whether a file has the name of a temporary one, which a killed process may have left.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(".millrace-") && name.ends_with(".tmp")
}

/// XXH3-128 of a file in hex, read in pieces.
pub(crate) fn checksum(path: &Path) -> Result<String> {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file
            .read(&mut buffer)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if n == 0 {
            return Ok(format!("{:032x}", hash.digest128()));
        }
        hash.update(&buffer[..n]);
    }
}

/// XXH3-128 of some bytes in hex.
pub(crate) fn checksum_bytes(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Bytes as `12.3 MB` (powers of ten).
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A time for people: `45 s`, `3 min 20 s`, `1 h 02 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = match std::time::Duration::try_from_secs_f64(seconds.max(0.0) + 0.5) {
        Ok(rounded) => rounded.as_secs(),
        // longer than any run
        Err(_) => u64::MAX,
    };
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{} h {minutes:02} min", grouped(hours)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_hours_minutes_and_seconds() {
        for (seconds, text) in [
            (0.4, "0 s"),
            (59.6, "1 min 00 s"),
            (200.0, "3 min 20 s"),
            (3725.0, "1 h 02 min"),
            (-1.0, "0 s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}

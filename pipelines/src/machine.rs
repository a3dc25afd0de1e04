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

/// Memory that new processes can have here, in bytes, by the machine and by the limits of the control groups that this process is in (a
/// container's, a scheduler's); 0 where the system does not report it.
pub(crate) fn available_memory_bytes() -> u64 {
    let of_machine = status_bytes("/proc/meminfo", "MemAvailable:");
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match memory_below_limits(&groups, Path::new("/sys/fs/cgroup")) {
        Some(left) if of_machine > 0 => of_machine.min(left),
        Some(left) => left,
        None => of_machine,
    }
}

/// Files of a control group: its limit, what it has, and the field of `memory.stat` with pages of files that can be given back.
struct GroupFiles {
    limit: &'static str,
    used: &'static str,
    files: &'static str,
}

/// The least bytes that a control group of `/proc/self/cgroup`, or one above it, leaves below its limit; None without a limit. In a
/// container the group of its own may be the root that it sees, whatever its path is named.
fn memory_below_limits(groups: &str, root: &Path) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        // hierarchy:controllers:path, without controllers in version 2
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, files) = match controllers {
            "" => (
                root.to_path_buf(),
                GroupFiles {
                    limit: "memory.max",
                    used: "memory.current",
                    files: "inactive_file ",
                },
            ),
            _ if controllers.split(',').any(|name| name == "memory") => (
                root.join("memory"),
                GroupFiles {
                    limit: "memory.limit_in_bytes",
                    used: "memory.usage_in_bytes",
                    files: "total_inactive_file ",
                },
            ),
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        let groups = group.ancestors().take_while(|of| of.starts_with(&root));
        let left = groups.filter_map(|group| left_in(group, &files)).min();
        least = least.into_iter().chain(left).min();
    }
    least
}

/// Bytes that a control group leaves below its limit; None if it has none.
fn left_in(group: &Path, files: &GroupFiles) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    // "max", or a number beyond any machine's memory
    let limit: u64 = read(files.limit)?.trim().parse().ok()?;
    if limit > MOST_MEMORY {
        return None;
    }
    let used: u64 = read(files.used)?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let given_back = stat
        .lines()
        .find_map(|line| line.strip_prefix(files.files)?.trim().parse::<u64>().ok());
    let used = used.saturating_sub(given_back.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

/// Bytes above which a limit is none: version 1 has about 2^63 in its place.
const MOST_MEMORY: u64 = 1 << 60;

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

    /// A group of 1,000 bytes with 700 of them in use, of which 200 are pages of files, below one of 900 with 500; in version 2, in
    /// version 1, and without limits.
    #[test]
    fn the_tightest_limit_of_the_groups_around_a_process_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let groups = "12:cpu,cpuacct:/x\n0::/pod/box\n";
        assert_eq!(memory_below_limits(groups, root), None);
        write("pod/box/memory.max", "1000\n");
        write("pod/box/memory.current", "700\n");
        write("pod/box/memory.stat", "anon 500\ninactive_file 200\n");
        assert_eq!(memory_below_limits(groups, root), Some(500));
        write("pod/memory.max", "900\n");
        write("pod/memory.current", "500\n");
        assert_eq!(memory_below_limits(groups, root), Some(400));
        write("pod/memory.max", "max\n");
        assert_eq!(memory_below_limits(groups, root), Some(500));
        // a container sees its own group as the root
        write("memory.max", "300\n");
        write("memory.current", "400\n");
        assert_eq!(memory_below_limits("0::/elsewhere\n", root), Some(0));
        let first = "5:freezer:/y\n4:memory:/job\n";
        assert_eq!(memory_below_limits(first, root), None);
        write("memory/job/memory.limit_in_bytes", "800\n");
        write("memory/job/memory.usage_in_bytes", "300\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.usage_in_bytes", "300\n");
        assert_eq!(memory_below_limits(first, root), Some(500));
    }

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

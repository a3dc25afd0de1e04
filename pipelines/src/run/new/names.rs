//! Names of files and fields as a new job and its comments have them.

use std::path::Path;

/// Fields that are listed.
pub(super) const MOST_FIELDS: usize = 12;

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// The ending of a name with that of its compression: `.jsonl.gz`; empty without one.
pub(super) fn ending(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = [".gz", ".zst", ".bz2", ".xz", ".lz4"];
    let bare = packed.iter().find_map(|packing| name.strip_suffix(packing));
    let at = bare.unwrap_or(&name).rfind('.').filter(|at| *at > 0);
    at.map_or(String::new(), |at| name[at..].to_string())
}

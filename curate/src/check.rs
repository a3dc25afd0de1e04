//! Validation of settings: every contradiction is reported, as key path, found and wanted.

use std::io::{ErrorKind, Read};
use std::path::Path;

/// Receives problems of `check`: key path relative to the struct, found value, wanted value.
pub type Problem<'a> = &'a mut dyn FnMut(&str, String, &str);

/// Reports when `value` is outside `low..=high`.
pub(crate) fn range(problem: Problem<'_>, key: &str, value: f64, low: f64, high: f64) {
    if !(low..=high).contains(&value) {
        problem(
            key,
            format!("{value}"),
            &format!("a number from {low} to {high}"),
        );
    }
}

/// First bytes of a file that tell its kind.
const HEAD: usize = 64;
/// Bytes of a file of another kind that are shown.
const SHOWN: usize = 16;

/// Reports a file that is not there or cannot be read, or that its first bytes show to be of another kind; nothing for a
/// setting that is empty, which is a problem of its own.
pub(crate) fn file(
    problem: Problem<'_>,
    key: &str,
    path: &str,
    wanted: &str,
    is_kind: impl Fn(&[u8]) -> bool,
) {
    if path.is_empty() {
        return;
    }
    let found = match head_of(Path::new(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => "no such file".to_string(),
        Err(e) if e.kind() == ErrorKind::IsADirectory => "a folder".to_string(),
        Err(e) => e.to_string(),
        Ok(head) if is_kind(&head) => return,
        Ok(head) if head.is_empty() => "an empty file".to_string(),
        Ok(head) => {
            let start = &head[..head.len().min(SHOWN)];
            format!("a file that starts with \"{}\"", start.escape_ascii())
        }
    };
    problem(key, format!("{path:?}: {found}"), wanted);
}

/// Reports a file or folder that is not there; a file may also be of another kind.
pub(crate) fn file_or_folder(
    problem: Problem<'_>,
    key: &str,
    path: &str,
    wanted: &str,
    is_kind: impl Fn(&[u8]) -> bool,
) {
    if !Path::new(path).is_dir() {
        file(problem, key, path, wanted, is_kind);
    }
}

fn head_of(path: &Path) -> std::io::Result<Vec<u8>> {
    // a folder can be opened, and a pipe would wait
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let mut head = Vec::new();
    if kind.is_file() {
        let file = std::fs::File::open(path)?;
        file.take(HEAD as u64).read_to_end(&mut head)?;
    }
    Ok(head)
}

/// Whether a file may be a list of lines: a text has no zero byte.
pub(crate) fn is_text(head: &[u8]) -> bool {
    !head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_looked_at_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("model"), b"MAGIC and more").unwrap();
        std::fs::write(path("other"), b"\x7fELF").unwrap();
        std::fs::write(path("empty"), b"").unwrap();
        let found = |name: &str| {
            let mut all = Vec::new();
            let mut add = |key: &str, found: String, wanted: &str| {
                all.push(format!("{key}: {found}, wanted {wanted}"));
            };
            file(&mut add, "model", &path(name), "a model", |head| {
                head.starts_with(b"MAGIC")
            });
            all.join(" ")
        };
        assert_eq!(found("model"), "");
        for (name, wanted) in [
            ("none", "no such file, wanted a model"),
            ("", "a folder, wanted a model"),
            ("empty", "an empty file"),
            ("other", "a file that starts with \"\\x7fELF\""),
        ] {
            assert!(found(name).contains(wanted), "{}", found(name));
        }
        let mut quiet = |key: &str, found: String, _: &str| panic!("{key}: {found}");
        file(&mut quiet, "model", "", "a model", |_| false);
        file_or_folder(&mut quiet, "lists", &path(""), "a list", |_| false);
    }
}

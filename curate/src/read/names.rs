//! Names of files in the ids of their documents: `source/NAME/NUMBER`.
//!
//! A name is the file's path relative to the input's path (folder, fixed part of a pattern, the common folder of a
//! list) without extensions. Files of one source with the same name get as much of their path, with its extensions,
//! as distinguishes them. So names depend on the inputs only: not on their order, on tasks, or on the folder that
//! the program runs in.

use std::collections::BTreeMap;
use std::path::Path;

/// Extensions of compressions, then of formats, that names leave out.
const EXTENSIONS: [&str; 30] = [
    ".gz", ".zst", ".bz2", ".xz", ".lz4", ".warc", ".arc", ".wet", ".wat", ".warc", ".jsonl",
    ".json", ".parquet", ".ndjson", ".xml", ".txt", ".csv", ".tsv", ".html", ".htm", ".epub",
    ".docx", ".odt", ".pdf", ".tar", ".tex", ".wacz", ".zim", ".arrow", ".feather",
];

/// A file to name.
pub(crate) struct Unnamed<'a> {
    pub(crate) source: &'a str,
    pub(crate) path: &'a Path,
    /// Path relative to the input's path.
    pub(crate) below: &'a str,
}

/// Names of files, one for each, unique within a source.
pub(crate) fn names(files: &[Unnamed<'_>]) -> Vec<String> {
    let mut names: Vec<String> = files.iter().map(|f| bare(f.below).to_string()).collect();
    for group in groups(files, &names) {
        let paths: Vec<Vec<String>> = group.iter().map(|&i| parts(files[i].path)).collect();
        let longest = paths.iter().map(Vec::len).max().unwrap_or(0);
        let tails = |n: usize| -> Vec<String> {
            let tail = |p: &Vec<String>| p[p.len().saturating_sub(n)..].join("/");
            paths.iter().map(tail).collect()
        };
        // a file that is named twice stays the same up to its root
        let enough = (1..longest).find(|&n| are_distinct(&tails(n)));
        for (&i, tail) in group.iter().zip(tails(enough.unwrap_or(longest))) {
            names[i] = tail;
        }
    }
    for group in groups(files, &names) {
        for (n, i) in group.into_iter().enumerate().skip(1) {
            names[i] += &format!("~{}", n + 1);
        }
    }
    names
}

/// Files that share source and name, in order.
fn groups(files: &[Unnamed<'_>], names: &[String]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (i, (file, name)) in files.iter().zip(names).enumerate() {
        groups.entry((file.source, name)).or_default().push(i);
    }
    let shared = groups.into_values().filter(|group| group.len() > 1);
    shared.collect()
}

fn are_distinct(names: &[String]) -> bool {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// Without the extensions of formats and compressions.
fn bare(name: &str) -> &str {
    let mut name = name;
    for extension in EXTENSIONS {
        let without = name.strip_suffix(extension);
        // a file named by its extension alone keeps it
        name = without
            .filter(|n| !n.is_empty() && !n.ends_with('/'))
            .unwrap_or(name);
    }
    name
}

/// Folders and file name of a path or URL, without `.`.
fn parts(path: &Path) -> Vec<String> {
    let text = path.to_string_lossy();
    let parts = text.split('/').filter(|p| !p.is_empty() && *p != ".");
    parts.map(str::to_string).collect()
}

/// The folder that all paths share, with its slash.
pub(crate) fn shared_folder(paths: &[String]) -> &str {
    let Some(first) = paths.first() else {
        return "";
    };
    let mut shared = first.rfind('/').map_or(0, |i| i + 1);
    for path in paths {
        let same = first.bytes().zip(path.bytes()).take_while(|(a, b)| a == b);
        let same = &first.as_bytes()[..same.count().min(shared)];
        shared = memchr::memrchr(b'/', same).map_or(0, |i| i + 1);
    }
    &first[..shared]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(files: &[(&str, &str, &str)]) -> Vec<String> {
        let files: Vec<Unnamed> = files
            .iter()
            .map(|(source, path, below)| Unnamed {
                source,
                path: Path::new(path),
                below,
            })
            .collect();
        names(&files)
    }

    #[test]
    fn a_single_file_is_named_without_folders_and_extensions() {
        assert_eq!(named(&[("s", "/x/y/a.b.warc.gz", "a.b.warc.gz")]), ["a.b"]);
        assert_eq!(named(&[("s", "x/.jsonl.gz", ".jsonl.gz")]), [".jsonl"]);
    }

    #[test]
    fn files_of_one_name_get_the_folders_and_extensions_that_tell_them_apart() {
        let found = named(&[
            ("s", "/data/one/in/x.jsonl", "x.jsonl"),
            ("s", "/data/two/in/x.jsonl", "x.jsonl"),
            ("t", "/data/two/in/x.jsonl", "x.jsonl"),
            ("s", "/data/y.jsonl", "y.jsonl"),
            ("s", "/data/y.txt", "y.txt"),
            ("s", "/data/root/a/x.jsonl", "a/x.jsonl"),
        ]);
        let want = [
            "one/in/x.jsonl",
            "two/in/x.jsonl",
            "x",
            "y.jsonl",
            "y.txt",
            "a/x",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn a_file_that_is_named_twice_is_counted() {
        let file = ("s", "x.txt", "x.txt");
        assert_eq!(named(&[file, file]), ["x.txt", "x.txt~2"]);
    }

    #[test]
    fn the_shared_folder_is_that_of_every_path() {
        let shared = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
            shared_folder(&paths).to_string()
        };
        assert_eq!(shared(&["a/b/c.gz", "a/bb/c.gz"]), "a/");
        assert_eq!(shared(&["a/b/c.gz"]), "a/b/");
        assert_eq!(shared(&["c", "a/b"]), "");
        assert_eq!(shared(&[]), "");
    }
}

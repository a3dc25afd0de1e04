//! Expands an input's path to files: a file, a folder, a pattern, or a list of paths.
//!
//! A name that ends in `.paths` (also compressed) is a list as Common Crawl publishes it: one path per line, each
//! appended to the input's `prefix`.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::blob::Options;
use super::found::Found;
use super::glob::{fixed_part, is_pattern, matches};
use super::open::{is_remote, not_a_file, open};
use super::parts::{length, parts_of};
use super::remote;
use crate::read::Input;
use crate::read::compression::{Piece, Source};
use crate::read::names::shared_folder;

/// Largest list of paths, decompressed: a million paths of Common Crawl are 140 MB.
const MAX_LIST: usize = 1 << 30;

/// The files of an input, in order; never empty.
///
/// # Errors
/// Why there are none, in words.
pub(crate) fn find(input: &Input) -> Result<Vec<Found>, String> {
    let path = Path::new(&input.path);
    let options = &input.options;
    if is_list(&input.path) {
        let paths = read_list(path, options).map_err(|e| e.to_string())?;
        let folder = format!("{}{}", input.prefix, shared_folder(&paths));
        let files: Vec<Found> = paths
            .iter()
            .map(|line| file(PathBuf::from(format!("{}{line}", input.prefix))).below(&folder))
            .collect();
        return some(files, "a list without paths");
    }
    if !path.exists()
        && let Some((whole, parts)) = parts_of(path)
    {
        if !is_remote(&whole) {
            std::fs::metadata(&whole).map_err(|e| e.to_string())?;
        }
        return Ok(vec![Found {
            path: path.to_path_buf(),
            bytes: length(&parts),
            ..file(whole)
        }]);
    }
    if is_remote(path) {
        return remote_files(&input.path, options);
    }
    if is_pattern(&input.path) && !path.exists() {
        let found = matching(&input.path)?;
        if let (true, Some(other)) = (found.files.is_empty(), &found.other) {
            return Err(format!("a pattern that matches {other} and no file"));
        }
        return some(found.files, "a pattern that no file matches");
    }
    let info = std::fs::metadata(path).map_err(|e| match std::fs::read_link(path) {
        Ok(target) => format!("a link to {}, which is not there", target.display()),
        Err(_) => e.to_string(),
    })?;
    if let Some(kind) = not_a_file(&info) {
        return Err(format!("{kind}: only files are read"));
    }
    if !info.is_dir() {
        return Ok(vec![file(path.to_path_buf())]);
    }
    if input.recursive {
        return below(&input.path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| e.to_string())? {
        let entry = entry.map_err(|e| e.to_string())?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let kind = kind_of(&entry.path()).map_err(|e| e.to_string())?;
        if !hidden && kind == Kind::File {
            files.push(entry.path());
        }
    }
    files.sort();
    let files = files.into_iter().map(file).collect();
    some(files, "a folder without files")
}

/// The files of a folder and of those below it, without hidden ones, in name order.
fn below(folder: &str) -> Result<Vec<Found>, String> {
    let root = folder.trim_end_matches('/');
    let literal = |c: char| match c {
        '*' | '?' | '[' => format!("[{c}]"),
        c => c.to_string(),
    };
    let literal: String = root.chars().map(literal).collect();
    let mut files = matching(&format!("{literal}/**/*"))?.files;
    let folder = format!("{root}/");
    for file in &mut files {
        let path = file.path.to_string_lossy();
        file.below = path.strip_prefix(&folder).unwrap_or(&path).to_string();
    }
    some(files, "a folder without files")
}

fn some(files: Vec<Found>, why: &str) -> Result<Vec<Found>, String> {
    if files.is_empty() {
        return Err(why.to_string());
    }
    Ok(files)
}

fn file(path: PathBuf) -> Found {
    let bytes = if is_remote(&path) {
        0
    } else {
        std::fs::metadata(&path).map_or(0, |m| m.len())
    };
    let name = path.file_name().unwrap_or_default();
    Found {
        below: name.to_string_lossy().into_owned(),
        path,
        bytes,
        version: None,
    }
}

/// `x.paths`, `x.paths.gz`, ...
pub(crate) fn is_list(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let bare = [".gz", ".zst", ".bz2", ".xz"]
        .iter()
        .find_map(|e| name.strip_suffix(e))
        .unwrap_or(name);
    bare.ends_with(".paths")
}

/// Lines of a list, without blank ones.
///
/// # Errors
/// A read that was refused, damage, or a list that is too long.
pub(crate) fn read_list(path: &Path, options: &Options) -> io::Result<Vec<String>> {
    let mut source = Source::open(open(path, options)?, false)?;
    let mut text = Vec::new();
    loop {
        match source.next(&mut text) {
            Piece::Data { .. } if text.len() > MAX_LIST => {
                return Err(io::Error::other(format!(
                    "a list longer than {MAX_LIST} bytes"
                )));
            }
            Piece::Data { .. } => {}
            Piece::End => break,
            Piece::Failed(e) => return Err(e),
            Piece::Damage { offset, why, .. } => {
                return Err(io::Error::other(format!("at byte {offset}: {why}")));
            }
        }
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    Ok(lines.map(str::to_string).collect())
}

/// A folder on the path to matching files.
struct Folder {
    path: PathBuf,
    /// The path without links.
    real: PathBuf,
    parent: Option<Rc<Folder>>,
}

impl Folder {
    /// Whether a link in here leads back to a folder already on the path.
    fn is_circle(&self, target: &Path) -> bool {
        self.real == target || self.parent.as_ref().is_some_and(|p| p.is_circle(target))
    }
}

/// Maximum number of folders entered through links; links among n folders can be followed in n! ways.
const MAX_LINKS: usize = 10_000;

/// Kind of the entry that a path leads to.
#[derive(PartialEq)]
enum Kind {
    /// A file, or what cannot be looked at: it counts as an unreadable input, not as an absent one.
    File,
    Folder,
    /// A FIFO, a socket or a device, in words: it may have no end, or no beginning.
    Other(&'static str),
}

/// # Errors
/// A path that is too long for the system: what is there cannot be known.
fn kind_of(path: &Path) -> io::Result<Kind> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Kind::Folder),
        Ok(found) => Ok(not_a_file(&found).map_or(Kind::File, Kind::Other)),
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => Err(e),
        Err(_) => Ok(Kind::File),
    }
}

/// Files that match a pattern.
struct Matching {
    files: Vec<Found>,
    /// One that matches and is no file, in words.
    other: Option<String>,
}

/// Local files that match, in name order. Links to folders are followed, but not in circles.
///
/// # Errors
/// In words; also for an unreadable folder on the path.
fn matching(pattern: &str) -> Result<Matching, String> {
    matching_within(pattern, MAX_LINKS)
}

fn matching_within(pattern: &str, most_links: usize) -> Result<Matching, String> {
    let fixed = fixed_part(pattern);
    let root = Path::new(if fixed.is_empty() { "." } else { fixed });
    let described = |path: &Path, e: &io::Error| format!("{}: {e}", path.display());
    let mut folders = vec![Rc::new(Folder {
        path: root.to_path_buf(),
        real: root.canonicalize().map_err(|e| described(root, &e))?,
        parent: None,
    })];
    // a pattern without ** reaches as deep as it has slashes
    let depth = pattern[fixed.len()..].matches('/').count();
    let has_any_depth = pattern.contains("**");
    let (mut files, mut links, mut others) = (Vec::new(), 0, Vec::new());
    while let Some(folder) = folders.pop() {
        let refused = |e: io::Error| described(&folder.path, &e);
        for entry in std::fs::read_dir(&folder.path).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let path = entry.path();
            let below = path.strip_prefix(root).unwrap_or(&path);
            let name = format!("{fixed}{}", below.to_string_lossy());
            match kind_of(&path).map_err(|e| described(&path, &e))? {
                Kind::Folder => {}
                Kind::File => {
                    if matches(pattern, &name) {
                        files.push(PathBuf::from(name));
                    }
                    continue;
                }
                Kind::Other(kind) => {
                    if matches(pattern, &name) {
                        others.push(format!("{kind} ({name})"));
                    }
                    continue;
                }
            }
            // ** reaches as deep as paths can be; links in circles end by themselves
            if !has_any_depth && below.components().count() > depth {
                continue;
            }
            let mut real = folder.real.join(entry.file_name());
            // a pattern of fixed depth ends by itself
            if has_any_depth && entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                real = path.canonicalize().map_err(|e| described(&path, &e))?;
                if folder.is_circle(&real) {
                    continue;
                }
                links += 1;
                if links > most_links {
                    return Err(format!(
                        "{}: more than {most_links} ways through links to folders",
                        path.display()
                    ));
                }
            }
            folders.push(Rc::new(Folder {
                path,
                real,
                parent: Some(folder.clone()),
            }));
        }
    }
    files.sort();
    let files = files.into_iter().map(|path| file(path).below(fixed));
    Ok(Matching {
        files: files.collect(),
        other: others.into_iter().min(),
    })
}

/// One object, the objects below a URL that ends in a slash, or those that match a pattern.
fn remote_files(url: &str, options: &Options) -> Result<Vec<Found>, String> {
    if url.starts_with("http") && url.contains('?') {
        return Err("a URL with a query cannot be read".to_string());
    }
    let below = if is_pattern(url) {
        fixed_part(url)
    } else if url.ends_with('/') {
        url
    } else {
        let state = remote::state(Path::new(url), options).map_err(|e| e.to_string())?;
        return Ok(vec![Found {
            bytes: state.bytes.unwrap_or(0),
            version: state.version,
            ..file(PathBuf::from(url))
        }]);
    };
    let mut found = remote::list(below, options).map_err(|e| e.to_string())?;
    if is_pattern(url) {
        found.retain(|f| matches(url, &f.path.to_string_lossy()));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let found = found.into_iter().map(|f| f.below(below)).collect();
    some(found, "no object there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(path: &Path, prefix: &str) -> Input {
        Input {
            path: path.to_string_lossy().into_owned(),
            prefix: prefix.to_string(),
            ..Input::default()
        }
    }

    fn names(input: &Input) -> Vec<String> {
        let files = find(input).unwrap();
        let name = |f: &Found| f.path.to_string_lossy().into_owned();
        files.iter().map(name).collect()
    }

    #[test]
    fn patterns_and_folders_give_their_files_in_name_order() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for name in ["a/2.gz", "a/1.gz", "a/b/3.gz", "a/x.txt", "a/.hidden.gz"] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        let at = |name: &str| root.join(name).to_string_lossy().into_owned();
        let one = names(&input(&root.join("a/*.gz"), ""));
        assert_eq!(one, [at("a/1.gz"), at("a/2.gz")]);
        let all = names(&input(&root.join("**/*.gz"), ""));
        assert_eq!(all, [at("a/1.gz"), at("a/2.gz"), at("a/b/3.gz")]);
        let folder = names(&input(&root.join("a"), ""));
        assert_eq!(folder, [at("a/1.gz"), at("a/2.gz"), at("a/x.txt")]);
        assert!(find(&input(&root.join("a/*.zst"), "")).is_err());
        assert!(find(&input(&root.join("nowhere/*.zst"), "")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_in_circles_end() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for folder in ["a", "b"] {
            std::fs::create_dir(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("1.gz"), "x").unwrap();
        }
        for name in ["one", "two"] {
            symlink(".", root.join(name)).unwrap();
        }
        symlink("../b", root.join("a/to_b")).unwrap();
        symlink("../a", root.join("b/to_a")).unwrap();
        let at = |name: &str| root.join(name).to_string_lossy().into_owned();
        let found = names(&input(&root.join("**/*.gz"), ""));
        let want = ["a/1.gz", "a/to_b/1.gz", "b/1.gz", "b/to_a/1.gz"].map(at);
        assert_eq!(found, want);
        // in a pattern of fixed depth a link is a folder like any other
        let found = names(&input(&root.join("o*/*/1.gz"), ""));
        assert_eq!(found, ["one/a/1.gz", "one/b/1.gz"].map(at));
        // each of twelve folders has links to all others: far too many paths to follow
        let many = root.join("many");
        for i in 0..12 {
            let folder = many.join(i.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            for j in 0..12 {
                symlink(many.join(j.to_string()), folder.join(format!("l{j}"))).unwrap();
            }
        }
        let pattern = many.join("**/*.gz");
        let why = matching_within(&pattern.to_string_lossy(), 300);
        let why = why.err().unwrap();
        assert!(why.contains("more than 300 ways"), "{why}");
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_any_depth_are_looked_into_and_paths_that_are_too_long_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d/".repeat(300));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("1.gz"), "x").unwrap();
        let pattern = input(&dir.path().join("**/*.gz"), "");
        assert_eq!(names(&pattern), [deep.join("1.gz").to_string_lossy()]);
        // a tree that has grown deeper than a path can name: its upper part is renamed into a longer one
        let long = "n".repeat(200);
        let mut below = dir.path().join("x");
        for _ in 0..18 {
            below.push(&long);
        }
        std::fs::create_dir_all(&below).unwrap();
        let mut above = dir.path().join("y");
        for _ in 0..4 {
            above.push(&long);
        }
        std::fs::create_dir_all(&above).unwrap();
        std::fs::rename(dir.path().join("x"), above.join("x")).unwrap();
        let why = find(&pattern).err().unwrap().to_string();
        assert!(why.contains("nnnn"), "{why}");
        std::fs::rename(above.join("x"), dir.path().join("x")).unwrap();
        assert_eq!(names(&pattern).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_looked_at_is_listed_to_fail_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("1.gz")).unwrap();
        for path in [dir.path().to_path_buf(), dir.path().join("*.gz")] {
            assert_eq!(find(&input(&path, "")).unwrap().len(), 1);
        }
    }

    #[cfg(unix)]
    #[test]
    fn sockets_and_fifos_are_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("a")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(root.join("a/1.gz"))
            .status();
        assert!(made.unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(root.join("a/2.gz")).unwrap();
        std::os::unix::fs::symlink("1.gz", root.join("a/3.gz")).unwrap();
        let why = |path: &Path, recursive: bool| {
            let input = Input {
                recursive,
                ..input(path, "")
            };
            find(&input).err().unwrap()
        };
        for (name, want) in [
            ("a/1.gz", "a FIFO: only files are read"),
            ("a/2.gz", "a socket: only files are read"),
            ("a/3.gz", "a FIFO: only files are read"),
            ("a", "a folder without files"),
        ] {
            assert_eq!(why(&root.join(name), false), want);
        }
        assert_eq!(why(root, true), "a folder without files");
        let found = why(&root.join("a/*.gz"), false);
        assert!(
            found.starts_with("a pattern that matches a FIFO (")
                && found.ends_with("1.gz) and no file"),
            "{found}"
        );
        assert!(open(&root.join("a/1.gz"), &Options::default()).is_err());
        std::fs::write(root.join("a/4.gz"), "x").unwrap();
        let only = root.join("a/4.gz").to_string_lossy().into_owned();
        for path in [root.join("a"), root.join("**/*.gz")] {
            assert_eq!(names(&input(&path, "")), [only.as_str()]);
        }
        let all = Input {
            recursive: true,
            ..input(root, "")
        };
        assert_eq!(names(&all), [only]);
        std::os::unix::fs::symlink("nowhere", root.join("5.gz")).unwrap();
        assert_eq!(
            why(&root.join("5.gz"), false),
            "a link to nowhere, which is not there"
        );
    }

    #[test]
    fn files_stand_below_what_the_input_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for name in ["a/1.gz", "a/b/1.gz"] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        let list = root.join("x.paths");
        std::fs::write(&list, "k/l/1.gz\nk/m/1.gz\n").unwrap();
        for (path, want) in [
            (root.join("a/b/1.gz"), vec!["1.gz"]),
            (root.join("a"), vec!["1.gz"]),
            (root.join("**/*.gz"), vec!["a/1.gz", "a/b/1.gz"]),
            (list, vec!["l/1.gz", "m/1.gz"]),
        ] {
            let found = find(&input(&path, "s3://bucket/")).unwrap();
            let below: Vec<&str> = found.iter().map(|f| f.below.as_str()).collect();
            assert_eq!(below, want, "{}", path.display());
        }
    }

    #[test]
    fn a_list_gives_its_lines_behind_the_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("warc.paths.gz");
        let lines = "crawl-data/1.warc.gz\n\ncrawl-data/2.warc.gz\n";
        let file = std::fs::File::create(&path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        io::Write::write_all(&mut encoder, lines.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let found = names(&input(&path, "https://data.example.org/"));
        assert_eq!(
            found,
            [
                "https://data.example.org/crawl-data/1.warc.gz",
                "https://data.example.org/crawl-data/2.warc.gz"
            ]
        );
        std::fs::write(&path, "\n").unwrap();
        assert!(find(&input(&path, "")).is_err());
    }
}

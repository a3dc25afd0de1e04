//! The commit that git has checked out around a folder, from the files that gitrepository-layout(5) describes: a run's
//! report names it, and nothing needs git to be installed.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// References to references that are followed; git follows as many.
const LINKS: usize = 5;

/// The commit that HEAD names in the repository that a folder is in; None outside of repositories, before a first commit,
/// and where references are in a form that is not read here (reftables). Changes that are not committed do not show.
pub(crate) fn commit(folder: &Path) -> Option<String> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let own = folder.ancestors().find_map(git_folder)?;
    // a further working tree of a repository has only its HEAD
    let shared = match read_to_string(own.join("commondir")) {
        Ok(line) => own.join(line.trim_end()),
        Err(_) => own.clone(),
    };
    let mut found = read_to_string(own.join("HEAD")).ok()?;
    for _ in 0..LINKS {
        let Some(name) = found.strip_prefix("ref:").map(str::trim) else {
            break;
        };
        // not a path to any other file
        if !name.starts_with("refs/") || name.split('/').any(|part| part == "..") {
            return None;
        }
        found = read_to_string(shared.join(name))
            .ok()
            .or_else(|| packed(&shared, name))?;
    }
    let name = found.trim();
    let is_hash = [40, 64].contains(&name.len()) && name.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| name.to_ascii_lowercase())
}

/// `.git` of a folder: the repository's folder, or a file that says where it is.
fn git_folder(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let line = read_to_string(&git).ok()?;
    Some(folder.join(line.strip_prefix("gitdir:")?.trim()))
}

/// A reference in `packed-refs`: a line `HASH NAME`.
fn packed(shared: &Path, name: &str) -> Option<String> {
    let lines = read_to_string(shared.join("packed-refs")).ok()?;
    let mut lines = lines.lines().filter_map(|line| line.split_once(' '));
    lines.find_map(|(hash, of)| (of == name).then(|| hash.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    const FIRST: &str = "0123456789abcdef0123456789abcdef01234567";
    const SECOND: &str = "89abcdef0123456789abcdef0123456789abcdef";

    /// A repository whose HEAD is as given, with a folder `jobs/small` in its working tree.
    fn repository(head: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let git = root.path().join(".git");
        create_dir_all(git.join("refs/heads/team")).expect("folders");
        create_dir_all(root.path().join("jobs/small")).expect("folders");
        write(git.join("HEAD"), head).expect("HEAD");
        root
    }

    fn of(root: &tempfile::TempDir) -> Option<String> {
        commit(&root.path().join("jobs/small"))
    }

    #[test]
    fn the_commit_is_that_of_the_branch_or_of_a_detached_head() {
        let root = repository("ref: refs/heads/team/main\n");
        assert_eq!(of(&root), None, "before the first commit");
        let git = root.path().join(".git");
        let refs = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{SECOND} refs/heads/other\n{FIRST} refs/heads/team/main\n^{SECOND}\n"
        );
        write(git.join("packed-refs"), refs).expect("packed references");
        assert_eq!(of(&root).as_deref(), Some(FIRST));
        write(git.join("refs/heads/team/main"), format!("{SECOND}\n")).expect("a reference");
        assert_eq!(
            of(&root).as_deref(),
            Some(SECOND),
            "later than the packed one"
        );
        assert_eq!(
            of(&repository(&format!("{FIRST}\n"))).as_deref(),
            Some(FIRST)
        );
    }

    #[test]
    fn a_further_working_tree_has_its_own_head_and_the_references_of_its_repository() {
        let root = repository(&format!("{FIRST}\n"));
        let git = root.path().join(".git");
        write(git.join("refs/heads/side"), format!("{SECOND}\n")).expect("a reference");
        let own = git.join("worktrees/side");
        create_dir_all(&own).expect("a folder");
        write(own.join("HEAD"), "ref: refs/heads/side\n").expect("HEAD");
        write(own.join("commondir"), "../..\n").expect("commondir");
        let tree = tempfile::tempdir().expect("a folder");
        write(
            tree.path().join(".git"),
            format!("gitdir: {}\n", own.display()),
        )
        .expect(".git");
        assert_eq!(commit(tree.path()).as_deref(), Some(SECOND));
    }

    #[test]
    fn other_files_than_references_are_not_read_and_other_words_than_hashes_not_told() {
        for head in [
            "ref: refs/../secret\n",
            "ref: /etc/hostname\n",
            "ref: secret\n",
            "not a hash\n",
            "",
            "ref: refs/heads/loop\n",
        ] {
            let root = repository(head);
            let git = root.path().join(".git");
            for name in ["secret", "refs/secret"] {
                write(git.join(name), format!("{FIRST}\n")).expect("a file");
            }
            write(git.join("refs/heads/loop"), "ref: refs/heads/loop\n").expect("a reference");
            assert_eq!(of(&root), None, "{head:?}");
        }
        assert_eq!(commit(Path::new("/")), None);
        assert_eq!(commit(Path::new("no such folder")), None);
    }
}

//! A file of lines that another process appends to, cuts back, or replaces.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::SystemTime;

/// Bytes that are read in one go. A longer line is passed over.
const CHUNK: usize = 1 << 20;
/// Bytes of one call, so that the first of a huge file are shown before the last are read.
const AT_ONCE: u64 = 8 << 20;
/// Bytes before the place of reading that are compared to see that the file is still the same.
const COMPARED: usize = 256;

/// Receives lines.
pub(crate) trait Lines {
    /// All lines so far are void: the file is gone, is another, or was cut back.
    fn restart(&mut self);
    /// A whole line, without its line feed.
    fn line(&mut self, line: &[u8]);
}

/// The place of reading in a file.
pub(crate) struct Follower {
    path: PathBuf,
    seen: Option<Seen>,
}

/// The file as it was at the end of the last call.
struct Seen {
    /// Device and inode.
    identity: [u64; 2],
    bytes: u64,
    modified: SystemTime,
    /// Where the next line begins.
    at: u64,
    /// The bytes before it.
    before: Vec<u8>,
    /// Whether `at` is inside of a line that is too long.
    is_passing_over: bool,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Whether there was anything for the receiver.
    pub has_changed: bool,
    /// Whether more is there already.
    pub is_behind: bool,
}

const SAME: Followed = Followed {
    has_changed: false,
    is_behind: false,
};

impl Follower {
    /// Follows a file that need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Follower {
        Follower { path, seen: None }
    }

    /// Time of the file's last change, as of the last call; none if it is not there.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.seen.as_ref().map(|seen| seen.modified)
    }

    /// Passes on the lines that have become whole since the last call, at most [`AT_ONCE`] bytes of them.
    ///
    /// # Errors
    /// A file that is there and cannot be read. The next call tries again.
    pub(crate) fn read(&mut self, into: &mut impl Lines) -> io::Result<Followed> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
                let has_changed = self.seen.take().is_some();
                if has_changed {
                    into.restart();
                }
                return Ok(Followed {
                    has_changed,
                    ..SAME
                });
            }
            Err(e) => return Err(e),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        // an error leaves the place of reading as it is
        let is_same = match &self.seen {
            Some(seen) if seen.is_at_end_of(&metadata) => return Ok(SAME),
            Some(seen) => seen.continues_in(&file, &metadata)?,
            None => false,
        };
        let mut has_changed = false;
        let mut seen = match self.seen.take() {
            None => Seen::start(&metadata),
            Some(seen) if is_same => seen,
            Some(_) => {
                into.restart();
                has_changed = true;
                Seen::start(&metadata)
            }
        };
        let done = seen.advance(&file, &metadata, into);
        // what was passed on before an error stays read
        self.seen = Some(seen);
        let done = done?;
        Ok(Followed {
            has_changed: has_changed || done.has_changed,
            ..done
        })
    }
}

fn identity(metadata: &Metadata) -> [u64; 2] {
    [metadata.dev(), metadata.ino()]
}

fn modified(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

impl Seen {
    fn start(metadata: &Metadata) -> Seen {
        Seen {
            identity: identity(metadata),
            bytes: 0,
            modified: modified(metadata),
            at: 0,
            before: Vec::new(),
            is_passing_over: false,
        }
    }

    /// Whether all of the file was read and it has not been touched since.
    fn is_at_end_of(&self, metadata: &Metadata) -> bool {
        self.identity == identity(metadata)
            && self.bytes == metadata.len()
            && self.modified == modified(metadata)
    }

    /// Whether the file still has what was read.
    fn continues_in(&self, file: &File, metadata: &Metadata) -> io::Result<bool> {
        if self.identity != identity(metadata) || metadata.len() < self.at {
            return Ok(false);
        }
        let mut found = vec![0; self.before.len()];
        let from = self.at - found.len() as u64;
        match file.read_exact_at(&mut found, from) {
            Ok(()) => Ok(found == self.before),
            // cut back at this moment
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn advance(
        &mut self,
        file: &File,
        metadata: &Metadata,
        into: &mut impl Lines,
    ) -> io::Result<Followed> {
        let mut done = SAME;
        let mut buffer = vec![0; CHUNK];
        let most = self.at.saturating_add(AT_ONCE);
        self.modified = modified(metadata);
        loop {
            let filled = fill(file, &mut buffer, self.at)?;
            let chunk = &buffer[..filled];
            let end = chunk.iter().rposition(|byte| *byte == b'\n');
            let used = match end {
                Some(end) => {
                    for line in chunk[..end].split(|byte| *byte == b'\n') {
                        if !std::mem::take(&mut self.is_passing_over) {
                            into.line(line);
                            done.has_changed = true;
                        }
                    }
                    end + 1
                }
                None if filled == CHUNK => {
                    self.is_passing_over = true;
                    filled
                }
                None => 0,
            };
            self.before.extend_from_slice(&chunk[..used]);
            let old = self.before.len().saturating_sub(COMPARED);
            self.before.drain(..old);
            self.at += used as u64;
            if filled < CHUNK {
                // the rest is a line that is being written
                self.bytes = self.at + (filled - used) as u64;
                return Ok(done);
            }
            if self.at >= most {
                done.is_behind = true;
                return Ok(done);
            }
        }
    }
}

/// Fills the buffer from the file; fewer bytes are there only at its end.
fn fill(file: &File, buffer: &mut [u8], from: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::Path;

    #[derive(Default)]
    struct Received {
        lines: Vec<String>,
        restarts: usize,
    }

    impl Lines for Received {
        fn restart(&mut self) {
            self.lines.clear();
            self.restarts += 1;
        }

        fn line(&mut self, line: &[u8]) {
            self.lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_line_is_passed_on_once_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut follower, mut found) = (Follower::new(path.clone()), Received::default());
        assert_eq!(follower.read(&mut found).unwrap(), SAME);
        append(&path, "a\nb");
        assert!(follower.read(&mut found).unwrap().has_changed);
        assert_eq!(found.lines, ["a"]);
        assert_eq!(follower.read(&mut found).unwrap(), SAME);
        append(&path, "c\n\n");
        follower.read(&mut found).unwrap();
        assert_eq!(
            (found.lines, found.restarts),
            (vec!["a".into(), "bc".into(), String::new()], 0)
        );
    }

    #[test]
    fn a_file_that_was_cut_back_and_has_grown_since_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut follower, mut found) = (Follower::new(path.clone()), Received::default());
        append(&path, "one\ntwo\nthree\n");
        follower.read(&mut found).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(4).unwrap();
        append(&path, "TWO\nTHREE\nfour\n");
        follower.read(&mut found).unwrap();
        assert_eq!(found.lines, ["one", "TWO", "THREE", "four"]);
        assert_eq!(found.restarts, 1);
        file.set_len(8).unwrap();
        follower.read(&mut found).unwrap();
        assert_eq!((found.lines.len(), found.restarts), (2, 2));
    }

    #[test]
    fn a_file_that_is_replaced_or_gone_takes_its_lines_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut follower, mut found) = (Follower::new(path.clone()), Received::default());
        append(&path, "a\nb\n");
        follower.read(&mut found).unwrap();
        let other = folder.path().join("other");
        append(&other, "a\nb\nc\n");
        std::fs::rename(&other, &path).unwrap();
        follower.read(&mut found).unwrap();
        assert_eq!((found.lines.len(), found.restarts), (3, 1));
        std::fs::remove_file(&path).unwrap();
        assert!(follower.read(&mut found).unwrap().has_changed);
        assert_eq!((found.lines.len(), follower.modified()), (0, None));
        assert_eq!(follower.read(&mut found).unwrap(), SAME);
    }

    #[test]
    fn a_line_of_more_than_a_mebibyte_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut follower, mut found) = (Follower::new(path.clone()), Received::default());
        append(&path, &format!("a\n{}\nb\n", "x".repeat(3 * CHUNK + 5)));
        follower.read(&mut found).unwrap();
        assert_eq!(found.lines, ["a", "b"]);
    }

    #[test]
    fn a_huge_file_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut follower, mut found) = (Follower::new(path.clone()), Received::default());
        let line = "x".repeat(1023) + "\n";
        append(&path, &line.repeat(9 << 10));
        assert!(follower.read(&mut found).unwrap().is_behind);
        assert_eq!(found.lines.len(), 8 << 10);
        assert!(!follower.read(&mut found).unwrap().is_behind);
        assert_eq!(found.lines.len(), 9 << 10);
    }
}

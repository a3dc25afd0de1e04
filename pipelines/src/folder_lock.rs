//! The lock of a job's folder: who holds it, and what a process that is kept out says.

use crate::machine::{duration, hostname, write_atomically};
use crate::repository;
use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The lock of the process that runs the job.
pub(crate) const LOCK: &str = ".lock";
/// Note of that process.
const NOTE: &str = "records/process.json";

/// A file that is there to be locked. It is unlocked before it is closed: a child that another thread starts at that moment
/// has a copy of the open file until it runs its program, and a lock lasts until the last copy is closed.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    pub(crate) fn of(file: File) -> Lock {
        Lock(file)
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // one that cannot be unlocked is unlocked by being closed
        let _ = self.0.unlock();
    }
}

/// The process that holds the folder, or held it last. The lock alone decides whether it still does.
#[derive(Debug, Serialize, Deserialize)]
struct Process {
    pid: u32,
    host: String,
    /// Seconds since 1970.
    since: u64,
    /// The commit that is checked out in the working directory, if that is in a repository of git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Notes that this process holds the folder, for processes that it keeps out.
///
/// # Errors
/// If the note cannot be written.
pub(crate) fn note(out: &Path) -> Result<()> {
    let note = Process {
        pid: std::process::id(),
        host: hostname(),
        since: now(),
        commit: repository::commit(Path::new(".")),
    };
    let text = serde_json::to_string(&note)? + "\n";
    write_atomically(&out.join(NOTE), text.as_bytes())
}

/// The process that a folder's note and lock tell of: `process 42 on host, for 3 min`.
fn who(out: &Path, pid: Option<u32>) -> Option<String> {
    let text = std::fs::read(out.join(NOTE)).unwrap_or_default();
    let noted: Option<Process> = serde_json::from_slice(&text).ok();
    match (noted, pid) {
        // a process that only reads, such as a takedown, leaves no note of its own
        (Some(noted), pid) if pid.is_none_or(|pid| pid == noted.pid) => {
            let time = duration(now().saturating_sub(noted.since) as f64);
            Some(format!(
                "process {} on {}, for {time}",
                noted.pid, noted.host
            ))
        }
        (_, Some(pid)) => Some(format!("process {pid}")),
        (_, None) => None,
    }
}

/// The process of this machine that holds the folder; None if there is none, or if the kernel does not list locks. Nothing is locked
/// to find out.
pub(crate) fn running(out: &Path) -> Option<String> {
    let pid = holder(&out.join(LOCK))?;
    who(out, Some(pid))
}

/// The error of a folder that another process holds.
pub(crate) fn is_held(out: &Path) -> anyhow::Error {
    let who = who(out, holder(&out.join(LOCK)));
    let who = who.map_or_else(String::new, |who| format!(": {who}"));
    let out = out.display();
    anyhow!(
        "another process is running a job in {out}{who}; wait for its end, or stop it; `millrace status {out}` shows how far it is"
    )
}

/// Makes the folder and locks a file in it; None if another process holds it.
pub(crate) fn lock_in(out: &Path, name: &str) -> Result<Option<Lock>> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let lock = lock_file(&out.join(name))?;
    Ok(lock.try_lock().is_ok().then_some(lock))
}

/// Opens a file to lock. Its bytes stay as they are, and a symbolic link is refused: in a folder that others may write, it
/// could name any file of this user's.
pub(crate) fn lock_file(path: &Path) -> Result<Lock> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NOFOLLOW);
    }
    let lock = options.open(path).map(Lock::of);
    lock.with_context(|| format!("cannot open the lock file {}", path.display()))
}

/// The process that holds a lock file, as the kernel lists it: nothing is locked to find out, so that a run that starts at this
/// moment is not refused. Devices with the major number 0 may have other minor numbers in that list than elsewhere (btrfs,
/// overlayfs), so that of those the inode alone tells.
#[cfg(target_os = "linux")]
pub(crate) fn holder(lock: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(lock).ok()?;
    let (inode, device) = (metadata.ino(), metadata.dev());
    let (major, minor) = (libc::major(device), libc::minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF`
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_waiting = fields.get(1) == Some(&"->");
        let mut place = fields.get(5)?.split(':');
        let mut hex = || u32::from_str_radix(place.next()?, 16).ok();
        let is_there = hex()? == major && (hex()? == minor || major == 0);
        let found: u64 = place.next()?.parse().ok()?;
        (!is_waiting && fields.get(1) == Some(&"FLOCK") && is_there && found == inode)
            .then(|| fields.get(4)?.parse().ok())?
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn holder(_: &Path) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_known_without_locking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let file = lock_file(&path).unwrap();
        assert_eq!(holder(&path), None);
        file.lock().unwrap();
        // as the child of another thread has one before it runs its program
        let copy = file.try_clone().unwrap();
        // a kernel without /proc/locks knows nothing
        if Path::new("/proc/locks").exists() {
            assert_eq!(holder(&path), Some(std::process::id()));
        }
        drop(file);
        assert_eq!(holder(&path), None);
        drop(copy);
    }

    #[test]
    fn a_process_that_is_kept_out_names_the_one_that_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_in(dir.path(), LOCK).unwrap().unwrap();
        note(dir.path()).unwrap();
        assert!(lock_in(dir.path(), LOCK).unwrap().is_none());
        let said = is_held(dir.path()).to_string();
        let wanted = format!(": process {} on {}, for ", std::process::id(), hostname());
        assert!(said.contains(&wanted), "{said}");
        // the note of another process than the one that holds the lock is not shown
        let other = r#"{"pid": 1, "host": "elsewhere", "since": 0}"#;
        std::fs::write(dir.path().join(NOTE), other).unwrap();
        let said = is_held(dir.path()).to_string();
        // a kernel without /proc/locks knows no holder
        if holder(&dir.path().join(LOCK)).is_some() {
            assert!(!said.contains("elsewhere"), "{said}");
        }
        drop(lock);
    }
}

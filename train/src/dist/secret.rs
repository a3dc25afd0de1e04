//! The shared secret that authenticates the processes of a run to each other over TCP (`kernels::comm::Secret`):
//!
//! 1. the text of `MILLRACE_SECRET`, the same for all processes;
//! 2. the text of the file that `launch.secret` names;
//! 3. `.secret` in `out`, which all processes see: process 0 writes 256 random bits there, readable by their owner
//!    alone, unless the file exists, and the others wait for it. So anyone who can read the run's folder as that
//!    user can join, just as they could change the checkpoints.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use kernels::comm::Secret;

use crate::dist::launch::{LaunchConfig, SECRET, secret_variable};
use crate::error::{At, Error, Result};

/// Name of the file in `out`.
const NAME: &str = ".secret";
/// Polling interval for the file.
const PAUSE: Duration = Duration::from_millis(50);
/// Characters of the shortest secret: 64 bits in hexadecimal digits.
const SHORTEST: usize = 16;

/// The secret for one process of the run whose folder is `out`, and its source for the log.
///
/// # Errors
/// A file that cannot be read or written, that others may read, or that does not appear in time; a secret that is
/// too short.
/// is too short.
pub(crate) fn of_run(
    config: &LaunchConfig,
    (process, out): (usize, &Path),
    patience: Duration,
) -> Result<(Secret, String)> {
    if let Some(text) = secret_variable() {
        return Ok((
            checked(&text, SECRET)?,
            format!("the secret of the run is {SECRET}"),
        ));
    }
    let path = match config.secret.as_str() {
        "" => out.join(NAME),
        file => PathBuf::from(file),
    };
    if config.secret.is_empty() {
        if process == 0 {
            make(out, &path)?;
        } else {
            wait_for(&path, patience)?;
        }
    }
    let text = fs::read_to_string(&path).at("read", &path)?;
    refuse_readable_by_others(&path)?;
    let place = path.display();
    let secret = checked(&text, &place.to_string())?;
    Ok((secret, format!("the secret of the run is in {place}")))
}

fn checked(text: &str, from: &str) -> Result<Secret> {
    let text = text.trim();
    if text.chars().count() < SHORTEST {
        let found = text.chars().count();
        return Err(Error::Launch(vec![format!(
            "{from}: found a secret of {found} characters, want {SHORTEST} or more that nobody can guess"
        )]));
    }
    Ok(Secret::of(text))
}

/// Writes the file, unless it is there.
fn make(out: &Path, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    fs::create_dir_all(out).at("create", out)?;
    let text = Secret::random_text().at("read random numbers for", path)?;
    // named after this process, so that two that start at once do not write one file
    let partial = out.join(format!("{NAME}.{}.tmp", std::process::id()));
    let written = (|| -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&partial)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        // the first writer wins
        match fs::hard_link(&partial, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            // a file system without links
            Err(_) => fs::rename(&partial, path),
            Ok(()) => Ok(()),
        }
    })();
    // gone if it was renamed
    let _ = fs::remove_file(&partial);
    written.at("write", path)?;
    File::open(out)
        .and_then(|folder| folder.sync_all())
        .at("sync", out)
}

fn wait_for(path: &Path, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    while !path.exists() {
        if Instant::now() >= until {
            return Err(Error::Launch(vec![format!(
                "{}: found nothing for {:.0} s, want the secret that process 0 writes there: `out` that all processes see, or {SECRET} or launch.secret",
                path.display(),
                patience.as_secs_f64()
            )]));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(unix)]
fn refuse_readable_by_others(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).at("read", path)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::Launch(vec![format!(
        "{}: found mode {mode:o}, want 600: others may read the secret of the run",
        path.display()
    )]))
}

#[cfg(not(unix))]
fn refuse_readable_by_others(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn of(config: &LaunchConfig, process: usize, out: &Path) -> Result<(Secret, String)> {
        of_run(config, (process, out), Duration::from_millis(300))
    }

    #[test]
    fn process_0_makes_a_secret_that_its_owner_alone_reads_and_the_others_wait_for_it() {
        let out = tempfile::tempdir().unwrap();
        let run = out.path().join("run");
        let config = LaunchConfig::default();
        let text = of(&config, 1, &run).unwrap_err().to_string();
        assert!(
            text.contains("found nothing for 0 s, want the secret"),
            "{text}"
        );
        thread::scope(|scope| {
            let waits = scope.spawn(|| of_run(&config, (1, &run), Duration::from_secs(20)));
            thread::sleep(Duration::from_millis(100));
            let (secret, told) = of(&config, 0, &run).unwrap();
            assert!(told.ends_with("run/.secret"), "{told}");
            assert!(waits.join().unwrap().unwrap().0 == secret);
            // the same one for the next run in this folder
            assert!(of(&config, 0, &run).unwrap().0 == secret);
        });
        let path = run.join(NAME);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        let names: Vec<_> = fs::read_dir(&run).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let text = of(&config, 0, &run).unwrap_err().to_string();
        assert!(text.contains("found mode 640, want 600"), "{text}");
    }

    #[test]
    fn a_file_may_be_named_and_short_secrets_are_refused() {
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("of the cluster");
        let config = LaunchConfig {
            secret: file.display().to_string(),
            ..LaunchConfig::default()
        };
        assert!(of(&config, 0, out.path()).is_err(), "not there");
        for (text, is_good) in [
            ("0123456789abcdef\n", true),
            ("secret\n", false),
            ("", false),
        ] {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(of(&config, 1, out.path()).is_ok(), is_good, "{text}");
        }
        assert!(!out.path().join(NAME).exists());
    }
}

//! Opens files and objects by path or URL.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use super::blob::{Blob, Options};
use super::parts::{Parts, parts_of};
use super::remote;

/// True for URLs of the kinds that are fetched.
pub(crate) fn is_remote(path: &Path) -> bool {
    let Some(text) = path.to_str() else {
        return false;
    };
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|s| SCHEMES.contains(&s))
}

/// Kinds of URLs that are fetched.
const SCHEMES: [&str; 8] = ["http", "https", "s3", "s3a", "gs", "az", "abfs", "abfss"];

/// Opens a file or an object, or parts of one (`x.warc.gz#bytes=0-99`).
///
/// # Errors
/// The system's or the server's error.
pub(crate) fn open(path: &Path, options: &Options) -> io::Result<Box<dyn Blob>> {
    if !path.exists()
        && let Some((file, parts)) = parts_of(path)
    {
        let blob: Box<dyn Blob> = if is_remote(&file) {
            Box::new(remote::Remote::open_unasked(&file, options)?)
        } else {
            open(&file, options)?
        };
        return Ok(Box::new(Parts::over(blob, parts)));
    }
    if is_remote(path) {
        return Ok(Box::new(remote::Remote::open(path, options)?));
    }
    // opening a FIFO waits for a writer, so it is looked at first
    if let Some(kind) = not_a_file(&std::fs::metadata(path)?) {
        return Err(io::Error::other(format!("{kind}: only files are read")));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        // opening succeeds on Linux, reading would not
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(Box::new(file))
}

/// The kind of an entry that is neither a file nor a folder, in words.
pub(super) fn not_a_file(found: &Metadata) -> Option<&'static str> {
    if found.is_file() || found.is_dir() {
        return None;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = found.file_type();
        if kind.is_fifo() {
            return Some("a FIFO");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    Some("a device")
}

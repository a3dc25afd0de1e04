//! Where input bytes lie: local files, HTTP servers, object stores.
//!
//! A place is named by a path or by a URL (`http`, `https`, `s3`, `gs`, `az`). Readers see a [`Blob`]:
//! bytes in order, from any offset on.

#[cfg(not(feature = "object-store"))]
mod absent;
mod glob;
mod list;
#[cfg(feature = "object-store")]
mod remote;
mod watched;
mod window;

#[cfg(not(feature = "object-store"))]
use absent as remote;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

pub(crate) use list::find;
#[cfg(feature = "object-store")]
pub(crate) use remote::{FIRST_WAIT, MAX_FAILURES, Remote, Store, told};
pub(crate) use watched::{Failure, Watched};
pub(crate) use window::Window;

/// Settings of an object store, by the names of the `object_store` crate.
pub(crate) type Options = BTreeMap<String, String>;

/// What a server tells of an object before it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Size; None if the server does not say.
    pub(crate) bytes: Option<u64>,
    /// ETag, or the time of the last change where there is none.
    pub(crate) version: Option<String>,
}

/// Bytes that are read in order, from any offset on.
pub(crate) trait Blob: Read + Send {
    /// The next read starts at this offset.
    fn go_to(&mut self, offset: u64) -> io::Result<()>;
    /// Size in bytes; None where it cannot be told.
    fn size(&mut self) -> io::Result<Option<u64>>;
}

impl Blob for File {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset)).map(|_| ())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        self.metadata().map(|m| Some(m.len()))
    }
}

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

/// Opens a file or an object.
///
/// # Errors
/// What the system or the server said.
pub(crate) fn open(path: &Path, options: &Options) -> io::Result<Box<dyn Blob>> {
    if is_remote(path) {
        return Ok(Box::new(remote::Remote::open(path, options)?));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        // opening succeeds on Linux, reading would not
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(Box::new(file))
}

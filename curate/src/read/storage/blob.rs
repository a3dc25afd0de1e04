//! Byte source of a file or an object: sequential reads from any offset.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// Settings of an object store, by the names of the `object_store` crate.
pub(crate) type Options = BTreeMap<String, String>;

/// A server's facts about an object before it is read.
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
    /// The next read starts where the part does; bytes behind its end need not be fetched.
    fn go_to_part(&mut self, part: Range<u64>) -> io::Result<()> {
        self.go_to(part.start)
    }
    /// Size in bytes; None if unknown.
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

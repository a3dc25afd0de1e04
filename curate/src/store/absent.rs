//! Object storage in a build without it: an error that says how to enable it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::put::Put;

/// Never made.
pub(super) enum Objects {}

impl Objects {
    pub(super) fn open(_url: &Path, _options: &BTreeMap<String, String>) -> io::Result<Objects> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this build works on local files only; build it with `--features object-store` for URLs",
        ))
    }

    pub(super) fn list(&self, _below: &str) -> io::Result<Vec<(String, u64)>> {
        match *self {}
    }

    pub(super) fn size(&self, _name: &str) -> io::Result<Option<u64>> {
        match *self {}
    }

    pub(super) fn get(
        &self,
        _name: &str,
        _to: &mut impl Write,
    ) -> io::Result<Option<Option<String>>> {
        match *self {}
    }

    pub(super) fn put(&self, _name: &str, _file: &Path) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn put_if(
        &self,
        _name: &str,
        _bytes: &[u8],
        _expected: Option<&str>,
    ) -> io::Result<Put> {
        match *self {}
    }

    pub(super) fn remove(&self, _name: &str) -> io::Result<()> {
        match *self {}
    }
}

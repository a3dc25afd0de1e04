//! Remote storage in a build without it: an error that says how to enable it.

use std::io::{self, Read};
use std::path::Path;

use super::blob::{Blob, Options, State};
use super::found::Found;

fn absent<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this build reads local files only; build it with `--features object-store` for URLs",
    ))
}

/// Never made.
pub(super) enum Remote {}

impl Remote {
    pub(super) fn open(_url: &Path, _options: &Options) -> io::Result<Remote> {
        absent()
    }

    pub(super) fn open_unasked(_url: &Path, _options: &Options) -> io::Result<Remote> {
        absent()
    }
}

pub(super) fn state(_url: &Path, _options: &Options) -> io::Result<State> {
    absent()
}

pub(super) fn list(_url: &str, _options: &Options) -> io::Result<Vec<Found>> {
    absent()
}

impl Read for Remote {
    fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Blob for Remote {
    fn go_to(&mut self, _offset: u64) -> io::Result<()> {
        match *self {}
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        match *self {}
    }
}

//! A file wrapper that records read errors, to separate them from damaged data.
//!
//! Decompressors and the Parquet library report a disk that fails and data that is damaged by the same kind of
//! error. Damage loses a record; a read that the system or a server refuses must end the file, to be retried later.
//! So every refusal is recorded at its source, below all decoders.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use super::blob::Blob;

/// The first read that was refused, if one was.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    /// The refusal, once.
    pub(crate) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, offset: u64, error: &io::Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            let why = format!("cannot read on at byte {offset}: {error}");
            *first = Some(io::Error::new(error.kind(), why));
        }
    }
}

/// A blob that notes the reads that are refused.
pub(crate) struct Watched {
    blob: Box<dyn Blob>,
    offset: u64,
    failure: Failure,
}

impl Watched {
    /// Wraps a blob; also returns the handle for its failure.
    pub(crate) fn over(blob: Box<dyn Blob>) -> (Box<dyn Blob>, Failure) {
        let failure = Failure::default();
        let watched = Watched {
            blob,
            offset: 0,
            failure: failure.clone(),
        };
        (Box::new(watched), failure)
    }
}

impl Read for Watched {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.blob.read(out) {
            Ok(n) => {
                self.offset += n as u64;
                Ok(n)
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::Interrupted {
                    self.failure.note(self.offset, &e);
                }
                Err(e)
            }
        }
    }
}

impl Blob for Watched {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.offset = offset;
        let gone = self.blob.go_to(offset);
        gone.inspect_err(|e| self.failure.note(offset, e))
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        let size = self.blob.size();
        size.inspect_err(|e| self.failure.note(0, e))
    }
}

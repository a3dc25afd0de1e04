//! Errors of the `index` crate as exceptions of Python: `OSError` for what the system refused, `IndexError`,
//! `MemoryError`, and `ValueError` for everything else. The message is the crate's, with file, found and wanted.

use index::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyOSError, PyValueError};

/// The exception for `error`.
pub(crate) fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        // by its kind this becomes FileNotFoundError, PermissionError and so on
        Error::Io { source, .. } => PyErr::from(std::io::Error::new(source.kind(), text)),
        Error::Range { .. } => PyIndexError::new_err(text),
        Error::Memory { .. } => PyMemoryError::new_err(text),
        Error::Several(all) if all.iter().all(|e| matches!(e, Error::Io { .. })) => {
            PyOSError::new_err(text)
        }
        // the enum is open: whatever is added is about a file or a setting
        _ => PyValueError::new_err(text),
    }
}

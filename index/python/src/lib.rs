//! `millrace.native`: verified indexes and sample orders of the `index` crate for Python.
//!
//! Tokens never pass through here: Python maps the `.bin` and takes the places from these classes, so that arrays are
//! views of the file. The only copies are the index arrays that are asked for by name.

mod blend;
mod error;
mod header;

use pyo3::prelude::*;

/// The module.
#[pymodule]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<blend::Blend>()?;
    module.add_class::<header::Header>()?;
    module.add_function(wrap_pyfunction!(header::verify, module)?)?;
    module.add_function(wrap_pyfunction!(blend::build, module)?)
}

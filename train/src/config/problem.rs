//! How checks report what is wrong.

/// Receives one contradiction: key path relative to the struct, found, wanted.
pub(crate) type Problem<'a> = &'a mut dyn FnMut(&str, String, &str);

//! The public suffix of a host, in a package of its own: the `psl` crate's list is generic code, hundreds of large
//! functions that would be compiled again with each version of the crate that calls them.

/// The public suffix of a host (`co.uk` of `a.example.co.uk`), by Mozilla's list; `None` of a host without labels.
#[must_use]
pub fn suffix(host: &str) -> Option<&str> {
    psl::suffix_str(host)
}

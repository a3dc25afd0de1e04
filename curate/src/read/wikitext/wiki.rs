//! Context for rendering a wiki page.

/// Facts that the text may refer to.
pub(crate) struct Wiki<'a> {
    /// Title of the page.
    pub(crate) title: &'a str,
}

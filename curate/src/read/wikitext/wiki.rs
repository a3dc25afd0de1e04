//! What a page of a wiki is rendered with.

/// What the text may refer to.
pub(crate) struct Wiki<'a> {
    /// Title of the page.
    pub(crate) title: &'a str,
}

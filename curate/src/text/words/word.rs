//! A word: a range of bytes of its text.

/// Byte range of a word in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Word {
    /// The word itself.
    #[inline]
    pub fn of(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Words are never empty; clippy wants the pair.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

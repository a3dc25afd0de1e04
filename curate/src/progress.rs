//! Progress callbacks of a running stage.

/// Receives progress from any thread.
pub trait Progress: Sync {
    /// `read` more bytes of input were consumed (compressed bytes for compressed files).
    fn bytes(&self, read: u64);
    /// `read` more records were finished, `kept` of them were kept.
    fn documents(&self, read: u64, kept: u64);
}

/// Ignores everything.
pub struct Silent;

impl Progress for Silent {
    fn bytes(&self, _read: u64) {}
    fn documents(&self, _read: u64, _kept: u64) {}
}

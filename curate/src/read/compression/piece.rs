//! Pieces of a decompressed file, and the sizes they come in.

use std::io;

/// What came next.
pub(crate) enum Piece {
    /// Bytes were appended; they start at this file offset (of the member, where compressed).
    Data {
        /// File offset.
        offset: u64,
        /// The first bytes of a gzip member or of a frame.
        starts_member: bool,
        /// The last bytes of it; only told where that is known.
        ends_member: bool,
    },
    /// Something could not be read; what follows is not contiguous with what came before.
    Damage {
        /// File offset of the damaged part.
        offset: u64,
        /// What is wrong.
        why: String,
        /// The bytes handed out last belong to the damaged part.
        inside: bool,
    },
    /// The system or the server refused a read: the file ends here this time.
    Failed(io::Error),
    /// The end of the file.
    End,
}

/// Largest member that is decompressed in one call.
pub(crate) const WHOLE: usize = 32 << 20;

/// Compressed bytes at hand before a member is tried, and before it is taken for a long one.
pub(crate) const FIRST_WINDOW: usize = 64 << 10;

pub(crate) const LAST_WINDOW: usize = 1 << 20;

pub(crate) const CHUNK: usize = 256 << 10;

/// Output and expansion above which a member is a bomb.
const BOMB_BYTES: u64 = 256 << 20;

const BOMB_RATIO: u64 = 500;

/// Why a member of `made` bytes out of `used` is given up.
pub(crate) fn bomb(made: u64, used: u64) -> Option<String> {
    let is = made > BOMB_BYTES && made / used.max(1) > BOMB_RATIO;
    is.then(|| format!("a compression bomb: {made} bytes out of {used}, and more to come"))
}

//! Pieces of a decompressed file, and the sizes they come in.

use std::io;

/// Next item of the stream.
pub(crate) enum Piece {
    /// Bytes were appended; they start at this file offset (of the member, where compressed).
    Data {
        /// File offset.
        offset: u64,
        /// The first bytes of a gzip member or of a frame.
        starts_member: bool,
        /// True for the last bytes of a member, where that is known.
        ends_member: bool,
    },
    /// Something could not be read; the following bytes are not contiguous with the previous ones.
    Damage {
        /// File offset of the damaged part.
        offset: u64,
        /// The problem.
        why: String,
        /// The bytes returned last belong to the damaged part.
        inside: bool,
    },
    /// The system or the server refused a read: the file ends here this time.
    Failed(io::Error),
    /// The end of the file.
    End,
}

/// Largest member that is decompressed in one call.
pub(crate) const WHOLE: usize = 32 << 20;

/// Compressed bytes buffered before a member is tried, and before it is treated as a long one.
pub(crate) const FIRST_WINDOW: usize = 64 << 10;

pub(crate) const LAST_WINDOW: usize = 1 << 20;

pub(crate) const CHUNK: usize = 256 << 10;

/// Output and expansion above which a member is a bomb.
const BOMB_BYTES: u64 = 256 << 20;

const BOMB_RATIO: u64 = 500;

/// Why a member with `made` bytes from `used` is abandoned, if it is a bomb.
pub(crate) fn bomb(made: u64, used: u64) -> Option<String> {
    let is = made > BOMB_BYTES && made / used.max(1) > BOMB_RATIO;
    is.then(|| format!("a compression bomb: {made} bytes out of {used}, and more to come"))
}

//! The crate's error type: what was found, what was wanted, in which op, on which rank. Shapes are lists of dims,
//! slowest first; lengths count elements.

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor has the wrong dims.
    #[error("{op}: {name} has dims {found:?}, wanted {wanted}")]
    Shape {
        /// Name of the op.
        op: &'static str,
        /// Argument of the op.
        name: &'static str,
        /// Dims of the argument.
        found: Vec<usize>,
        /// Dims the op can take, with the numbers of this call.
        wanted: String,
    },
    /// A tensor holds the wrong kind of number.
    #[error("{op}: {name} holds {found}, wanted {wanted}")]
    DType {
        /// Name of the op.
        op: &'static str,
        /// Argument of the op.
        name: &'static str,
        /// Type of the argument.
        found: crate::DType,
        /// Type the op takes.
        wanted: crate::DType,
    },
    /// A number or slice argument is out of range.
    #[error("{op}: {name} is {found}, wanted {wanted}")]
    Argument {
        /// Name of the op.
        op: &'static str,
        /// Argument of the op.
        name: &'static str,
        /// Its value.
        found: String,
        /// Accepted values, with the numbers of this call.
        wanted: String,
    },
    /// A tensor would not fit the device's memory or the address space.
    #[error("{device}: cannot allocate {bytes} bytes")]
    Memory {
        /// Name of the device.
        device: String,
        /// Bytes requested (saturated).
        bytes: usize,
    },
    /// A library or a device that an option asks for is not on this machine, or is too old.
    #[error("{library} is not available: tried {tried}; {hint}")]
    NotAvailable {
        /// The library or device.
        library: String,
        /// Names and folders that were tried.
        tried: String,
        /// Advice.
        hint: String,
    },
    /// The host would read or write the memory of another device.
    #[error("{device}: the host has no access to a tensor there")]
    NotOnHost {
        /// Name of the device.
        device: String,
    },
    /// A backend has no code for an op, or for these settings of it.
    #[error("{op} is not implemented on {device}")]
    NotImplemented {
        /// Name of the op.
        op: &'static str,
        /// Name of the device.
        device: String,
    },
    /// NVIDIA's driver refused a call, or the device failed.
    #[error("{call}: {code} ({meaning})")]
    Driver {
        /// The driver's function, or the kernel that was started.
        call: String,
        /// The driver's name of the error.
        code: String,
        /// The driver's description.
        meaning: String,
    },
    /// A kernel could not be compiled.
    #[error("{source_file}: {log}")]
    Compile {
        /// The file.
        source_file: String,
        /// The compiler's messages, with line numbers.
        log: String,
    },
    /// Another rank of the group ended while this one waited for it.
    #[error("{op}: rank {rank} is gone")]
    PeerGone {
        /// The rank that ended.
        rank: usize,
        /// Collective that waited.
        op: &'static str,
    },
    /// Ranks of one collective brought different lengths.
    #[error("{op}: rank {rank} brought {len} elements, rank {other} brought {other_len}")]
    Lengths {
        /// Collective in which it was seen.
        op: &'static str,
        /// Lower rank of the pair.
        rank: usize,
        /// Its elements.
        len: usize,
        /// The other rank.
        other: usize,
        /// Its elements.
        other_len: usize,
    },
    /// Ranks of one group called different collectives at the same turn.
    #[error("rank {rank} called {op} while rank {other} called {other_op}")]
    Calls {
        /// Lower rank of the pair.
        rank: usize,
        /// Collective that it called.
        op: &'static str,
        /// The other rank.
        other: usize,
        /// Collective that the other called.
        other_op: &'static str,
    },
    /// A rank waited for others until its deadline.
    #[error(
        "watchdog: rank {rank} waited {seconds} s in {op} of its {group} group, step {step}, for rank {}",
        missing.join(", rank ")
    )]
    Late {
        /// Collective that waited.
        op: &'static str,
        /// Purpose of the group.
        group: &'static str,
        /// World rank and host of the waiting rank.
        rank: String,
        /// The deadline.
        seconds: u64,
        /// The current training step.
        step: u64,
        /// World rank and host of the missing ranks.
        missing: Vec<String>,
    },
    /// Processes could not connect, or a message was not understood.
    #[error("{at}: found {found}, wanted {wanted}")]
    Network {
        /// Address, process or library.
        at: String,
        /// Content found.
        found: String,
        /// Content expected.
        wanted: String,
    },
}

/// An argument that an op cannot take.
pub(crate) fn refuse<T>(
    op: &'static str,
    name: &'static str,
    found: String,
    wanted: String,
) -> Result<T> {
    Err(Error::Argument {
        op,
        name,
        found,
        wanted,
    })
}

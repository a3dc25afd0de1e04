//! NCCL's functions, found in the library when it is opened. Types and numbers: NCCL 2.18's `nccl.h`, which later
//! versions extend.

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

/// Oldest version with communicators that take a configuration of this size: 10000 major + 100 minor + patch.
pub(super) const OLDEST: c_int = 21_800;

/// A communicator's handle.
pub(super) type Raw = *mut c_void;
/// A stream of CUDA.
pub(super) type RawStream = *mut c_void;

/// Rendezvous of the ranks of a communicator, made by one of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// `ncclConfig_t` as of 2.18; `size` and `version` tell a later library which fields it has.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once; everything else is as NCCL chooses.
    pub(super) fn non_blocking() -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST.unsigned_abs(),
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclFloat32`.
pub(super) const F32: c_int = 7;
/// `ncclSum`.
pub(super) const SUM: c_int = 0;

macro_rules! table {
    ($($field:ident = $name:literal ($($arg:ty),*) -> $result:ty;)*) => {
        /// Pointers to the functions; the library is never closed.
        pub(super) struct Table {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Table {
            /// # Errors
            /// The name of a function that the library does not have.
            pub(super) fn of(library: &Library) -> Result<Table, &'static str> {
                $(
                    // SAFETY: the signature is that of `nccl.h`; `Nccl` keeps the library open.
                    let $field = unsafe { library.get($name.as_bytes()) }.map_err(|_| $name)?;
                )*
                Ok(Table { $($field: *$field,)* })
            }
        }
    };
}

table! {
    get_version = "ncclGetVersion" (*mut c_int) -> c_int;
    error_string = "ncclGetErrorString" (c_int) -> *const c_char;
    last_error = "ncclGetLastError" (Raw) -> *const c_char;
    unique_id = "ncclGetUniqueId" (*mut UniqueId) -> c_int;
    init = "ncclCommInitRankConfig" (*mut Raw, c_int, UniqueId, c_int, *mut Config) -> c_int;
    async_error = "ncclCommGetAsyncError" (Raw, *mut c_int) -> c_int;
    abort = "ncclCommAbort" (Raw) -> c_int;
    group_start = "ncclGroupStart" () -> c_int;
    group_end = "ncclGroupEnd" () -> c_int;
    all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Raw, RawStream) -> c_int;
    reduce_scatter = "ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Raw, RawStream) -> c_int;
    all_gather = "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Raw, RawStream) -> c_int;
    broadcast = "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Raw, RawStream) -> c_int;
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Raw, RawStream) -> c_int;
    recv = "ncclRecv" (*mut c_void, usize, c_int, c_int, Raw, RawStream) -> c_int;
}

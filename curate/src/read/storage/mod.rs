//! Storage of input bytes: local files, HTTP servers, object stores.
//!
//! A location is a path or a URL (`http`, `https`, `s3`, `gs`, `az`). Readers see a [`Blob`]: sequential reads from
//! any offset.

#[cfg(not(feature = "object-store"))]
mod absent;
mod blob;
mod found;
mod glob;
mod list;
mod open;
mod parts;
#[cfg(feature = "object-store")]
mod patience;
#[cfg(feature = "object-store")]
mod remote;
mod watched;
mod window;

#[cfg(not(feature = "object-store"))]
use absent as remote;

pub(crate) use blob::{Blob, Options};
pub(crate) use found::Found;
pub(crate) use glob::{fixed_part, matches};
pub(crate) use list::{find, is_list, read_list};
pub(crate) use open::{is_remote, open};
pub(crate) use parts::{length as length_of_parts, parts_of, with_parts};
#[cfg(feature = "object-store")]
pub(crate) use patience::{LONGEST_PAUSE, USER_AGENT, pause_of};
#[cfg(feature = "object-store")]
pub(crate) use remote::{FIRST_WAIT, MAX_FAILURES, Remote, Store, io_error};
pub(crate) use watched::{Failure, Watched};
pub(crate) use window::Window;

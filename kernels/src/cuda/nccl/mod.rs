//! NCCL, NVIDIA's collectives between devices, opened at run time like the driver. All communicators are non-blocking:
//! a call returns at once, and `Communicator::state` says how it went. Deadlines and the names of ranks that are missing
//! are the business of `comm/gpu`.

mod communicator;
mod table;

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::sync::Once;

use self::table::{OLDEST, Table};
use super::library;
use crate::{Error, Result, SumOrder};
pub(crate) use communicator::{Call, Communicator, State};
pub(crate) use table::UniqueId;

/// The open library.
pub struct Nccl {
    table: Table,
    version: c_int,
    opened: String,
}

impl Nccl {
    /// Opens it, in `folders` first. With `SumOrder::Fixed`, NCCL's own sums are those of a ring, without the reductions of
    /// switches, unless the environment chooses others: then they have the same bits in every run of a layout.
    /// # Errors
    /// `NotAvailable` if it is missing, too old or damaged.
    pub fn open(folders: &[PathBuf], sums: SumOrder) -> Result<Nccl> {
        let (opened, library) = library::open_nccl(folders)?;
        let unfit = |tried: String| {
            Error::NotAvailable {
            library: "libnccl, recent enough".to_owned(),
            tried,
            hint: "install NCCL 2.18 or newer (pip install nvidia-nccl-cu13), or set launch.collectives = \"host\""
                .to_owned(),
        }
        };
        let table =
            Table::of(&library).map_err(|name| unfit(format!("{opened} without {name}")))?;
        // functions of a closed library are gone
        std::mem::forget(library);
        let mut version = 0;
        // SAFETY: it writes one number.
        unsafe { (table.get_version)(&mut version) };
        if version < OLDEST {
            let found = named(version);
            return Err(unfit(format!("{opened}, which is NCCL {found}")));
        }
        if sums == SumOrder::Fixed {
            fix_order();
        }
        Ok(Nccl {
            table,
            version,
            opened,
        })
    }

    /// Such as `NCCL 2.28.9 (libnccl.so.2)`.
    pub fn label(&self) -> String {
        format!("NCCL {} ({})", named(self.version), self.opened)
    }

    /// A new rendezvous, for the ranks of one communicator.
    pub(crate) fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: it writes one id.
        self.checked("ncclGetUniqueId", unsafe {
            (self.table.unique_id)(&mut id)
        })?;
        Ok(id)
    }

    fn checked(&self, call: &str, code: c_int) -> Result<()> {
        match code {
            table::SUCCESS => Ok(()),
            _ => Err(self.failed(call, code, std::ptr::null_mut())),
        }
    }

    fn failed(&self, call: &str, code: c_int, of: table::Raw) -> Error {
        // SAFETY: both return texts that end with 0 and stay until the thread's next call; null is allowed.
        let (name, detail) =
            unsafe { ((self.table.error_string)(code), (self.table.last_error)(of)) };
        Error::Driver {
            call: call.to_owned(),
            code: text(name),
            meaning: text(detail),
        }
    }
}

fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's texts end with 0.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_string_lossy().trim().to_owned()
}

fn named(version: c_int) -> String {
    // before 2.9 it was 1000 major + 100 minor + patch
    let (major, minor) = match version {
        0..10_000 => (version / 1000, version % 1000 / 100),
        _ => (version / 10_000, version % 10_000 / 100),
    };
    format!("{major}.{minor}.{}", version % 100)
}

/// Chooses NCCL's algorithm, which its configuration cannot.
fn fix_order() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (key, value) in [("NCCL_ALGO", "Ring"), ("NCCL_NVLS_ENABLE", "0")] {
            if std::env::var_os(key).is_none() {
                // SAFETY: done once, before communicators exist and the ranks' threads start; Rust's readers of the
                // environment share its lock.
                unsafe { std::env::set_var(key, value) };
            }
        }
    });
}

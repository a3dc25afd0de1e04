//! Bindings for the few MPI functions that move bytes between processes, from a library opened at run time, so that
//! one program works on hosts with any MPI and with none.
//!
//! Three binary interfaces are recognized by a library's symbols (MPI itself fixes only the third):
//!
//! | | handles | world, byte | any source, any tag | source in a status |
//! |---|---|---|---|---|
//! | Open MPI (`ompi_mpi_comm_world`) | pointers to symbols | `ompi_mpi_comm_world`, `ompi_mpi_byte` | -1, -1 | first int |
//! | MPICH and its kin (their common ABI) | ints | 0x44000000, 0x4c00010d | -2, -1 | third int |
//! | `libmpi_abi` (MPI 5.0, chapter 20) | pointer-sized numbers | 0x101, 0x247 | -1, -2 | first int |
//!
//! Facts from `mpi.h` of Open MPI 5.0.11 and MPICH 5.0.2, `mpi_abi.h` of the latter. All calls are made
//! by the thread that opened the library.
#![expect(unsafe_code, reason = "functions of a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use crate::comm::network::unmet;
use crate::{Error, Result};

/// Bytes of the text that each process contributes to `exchange`.
const TEXT: usize = 256;
/// Buffer for a library's version text: MPICH's MPI_MAX_LIBRARY_VERSION_STRING, the largest.
const VERSION: usize = 8193;
/// Ints in the status buffer, more than in any library's MPI_Status.
const STATUS: usize = 16;
/// Our messages' tag.
const TAG: c_int = 29;

#[cfg(unix)]
unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// An MPI that was started.
pub(super) trait Mpi {
    /// This process and the number of processes.
    fn place(&self) -> (usize, usize);
    /// All-gathers a text, cut to 255 bytes.
    fn exchange(&self, text: &str) -> Result<Vec<String>>;
    /// Begins to send.
    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()>;
    /// Bytes not yet sent, of messages to processes that count.
    fn under_way(&mut self, counts: &dyn Fn(usize) -> bool) -> Result<usize>;
    /// A received message and its sender.
    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>>;
    /// Finalizes MPI; every process must call it.
    fn finish(self: Box<Self>);
}

/// A handle of an interface.
trait Handle: Copy + 'static {
    /// The null request.
    const NONE: Self;
}

impl Handle for c_int {
    const NONE: c_int = 0;
}

impl Handle for *mut c_void {
    const NONE: *mut c_void = ptr::null_mut();
}

type Bytes = *const c_void;
type Out = *mut c_int;

/// Constants of one binary interface.
struct Names<H> {
    world: H,
    byte: H,
    errors_return: H,
    any_source: c_int,
    any_tag: c_int,
    funneled: c_int,
    source_at: usize,
}

struct Functions<H> {
    init: unsafe extern "C" fn(Out, *mut c_void, c_int, Out) -> c_int,
    set_errors: unsafe extern "C" fn(H, H) -> c_int,
    rank: unsafe extern "C" fn(H, Out) -> c_int,
    size: unsafe extern "C" fn(H, Out) -> c_int,
    all_gather: unsafe extern "C" fn(Bytes, c_int, H, *mut c_void, c_int, H, H) -> c_int,
    send: unsafe extern "C" fn(Bytes, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    test: unsafe extern "C" fn(*mut H, Out, Out) -> c_int,
    probe: unsafe extern "C" fn(c_int, c_int, H, Out, Out) -> c_int,
    count: unsafe extern "C" fn(Out, H, Out) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, Out) -> c_int,
    finish: unsafe extern "C" fn() -> c_int,
}

struct Library<H> {
    names: Names<H>,
    functions: Functions<H>,
    place: (usize, usize),
    /// Requests, receivers, and their bytes, which must not move until the request is done.
    sending: Vec<(H, usize, Vec<u8>)>,
}

/// A library's address in this process.
struct Opened {
    name: String,
    at: *mut c_void,
}

/// A binary interface.
#[derive(Clone, Copy)]
enum Abi {
    OpenMpi,
    Five,
    Mpich,
}

impl Abi {
    fn name(self) -> &'static str {
        match self {
            Abi::OpenMpi => "Open MPI",
            Abi::Five => "MPI 5.0",
            Abi::Mpich => "MPICH",
        }
    }
}

/// Opens the first of the libraries that exists and starts MPI.
pub(super) fn open(names: &[String]) -> Result<Box<dyn Mpi>> {
    let opened = first_of(names)?;
    match opened.abi() {
        Abi::OpenMpi => {
            let names = Names {
                world: opened.symbol(c"ompi_mpi_comm_world")?,
                byte: opened.symbol(c"ompi_mpi_byte")?,
                errors_return: opened.symbol(c"ompi_mpi_errors_return")?,
                any_source: -1,
                any_tag: -1,
                funneled: 1,
                source_at: 0,
            };
            start(&opened, names)
        }
        Abi::Five => {
            let names = Names {
                world: ptr::without_provenance_mut(0x101),
                byte: ptr::without_provenance_mut(0x247),
                errors_return: ptr::without_provenance_mut(0x143),
                any_source: -1,
                any_tag: -2,
                funneled: 1024,
                source_at: 0,
            };
            start::<*mut c_void>(&opened, names)
        }
        Abi::Mpich => {
            let names = Names {
                world: 0x4400_0000,
                byte: 0x4c00_010d,
                errors_return: 0x5400_0001,
                any_source: -2,
                any_tag: -1,
                funneled: 1,
                source_at: 2,
            };
            start::<c_int>(&opened, names)
        }
    }
}

/// Flags of dlopen: resolve all symbols at once.
const NOW: c_int = 0x2;
/// Makes the library's symbols visible to libraries that it opens itself, as Open MPI's parts need.
const GLOBAL: c_int = if cfg!(target_os = "macos") {
    0x8
} else {
    0x100
};

/// Opens the first library that exists.
fn first_of(names: &[String]) -> Result<Opened> {
    let mut reasons = Vec::new();
    for name in names {
        match Opened::of(name, NOW | GLOBAL) {
            Ok(opened) => return Ok(opened),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(unmet(
        "MPI",
        reasons.join("; "),
        "a library of MPI: launch.mpi_library or LD_LIBRARY_PATH",
    ))
}

/// A library of MPI that can be opened here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name under which it was requested.
    pub name: String,
    /// The library's own version text.
    pub version: String,
    /// Its binary interface: `Open MPI`, `MPICH` or `MPI 5.0`.
    pub abi: &'static str,
}

/// The libraries that can be opened; one with several of the names is listed once. MPI is not started.
pub fn found(names: &[String]) -> Vec<Found> {
    let mut places = Vec::new();
    let mut found = Vec::new();
    for name in names {
        // symbols of different libraries must not meet
        let Ok(opened) = Opened::of(name, NOW) else {
            continue;
        };
        if places.contains(&opened.at) {
            continue;
        }
        places.push(opened.at);
        if let Ok(version) = opened.version() {
            found.push(Found {
                name: opened.name.clone(),
                version,
                abi: opened.abi().name(),
            });
        }
    }
    found
}

/// The first words of a library's version text.
fn first_words(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(',').next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Opened {
    /// The library of a name or path, or why there is none.
    #[cfg(unix)]
    fn of(name: &str, flags: c_int) -> Result<Opened, String> {
        let text = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: `text` is a C string; the library's initializers are trusted, as the user chose the library.
        let at = unsafe { dlopen(text.as_ptr(), flags) };
        if !at.is_null() {
            let name = name.to_owned();
            return Ok(Opened { name, at });
        }
        // SAFETY: null or a C string that stays until the next call from this thread.
        let reason = unsafe {
            let reason = dlerror();
            (!reason.is_null()).then(|| CStr::from_ptr(reason).to_string_lossy().into_owned())
        };
        Err(reason.unwrap_or_else(|| format!("{name}: not there")))
    }

    #[cfg(not(unix))]
    fn of(_: &str, _: c_int) -> Result<Opened, String> {
        Err("another system than Unix: launch.transport = \"sockets\"".into())
    }

    fn abi(&self) -> Abi {
        match self.symbol(c"ompi_mpi_comm_world") {
            Ok(_) => Abi::OpenMpi,
            Err(_) if self.name.contains("libmpi_abi") => Abi::Five,
            Err(_) => Abi::Mpich,
        }
    }

    /// The library's version text, which is available without starting MPI.
    fn version(&self) -> Result<String> {
        type Version = unsafe extern "C" fn(*mut c_char, Out) -> c_int;
        // SAFETY: the function's type by MPI's standard (section 9.1.1), which has no handles.
        let version: Version = unsafe { self.function(c"MPI_Get_library_version")? };
        let (mut text, mut len) = ([0u8; VERSION], 0);
        // SAFETY: the buffer has the length that the standard and every supported library require.
        check("MPI_Get_library_version", unsafe {
            version(text.as_mut_ptr().cast(), &raw mut len)
        })?;
        let text = &text[..positive(len).min(VERSION)];
        Ok(first_words(&String::from_utf8_lossy(text)))
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void> {
        // SAFETY: an open library and a C string.
        #[cfg(unix)]
        let at = unsafe { dlsym(self.at, name.as_ptr()) };
        #[cfg(not(unix))]
        let at = self.at;
        if at.is_null() {
            let wanted = format!("{} as in MPI 3 and later", name.to_string_lossy());
            return Err(unmet(self.name.clone(), "no such function", wanted));
        }
        Ok(at)
    }

    /// Looks up a function of the library.
    ///
    /// # Safety
    /// `F` must be the type that MPI's standard gives the function, with this library's handles.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        const {
            assert!(
                size_of::<F>() == size_of::<*mut c_void>(),
                "a function pointer"
            )
        };
        let at = self.symbol(name)?;
        // SAFETY: of one size, as checked; the caller answers for the type.
        Ok(unsafe { std::mem::transmute_copy(&at) })
    }
}

fn start<H: Handle>(opened: &Opened, names: Names<H>) -> Result<Box<dyn Mpi>> {
    // SAFETY: the types of the fields are those of MPI's standard (sections 3.2, 3.7, 3.8, 6.7, 6.4,
    // 9.3, 11.2) with handles of `H`.
    let functions: Functions<H> = unsafe {
        Functions {
            init: opened.function(c"MPI_Init_thread")?,
            set_errors: opened.function(c"MPI_Comm_set_errhandler")?,
            rank: opened.function(c"MPI_Comm_rank")?,
            size: opened.function(c"MPI_Comm_size")?,
            all_gather: opened.function(c"MPI_Allgather")?,
            send: opened.function(c"MPI_Isend")?,
            test: opened.function(c"MPI_Test")?,
            probe: opened.function(c"MPI_Iprobe")?,
            count: opened.function(c"MPI_Get_count")?,
            receive: opened.function(c"MPI_Recv")?,
            finish: opened.function(c"MPI_Finalize")?,
        }
    };
    let (mut level, mut rank, mut size) = (0, 0, 0);
    // SAFETY: MPI was not started before, as a process has one network; the standard allows null arguments.
    let code = unsafe {
        (functions.init)(
            ptr::null_mut(),
            ptr::null_mut(),
            names.funneled,
            &raw mut level,
        )
    };
    check("MPI_Init_thread", code)?;
    // SAFETY: MPI runs; the outputs are ints.
    unsafe {
        check(
            "MPI_Comm_set_errhandler",
            (functions.set_errors)(names.world, names.errors_return),
        )?;
        check(
            "MPI_Comm_rank",
            (functions.rank)(names.world, &raw mut rank),
        )?;
        check(
            "MPI_Comm_size",
            (functions.size)(names.world, &raw mut size),
        )?;
    }
    let place = (positive(rank), positive(size));
    let sending = Vec::new();
    Ok(Box::new(Library {
        names,
        functions,
        place,
        sending,
    }))
}

fn positive(x: c_int) -> usize {
    usize::try_from(x).unwrap_or(0)
}

fn int(x: usize) -> c_int {
    c_int::try_from(x).expect("messages are cut shorter")
}

fn check(function: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(failed(function, code)),
    }
}

fn failed(function: &'static str, code: c_int) -> Error {
    unmet(function, format!("error {code}"), "success")
}

impl<H: Handle> Mpi for Library<H> {
    fn place(&self) -> (usize, usize) {
        self.place
    }

    fn exchange(&self, text: &str) -> Result<Vec<String>> {
        let mut mine = [0u8; TEXT];
        let len = text.len().min(TEXT - 1);
        mine[..len].copy_from_slice(&text.as_bytes()[..len]);
        let mut all = vec![0u8; TEXT * self.place.1];
        let (byte, world) = (self.names.byte, self.names.world);
        // SAFETY: TEXT bytes go out, TEXT for each process come in.
        let code = unsafe {
            let (from, to) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
            (self.functions.all_gather)(from, int(TEXT), byte, to, int(TEXT), byte, world)
        };
        check("MPI_Allgather", code)?;
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        Ok(all.chunks(TEXT).map(text).collect())
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()> {
        let mut request = H::NONE;
        let (byte, world) = (self.names.byte, self.names.world);
        // SAFETY: the bytes stay in `sending`, unmoved on the heap, until the request is done.
        let code = unsafe {
            let from = bytes.as_ptr().cast();
            (self.functions.send)(
                from,
                int(bytes.len()),
                byte,
                int(to),
                TAG,
                world,
                &raw mut request,
            )
        };
        check("MPI_Isend", code)?;
        self.sending.push((request, to, bytes));
        Ok(())
    }

    fn under_way(&mut self, counts: &dyn Fn(usize) -> bool) -> Result<usize> {
        let mut error = None;
        let test = self.functions.test;
        self.sending.retain_mut(|(request, ..)| {
            let (mut flag, mut status) = (0, [0; STATUS]);
            // SAFETY: the request is one of ours; the status buffer is as large as any library's status.
            let code = unsafe { test(&raw mut *request, &raw mut flag, status.as_mut_ptr()) };
            if code != 0 {
                error = Some(failed("MPI_Test", code));
            }
            flag == 0 && code == 0
        });
        let counted = self.sending.iter().filter(|(_, to, _)| counts(*to));
        let bytes = counted.map(|(.., bytes)| bytes.len()).sum();
        error.map_or(Ok(bytes), Err)
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        let Names {
            world,
            byte,
            any_source,
            ..
        } = self.names;
        // this communicator carries only our messages, so any tag will do
        let any_tag = self.names.any_tag;
        let (mut flag, mut status, mut count) = (0, [0; STATUS], 0);
        // SAFETY: the status buffer is as large as any library's status.
        let code = unsafe {
            (self.functions.probe)(
                any_source,
                any_tag,
                world,
                &raw mut flag,
                status.as_mut_ptr(),
            )
        };
        check("MPI_Iprobe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        let source = status[self.names.source_at];
        // SAFETY: the status was filled by the probe above.
        let code = unsafe { (self.functions.count)(status.as_mut_ptr(), byte, &raw mut count) };
        check("MPI_Get_count", code)?;
        let mut bytes = vec![0u8; positive(count)];
        // SAFETY: the message that was probed has `count` bytes; nobody else receives here.
        let code = unsafe {
            let to = bytes.as_mut_ptr().cast();
            (self.functions.receive)(to, count, byte, source, TAG, world, status.as_mut_ptr())
        };
        check("MPI_Recv", code)?;
        Ok(Some((positive(source), bytes)))
    }

    fn finish(self: Box<Self>) {
        // SAFETY: MPI runs and no request is pending. Its result is ignored, as nothing can be done any more.
        unsafe { (self.functions.finish)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_say_of_themselves_is_cut_to_name_and_version() {
        let open_mpi = "Open MPI v5.0.11, package: Open MPI root@host Distribution, ident: 5.0.11";
        assert_eq!(first_words(open_mpi), "Open MPI v5.0.11");
        let mpich = "MPICH Version:      5.0.2\nMPICH Release date: today\n";
        assert_eq!(first_words(mpich), "MPICH Version: 5.0.2");
        assert_eq!(first_words(""), "");
    }

    #[test]
    fn libraries_that_are_none_of_mpi_are_not_found() {
        let names = ["libno-such-mpi.so.1", "libm.so.6", "with\0nul"].map(str::to_owned);
        assert_eq!(found(&names), []);
    }
}

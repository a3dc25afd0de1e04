//! The CUDA backend's base: one NVIDIA device, its memory and its launches. Ops are in `ops/<op>/cuda.rs`, each beside
//! its kernels (`<op>.cu`), which NVRTC compiles at first use (`compile.rs`).
//!
//! A thread's work is on one stream, so it runs in the order of the calls, and freed memory can be given to the next op
//! at once; `stream.rs` orders streams. Only downloads and `synchronize` wait for the device, and an upload that finds no
//! room in the pinned memory that uploads of computation go through.
#![expect(unsafe_code, reason = "calls of the CUDA driver")]

mod compile;
mod counters;
mod event;
mod launch;
mod library;
pub mod nccl;
mod staging;
mod stream;

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use crate::{Error, Result};
pub(crate) use compile::Source;
pub use counters::Counters;
pub(crate) use event::Event;
pub(crate) use launch::{Arg, Grid};
pub use library::{Found, libraries};
use stream::STREAMS;
pub(crate) use stream::current;
pub use stream::{OnStream, Stream};

/// How to open a device.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of the device, from 0.
    pub ordinal: usize,
    /// Folders with NVIDIA's libraries, searched before the system's: `CUDA_HOME/lib64`, Python's `nvidia` packages.
    pub libraries: Vec<PathBuf>,
    /// Folder of compiled kernels; `None` keeps them in memory alone.
    pub cache: Option<PathBuf>,
}

/// Memory of a device, of all programs that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemMemory {
    /// Bytes that nobody holds.
    pub free: usize,
    /// All bytes.
    pub total: usize,
}

/// An open device.
pub(crate) struct Cuda {
    ordinal: usize,
    name: String,
    /// Compute capability, such as (9, 0).
    capability: (i32, i32),
    device: sys::CUdevice,
    context: sys::CUcontext,
    streams: [sys::CUstream; STREAMS],
    /// Those whose failure ends a wait of the host.
    watched: Mutex<Vec<Weak<dyn Watched>>>,
    cache: Option<PathBuf>,
    counters: counters::Counting,
    staging: Mutex<staging::Staging>,
    /// Loaded functions by source and name.
    functions: Mutex<HashMap<(&'static str, &'static str), Function>>,
    /// Loaded modules by source.
    modules: Mutex<HashMap<&'static str, Module>>,
}

/// Something that may keep a device waiting for ever, such as a collective whose other ranks are gone.
pub(crate) trait Watched: Send + Sync {
    /// Returns an error, and has ended the wait, if it will not end by itself.
    fn check(&self) -> Result<()>;
}

/// Time between two questions to what is watched.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// Time that a wait spins for, then pauses between looks.
const SPIN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);

/// A kernel that is loaded in the device's context.
#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

/// A compiled source that is loaded in the device's context.
#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: handles of the driver may be used from any thread; each call binds the context to its thread first.
unsafe impl Send for Cuda {}
// SAFETY: the driver's functions are safe for threads, and the maps are behind locks.
unsafe impl Sync for Cuda {}

/// Address of a byte in the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub u64);

impl Address {
    /// The address this many f32 further.
    pub(crate) fn after(self, elements: usize) -> Address {
        Address(self.0 + elements as u64 * 4)
    }
}

/// Returns the number of devices.
/// # Errors
/// `NotAvailable` if a library is missing or too old; `Driver` if the driver refuses.
pub fn count(options: &Options) -> Result<usize> {
    library::require(&options.libraries)?;
    result::init().map_err(|error| failed("cuInit", error))?;
    expect_versions()?;
    let count = result::device::get_count().map_err(|error| failed("cuDeviceGetCount", error))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Oldest CUDA that a driver has to be made for, as the driver counts: 1000 major + 10 minor.
const OLDEST: i32 = 12_000;

/// Checks the driver's version, and that it can load what NVRTC compiles: images of a newer major version it cannot.
fn expect_versions() -> Result<()> {
    let mut driver = 0;
    // SAFETY: the driver is loaded, as `library::require` has seen, and writes one number.
    let found = unsafe { sys::cuDriverGetVersion(&mut driver) };
    found
        .result()
        .map_err(|error| failed("cuDriverGetVersion", error))?;
    let (major, minor) = compile::version();
    let made_for = format!("a driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10);
    if driver < OLDEST {
        return Err(Error::NotAvailable {
            library: "NVIDIA's driver, recent enough".to_owned(),
            tried: made_for,
            hint: format!("install one for CUDA {}.0 or newer", OLDEST / 1000),
        });
    }
    if major > driver / 1000 {
        return Err(Error::NotAvailable {
            library: "libnvrtc that fits the driver".to_owned(),
            tried: format!("NVRTC {major}.{minor} beside {made_for}"),
            hint: "install a newer driver, or NVRTC of the driver's major version".to_owned(),
        });
    }
    Ok(())
}

/// Compiles a source for an architecture into the cache; needs NVRTC alone.
/// # Errors
/// `NotAvailable` without NVRTC, `Compile` with its log.
pub(crate) fn compile_for(source: &Source, options: &Options, architecture: &str) -> Result<()> {
    library::require_compiler(&options.libraries)?;
    let target = compile::Target {
        architecture: architecture.to_owned(),
        cache: options.cache.as_deref(),
    };
    compile::store(source, &target)
}

impl Cuda {
    /// Opens a device.
    /// # Errors
    /// `NotAvailable` if a library is missing or too old, or there is no such device; `Driver` if the driver refuses.
    pub(crate) fn open(options: &Options) -> Result<Cuda> {
        let count = count(options)?;
        if options.ordinal >= count {
            return Err(Error::NotAvailable {
                library: "a CUDA device".to_owned(),
                tried: format!("device {} of {count}", options.ordinal),
                hint: "check nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
            });
        }
        let ordinal = i32::try_from(options.ordinal).unwrap_or(i32::MAX);
        let device = result::device::get(ordinal).map_err(|error| failed("cuDeviceGet", error))?;
        let name = result::device::get_name(device).map_err(|e| failed("cuDeviceGetName", e))?;
        let attribute = |which| {
            // SAFETY: the device comes from the driver.
            unsafe { result::device::get_attribute(device, which) }
                .map_err(|error| failed("cuDeviceGetAttribute", error))
        };
        use sys::CUdevice_attribute as Of;
        let capability = (
            attribute(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < (8, 0) {
            return Err(Error::NotAvailable {
                library: format!("device {ordinal}, {name}"),
                tried: format!("compute capability {}.{}", capability.0, capability.1),
                hint: "devices from compute capability 8.0 (A100) on are supported".to_owned(),
            });
        }
        // SAFETY: the device comes from the driver; `drop` releases the context once.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|error| failed("cuDevicePrimaryCtxRetain", error))?;
        let mut cuda = Cuda {
            ordinal: options.ordinal,
            name,
            capability,
            device,
            context,
            streams: [std::ptr::null_mut(); STREAMS],
            watched: Mutex::default(),
            cache: options.cache.clone(),
            counters: counters::Counting::default(),
            staging: Mutex::default(),
            functions: Mutex::default(),
            modules: Mutex::default(),
        };
        cuda.bind()?;
        for stream in &mut cuda.streams {
            *stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(|error| failed("cuStreamCreate", error))?;
        }
        Ok(cuda)
    }

    /// Such as `cuda:0 (NVIDIA H100, sm_90)`.
    pub(crate) fn label(&self) -> String {
        let (major, minor) = self.capability;
        format!("cuda:{} ({}, sm_{major}{minor})", self.ordinal, self.name)
    }

    /// The driver's handle of a stream.
    fn raw_stream(&self, stream: Stream) -> sys::CUstream {
        self.streams[stream as usize]
    }

    /// That of the calling thread.
    fn stream(&self) -> sys::CUstream {
        self.raw_stream(current())
    }

    /// The card's identity, the same in every process.
    pub(crate) fn card(&self) -> Result<[u8; 16]> {
        let found = result::device::get_uuid(self.device);
        let found = found.map_err(|error| failed("cuDeviceGetUuid", error))?;
        // a C `char` has a sign on x86-64 and none on 64-bit ARM
        Ok(found.bytes.map(|byte| {
            let [byte] = byte.to_ne_bytes();
            byte
        }))
    }

    /// True if the other is of the same card.
    pub(crate) fn is_same_card(&self, other: &Cuda) -> bool {
        self.ordinal == other.ordinal
    }

    /// Compute capability, such as (9, 0).
    pub(crate) fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Makes the device's context the calling thread's.
    fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained until `drop`.
        unsafe { result::ctx::set_current(self.context) }
            .map_err(|error| failed("cuCtxSetCurrent", error))
    }

    /// Returns a block of device memory with unspecified values, or `None` if the device has too little.
    /// # Errors
    /// `Driver` if there is another reason, as when the device is lost.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Option<Address>> {
        self.bind()?;
        self.counters.allocation();
        // SAFETY: a context is current.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => Ok(Some(Address(address))),
            Err(result::DriverError(sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(error) => Err(failed("cuMemAlloc", error)),
        }
    }

    /// Bytes of device memory that nobody holds, and all of them.
    pub(crate) fn memory(&self) -> Result<SystemMemory> {
        self.bind()?;
        let (free, total) =
            result::mem_get_info().map_err(|error| failed("cuMemGetInfo", error))?;
        Ok(SystemMemory { free, total })
    }

    /// Calls so far that cost a step time on the host.
    pub(crate) fn counters(&self) -> Counters {
        self.counters.read()
    }

    /// Gives a block of `allocate` back.
    pub(crate) fn free(&self, block: Address) {
        // an error of what is watched has ended its wait
        let _ = self.wait_watched();
        if self.bind().is_ok() {
            // SAFETY: the block comes from `allocate` and is given back once; the driver waits for work that uses it.
            // An error means that the device is lost, and its memory with it.
            let _ = unsafe { result::free_sync(block.0) };
        }
    }

    /// Copies from the host. Returns when `from` may change, which is at once if there is room in pinned memory.
    pub(crate) fn upload(&self, to: Address, from: &[u8]) -> Result<()> {
        if current() == Stream::Compute {
            self.bind()?;
            let mut staging = lock(&self.staging);
            if let Some(staged) = staging.put(from) {
                // SAFETY: the caller's tensor holds as many bytes; the staged ones stay until the stream is waited for.
                return unsafe { result::memcpy_htod_async(to.0, staged, self.stream()) }
                    .map_err(|error| failed("cuMemcpyHtoDAsync", error));
            }
        }
        self.wait_watched()?;
        // SAFETY: the caller's tensor holds as many bytes; the wait below keeps `from` borrowed until it is read.
        unsafe { result::memcpy_htod_async(to.0, from, self.stream()) }
            .map_err(|error| failed("cuMemcpyHtoDAsync", error))?;
        self.synchronize()
    }

    /// Copies to the host, after all work before.
    pub(crate) fn download(&self, to: &mut [u8], from: Address) -> Result<()> {
        self.wait_watched()?;
        self.counters.download();
        // SAFETY: the caller's tensor holds as many bytes; the wait below keeps `to` borrowed until it is written.
        unsafe { result::memcpy_dtoh_async(to, from.0, self.stream()) }
            .map_err(|error| failed("cuMemcpyDtoHAsync", error))?;
        self.synchronize()
    }

    /// Copies within the device.
    pub(crate) fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's tensors hold as many bytes, and do not overlap.
        unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, self.stream()) }
            .map_err(|error| failed("cuMemcpyDtoDAsync", error))
    }

    /// Copies from the memory of `of`, which may be another card.
    pub(crate) fn copy_from(
        &self,
        to: Address,
        of: &Cuda,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        if self.is_same_card(of) {
            return self.copy(to, from, bytes);
        }
        self.bind()?;
        // SAFETY: both contexts are retained, and the caller's tensors hold as many bytes.
        let done = unsafe {
            sys::cuMemcpyPeerAsync(to.0, self.context, from.0, of.context, bytes, self.stream())
        };
        done.result()
            .map_err(|error| failed("cuMemcpyPeerAsync", error))
    }

    /// Sets bytes to 0.
    pub(crate) fn clear(&self, to: Address, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's tensor holds as many bytes.
        unsafe { result::memset_d8_async(to.0, 0, bytes, self.stream()) }
            .map_err(|error| failed("cuMemsetD8Async", error))
    }

    /// Waits for all work.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.wait_watched()?;
        self.counters.wait();
        // what is staged was given to the stream of computation
        let staged = (current() == Stream::Compute).then(|| lock(&self.staging).copies());
        // SAFETY: the stream lives as long as self.
        unsafe { result::stream::synchronize(self.stream()) }
            .map_err(|error| failed("cuStreamSynchronize", error))?;
        if let Some(staged) = staged {
            lock(&self.staging).clear(staged);
        }
        Ok(())
    }

    /// Asks `watched` from now on while the host waits for the device.
    pub(crate) fn watch(&self, watched: &Arc<dyn Watched>) {
        lock(&self.watched).push(Arc::downgrade(watched));
    }

    /// Waits for the thread's stream as long as all that is watched goes on; does nothing if nothing is watched. Comes
    /// before calls of the driver that wait by themselves, such as copies of memory that is not pinned.
    fn wait_watched(&self) -> Result<()> {
        self.bind()?;
        let mut all: Vec<Arc<dyn Watched>> = Vec::new();
        lock(&self.watched).retain(|one| match one.upgrade() {
            Some(one) => {
                all.push(one);
                true
            }
            None => false,
        });
        let (began, mut asked) = (Instant::now(), Instant::now());
        while !all.is_empty() {
            // SAFETY: the stream lives as long as self.
            match unsafe { sys::cuStreamQuery(self.stream()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                // a failure is reported by the call that follows
                _ => return Ok(()),
            }
            if asked.elapsed() >= ASK_EVERY {
                all.iter().try_for_each(|one| one.check())?;
                asked = Instant::now();
            }
            match began.elapsed() < SPIN {
                true => std::thread::yield_now(),
                false => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Starts `function` of `source`, which is compiled and loaded at first use.
    /// # Errors
    /// `Compile` with the compiler's log; `Driver`.
    pub(crate) fn launch(
        &self,
        source: &Source,
        function: &'static str,
        grid: Grid,
        args: &[Arg],
    ) -> Result<()> {
        self.bind()?;
        let found = self.function(source, function)?;
        let mut values: Vec<u64> = args.iter().map(|arg| arg.word()).collect();
        let mut pointers: Vec<*mut c_void> = values
            .iter_mut()
            .map(|word| std::ptr::from_mut(word).cast())
            .collect();
        let block = (grid.threads, 1, 1);
        let [x, y, z] = grid.blocks;
        // SAFETY: the arguments are those that the kernel declares (each op's `cuda.rs` and `.cu` agree, and tests run
        // every kernel); the driver copies them before it returns.
        unsafe {
            result::launch_kernel(
                found.0,
                (x, y, z),
                block,
                grid.shared,
                self.stream(),
                &mut pointers,
            )
        }
        .map_err(|error| failed(function, error))
    }

    /// Loads a source's kernels ahead of their use: loading may wait for all work of the device.
    pub(crate) fn load(&self, source: &Source) -> Result<()> {
        self.bind()?;
        self.module(source).map(drop)
    }

    fn function(&self, source: &Source, function: &'static str) -> Result<Function> {
        let key = (source.name, function);
        if let Some(found) = lock(&self.functions).get(&key) {
            return Ok(*found);
        }
        let module = self.module(source)?;
        let name = std::ffi::CString::new(function).unwrap_or_default();
        // SAFETY: the module is loaded in this context and never unloaded.
        let found = unsafe { result::module::get_function(module.0, name) }
            .map_err(|error| failed(function, error))?;
        lock(&self.functions).insert(key, Function(found));
        Ok(Function(found))
    }

    fn module(&self, source: &Source) -> Result<Module> {
        // held while compiling, so that two threads do not compile the same source
        let mut modules = lock(&self.modules);
        if let Some(found) = modules.get(source.name) {
            return Ok(*found);
        }
        let (major, minor) = self.capability;
        let target = compile::Target {
            architecture: format!("sm_{major}{minor}"),
            cache: self.cache.as_deref(),
        };
        let load = |image: &[u8]| {
            // SAFETY: the image is a module in the driver's format or is refused; it is copied.
            unsafe { result::module::load_data(image.as_ptr().cast()) }
        };
        let image = compile::image(source, &target)?;
        let module = match load(&image) {
            Ok(module) => module,
            // a damaged cache file, or one of another driver: made again
            Err(_) => load(&compile::image_anew(source, &target)?)
                .map_err(|error| failed(source.name, error))?,
        };
        modules.insert(source.name, Module(module));
        Ok(Module(module))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            // SAFETY: made in `open`, destroyed once; an error means that the device is lost.
            unsafe {
                for stream in self.streams {
                    let _ = result::stream::synchronize(stream);
                }
                lock(&self.staging).release();
                for stream in self.streams {
                    let _ = result::stream::destroy(stream);
                }
                let _ = result::primary_ctx::release(self.device);
            }
        }
    }
}

// A panic elsewhere leaves no entry half made, so a poisoned lock is still good.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(call: &str, error: result::DriverError) -> Error {
    let text = |found: std::result::Result<&std::ffi::CStr, _>| {
        found.map_or_else(
            |_| "unknown".to_owned(),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    Error::Driver {
        call: call.to_owned(),
        code: text(error.error_name()),
        meaning: text(error.error_string()),
    }
}

#[cfg(test)]
mod tests;

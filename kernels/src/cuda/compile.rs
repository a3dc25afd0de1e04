//! Kernels from source to an image for one architecture, by NVRTC, and the cache of images on disk.
//!
//! An image's name in the cache is a hash of everything that it depends on: source, headers, options and NVRTC's
//! version. The file starts with a checksum of the image; a damaged file is made again.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::ptr;

use cudarc::nvrtc::sys;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// A file of kernels.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path in the project, for messages.
    pub name: &'static str,
    pub text: &'static str,
}

/// Headers that every source may include.
const HEADERS: [(&str, &str); 15] = [
    ("millrace.cuh", include_str!("millrace.cuh")),
    ("activation.cuh", include_str!("activation.cuh")),
    ("philox.cuh", include_str!("philox.cuh")),
    ("rms.cuh", include_str!("rms.cuh")),
    ("attention.cuh", include_str!("attention.cuh")),
    ("product.cuh", include_str!("product.cuh")),
    ("grid.cuh", include_str!("grid.cuh")),
    ("chain.cuh", include_str!("chain.cuh")),
    ("epilogue.cuh", include_str!("epilogue.cuh")),
    ("chain_store.cuh", include_str!("chain_store.cuh")),
    ("mma.cuh", include_str!("mma.cuh")),
    ("mma_product.cuh", include_str!("mma_product.cuh")),
    ("mma_store.cuh", include_str!("mma_store.cuh")),
    ("groups.cuh", include_str!("groups.cuh")),
    ("flash.cuh", include_str!("flash.cuh")),
];

/// The architecture of an image, and the folder that keeps it.
pub(super) struct Target<'a> {
    /// Such as `sm_90`.
    pub architecture: String,
    pub cache: Option<&'a Path>,
}

/// Bytes of a checksum.
const CHECKSUM: usize = 32;

/// Products are never contracted to fused multiply-adds, nor is anything else changed that changes bits: kernels write
/// `fmaf` where one rounding is wanted.
fn options(target: &Target<'_>) -> Vec<String> {
    vec![
        format!("--gpu-architecture={}", target.architecture),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
        "--prec-div=true".to_owned(),
        "--prec-sqrt=true".to_owned(),
        "--ftz=false".to_owned(),
    ]
}

/// The image of a source, from the cache if it has it.
/// # Errors
/// `Compile` with NVRTC's log.
pub(super) fn image(source: &Source, target: &Target<'_>) -> Result<Vec<u8>> {
    if let Some(path) = cached(source, target)
        && let Some(image) = read(&path)
    {
        return Ok(image);
    }
    image_anew(source, target)
}

/// Like `image`, without a look at the cache, which gets the new image.
pub(super) fn image_anew(source: &Source, target: &Target<'_>) -> Result<Vec<u8>> {
    let image = compile(source, &options(target))?;
    if let Some(path) = cached(source, target) {
        // without a cache kernels are only compiled again
        let _ = write(&path, &image);
    }
    Ok(image)
}

/// NVRTC's version: major, minor.
pub(super) fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC is loaded, as `library::require` has seen; it writes two numbers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

/// Compiles a source into the cache, which has to take it.
/// # Errors
/// `Compile` with NVRTC's log, or with the reason why the file was not written.
pub(super) fn store(source: &Source, target: &Target<'_>) -> Result<()> {
    let image = compile(source, &options(target))?;
    let Some(path) = cached(source, target) else {
        return Ok(());
    };
    write(&path, &image).map_err(|error| Error::Compile {
        source_file: source.name.to_owned(),
        log: format!("{}: {error}", path.display()),
    })
}

fn cached(source: &Source, target: &Target<'_>) -> Option<PathBuf> {
    let folder = target.cache?;
    let (major, minor) = version();
    let mut hash = Sha256::new();
    let parts = [source.name, source.text].into_iter();
    let headers = HEADERS.iter().flat_map(|(name, text)| [*name, *text]);
    for part in parts.chain(headers) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    for option in options(target) {
        hash.update(option);
        hash.update([0]);
    }
    hash.update(format!("nvrtc {major}.{minor}"));
    let name = hash
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    Some(folder.join(format!("{name}.cubin")))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    if bytes.len() < CHECKSUM {
        return None;
    }
    let image = bytes.split_off(CHECKSUM);
    (Sha256::digest(&image).as_slice() == bytes).then_some(image)
}

/// Under a temporary name first: other processes may read and write the same file.
fn write(path: &Path, image: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&Sha256::digest(image))?;
    file.write_all(image)?;
    drop(file);
    fs::rename(&temporary, path)
}

fn compile(source: &Source, options: &[String]) -> Result<Vec<u8>> {
    let failed = |log: String| Error::Compile {
        source_file: source.name.to_owned(),
        log,
    };
    let text =
        |text: &str| CString::new(text).map_err(|_| failed("a zero byte in the text".to_owned()));
    let (name, code) = (text(source.name)?, text(source.text)?);
    let mut headers = Vec::new();
    for (name, code) in HEADERS {
        headers.push((text(name)?, text(code)?));
    }
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
    let codes: Vec<_> = headers.iter().map(|(_, code)| code.as_ptr()).collect();
    let options: Vec<CString> = options
        .iter()
        .map(|option| text(option))
        .collect::<Result<_>>()?;
    let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let count = |len: usize| i32::try_from(len).unwrap_or(i32::MAX);
    let mut program = ptr::null_mut();
    let ok = sys::nvrtcResult::NVRTC_SUCCESS;
    // SAFETY: all strings end with a zero byte and outlive the program, whose calls follow NVRTC's order: create,
    // compile, read log and image, destroy. Buffers have the sizes that NVRTC names.
    unsafe {
        let made = sys::nvrtcCreateProgram(
            &mut program,
            code.as_ptr(),
            name.as_ptr(),
            count(headers.len()),
            codes.as_ptr(),
            names.as_ptr(),
        );
        if made != ok {
            return Err(failed(format!("{made:?}")));
        }
        let compiled = sys::nvrtcCompileProgram(program, count(options.len()), options.as_ptr());
        let result = if compiled == ok {
            let mut size = 0;
            sys::nvrtcGetCUBINSize(program, &mut size);
            let mut image = vec![0_u8; size];
            match sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) {
                got if got == ok && size > 0 => Ok(image),
                got => Err(failed(format!("no image: {got:?}"))),
            }
        } else {
            let mut size = 0;
            sys::nvrtcGetProgramLogSize(program, &mut size);
            let mut log = vec![0_u8; size.max(1)];
            sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
            let log =
                CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
            Err(failed(format!(
                "{compiled:?}: {}",
                log.unwrap_or_default().trim()
            )))
        };
        sys::nvrtcDestroyProgram(&mut program);
        result
    }
}

//! Shared folder in an object store (S3, Google, Azure): processes put finished files there, whole.
//!
//! Stores make an object visible when all of its bytes are there, so a reader never sees half of one. If the store
//! supports conditional puts (`If-None-Match`, `If-Match`; RFC 9110), an object is replaced only while it is still
//! the one that was read; a store without them replaces it anyway. Temporarily refused requests are retried, broken
//! responses are resumed (see read/storage/remote.rs).

#[cfg(not(feature = "object-store"))]
mod absent;
#[cfg(feature = "object-store")]
mod objects;
mod put;

pub use put::Put;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{At, Result};
use crate::read::is_remote;
use crate::secrets::without_passwords;

#[cfg(not(feature = "object-store"))]
use absent::Objects;
#[cfg(feature = "object-store")]
use objects::Objects;

/// Whether a path is a URL with a supported scheme.
pub fn is_url(path: &Path) -> bool {
    is_remote(path)
}

/// Whether a name is a path below a folder: no `..`, no root, no drive, nothing empty.
pub fn is_inside(name: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']);
    name.is_empty() || name.split('/').all(is_plain)
}

/// A folder in an object store. Names are paths below it, with slashes.
pub struct ObjectFolder {
    objects: Objects,
    url: String,
}

impl ObjectFolder {
    /// Opens the folder at a URL; `options` are the store's, by the names of the `object_store` crate, above those of the
    /// environment. No request is made.
    ///
    /// # Errors
    /// `Io` for a URL or options that cannot be, and in a build without the feature `object-store`.
    pub fn open(url: &str, options: &BTreeMap<String, String>) -> Result<ObjectFolder> {
        let url = url.trim_end_matches('/').to_string();
        let path = Path::new(&url);
        let objects = if is_remote(path) {
            Objects::open(path, options)
        } else {
            Err(io::Error::other("no URL of an object store"))
        };
        Ok(ObjectFolder {
            objects: objects.at(path)?,
            url,
        })
    }

    /// URL of an object.
    pub fn url(&self, name: &str) -> String {
        without_passwords(&format!("{}/{name}", self.url)).into_owned()
    }

    /// Checks that a name is a path below the folder: names listed by a store become files.
    fn inside<'a>(&self, name: &'a str) -> Result<&'a str> {
        if is_inside(name) {
            return Ok(name);
        }
        let why = format!("object {name:?} is outside of the folder");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why)).at(Path::new(&self.url))
    }

    fn named<T>(&self, name: &str, result: io::Result<T>) -> Result<T> {
        result.at(Path::new(&self.url(name)))
    }

    /// Names and sizes of the objects below a folder, in name order.
    ///
    /// # Errors
    /// `Io` with the URL, also for an object whose name leads out of the folder.
    pub fn list(&self, below: &str) -> Result<Vec<(String, u64)>> {
        let below = self.inside(below)?;
        let mut all = self.named(below, self.objects.list(below))?;
        for (name, _) in &all {
            self.inside(name)?;
        }
        all.sort();
        Ok(all)
    }

    /// Size of an object, None if there is none.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        let name = self.inside(name)?;
        self.named(name, self.objects.size(name))
    }

    /// All of a small object and its version, None if there is none.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn read(&self, name: &str) -> Result<Option<(Vec<u8>, Option<String>)>> {
        let name = self.inside(name)?;
        let mut bytes = Vec::new();
        let version = self.named(name, self.objects.get(name, &mut bytes))?;
        Ok(version.map(|version| (bytes, version)))
    }

    /// Copies an object into a file; false if there is none.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn fetch(&self, name: &str, file: &mut File) -> Result<bool> {
        let name = self.inside(name)?;
        let got = self.named(name, self.objects.get(name, file))?;
        Ok(got.is_some())
    }

    /// Puts a file's bytes in an object's place.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn put(&self, name: &str, file: &Path) -> Result<()> {
        let name = self.inside(name)?;
        self.named(name, self.objects.put(name, file))
    }

    /// Puts a small object if the one there is the `expected` version, or if there is none and none is expected.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn put_if(&self, name: &str, bytes: &[u8], expected: Option<&str>) -> Result<Put> {
        let name = self.inside(name)?;
        self.named(name, self.objects.put_if(name, bytes, expected))
    }

    /// Removes an object; one that is not there counts as removed.
    ///
    /// # Errors
    /// `Io` with the URL.
    pub fn remove(&self, name: &str) -> Result<()> {
        let name = self.inside(name)?;
        self.named(name, self.objects.remove(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        for name in [
            "",
            "a",
            "clean/00000.jsonl.zst",
            "records/curate/a..b",
            "...",
            ".x",
        ] {
            assert!(is_inside(name), "{name}");
        }
        for name in [
            "../x",
            "../../x",
            "a/../../x",
            "..",
            "/etc/x",
            "a//b",
            "a/",
            "./a",
            "a\\..\\b",
            "C:\\x",
            "a\0",
        ] {
            assert!(!is_inside(name), "{name}");
        }
    }
}

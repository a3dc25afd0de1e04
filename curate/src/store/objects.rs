//! Requests to the store, by the `object_store` crate.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, UpdateVersion,
};

use super::put::Put;
use crate::read::{FIRST_WAIT, MAX_FAILURES, Remote, Store, io_error};

/// Larger files are uploaded in parts of this size: stores require at least 5 MiB per part, and at most 10,000 parts.
const PART: usize = 64 << 20;

pub(super) struct Objects {
    store: Arc<Store>,
    folder: object_store::path::Path,
}

/// An answer, or None if there is no such object.
fn there<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}

/// Makes a request, and makes it again if it breaks off.
fn again<T>(request: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut failures = 0;
    loop {
        match request() {
            Err(e) if e.kind() == io::ErrorKind::Other && failures < MAX_FAILURES => {
                std::thread::sleep(FIRST_WAIT * 2u32.pow(failures));
                failures += 1;
            }
            answer => return answer,
        }
    }
}

/// Fills the buffer up to the end of the file.
fn read_part(file: &mut File, part: &mut Vec<u8>) -> io::Result<()> {
    part.clear();
    file.take(PART as u64).read_to_end(part).map(|_| ())
}

impl Objects {
    pub(super) fn open(url: &Path, options: &BTreeMap<String, String>) -> io::Result<Objects> {
        let (store, folder) = Store::connect(url, options)?;
        Ok(Objects {
            store: Arc::new(store),
            folder,
        })
    }

    fn path(&self, name: &str) -> object_store::path::Path {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.folder.clone(), |path, part| path.join(part))
    }

    /// A broken listing is requested again.
    pub(super) fn list(&self, below: &str) -> io::Result<Vec<(String, u64)>> {
        again(|| self.list_once(below))
    }

    /// A removal without an answer is requested again: if the first one reached the store, nothing is there any more.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        again(|| {
            let removal = self.store.store.delete(&path);
            let removed = self.store.runtime.block_on(removal);
            there(removed.map_err(|e| io_error(&e))).map(|_| ())
        })
    }

    fn list_once(&self, below: &str) -> io::Result<Vec<(String, u64)>> {
        let mut stream = self.store.store.list(Some(&self.path(below)));
        let mut found = Vec::new();
        while let Some(meta) = self.store.runtime.block_on(stream.next()) {
            let meta = meta.map_err(|e| io_error(&e))?;
            if let Some(parts) = meta.location.prefix_match(&self.folder) {
                let parts: Vec<String> = parts.map(|p| p.as_ref().to_string()).collect();
                found.push((parts.join("/"), meta.size));
            }
        }
        Ok(found)
    }

    pub(super) fn size(&self, name: &str) -> io::Result<Option<u64>> {
        let path = self.path(name);
        let head = self.store.runtime.block_on(self.store.store.head(&path));
        there(head.map(|meta| meta.size).map_err(|e| io_error(&e)))
    }

    /// Copies an object; its version, None if there is no object.
    pub(super) fn get(
        &self,
        name: &str,
        to: &mut impl Write,
    ) -> io::Result<Option<Option<String>>> {
        let Some(mut object) = there(Remote::of(self.store.clone(), self.path(name)))? else {
            return Ok(None);
        };
        io::copy(&mut object, to)?;
        Ok(Some(object.e_tag().map(str::to_string)))
    }

    pub(super) fn put(&self, name: &str, file: &Path) -> io::Result<()> {
        let (path, store) = (self.path(name), &self.store.store);
        let mut file = File::open(file)?;
        let mut part = Vec::new();
        read_part(&mut file, &mut part)?;
        let send = async {
            if part.len() < PART {
                let whole = PutOptions::default();
                store.put_opts(&path, part.into(), whole).await?;
                return Ok(Ok(()));
            }
            let options = PutMultipartOptions::default();
            let mut upload = store.put_multipart_opts(&path, options).await?;
            while !part.is_empty() {
                upload.put_part(std::mem::take(&mut part).into()).await?;
                if let Err(e) = read_part(&mut file, &mut part) {
                    upload.abort().await?;
                    return Ok(Err(e));
                }
            }
            upload.complete().await?;
            Ok(Ok(()))
        };
        let sent: Result<io::Result<()>, Error> = self.store.runtime.block_on(send);
        sent.map_err(|e| io_error(&e))?
    }

    pub(super) fn put_if(
        &self,
        name: &str,
        bytes: &[u8],
        expected: Option<&str>,
    ) -> io::Result<Put> {
        let path = self.path(name);
        let put = |mode: PutMode| {
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            let put = self
                .store
                .store
                .put_opts(&path, bytes.to_vec().into(), options);
            self.store.runtime.block_on(put)
        };
        let mode = match expected {
            None => PutMode::Create,
            Some(version) => PutMode::Update(UpdateVersion {
                e_tag: Some(version.to_string()),
                version: None,
            }),
        };
        let put = match put(mode) {
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                put(PutMode::Overwrite)
            }
            other => other,
        };
        match put {
            Ok(put) => Ok(Put::Done(put.e_tag)),
            Err(
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
            ) => Ok(Put::Other),
            Err(e) => Err(io_error(&e)),
        }
    }
}

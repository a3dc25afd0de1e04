//! Reader for objects behind HTTP or in a store (S3, Google, Azure), as one stream that survives dropped connections.
//!
//! The `object_store` crate makes the requests and retries temporary refusals (500 to 599, 429, no connection); pauses that a
//! server asks for are made (see patience.rs). A
//! broken stream is reopened at the byte where it broke; from a server without range requests the bytes before are
//! read again and discarded. An object that changes while it is read is an error, where the server sends an ETag.
//!
//! Credentials come from the usual sources of each cloud's own programs: `AWS_*`, `GOOGLE_*`, `AZURE_*` variables,
//! or the machine's role. The input's `options` override them; a secret among them may be `file:PATH`.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{
    BackoffConfig, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt,
    ObjectStoreScheme, RetryConfig,
};
use tokio::runtime::Runtime;
use url::Url;

use super::blob::{Blob, Options, State};
use super::found::Found;
use super::patience::{Patient, USER_AGENT};
use crate::secrets::{resolved, without_passwords};

/// How often a stream may break off in a row without any progress.
pub(crate) const MAX_FAILURES: u32 = 6;
/// Wait before the first new attempt; doubled each time.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(100);
/// A server that sends nothing for this long counts as gone.
const SILENCE: &str = "60 seconds";
/// A whole object may take this long.
const WHOLE: &str = "24 hours";
/// A request without credentials, which could expire, is repeated for this long.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// A store and the runtime its requests run on.
pub(crate) struct Store {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The URL up to the path.
    base: String,
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// Whether the server only serves the whole object; each store has its own error for it.
fn is_without_ranges(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotSupported { .. })
        || error.to_string().contains("non-partial")
}

/// Whether an error is of a server that asks for fewer requests.
fn is_busy(error: &str) -> bool {
    ["503 Service", "429 Too", "SlowDown"]
        .iter()
        .any(|sign| error.contains(sign))
}

/// An error with its causes on one line.
pub(crate) fn io_error(error: &object_store::Error) -> io::Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let text = error.to_string();
    let text = without_passwords(&text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut text = words.join(" ");
    if kind == io::ErrorKind::Other && text.contains("after") && is_busy(&text) {
        text +=
            "; run the same command again later, or with fewer requests at once (`curate.tasks`)";
    }
    io::Error::new(kind, text)
}

impl Store {
    /// The store of a URL and the path inside it.
    pub(crate) fn connect(
        url: &Path,
        options: &Options,
    ) -> io::Result<(Store, object_store::path::Path)> {
        let text = url
            .to_str()
            .ok_or_else(|| other("a URL that is not UTF-8"))?;
        let url = Url::parse(text).map_err(other)?;
        if url.query().is_some() {
            return Err(other("a URL with a query cannot be read"));
        }
        let (scheme, path) = ObjectStoreScheme::parse(&url).map_err(other)?;
        let base = url[..url::Position::BeforePath].to_string();
        // Another part of the program may have chosen one already: that one serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = resolved(options)?;
        let store = build(&scheme, &url, &base, &options).map_err(|e| io_error(&e))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let store = Store {
            runtime,
            store,
            base,
        };
        Ok((store, path))
    }
}

/// The client of one store; the input's options come last and win.
fn build(
    scheme: &ObjectStoreScheme,
    url: &Url,
    base: &str,
    options: &Options,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut settings = vec![
        ("timeout", WHOLE),
        ("read_timeout", SILENCE),
        ("user_agent", USER_AGENT),
    ];
    if url.scheme() == "http" {
        settings.push(("allow_http", "true"));
    }
    settings.extend(options.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: FIRST_WAIT,
            ..BackoffConfig::default()
        },
        retry_timeout: match scheme {
            ObjectStoreScheme::Http => PATIENCE,
            _ => RetryConfig::default().retry_timeout,
        },
        ..RetryConfig::default()
    };
    macro_rules! build {
        ($builder:expr) => {{
            let mut builder = $builder;
            for (key, value) in settings {
                builder = builder.with_config(key.parse()?, value);
            }
            let builder = builder.with_retry(retry).with_http_connector(Patient);
            Arc::new(builder.build()?)
        }};
    }
    let url = url.to_string();
    Ok(match scheme {
        // objects are removed one by one, by the request that every server of this kind has
        ObjectStoreScheme::AmazonS3 => build!(
            AmazonS3Builder::from_env()
                .with_url(url)
                .with_disable_bulk_delete(true)
        ),
        ObjectStoreScheme::GoogleCloudStorage => {
            build!(GoogleCloudStorageBuilder::from_env().with_url(url))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            build!(MicrosoftAzureBuilder::from_env().with_url(url))
        }
        _ => build!(HttpBuilder::new().with_url(base)),
    })
}

/// Size and version of an object.
pub(super) fn state(url: &Path, options: &Options) -> io::Result<State> {
    let remote = Remote::open(url, options)?;
    Ok(State {
        bytes: remote.size,
        version: remote.version,
    })
}

/// The ETag, or the time of the last change; the library says 1970 where the server says nothing.
fn version(meta: &ObjectMeta) -> Option<String> {
    let changed = meta.last_modified.timestamp();
    let time = (changed != 0).then(|| meta.last_modified.to_rfc3339());
    meta.e_tag.clone().or(time)
}

/// Every object below a URL.
pub(super) fn list(url: &str, options: &Options) -> io::Result<Vec<Found>> {
    let (store, path) = Store::connect(Path::new(url), options)?;
    let mut stream = store.store.list(Some(&path));
    let mut found = Vec::new();
    while let Some(meta) = store.runtime.block_on(stream.next()) {
        let meta = meta.map_err(|e| io_error(&e))?;
        found.push(Found {
            path: format!("{}/{}", store.base, meta.location).into(),
            below: String::new(),
            bytes: meta.size,
            version: version(&meta),
        });
    }
    Ok(found)
}

/// An object being read.
pub(crate) struct Remote {
    // before the store: the stream's connection belongs to the store's runtime
    stream: Option<BoxStream<'static, object_store::Result<bytes::Bytes>>>,
    store: Arc<Store>,
    path: object_store::path::Path,
    chunk: bytes::Bytes,
    /// Offset of the next byte to return.
    offset: u64,
    /// Bytes of the stream before `offset`, to be discarded.
    behind: u64,
    size: Option<u64>,
    e_tag: Option<String>,
    version: Option<String>,
    /// The server answers to ranges.
    ranges: bool,
    /// Bytes from here on are not requested.
    end: Option<u64>,
    failures: u32,
}

impl Remote {
    /// Asks for the object's size and ETag, no more.
    pub(crate) fn open(url: &Path, options: &Options) -> io::Result<Remote> {
        let (store, path) = Store::connect(url, options)?;
        Remote::of(Arc::new(store), path)
    }

    /// Like [`Remote::open`], of an object in a store.
    pub(crate) fn of(store: Arc<Store>, path: object_store::path::Path) -> io::Result<Remote> {
        let mut remote = Remote::unasked(store, path);
        let head = remote.store.store.head(&remote.path);
        match remote.store.runtime.block_on(head) {
            Ok(meta) => {
                remote.size = Some(meta.size);
                remote.version = version(&meta);
                remote.e_tag = meta.e_tag;
            }
            // Not every server supports HEAD: the first read decides.
            Err(e) if matches!(io_error(&e).kind(), io::ErrorKind::Other) => remote.request()?,
            Err(e) => return Err(io_error(&e)),
        }
        Ok(remote)
    }

    /// An object of which parts are read; the first request is that of a part.
    pub(super) fn open_unasked(url: &Path, options: &Options) -> io::Result<Remote> {
        let (store, path) = Store::connect(url, options)?;
        Ok(Remote::unasked(Arc::new(store), path))
    }

    fn unasked(store: Arc<Store>, path: object_store::path::Path) -> Remote {
        Remote {
            stream: None,
            store,
            path,
            chunk: bytes::Bytes::new(),
            offset: 0,
            behind: 0,
            size: None,
            e_tag: None,
            version: None,
            ranges: true,
            end: None,
            failures: 0,
        }
    }

    /// The server's name for the object's state, if it has one.
    pub(crate) fn e_tag(&self) -> Option<&str> {
        self.e_tag.as_deref()
    }

    /// Opens the stream at `offset`.
    fn request(&mut self) -> io::Result<()> {
        let range = match self.end {
            Some(end) => Some(GetRange::Bounded(self.offset..end)),
            None => (self.offset > 0).then_some(GetRange::Offset(self.offset)),
        };
        let range = range.filter(|_| self.ranges);
        let ranged = range.is_some();
        let options = GetOptions {
            range,
            if_match: self.e_tag.clone(),
            ..GetOptions::default()
        };
        let get = self.store.store.get_opts(&self.path, options);
        match self.store.runtime.block_on(get) {
            Ok(got) => {
                self.size = Some(got.meta.size);
                self.version = self.version.take().or_else(|| version(&got.meta));
                self.e_tag = self.e_tag.take().or_else(|| got.meta.e_tag.clone());
                self.behind = if ranged { 0 } else { self.offset };
                self.stream = Some(got.into_stream());
                Ok(())
            }
            Err(e) if ranged && is_without_ranges(&e) => {
                self.ranges = false;
                self.request()
            }
            Err(object_store::Error::Precondition { .. }) => {
                Err(other("the object was changed while it was read"))
            }
            Err(e) => Err(io_error(&e)),
        }
    }

    /// The next chunk; false at the end.
    fn next_chunk(&mut self) -> io::Result<bool> {
        loop {
            let end = self.end.into_iter().chain(self.size).min();
            if end.is_some_and(|end| self.offset >= end) {
                return Ok(false);
            }
            if self.stream.is_none()
                && let Err(e) = self.request()
            {
                self.failed(e)?;
                continue;
            }
            let Some(stream) = &mut self.stream else {
                continue;
            };
            match self.store.runtime.block_on(stream.next()) {
                Some(Ok(mut chunk)) => {
                    let behind = usize::try_from(self.behind).unwrap_or(usize::MAX);
                    let skipped = chunk.split_to(behind.min(chunk.len()));
                    self.behind -= skipped.len() as u64;
                    if !chunk.is_empty() {
                        self.failures = 0;
                        self.chunk = chunk;
                        return Ok(true);
                    }
                }
                Some(Err(e)) => {
                    self.stream = None;
                    self.failed(io_error(&e))?;
                }
                None if self.size.is_none() => return Ok(false),
                None => {
                    self.stream = None;
                    self.failed(io::Error::from(io::ErrorKind::UnexpectedEof))?;
                }
            }
        }
    }

    /// Waits before another attempt, or gives up with the error.
    fn failed(&mut self, error: io::Error) -> io::Result<()> {
        let hopeless = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
        );
        if hopeless || self.failures >= MAX_FAILURES {
            return Err(error);
        }
        std::thread::sleep(FIRST_WAIT * 2u32.pow(self.failures));
        self.failures += 1;
        Ok(())
    }
}

impl Read for Remote {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() || (self.chunk.is_empty() && !self.next_chunk()?) {
            return Ok(0);
        }
        let n = out.len().min(self.chunk.len());
        out[..n].copy_from_slice(&self.chunk.split_to(n));
        self.offset += n as u64;
        Ok(n)
    }
}

impl Blob for Remote {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.stream = None;
        self.chunk.clear();
        self.offset = offset;
        self.end = None;
        Ok(())
    }

    fn go_to_part(&mut self, part: Range<u64>) -> io::Result<()> {
        self.go_to(part.start)?;
        self.end = Some(part.end);
        Ok(())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(self.size)
    }
}

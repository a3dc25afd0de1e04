//! One connection of an HTTP/1.1 server, by hyper with limits on headers and time.
//!
//! A client that closes its side of a connection has left, also if it only closed its sending side: hyper then drops
//! the answer in progress, which cancels its sequences.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

/// Bytes of a request's first line and headers.
const HEADER_BYTES: usize = 64 << 10;

/// Number of a request's headers.
const HEADERS: usize = 100;

/// Time in which the rest of a refused request is read and dropped. A connection that is closed on unread bytes is reset, and
/// the client may lose the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one connection, to its end. `read`: time to send headers, or to take a part of an answer. Once `stopping` is true, the
/// answer in progress is the last.
pub fn connection(
    stream: TcpStream,
    router: Router,
    read: Duration,
    stopping: watch::Receiver<bool>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // a named future would be compiled by those who poll it
    Box::pin(served(stream, router, read, stopping))
}

async fn served(
    stream: TcpStream,
    router: Router,
    read: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answer = router.call(request);
        Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    let io = Timed {
        io: TokioIo::new(stream),
        limit: read,
        stuck: None,
    };
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(read)
        .max_header_size(HEADER_BYTES)
        .max_headers(HEADERS);
    let mut served = builder.serve_connection(io, service);
    let mut is_stopping = false;
    let done = loop {
        tokio::select! {
            done = poll_fn(|cx| served.poll_without_shutdown(cx)) => break done,
            changed = stopping.changed(), if !is_stopping => {
                is_stopping = true;
                if changed.is_ok() {
                    Pin::new(&mut served).graceful_shutdown();
                }
            }
        }
    };
    let parts = served.into_parts();
    let mut io = parts.io.io;
    if done.is_err_and(|e| e.is_timeout()) && !parts.read_buf.is_empty() {
        let late =
            b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        // the client may be gone
        let _ = io.inner().try_write(late);
    }
    let close = async {
        poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await?;
        let (stream, mut dropped) = (io.inner(), [0; 4096]);
        loop {
            stream.readable().await?;
            match stream.try_read(&mut dropped) {
                Ok(0) => return Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
        }
    };
    // an error is the client's end
    let _ = timeout(LINGER, close).await;
}

/// A connection that fails if its client takes nothing for some time.
struct Timed {
    io: TokioIo<TcpStream>,
    limit: Duration,
    /// Runs while the client takes nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stuck = None;
            return done;
        }
        let limit = self.limit;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stuck.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Read for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl Write for Timed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watched(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(cx);
        self.watched(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watched(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.watched(cx, done)
    }
}

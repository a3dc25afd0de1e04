//! One line on stderr for each request, when its answer is complete or its client has left. Texts are never in it.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

/// Figures of a request that its handler knows.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) prompt_tokens: AtomicUsize,
    pub(super) tokens: AtomicUsize,
    /// Whether the line is left out.
    pub(super) is_quiet: AtomicBool,
}

/// The line of a request; dropped, it is written.
struct Entry {
    method: Method,
    path: String,
    started: Instant,
    figures: Arc<Figures>,
    /// The answer's status, once there is one.
    status: Option<u16>,
    is_complete: bool,
}

/// An answer's body that knows when it is complete.
struct Logged {
    body: Body,
    entry: Entry,
}

/// Gives each request its figures, and writes its line in the end.
pub(super) async fn logged(mut request: Request, next: Next) -> Response {
    let figures = Arc::new(Figures::default());
    let mut entry = Entry {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        started: Instant::now(),
        figures: Arc::clone(&figures),
        status: None,
        // nobody reads the body of an answer to HEAD
        is_complete: request.method() == Method::HEAD,
    };
    request.extensions_mut().insert(figures);
    let response = next.run(request).await;
    entry.status = Some(response.status().as_u16());
    response.map(|body| Body::new(Logged { body, entry }))
}

impl HttpBody for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(None) = frame {
            self.entry.is_complete = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.entry.is_complete |= self.body.is_end_stream();
    }
}

impl Entry {
    /// Probes that come every few seconds and succeed say nothing.
    fn is_probe(&self) -> bool {
        self.status == Some(200) && ["/health", "/metrics"].contains(&self.path.as_str())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.figures.is_quiet.load(Ordering::Relaxed) || self.is_probe() {
            return;
        }
        let status = match self.status {
            Some(status) if self.is_complete => status.to_string(),
            Some(status) => format!("{status}, the client left"),
            None => "the client left".to_owned(),
        };
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        let (prompt, tokens) = (
            count(&self.figures.prompt_tokens),
            count(&self.figures.tokens),
        );
        let tokens = match (prompt, tokens) {
            (0, 0) => String::new(),
            _ => format!(", {prompt} prompt tokens, {tokens} new"),
        };
        let seconds = self.started.elapsed().as_secs_f64();
        let (method, path) = (&self.method, &self.path);
        info!("serve: {method} {path} {status}{tokens}, {seconds:.3} s");
    }
}

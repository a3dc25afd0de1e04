//! Server-sent events: every event is a line `data: JSON` and an empty line; the last is `data: [DONE]`.

use super::error::ApiError;
use super::texts::internal;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_connections::Chunk;
use std::convert::Infallible;

/// Events of an answer.
pub(super) trait Events: Send + 'static {
    /// The next event; none after the last.
    ///
    /// # Errors
    /// Sent as the last event, in OpenAI's form.
    fn next(&mut self) -> impl Future<Output = Result<Option<Event>, ApiError>> + Send;
}

/// The JSON of an event.
pub(super) struct Event(String);

impl Event {
    /// # Errors
    /// None that a part of an answer has.
    pub(super) fn of(chunk: &Chunk<'_>) -> Result<Event, ApiError> {
        Ok(Event(chunk.to_json().map_err(|e| internal(&e.into()))?))
    }
}

enum Phase<E> {
    /// In a box, as it moves with each event.
    Events(Box<E>),
    Done,
    Over,
}

/// The stream as an answer. A client that leaves drops the events.
pub(super) fn response(events: impl Events) -> Response {
    let stream = futures_util::stream::unfold(Phase::Events(Box::new(events)), |phase| async {
        let (text, next) = match phase {
            Phase::Over => return None,
            Phase::Done => ("data: [DONE]\n\n".to_owned(), Phase::Over),
            Phase::Events(mut events) => match events.next().await {
                Ok(Some(Event(json))) => (line(&json), Phase::Events(events)),
                Ok(None) => ("data: [DONE]\n\n".to_owned(), Phase::Over),
                Err(e) => (line(&e.to_json().to_string()), Phase::Done),
            },
        };
        Some((Ok::<Bytes, Infallible>(text.into()), next))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// JSON has no line feeds outside of strings, and escapes them there.
fn line(json: &str) -> String {
    ["data: ", json, "\n\n"].concat()
}

//! Shared parts of OpenAI's routes: a call with its body, options of streams.

use super::error::ApiError;
use super::fields::Fields;
use super::request_log::Figures;
use super::sampling::random;
use super::state::Server;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// A request with its whole body.
pub(super) struct Call {
    pub(super) server: Arc<Server>,
    pub(super) figures: Arc<Figures>,
    body: Bytes,
    is_json: bool,
}

impl FromRequest<Arc<Server>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Call, ApiError> {
        let figures = request.extensions().get::<Arc<Figures>>().cloned();
        let said = request.headers().get(header::CONTENT_LENGTH);
        let said = said.and_then(|text| text.to_str().ok()?.parse::<u64>().ok());
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_json = kind.trim_start().starts_with("application/json");
        let most = server.limits.body;
        if said.is_some_and(|bytes| bytes > most as u64) {
            return Err(too_large(most));
        }
        let read = read(request.into_body(), most);
        let body = match timeout(server.limits.read, read).await {
            Ok(body) => body?,
            Err(_) => {
                let message = "the body did not come in time";
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
            }
        };
        Ok(Call {
            server: Arc::clone(server),
            figures: figures.unwrap_or_default(),
            body,
            is_json,
        })
    }
}

impl Call {
    /// The body's fields.
    ///
    /// # Errors
    /// 400 if it is no JSON object.
    pub(super) fn fields(&self) -> Result<Fields, ApiError> {
        Fields::parse(&self.body)
    }

    /// Whether the body says that it is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    /// A name for the answer.
    pub(super) fn id(&self) -> String {
        format!("{:016x}{:016x}", random(), random())
    }

    /// Seconds since 1970.
    pub(super) fn created(&self) -> u64 {
        now()
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A body, up to `most` bytes.
async fn read(body: Body, most: usize) -> Result<Bytes, ApiError> {
    let mut parts = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|e| ApiError::bad(format!("the body cannot be read: {e}")))?;
        if whole.len() + part.len() > most {
            return Err(too_large(most));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body has more than {most} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Options of a stream beside the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamOptions {
    /// A last event with the tokens of the request.
    pub(super) include_usage: bool,
    /// The tokens so far in every event.
    pub(super) continuous_usage: bool,
}

impl StreamOptions {
    /// None if the answer is not streamed.
    ///
    /// # Errors
    /// 400 for options without `stream`.
    pub(super) fn read(fields: &Fields) -> Result<Option<StreamOptions>, ApiError> {
        let options = fields.object("stream_options")?;
        match (fields.or("stream", false)?, options) {
            (false, None) => Ok(None),
            (false, Some(_)) => {
                let message = "stream_options: only with stream = true";
                Err(ApiError::field("stream_options", message))
            }
            (true, None) => Ok(Some(StreamOptions::default())),
            (true, Some(options)) => Ok(Some(StreamOptions {
                include_usage: options.or("include_usage", false)?,
                continuous_usage: options.or("continuous_usage_stats", false)?,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_options_are_checked() {
        let fields = |body: &str| Fields::parse(body.as_bytes()).unwrap();
        let stream = |body: &str| StreamOptions::read(&fields(body));
        assert_eq!(stream("{}"), Ok(None));
        assert_eq!(
            stream(r#"{"stream": true}"#),
            Ok(Some(StreamOptions::default()))
        );
        let usage = stream(r#"{"stream": true, "stream_options": {"include_usage": true}}"#);
        assert!(usage.unwrap().unwrap().include_usage);
        let without = stream(r#"{"stream_options": {"include_usage": true}}"#).unwrap_err();
        assert_eq!(without.param.as_deref(), Some("stream_options"));
        assert!(stream(r#"{"stream": 1}"#).is_err());
    }
}

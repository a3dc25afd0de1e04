//! Errors of the server in the forms that clients read: OpenAI's object, and `{"message"}` for Megatron's route.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An answer other than the one asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field that is wrong.
    pub(crate) param: Option<String>,
    /// Seconds after which to try again.
    pub(super) retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            param: None,
            retry_after: None,
        }
    }

    /// 400 without a field.
    pub(super) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400 for a field.
    pub(crate) fn field(name: &str, message: impl Into<String>) -> ApiError {
        ApiError {
            param: Some(name.to_owned()),
            ..ApiError::bad(message)
        }
    }

    /// 503: the server is about to end.
    pub(super) fn draining() -> ApiError {
        ApiError {
            retry_after: Some(5),
            ..ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is shutting down",
            )
        }
    }

    /// 429: as many requests wait as may.
    pub(super) fn queue_full(most: usize) -> ApiError {
        ApiError {
            retry_after: Some(1),
            ..ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("the queue is full: {most} requests run or wait"),
            )
        }
    }

    /// vLLM's name of the error.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            400 | 413 | 415 | 431 => "BadRequestError",
            401 => "AuthenticationError",
            403 => "PermissionDeniedError",
            404 | 405 => "NotFoundError",
            408 | 504 => "TimeoutError",
            429 => "RateLimitError",
            503 => "ServiceUnavailableError",
            _ => "InternalServerError",
        }
    }

    /// OpenAI's object.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "error": {
                "message": self.message,
                "type": self.kind(),
                "param": self.param,
                "code": self.status.as_u16(),
            }
        })
    }

    /// The body that Megatron-LM's command line client prints.
    pub(super) fn to_megatron(&self) -> Response {
        self.with_body(&json!({"message": self.message}))
    }

    fn with_body(&self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.with_body(&self.to_json())
    }
}

//! Routes, and who may ask.

use super::adapter_routes;
use super::allowed_hosts::{AllowedHosts, host_is_allowed};
use super::chat::chat;
use super::completions::completions;
use super::error::ApiError;
use super::megatron::generate;
use super::request_log::logged;
use super::state::Server;
use super::texts::internal;
use super::tokens::{detokenize, tokenize, tokenizer_info};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Time in which the engine answers `/health`: a batch of a large model on a slow machine takes seconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The page for people. It has no outside resources.
const PAGE: &str = include_str!("page.html");

/// All routes, for the hosts that requests may name. Those with a key: everything but the page, `/health`, `/version` and
/// `/metrics`.
pub(super) fn router(server: &Arc<Server>, hosts: AllowedHosts) -> Router {
    let with_key = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/load_lora_adapter", post(adapter_routes::load))
        .route("/v1/unload_lora_adapter", post(adapter_routes::unload))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/api", put(generate).post(generate))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/tokenizer_info", get(tokenizer_info))
        .route_layer(from_fn_with_state(Arc::clone(server), authorized));
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .merge(with_key)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(caught))
        .layer(from_fn_with_state(Arc::new(hosts), host_is_allowed))
        .layer(from_fn(logged))
        .with_state(Arc::clone(server))
}

/// Answers 500 for a handler that panics, whose connection would otherwise be closed without an answer. The panic's message
/// is on stderr.
async fn caught(request: Request, next: Next) -> Response {
    let is_megatron = request.uri().path() == "/api";
    let mut running = Box::pin(next.run(request));
    let answer = poll_fn(|cx| {
        // nothing of a future that panicked is used again
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
        polled.map_or_else(|_| Poll::Ready(None), |polled| polled.map(Some))
    });
    answer.await.unwrap_or_else(|| {
        let message = "the server failed at this request; its log has the cause";
        let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
        match is_megatron {
            true => error.to_megatron(),
            false => error.into_response(),
        }
    })
}

pub(crate) async fn unknown() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is no such path")
}

pub(crate) async fn wrong_method() -> ApiError {
    let message = "the path does not take this method";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// Refuses clients without a key.
async fn authorized(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if server.keys.is_empty() || has_key(request.headers(), &server.keys) {
        return Ok(next.run(request).await);
    }
    let message = "want the header Authorization: Bearer KEY with a key of this server";
    Err(ApiError::new(StatusCode::UNAUTHORIZED, message))
}

fn has_key(headers: &HeaderMap, keys: &[String]) -> bool {
    let Some(given) = headers.get(header::AUTHORIZATION) else {
        return false;
    };
    let given = given.as_bytes();
    let (scheme, key) = given.split_at(given.len().min(7));
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return false;
    }
    // every byte of every key is looked at, so that the time tells nothing
    let is_same = |right: &[u8]| {
        let bytes = right.iter().zip(key);
        let differ = bytes.fold(0, |differ, (a, b)| differ | (a ^ b));
        differ == 0 && right.len() == key.len()
    };
    keys.iter()
        .filter(|right| is_same(right.as_bytes()))
        .count()
        > 0
}

async fn page() -> Response {
    html(PAGE)
}

/// A page whose script and style are in it, and which may ask nobody but this server.
pub(crate) fn html(page: &'static str) -> Response {
    let mut response = page.into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let policy = HeaderValue::from_static(policy);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// 200 if the engine thread answers between two steps, else 503.
async fn health(State(server): State<Arc<Server>>) -> Result<(), ApiError> {
    if server.admission.is_draining() {
        return Err(ApiError::draining());
    }
    let answer = tokio::time::timeout(ANSWERS_WITHIN, server.engine.answers());
    match answer.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(unhealthy("the engine is gone")),
        Err(_) => Err(unhealthy("the engine does not answer")),
    }
}

fn unhealthy(message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn metrics(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    let text = server.metrics.text(&server.engine.counts());
    let mut response = text.map_err(|e| internal(&e))?.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The served model, and the adapters beside it.
fn cards(server: &Server) -> Vec<Value> {
    let adapters = server.adapters.list().into_iter().map(|(name, adapter)| {
        let root = adapter.path.display().to_string();
        card(server, &name, &root, Some(&server.name))
    });
    let own = card(server, &server.name, &server.name, None);
    std::iter::once(own).chain(adapters).collect()
}

fn card(server: &Server, name: &str, root: &str, parent: Option<&str>) -> Value {
    let facts = &server.engine.facts;
    json!({
        "id": name,
        "object": "model",
        "created": server.created,
        "owned_by": "millrace",
        "root": root,
        "parent": parent,
        "max_model_len": facts.max_length,
        "permission": [],
        "meta": {"n_vocab": facts.vocab, "n_params": facts.parameters, "n_ctx_train": facts.max_length},
    })
}

async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(json!({"object": "list", "data": cards(&server)}))
}

async fn model(
    State(server): State<Arc<Server>>,
    axum::extract::Path(name): axum::extract::Path<String>,
) -> Result<Json<Value>, ApiError> {
    let found = cards(&server).into_iter().find(|card| card["id"] == name);
    match found {
        Some(card) => Ok(Json(card)),
        None => {
            let message = format!("The model `{name}` does not exist.");
            Err(ApiError::new(StatusCode::NOT_FOUND, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        let keys = ["abc".to_owned(), "d".to_owned()];
        for (given, is_right) in [
            ("Bearer abc", true),
            ("bearer d", true),
            ("Bearer ab", false),
            ("Bearer abcd", false),
            ("Bearer ", false),
            ("Basic abc", false),
            ("abc", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            assert_eq!(has_key(&headers, &keys), is_right, "{given}");
        }
        assert!(!has_key(&HeaderMap::new(), &keys));
    }

    /// What a server answers to a request for `path`, byte by byte.
    fn answer_of(router: Router, path: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let request = format!("PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async { axum::serve(listener, router).await });
            let client = tokio::task::spawn_blocking(move || {
                use std::io::{Read as _, Write as _};
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                text
            });
            let text = client.await.unwrap();
            server.abort();
            text
        })
    }

    #[test]
    fn a_handler_that_panics_answers_500_and_the_next_request_is_served() {
        async fn at_once() -> &'static str {
            panic!("expected by a test")
        }
        async fn later() -> &'static str {
            tokio::task::yield_now().await;
            panic!("expected by a test")
        }
        let router = Router::new()
            .route("/x", put(at_once))
            .route("/api", put(later))
            .route("/ok", put(|| async { "fine" }))
            .layer(from_fn(caught));
        let text = answer_of(router.clone(), "/x");
        assert!(text.starts_with("HTTP/1.1 500"), "{text}");
        assert!(text.contains("\"type\":\"InternalServerError\""), "{text}");
        let text = answer_of(router.clone(), "/api");
        assert!(text.starts_with("HTTP/1.1 500"), "{text}");
        assert!(text.contains("{\"message\":\"the server failed"), "{text}");
        assert!(answer_of(router, "/ok").ends_with("fine"));
    }

    #[test]
    fn the_page_has_no_outside_resources() {
        for outside in [
            "http://",
            "https://",
            "src=",
            "@import",
            "stylesheet",
            "url(",
        ] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
    }
}

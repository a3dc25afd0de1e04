//! Routes: the page, the table of runs, curves, and a stream of events that says when something is new. All of them only read
//! what the reading thread has put into the table: no route opens a file.

use super::collect::{Reading, Shared, Table};
use super::curve::{Curve, Xy};
use super::query::Query;
use super::state::Row;
use crate::machine::grouped;
use crate::serve::{
    Admission, AllowedHosts, ApiError, host_is_allowed, html, unknown, wrong_method,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The page. It has no outside resources.
const PAGE: &str = include_str!("page.html");

/// Time after which an idle stream gets a comment, so that a client that has left is noticed.
const IDLE: Duration = Duration::from_secs(15);

/// Points of an answer at most: some 100 MB of JSON.
const MOST_POINTS: usize = 4_000_000;

/// State of the routes.
pub(super) struct Server {
    pub reading: Reading,
    pub admission: Arc<Admission>,
}

/// All routes, for the hosts that requests may name.
pub(super) fn router(server: &Arc<Server>, hosts: AllowedHosts) -> Router {
    Router::new()
        .route("/", get(async || html(PAGE)))
        .route("/api/runs", get(runs))
        .route("/api/curves", get(curves))
        .route("/events", get(events))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::new(hosts), host_is_allowed))
        .with_state(Arc::clone(server))
}

/// The table of runs.
#[derive(Serialize)]
struct Runs<'a> {
    version: u64,
    runs: Vec<&'a Row>,
}

async fn runs(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    with_table(server, |shared, table| {
        let runs = table.runs.iter().map(|run| &run.row).collect();
        Ok(text_of(&Runs {
            version: shared.version(),
            runs,
        }))
    })
    .await
}

/// A drawn curve.
#[derive(Serialize)]
struct Answer<'a> {
    run: &'a str,
    field: &'a str,
    points: Vec<Xy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    smoothed: Vec<Xy>,
}

/// The drawn curves.
#[derive(Serialize)]
struct Answers<'a> {
    version: u64,
    curves: Vec<Answer<'a>>,
}

async fn curves(
    State(server): State<Arc<Server>>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query::parse(&query.unwrap_or_default())?;
    with_table(server, move |shared, table| {
        let fields: BTreeSet<&str> = query.fields.iter().map(String::as_str).collect();
        let mut found: Vec<(&str, &str, &Curve)> = Vec::new();
        let all = table.runs.iter().map(|run| run.row.run.as_str());
        let asked = query.runs.iter().map(String::as_str);
        let names: Vec<&str> = match query.runs.is_empty() {
            true => all.collect(),
            false => asked.collect(),
        };
        for name in names {
            let run = table.run(name).ok_or_else(|| {
                let message = format!("run: found {name:?}, want a run of /api/runs");
                ApiError::new(StatusCode::NOT_FOUND, message)
            })?;
            let is_asked = |field: &str| fields.is_empty() || fields.contains(field);
            for field in run.curves.names().filter(|field| is_asked(field)) {
                let curve = run.curves.get(field);
                found.extend(curve.map(|curve| (run.row.run.as_str(), field, curve)));
            }
        }
        let points = found.iter().map(|(_, _, curve)| curve.most(&query.window));
        expect_few(points.sum())?;
        let answers: Vec<Answer<'_>> = (found.into_iter())
            .map(|(run, field, curve)| {
                let drawn = curve.draw(&query.window);
                Answer {
                    run,
                    field,
                    points: drawn.points,
                    smoothed: drawn.smoothed,
                }
            })
            .collect();
        Ok(text_of(&Answers {
            version: shared.version(),
            curves: answers,
        }))
    })
    .await
}

/// Refuses an answer of too many points before any curve is drawn.
fn expect_few(points: usize) -> Result<(), ApiError> {
    if points <= MOST_POINTS {
        return Ok(());
    }
    let message = format!(
        "found {} points in the curves, want at most {}: ask for fewer runs, fields or points",
        grouped(points as u64),
        grouped(MOST_POINTS as u64)
    );
    Err(ApiError::new(StatusCode::BAD_REQUEST, message))
}

/// An answer of the table, made beside the connections, since long curves take some time.
async fn with_table(
    server: Arc<Server>,
    make: impl FnOnce(&Shared, &Table) -> Result<String, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let failed = |message: &str| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
    if server.reading.is_alive.strong_count() == 0 {
        return Err(failed("the runs are read no more; the log has the cause"));
    }
    let made = tokio::task::spawn_blocking(move || {
        let shared = &server.reading.shared;
        make(shared, &shared.table())
    });
    let made = made.await;
    let text =
        made.map_err(|_| failed("the server failed at this request; its log has the cause"))??;
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// JSON, in which a number that is not finite is null.
fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// An event `{"version": N}` at once and after each change, until the client leaves or the server ends.
async fn events(State(server): State<Arc<Server>>) -> Response {
    let mut changes = server.reading.shared.changes();
    changes.mark_changed();
    let stream = futures_util::stream::unfold((server, changes), |(server, mut changes)| async {
        let text = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => format!("data: {}\n\n", json!({"version": *changes.borrow_and_update()})),
                Err(_) => return None,
            },
            () = sleep(IDLE) => ": nothing is new\n\n".to_owned(),
            () = server.admission.draining() => return None,
        };
        Some((Ok::<Bytes, Infallible>(text.into()), (server, changes)))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_too_many_points_is_refused_with_their_number() {
        assert!(expect_few(MOST_POINTS).is_ok());
        let error = format!("{:?}", expect_few(MOST_POINTS + 1).unwrap_err());
        assert!(error.contains("4,000,001"), "{error}");
        assert!(error.contains("4,000,000"), "{error}");
    }

    #[test]
    fn the_page_has_no_outside_resources_and_writes_names_as_text_alone() {
        for outside in [
            "http://",
            "https://",
            "src=",
            "@import",
            "stylesheet",
            "url(",
        ] {
            // the namespace of SVG is a name, not an address; the page refers to its own parts by #
            let page = PAGE
                .replace("http://www.w3.org/2000/svg", "")
                .replace("url(#", "");
            assert!(!page.contains(outside), "{outside}");
        }
        for unsafe_way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
        ] {
            assert!(!PAGE.contains(unsafe_way), "{unsafe_way}");
        }
    }
}

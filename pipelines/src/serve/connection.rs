//! Connections of `serve` and `watch`, and the end of the server.

use super::admission::Admission;
use axum::Router;
use http_connections::connection;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for connections to end after the last answer.
const CLOSING: Duration = Duration::from_secs(2);

/// Name and times of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Verb, for the log.
    pub(crate) verb: &'static str,
    /// Time to send headers, or to take a part of an answer.
    pub(crate) read: Duration,
    /// Time for running requests after a signal.
    pub(crate) drain: Duration,
}

/// The end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Number of the signal.
    pub(crate) signal: u8,
    /// Requests that were cut off.
    pub(crate) cut: usize,
}

/// Serves until SIGTERM or SIGINT, then until the last request is answered, `drain` has passed, or a second signal comes. Requests
/// that still run are cut off by `cut_off`, which gives them an answer.
///
/// # Errors
/// Signals that cannot be listened to.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    admission: Arc<Admission>,
    times: Times,
    cut_off: impl FnOnce(),
) -> anyhow::Result<Ended> {
    let Times { verb, read, drain } = times;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut number = None;
    let until = sleep(Duration::MAX);
    tokio::pin!(until);
    loop {
        let is_draining = number.is_some();
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // a client waits for each token
                    let _ = stream.set_nodelay(true);
                    connections.spawn(connection(stream, router.clone(), read, stopping.clone()));
                }
                Err(e) => {
                    log!("{verb}: no connection: {e}");
                    // as with too many open files, which pass
                    sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = terminate.recv() => if number.replace(15).is_some() { break },
            _ = interrupt.recv() => if number.replace(2).is_some() { break },
            () = admission.emptied(), if is_draining => break,
            () = &mut until, if is_draining => break,
        }
        if number.is_some() && !is_draining {
            admission.drain();
            match admission.in_progress() {
                0 => log!("{verb}: shutting down"),
                running => {
                    let seconds = drain.as_secs_f64();
                    log!("{verb}: shutting down; {running} requests have {seconds} s to finish");
                }
            }
            until.as_mut().reset(tokio::time::Instant::now() + drain);
        }
    }
    drop(listener);
    let cut = admission.in_progress();
    if cut > 0 {
        cut_off();
    }
    // the receivers may all be gone
    let _ = stop.send(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // what is left then has nothing to say
    let _ = timeout(CLOSING, all).await;
    connections.shutdown().await;
    let signal = number.unwrap_or(15);
    Ok(Ended { signal, cut })
}

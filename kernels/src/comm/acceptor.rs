//! Acceptor: accepts connections on one thread and authenticates each on another, so that slow, silent or strange
//! callers delay nobody, and only those that know the secret get through. The number of concurrent handshakes is
//! limited; further callers wait in the system's queue.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::secret::{Secret, admit};

/// Concurrent handshakes.
const MOST_HEARD: usize = 64;
/// Polling interval for callers.
const PAUSE: Duration = Duration::from_millis(20);

/// A caller that knows the secret.
pub(super) struct Admitted {
    pub stream: TcpStream,
    pub from: SocketAddr,
    pub words: String,
}

/// State shared by the threads.
struct State {
    secret: Secret,
    is_closed: AtomicBool,
    heard: AtomicUsize,
    refused: AtomicUsize,
}

/// A listener that is being served. Dropping it closes it.
pub(super) struct Acceptor {
    state: Arc<State>,
    callers: Receiver<Admitted>,
    keeper: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Serves a listener.
    pub(super) fn open(listener: TcpListener, secret: Secret) -> io::Result<Acceptor> {
        listener.set_nonblocking(true)?;
        let state = Arc::new(State {
            secret,
            is_closed: AtomicBool::new(false),
            heard: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let (inside, callers) = channel();
        let keeper = thread::Builder::new().name("callers".into());
        let of_keeper = Arc::clone(&state);
        let keeper = keeper.spawn(move || keep(&listener, &of_keeper, &inside))?;
        Ok(Acceptor {
            state,
            callers,
            keeper: Some(keeper),
        })
    }

    /// The next caller who knows the secret; None if none comes until then.
    pub(super) fn next(&self, until: Instant) -> Option<Admitted> {
        let left = until.saturating_duration_since(Instant::now());
        match self.callers.recv_timeout(left) {
            Ok(caller) => Some(caller),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // it cannot listen any more, so no caller will come
                thread::sleep(left);
                None
            }
        }
    }

    /// Callers that did not know the secret.
    pub(super) fn refused(&self) -> usize {
        self.state.refused.load(Ordering::SeqCst)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

fn keep(listener: &TcpListener, state: &Arc<State>, inside: &Sender<Admitted>) {
    while !state.is_closed.load(Ordering::SeqCst) {
        if state.heard.load(Ordering::SeqCst) >= MOST_HEARD {
            thread::sleep(PAUSE);
            continue;
        }
        match listener.accept() {
            Ok((stream, from)) => {
                state.heard.fetch_add(1, Ordering::SeqCst);
                let (of_caller, inside) = (Arc::clone(state), inside.clone());
                let hearing = thread::Builder::new().name("caller".into());
                // one that ends with its handshake, at the latest when that takes too long
                let heard = hearing.spawn(move || hear(stream, from, &of_caller, &inside));
                if heard.is_err() {
                    state.heard.fetch_sub(1, Ordering::SeqCst);
                }
            }
            // no caller, one that gave up while waiting, or too many open files until some are closed
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn hear(mut stream: TcpStream, from: SocketAddr, state: &State, inside: &Sender<Admitted>) {
    let admitted = stream
        .set_nonblocking(false)
        .and_then(|()| admit(&mut stream, &state.secret));
    match admitted {
        Ok(Some(words)) => {
            // if the listener has been closed by now, the caller sees its connection end
            let _ = inside.send(Admitted {
                stream,
                from,
                words,
            });
        }
        Ok(None) | Err(_) => {
            state.refused.fetch_add(1, Ordering::SeqCst);
        }
    }
    state.heard.fetch_sub(1, Ordering::SeqCst);
}

//! A server in this process.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Answers connections, each on a thread of its own, until the test ends; returns `HOST:PORT`.
pub(crate) fn listen(
    answer: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // a client that disconnects early is not a failure of the test
            std::thread::spawn(move || answer(stream).ok());
        }
    });
    address
}

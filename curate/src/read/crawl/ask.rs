//! Requests to an index server, one after the other, with a pause between them.
//!
//! A server that is busy (429, or 500 and above), a connection that fails and an answer that breaks off are asked again, after
//! pauses that double, and no earlier than the server's `Retry-After` says.

use std::time::{Duration, Instant};

use crate::read::storage::{LONGEST_PAUSE, USER_AGENT, pause_of};

/// Attempts for each request.
const MOST_ATTEMPTS: u32 = 8;
/// A connection that is not made in this time counts as failed.
const CONNECT: Duration = Duration::from_secs(30);
/// A server that sends nothing for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(120);

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

/// A client that waits between its requests.
pub(super) struct Asker {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    pause: Duration,
    /// No request is made before.
    next: Instant,
}

/// An attempt without an answer to hand on.
struct Refused {
    why: String,
    /// Pause that the server asks for.
    pause: Option<Duration>,
}

impl Asker {
    pub(super) fn new(pause: Duration) -> Result<Asker, String> {
        // Another part of the program may have chosen one already: that one serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .build();
        Ok(Asker {
            runtime: runtime.map_err(|e| e.to_string())?,
            client: client.map_err(|e| e.to_string())?,
            pause,
            next: Instant::now(),
        })
    }

    /// The answer to a request, whatever its status, unless the server is busy.
    ///
    /// # Errors
    /// A server that stays busy or that cannot be reached, with the URL, the last answer and what to do.
    pub(super) fn get(&mut self, url: &str) -> Result<Answer, String> {
        let mut growing = self.pause;
        let mut attempt = 1;
        loop {
            std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
            let answer = self.runtime.block_on(once(&self.client, url));
            self.next = Instant::now() + self.pause;
            let refused = match answer {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            if attempt == MOST_ATTEMPTS {
                return Err(format!(
                    "{url}: {} after {MOST_ATTEMPTS} attempts; run the same command again later, or with a longer pause=SECONDS",
                    refused.why
                ));
            }
            attempt += 1;
            growing = (growing * 2).min(LONGEST_PAUSE).max(self.pause);
            self.next = Instant::now() + growing.max(refused.pause.unwrap_or_default());
        }
    }
}

async fn once(client: &reqwest::Client, url: &str) -> Result<Answer, Refused> {
    let failed = |e: reqwest::Error| {
        let mut why = e.to_string();
        let mut cause = std::error::Error::source(&e);
        while let Some(inner) = cause {
            why += &format!(": {inner}");
            cause = inner.source();
        }
        Refused { why, pause: None }
    };
    let answer = client.get(url).send().await;
    let answer = answer.map_err(|e| failed(e.without_url()))?;
    let status = answer.status();
    if status.is_server_error() || status.as_u16() == 429 {
        let value = answer.headers().get("retry-after");
        let pause = value.and_then(|value| value.to_str().ok().and_then(pause_of));
        return Err(Refused {
            why: format!("the server answers {status}"),
            pause,
        });
    }
    let text = answer.text().await;
    Ok(Answer {
        status: status.as_u16(),
        text: text.map_err(|e| failed(e.without_url()))?,
    })
}

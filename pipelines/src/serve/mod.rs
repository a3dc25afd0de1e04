//! `serve`: a model over HTTP, to clients of OpenAI's interface (as vLLM serves it), of Megatron-LM's text generation server, and to
//! people (a page). The reference is `docs/serving.md`.
//!
//! One thread owns the engine (`engine_thread`). The front is a small asynchronous runtime on the main thread: connections
//! (`connection`), routes (`routes`), a file for each protocol. A request's sequences are a `group`, which leaves the engine
//! when it is dropped, so a client that leaves costs nothing more.

mod adapter_routes;
mod adapters;
mod admission;
mod allowed_hosts;
mod answer;
mod answers;
mod chat;
mod completions;
mod connection;
mod engine_thread;
mod error;
mod fields;
mod group;
mod logprobs;
mod megatron;
mod metrics;
mod openai;
mod options;
mod request_log;
mod routes;
mod sampling;
mod sse;
mod state;
mod texts;
mod tokens;

pub(crate) use admission::Admission;
pub(crate) use allowed_hosts::{AllowedHosts, host_is_allowed};
pub(crate) use connection::{Times, serve as serve_connections};
pub(crate) use error::ApiError;
pub(crate) use options::{Problems, Serve, WrongFlags};
pub(crate) use routes::{html, unknown, wrong_method};

use crate::generation::{Located, ModelFiles};
use crate::machine::write_atomically;
use crate::signals::Interrupted;
use adapters::Adapters;
use anyhow::{Context as _, Result, bail};
use engine_thread::EngineHandle;
use metrics::Metrics;
use options::Settings;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use state::Server;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use texts::TokenTexts;
use train::infer::engine::{Engine, Limits};

/// The verb. It ends after SIGTERM or SIGINT.
///
/// # Errors
/// Wrong flags, an address in use, a model that cannot be opened; `Interrupted` if requests were cut off.
pub(crate) fn serve(args: &Serve) -> Result<()> {
    let settings = args.settings()?;
    let keys = args.keys(std::env::var("MILLRACE_API_KEY").ok())?;
    if args.allow_adapter_loading && keys.is_empty() && !settings.address.ip().is_loopback() {
        bail!(
            "--allow-adapter-loading: found no key for clients of {}, want --api-key-file, or --host 127.0.0.1",
            settings.address
        );
    }
    let listener = TcpListener::bind(settings.address)
        .with_context(|| format!("cannot listen on {}", settings.address))?;
    let server = open(args, &settings, keys)?;
    listener.set_nonblocking(true)?;
    yield_to_ranks();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        adapter_routes::load_all(&server, &args.adapters).await?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        if let Some(file) = &args.port_file {
            write_atomically(file, format!("{}\n", address.port()).as_bytes())?;
        }
        log!("serve: {:?} on http://{address}", server.name);
        let router = routes::router(&server, settings.hosts.clone());
        let admission = Arc::clone(&server.admission);
        connection::serve(
            listener,
            router,
            admission,
            Times {
                verb: "serve",
                read: settings.requests.read,
                drain: settings.drain,
            },
            || server.engine.end(),
        )
        .await
    })?;
    match ended.cut {
        0 => Ok(()),
        cut => {
            log!("serve: {cut} requests were cut off");
            Err(Interrupted {
                signal: ended.signal,
            }
            .into())
        }
    }
}

/// Priority of this thread below that of the ranks, as `nice` counts.
const NICE: i32 = 5;

/// Lets the ranks' threads, which are older, go first on a processor that all of its threads use: they wait for one another after
/// every product, so that one that is put aside for a token's text holds up all. It gave 16 streams on two cores a twentieth.
fn yield_to_ranks() {
    // a system that refuses runs as well, somewhat slower
    let _ = setpriority_process(Some(gettid()), NICE);
}

/// Opens the model and everything around it.
fn open(args: &Serve, settings: &Settings, keys: Vec<String>) -> Result<Arc<Server>> {
    let found = Located::find(&args.path, &args.set, args.tokenizer.as_deref(), "serve")?;
    let files = ModelFiles::read(found, args.chat_template.as_deref())?;
    let rows = Arc::new(OnceLock::<prometheus::Histogram>::new());
    let seen = Arc::clone(&rows);
    let engine = EngineHandle::start(opening(&files, settings, args), move |rows| {
        if let Some(histogram) = seen.get() {
            histogram.observe(rows as f64);
        }
    })?;
    if files.tokenizer.vocab() > engine.facts.vocab {
        bail!(
            "{}: found {} entries, want at most the model's {}",
            files.tokenizer.path().display(),
            files.tokenizer.vocab(),
            engine.facts.vocab
        );
    }
    let name = args
        .model_name
        .clone()
        .unwrap_or_else(|| files.name.clone());
    let metrics = Metrics::new(&name, engine.facts.max_length)?;
    metrics.show_cache(&engine.facts, &engine.counts())?;
    // nobody else sets it
    let _ = rows.set(metrics.batch_tokens.clone());
    Ok(Arc::new(Server {
        name,
        texts: TokenTexts::new(&files.tokenizer),
        files,
        engine,
        adapters: Adapters::new(args.allow_adapter_loading),
        metrics,
        admission: Admission::new(settings.most),
        limits: settings.requests,
        keys,
        created: openai::now(),
    }))
}

/// Opens the engine on its own thread.
fn opening(
    files: &ModelFiles,
    settings: &Settings,
    args: &Serve,
) -> impl FnOnce() -> Result<Engine> + Send + 'static {
    let (path, devices) = (files.path.clone(), files.devices.clone());
    let (limits, ranks) = (settings.engine.clone(), settings.ranks);
    let (draft, has_adapters) = (args.draft_model.clone(), args.has_adapters());
    let dtype = args.dtype;
    move || {
        let on = dtype.on(devices.split(ranks));
        let guesses = Limits {
            draft_tokens: 0,
            ..limits.clone()
        };
        let engine = match has_adapters {
            true => Engine::open_for_adapters(&path, on, limits)?,
            false => Engine::open(&path, on, limits)?,
        };
        dtype.expect(engine.rounds_activations())?;
        match draft {
            Some(draft) => Ok(engine.with_draft(Engine::open(&draft, on, guesses)?)?),
            None => Ok(engine),
        }
    }
}

//! `watch`: a page with the live curves of runs, several of them over each other. The reference is `docs/watch.md`.
//!
//! One thread reads the files of the runs every second (`collect`): `metrics.jsonl` from where it stopped, the rest when it has
//! changed. It takes no lock and writes nothing. Curves are held in bounded memory (`curve`); the routes draw the part of them
//! that a page shows.

mod clock;
mod collect;
mod curation;
mod curve;
mod curves;
mod find;
mod query;
mod routes;
mod state;

use crate::log::print;
use crate::machine::write_atomically;
use crate::serve::{Admission, AllowedHosts, Problems, Times, serve_connections};
use anyhow::{Result, anyhow};
use clap::Args;
use collect::Reading;
use routes::Server;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time for a client to send its headers, or to take a part of an answer.
const READ: Duration = Duration::from_secs(30);

/// Flags of `watch`.
#[derive(Args)]
pub(crate) struct Watch {
    /// Folders that jobs write, folders that hold several, or job files (TOML); a run that has not begun is waited for.
    #[arg(required = true, value_name = "OUT")]
    paths: Vec<PathBuf>,
    /// Address to listen on; 0.0.0.0: all of this machine's.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0: any that is free.
    #[arg(long, value_name = "PORT", default_value = "8090")]
    port: String,
    /// Host that requests may name beside localhost and the address, such as a proxy's. Repeat for more. Without it a server on
    /// another address than a loopback one answers for every host.
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Write the port here once the page is served.
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    /// Print the table of runs as JSON, and stop.
    #[arg(long)]
    once: bool,
}

/// The verb. It ends after SIGTERM or SIGINT.
///
/// # Errors
/// Wrong flags, paths that can never be runs, an address in use.
pub(crate) fn watch(args: &Watch) -> Result<()> {
    let mut problems = Problems::default();
    let hosts = problems.hosts(&args.allowed_hosts);
    let Some(address) = problems.address(&args.host, &args.port) else {
        return Err(problems.into_error().into());
    };
    if problems.is_any() {
        return Err(problems.into_error().into());
    }
    let given = find::given(&args.paths)?;
    if args.once {
        let rows = collect::rows(given);
        return print(&format!("{}\n", serde_json::json!({"runs": rows})));
    }
    let listener = TcpListener::bind(address).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => anyhow!(
            "cannot listen on {address}: another program has the port; --port 0 takes any that is free"
        ),
        _ => anyhow!("cannot listen on {address}: {e}"),
    })?;
    let reading = Reading::start(given)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        if let Some(file) = &args.port_file {
            write_atomically(file, format!("{}\n", address.port()).as_bytes())?;
        }
        match reading.shared.table().runs.len() {
            1 => log!("watch: 1 run on http://{address}"),
            runs => log!("watch: {runs} runs on http://{address}"),
        }
        // nobody waits for a place: the streams of events end with the server
        let admission = Admission::new(0);
        let server = Arc::new(Server {
            reading,
            admission: Arc::clone(&admission),
        });
        let times = Times {
            verb: "watch",
            read: READ,
            drain: Duration::ZERO,
        };
        let hosts = AllowedHosts::new(address.ip(), hosts);
        let router = routes::router(&server, hosts);
        serve_connections(listener, router, admission, times, || {}).await
    })?;
    Ok(())
}

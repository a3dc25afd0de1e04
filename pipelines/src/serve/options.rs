//! Flags of `serve`. Numbers are checked together, so that all that are wrong are reported at once.

use super::adapters::NamedAdapter;
use super::allowed_hosts::{AllowedHosts, Host};
use super::state;
use crate::generation::Dtype;
use anyhow::Context as _;
use clap::Args;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use train::infer::engine::Limits;

/// Serve a model over HTTP: OpenAI's completions and chat, Megatron-LM's `/api`, and a page to talk to it.
#[derive(Args)]
pub(crate) struct Serve {
    /// Checkpoint, folder of checkpoints, Hugging Face folder, or job file (TOML).
    pub(super) path: PathBuf,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Address to listen on; 0.0.0.0: all of this machine's.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0: any that is free.
    #[arg(long, value_name = "PORT", default_value = "8000")]
    port: String,
    /// Host that requests may name beside localhost and the address, such as a proxy's. Repeat for more. Without it a server on
    /// another address than a loopback one answers for every host.
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Write the port here once the server listens.
    #[arg(long, value_name = "FILE")]
    pub(super) port_file: Option<PathBuf>,
    /// Name by which clients ask for the model. Default: the job's name, or the folder's.
    #[arg(long, value_name = "NAME")]
    pub(super) model_name: Option<String>,
    /// Tokenizer. Default: the job's, or the one in or above the folder.
    #[arg(long, value_name = "FILE")]
    pub(super) tokenizer: Option<PathBuf>,
    /// Chat template (Jinja). Default: the one beside the tokenizer.
    #[arg(long, value_name = "FILE")]
    pub(super) chat_template: Option<PathBuf>,
    /// File with keys, one per line, of which clients need one. Default: the environment's MILLRACE_API_KEY, or none.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Ranks that share the model, each with its own device or share of the threads (tensor parallelism).
    #[arg(long, value_name = "N", default_value = "1")]
    tensor_parallel_size: String,
    /// Number format of the model's products; bfloat16 takes half the memory of f32 weights, and is faster for prompts on processors with
    /// AMX.
    #[arg(long, value_enum, value_name = "DTYPE", default_value_t = Dtype::Auto)]
    pub(super) dtype: Dtype,
    /// Sequences that run at once.
    #[arg(long, value_name = "N", default_value = "64")]
    max_sequences: String,
    /// Tokens of a batch.
    #[arg(long, value_name = "N", default_value = "512")]
    max_batch_tokens: String,
    /// Tokens that the key-value cache holds; 0: as many as 1 GiB holds.
    #[arg(long, value_name = "N", default_value = "0")]
    cache_tokens: String,
    /// Guesses per token (speculative decoding); 0: none.
    #[arg(long, value_name = "N", default_value = "0")]
    draft_tokens: String,
    /// Smaller model that guesses; without it guesses are looked up in the text.
    #[arg(long, value_name = "PATH")]
    pub(super) draft_model: Option<PathBuf>,
    /// Low-rank adapter that requests choose by NAME: a folder in PEFT's form, or a checkpoint trained with adapters. Repeat
    /// for more.
    #[arg(long = "adapter", value_name = "NAME=PATH")]
    pub(super) adapters: Vec<NamedAdapter>,
    /// Let clients load and unload adapters by paths of this machine.
    #[arg(long)]
    pub(super) allow_adapter_loading: bool,
    /// Adapters that are loaded at once, at most.
    #[arg(long, value_name = "N", default_value = "16")]
    max_adapters: String,
    /// Requests that wait beside those that run, at most.
    #[arg(long, value_name = "N", default_value = "256")]
    max_queue: String,
    /// Bytes of a request's body, at most.
    #[arg(long, value_name = "BYTES", default_value = "8388608")]
    max_body: String,
    /// Seconds for an answer.
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    timeout: String,
    /// Seconds for a client to send its headers, and again its body, or to take a part of an answer.
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    read_timeout: String,
    /// Seconds for running requests to finish after SIGTERM or SIGINT.
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain: String,
    /// Tokens of a request to /api: its longest text times its texts, at most.
    #[arg(long, value_name = "N", default_value = "12000")]
    api_max_tokens: String,
    /// Answer every refusal of /api with 400, where Megatron-LM answers 200 with a sentence.
    #[arg(long)]
    api_status_400: bool,
}

/// Checked settings.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) address: SocketAddr,
    /// Hosts that requests may name.
    pub(super) hosts: AllowedHosts,
    pub(super) engine: Limits,
    /// Tensor-parallel ranks.
    pub(super) ranks: usize,
    pub(super) requests: state::Limits,
    /// Requests in progress at most.
    pub(super) most: usize,
    pub(super) drain: Duration,
}

/// Wrong values of flags.
#[derive(Debug, thiserror::Error)]
#[error("{} wrong value{}\n{}", .0.len(), if .0.len() == 1 { "" } else { "s" }, .0.join("\n"))]
pub(crate) struct WrongFlags(Vec<String>);

/// Reads values of flags and keeps what is wrong.
#[derive(Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    /// The address to listen on; none if a part of it is wrong.
    pub(crate) fn address(&mut self, host: &str, port: &str) -> Option<SocketAddr> {
        let port = self.number("--port", port, [0, 65_535]);
        let port = u16::try_from(port).unwrap_or(0);
        let address = address(host, port);
        if address.is_none() {
            self.0.push(format!(
                "  --host: found {host:?}, want an address of this machine"
            ));
        }
        address
    }

    /// The hosts that `--allowed-host` gives, without those that are wrong.
    pub(crate) fn hosts(&mut self, given: &[String]) -> Vec<Host> {
        let hosts = given.iter().filter_map(|text| {
            let host = Host::of_flag(text);
            if host.is_none() {
                self.0.push(format!(
                    "  --allowed-host: found {text:?}, want a name or an address without a port"
                ));
            }
            host
        });
        hosts.collect()
    }

    /// Whether a value was wrong.
    pub(crate) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The problems as an error.
    pub(crate) fn into_error(self) -> WrongFlags {
        WrongFlags(self.0)
    }

    fn number(&mut self, flag: &str, text: &str, [least, most]: [u64; 2]) -> u64 {
        match text.trim().parse::<u64>() {
            Ok(found) if (least..=most).contains(&found) => found,
            _ => {
                let wanted = match most {
                    MOST => format!("an integer, {least} or more"),
                    _ => format!("an integer, {least} to {most}"),
                };
                self.0
                    .push(format!("  {flag}: found {text:?}, want {wanted}"));
                least
            }
        }
    }

    fn count(&mut self, flag: &str, text: &str, least: u64) -> usize {
        usize::try_from(self.number(flag, text, [least, MOST])).unwrap_or(usize::MAX)
    }

    fn seconds(&mut self, flag: &str, text: &str, least: f64) -> Duration {
        let found = text.trim().parse::<f64>().ok();
        let found = found.filter(|seconds| *seconds >= least && *seconds > 0.0 || least == 0.0);
        match found.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            // a century is forever, and no clock overflows
            Some(found) => found.min(Duration::from_secs(3_155_760_000)),
            None => {
                let wanted = if least == 0.0 { "0 or more" } else { "above 0" };
                self.0
                    .push(format!("  {flag}: found {text:?}, want seconds, {wanted}"));
                Duration::from_secs(1)
            }
        }
    }
}

/// No limit.
const MOST: u64 = u64::MAX >> 16;

impl Serve {
    /// Names that are given twice, and adapters beyond the limit.
    fn check_adapters(&self, most: usize, problems: &mut Problems) {
        let mut names = BTreeSet::new();
        for NamedAdapter { name, .. } in &self.adapters {
            if !names.insert(name) || self.model_name.as_ref() == Some(name) {
                problems.0.push(format!(
                    "  --adapter: found the name {name:?} twice, want a name for each model"
                ));
            }
        }
        if self.adapters.len() > most {
            let found = self.adapters.len();
            problems.0.push(format!(
                "  --adapter: found {found}, want at most {most} (--max-adapters)"
            ));
        }
    }

    /// Whether adapters stand beside the model.
    pub(super) fn has_adapters(&self) -> bool {
        !self.adapters.is_empty() || self.allow_adapter_loading
    }

    /// All flags, checked.
    ///
    /// # Errors
    /// `WrongFlags` with every wrong value.
    pub(super) fn settings(&self) -> Result<Settings, WrongFlags> {
        let mut problems = Problems::default();
        let address = problems.address(&self.host, &self.port);
        let hosts = problems.hosts(&self.allowed_hosts);
        let flag = "--tensor-parallel-size";
        let ranks = problems.count(flag, &self.tensor_parallel_size, 1);
        let engine = Limits {
            max_sequences: problems.count("--max-sequences", &self.max_sequences, 1),
            max_batch_tokens: problems.count("--max-batch-tokens", &self.max_batch_tokens, 1),
            cache_tokens: problems.count("--cache-tokens", &self.cache_tokens, 0),
            draft_tokens: problems.count("--draft-tokens", &self.draft_tokens, 0),
            max_adapters: problems.count("--max-adapters", &self.max_adapters, 1),
        };
        let queue = problems.count("--max-queue", &self.max_queue, 0);
        let requests = state::Limits {
            body: problems.count("--max-body", &self.max_body, 1),
            read: problems.seconds("--read-timeout", &self.read_timeout, 1e-3),
            answer: problems.seconds("--timeout", &self.timeout, 1e-3),
            megatron_tokens: problems.count("--api-max-tokens", &self.api_max_tokens, 1),
            megatron_400: self.api_status_400,
        };
        let drain = problems.seconds("--drain", &self.drain, 0.0);
        self.check_adapters(engine.max_adapters, &mut problems);
        let name = self.model_name.as_deref();
        if name.is_some_and(|name| name.trim().is_empty()) {
            problems
                .0
                .push("  --model-name: found an empty name".into());
        }
        if self.draft_model.is_some() && engine.draft_tokens == 0 {
            problems
                .0
                .push("  --draft-tokens: found 0, want 1 or more with --draft-model".into());
        }
        match address {
            Some(address) if problems.0.is_empty() => Ok(Settings {
                address,
                hosts: AllowedHosts::new(address.ip(), hosts),
                most: engine.max_sequences.saturating_add(queue),
                engine,
                ranks,
                requests,
                drain,
            }),
            _ => Err(problems.into_error()),
        }
    }

    /// Keys of clients.
    ///
    /// # Errors
    /// A file that cannot be read or has no key.
    pub(super) fn keys(&self, environment: Option<String>) -> anyhow::Result<Vec<String>> {
        if let Some(path) = &self.api_key_file {
            return keys_in(path);
        }
        let key = environment.map(|key| key.trim().to_owned());
        Ok(key.into_iter().filter(|key| !key.is_empty()).collect())
    }
}

fn keys_in(path: &Path) -> anyhow::Result<Vec<String>> {
    let of = || format!("--api-key-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(of)?;
    let keys = text.lines().map(str::trim).filter(|key| !key.is_empty());
    let keys: Vec<String> = keys.map(str::to_owned).collect();
    anyhow::ensure!(
        !keys.is_empty(),
        "{}: found no key, want one per line",
        of()
    );
    Ok(keys)
}

fn address(host: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(host) = host.parse::<IpAddr>() {
        return Some(SocketAddr::new(host, port));
    }
    (host, port).to_socket_addrs().ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: Serve,
    }

    fn parse(args: &[&str]) -> Serve {
        Line::parse_from([&["serve", "model"], args].concat()).serve
    }

    #[test]
    fn all_wrong_values_are_reported_at_once() {
        let args = [
            "--port",
            "70000",
            "--host",
            "no such host",
            "--allowed-host",
            "models.example:443",
            "--tensor-parallel-size",
            "0",
            "--max-sequences",
            "0",
            "--max-batch-tokens",
            "x",
            "--cache-tokens",
            "-1",
            "--draft-tokens",
            "1.5",
            "--max-queue",
            "",
            "--max-body",
            "0",
            "--timeout",
            "nan",
            "--read-timeout",
            "0",
            "--drain",
            "-1",
            "--api-max-tokens",
            "0",
            "--max-adapters",
            "0",
            "--model-name",
            " ",
        ];
        // clap itself takes no value that begins with a hyphen, unless it is behind an equals sign
        let joined: Vec<String> = args.chunks(2).map(|pair| pair.join("=")).collect();
        let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
        let message = parse(&joined).settings().unwrap_err().to_string();
        assert!(message.starts_with("16 wrong values"), "{message}");
        for flag in args.chunks(2).map(|pair| pair[0]) {
            assert!(
                message.contains(&format!("{flag}: found")),
                "{flag}: {message}"
            );
        }
        assert!(parse(&["--draft-model", "x"]).settings().is_err());
        let twice = [
            "--adapter",
            "a=x",
            "--adapter",
            "a=y",
            "--max-adapters",
            "1",
        ];
        let message = parse(&twice).settings().unwrap_err().to_string();
        assert!(message.starts_with("2 wrong values"), "{message}");
        let own = ["--adapter", "a=x", "--model-name", "a"];
        assert!(parse(&own).settings().is_err());
    }

    #[test]
    fn defaults_are_right() {
        let settings = parse(&[]).settings().unwrap();
        assert_eq!(settings.address.to_string(), "127.0.0.1:8000");
        assert_eq!((settings.most, settings.engine), (320, Limits::default()));
        assert_eq!(
            parse(&["--drain", "0"]).settings().unwrap().drain,
            Duration::ZERO
        );
        let settings = parse(&["--host", "::1", "--port", "0"]).settings().unwrap();
        assert_eq!(settings.address.to_string(), "[::1]:0");
    }

    #[test]
    fn keys_come_from_a_file_or_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "a\n\n b \n").unwrap();
        let name = path.display().to_string();
        let keys = |args: &[&str], of: Option<&str>| parse(args).keys(of.map(str::to_owned));
        assert_eq!(
            keys(&["--api-key-file", &name], Some("c")).unwrap(),
            ["a", "b"]
        );
        assert_eq!(keys(&[], Some("c")).unwrap(), ["c"]);
        assert!(keys(&[], None).unwrap().is_empty() && keys(&[], Some("")).unwrap().is_empty());
        std::fs::write(&path, "\n").unwrap();
        assert!(keys(&["--api-key-file", &name], None).is_err());
    }
}

//! `/metrics` in Prometheus' text form, under vLLM's names (`vllm/v1/metrics/loggers.py`, 0.10 and 0.33): dashboards and load
//! tools made for vLLM read them. Times are those of the engine thread.

use super::engine_thread::Facts;
use anyhow::Result;
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use std::collections::HashMap;
use std::time::Instant;
use train::infer::engine::Counts;

/// Seconds to the first token.
const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];

/// Seconds between two tokens.
const PER_TOKEN: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

/// Seconds of a request.
const REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// Tokens of a batch.
const BATCH: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];

/// Answers per prompt.
const ANSWERS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

/// Reads a total of the engine.
type Total = fn(&Counts) -> u64;

/// Everything that is counted.
pub(super) struct Metrics {
    registry: Registry,
    running: IntGauge,
    waiting: IntGauge,
    cache_usage: Gauge,
    /// Totals of the engine.
    totals: Vec<(IntCounter, Total)>,
    finished: IntCounterVec,
    prompt_tokens: Histogram,
    generated_tokens: Histogram,
    /// Rows of each batch; the engine thread observes them.
    pub(super) batch_tokens: Histogram,
    most_tokens: Histogram,
    n: Histogram,
    max_tokens: Histogram,
    first_token: Histogram,
    between_tokens: Histogram,
    per_token: Histogram,
    whole: Histogram,
    queue: Histogram,
    inference: Histogram,
    prefill: Histogram,
    decode: Histogram,
}

impl Metrics {
    /// Registers everything under a model's name.
    ///
    /// # Errors
    /// Names that the library refuses.
    pub(super) fn new(model: &str, max_length: usize) -> Result<Metrics> {
        let labels = [("model_name", model), ("engine", "0")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels = HashMap::from(labels);
        let registry = Registry::new_custom(None, Some(labels))?;
        let histogram = |name: &str, help: &str, buckets: &[f64]| -> Result<Histogram> {
            let options = HistogramOpts::new(format!("vllm:{name}"), help);
            let made = Histogram::with_opts(options.buckets(buckets.to_vec()))?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge> {
            let made = IntGauge::new(format!("vllm:{name}"), help)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let counts: [(&str, &str, Total); 6] = [
            (
                "prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache.",
                |c| c.prompt_tokens,
            ),
            (
                "prefix_cache_hits",
                "Prompt tokens found in the prefix cache.",
                |c| c.cached_tokens,
            ),
            (
                "num_preemptions",
                "Requests that had to let their cache go.",
                |c| c.preemptions,
            ),
            (
                "prompt_tokens",
                "Prompt tokens of requests that started.",
                |c| c.prompt_tokens,
            ),
            (
                "prompt_tokens_cached",
                "Prompt tokens that were not computed.",
                |c| c.cached_tokens,
            ),
            ("generation_tokens", "Tokens generated.", |c| {
                c.generated_tokens
            }),
        ];
        let mut totals = Vec::new();
        for (name, help, of) in counts {
            let counter = IntCounter::new(format!("vllm:{name}_total"), help)?;
            registry.register(Box::new(counter.clone()))?;
            totals.push((counter, of));
        }
        let cache_usage = Gauge::new(
            "vllm:kv_cache_usage_perc",
            "Share of the key-value cache that requests hold, 0 to 1.",
        )?;
        registry.register(Box::new(cache_usage.clone()))?;
        let finished = IntCounterVec::new(
            Opts::new(
                "vllm:request_success_total",
                "Answers by the reason of their end.",
            ),
            &["finished_reason"],
        )?;
        registry.register(Box::new(finished.clone()))?;
        let tokens = series(max_length);
        Ok(Metrics {
            running: gauge("num_requests_running", "Sequences that run.")?,
            waiting: gauge("num_requests_waiting", "Sequences that wait.")?,
            cache_usage,
            totals,
            finished,
            prompt_tokens: histogram("request_prompt_tokens", "Prompt tokens.", &tokens)?,
            generated_tokens: histogram(
                "request_generation_tokens",
                "Tokens of answers.",
                &tokens,
            )?,
            batch_tokens: histogram("iteration_tokens_total", "Tokens of a batch.", &BATCH)?,
            most_tokens: histogram(
                "request_max_num_generation_tokens",
                "Tokens of a request's longest answer.",
                &tokens,
            )?,
            n: histogram(
                "request_params_n",
                "Answers asked for per prompt.",
                &ANSWERS,
            )?,
            max_tokens: histogram(
                "request_params_max_tokens",
                "Most tokens asked for.",
                &tokens,
            )?,
            first_token: histogram(
                "time_to_first_token_seconds",
                "Arrival to first token.",
                &FIRST_TOKEN,
            )?,
            between_tokens: histogram(
                "inter_token_latency_seconds",
                "Token to token.",
                &PER_TOKEN,
            )?,
            per_token: histogram(
                "request_time_per_output_token_seconds",
                "Mean time per token after the first, by request.",
                &PER_TOKEN,
            )?,
            whole: histogram("e2e_request_latency_seconds", "Arrival to end.", &REQUEST)?,
            queue: histogram("request_queue_time_seconds", "Arrival to start.", &REQUEST)?,
            inference: histogram("request_inference_time_seconds", "Start to end.", &REQUEST)?,
            prefill: histogram(
                "request_prefill_time_seconds",
                "Start to first token.",
                &REQUEST,
            )?,
            decode: histogram(
                "request_decode_time_seconds",
                "First token to end.",
                &REQUEST,
            )?,
            registry,
        })
    }

    /// The limits of the cache as labels.
    ///
    /// # Errors
    /// Names that the library refuses.
    pub(super) fn show_cache(&self, facts: &Facts, counts: &Counts) -> Result<()> {
        let options = Opts::new("vllm:cache_config_info", "Settings of the key-value cache.");
        let options = options
            .const_label("block_size", "16")
            .const_label("num_gpu_blocks", counts.blocks.to_string())
            .const_label("max_model_len", facts.max_length.to_string());
        let gauge = IntGauge::with_opts(options)?;
        gauge.set(1);
        self.registry.register(Box::new(gauge))?;
        Ok(())
    }

    /// The page's text, with the engine's state.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn text(&self, counts: &Counts) -> Result<String> {
        let small = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.running.set(small(counts.running));
        self.waiting.set(small(counts.waiting));
        let usage = counts.blocks_held as f64 / counts.blocks.max(1) as f64;
        self.cache_usage.set(usage);
        for (counter, of) in &self.totals {
            counter.inc_by(of(counts).saturating_sub(counter.get()));
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8(text)?)
    }

    /// Settings of a request.
    pub(super) fn asked(&self, n: usize, max_tokens: usize) {
        self.n.observe(n as f64);
        self.max_tokens.observe(max_tokens as f64);
    }

    /// Tokens of a request's longest answer.
    pub(super) fn longest(&self, tokens: usize) {
        self.most_tokens.observe(tokens as f64);
    }
}

/// The times of one sequence.
pub(super) struct Clock {
    arrived: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    prompt_tokens: usize,
    pub(super) tokens: usize,
}

impl Clock {
    pub(super) fn new(prompt_tokens: usize) -> Clock {
        Clock {
            arrived: Instant::now(),
            started: None,
            first: None,
            last: None,
            prompt_tokens,
            tokens: 0,
        }
    }

    pub(super) fn start(&mut self, at: Instant) {
        self.started.get_or_insert(at);
    }

    pub(super) fn token(&mut self, at: Instant, metrics: &Metrics) {
        self.tokens += 1;
        match self.last.replace(at) {
            Some(last) => metrics.between_tokens.observe(seconds(last, at)),
            None => {
                self.first = Some(at);
                metrics.first_token.observe(seconds(self.arrived, at));
            }
        }
    }

    /// The end, with vLLM's reason: `stop`, `length`, `abort` or `error`.
    pub(super) fn end(&self, at: Instant, reason: &str, metrics: &Metrics) {
        metrics.finished.with_label_values(&[reason]).inc();
        if matches!(reason, "abort" | "error") {
            return;
        }
        metrics.prompt_tokens.observe(self.prompt_tokens as f64);
        metrics.generated_tokens.observe(self.tokens as f64);
        metrics.whole.observe(seconds(self.arrived, at));
        let started = self.started.unwrap_or(self.arrived);
        metrics.queue.observe(seconds(self.arrived, started));
        metrics.inference.observe(seconds(started, at));
        let first = self.first.unwrap_or(at);
        metrics.prefill.observe(seconds(started, first));
        let decode = seconds(first, at);
        metrics.decode.observe(decode);
        if self.tokens > 1 {
            metrics.per_token.observe(decode / (self.tokens - 1) as f64);
        }
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// 1, 2, 5, 10, 20, 50 and so on, up to `most`.
fn series(most: usize) -> Vec<f64> {
    let powers = std::iter::successors(Some(1_usize), |power| power.checked_mul(10));
    let values = powers.flat_map(|power| [1, 2, 5].map(|step| power.saturating_mul(step)));
    values
        .take_while(|value| *value <= most)
        .map(|value| value as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_buckets_and_totals_are_vllms() {
        let metrics = Metrics::new("tiny \"x\"", 100).unwrap();
        let counts = Counts {
            running: 2,
            blocks: 8,
            blocks_held: 2,
            prompt_tokens: 30,
            generated_tokens: 4,
            ..Counts::default()
        };
        let mut clock = Clock::new(30);
        let now = Instant::now();
        clock.start(now);
        clock.token(now, &metrics);
        clock.token(now, &metrics);
        clock.end(now, "stop", &metrics);
        metrics.text(&counts).unwrap();
        // totals are not added twice
        let text = metrics.text(&counts).unwrap();
        let labels = r#"{engine="0",model_name="tiny \"x\""}"#;
        for line in [
            format!("vllm:num_requests_running{labels} 2"),
            format!("vllm:kv_cache_usage_perc{labels} 0.25"),
            format!("vllm:prompt_tokens_total{labels} 30"),
            format!("vllm:generation_tokens_total{labels} 4"),
            format!("vllm:time_to_first_token_seconds_count{labels} 1"),
            format!("vllm:inter_token_latency_seconds_count{labels} 1"),
            "# TYPE vllm:prefix_cache_hits_total counter".to_owned(),
            "# TYPE vllm:iteration_tokens_total histogram".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains(r#"finished_reason="stop""#));
        assert!(text.contains(r#"vllm:e2e_request_latency_seconds_bucket{engine="0",model_name="tiny \"x\"",le="7680"} 1"#));
        assert_eq!(series(100), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }
}

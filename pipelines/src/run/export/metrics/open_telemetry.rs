//! JSON lines of OpenTelemetry's protocol, as its collector's file exporter writes and its `otlpjsonfile` receiver reads them: one
//! `ExportMetricsServiceRequest` per line of metrics, each number a gauge `millrace.NAME` with the attribute `step`. Numbers that
//! are not finite are left out, as JSON has none. Source: opentelemetry-proto, metrics/v1/metrics.proto, in OTLP's JSON encoding
//! (64-bit integers are strings).

use super::form::{Form, Moment};
use crate::journal::Line;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Whether a file that begins like this is one of these: the collector's own begin alike, but with another service.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(
        br#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"millrace"}}"#,
    )
}

/// Writer of the lines.
pub(super) struct OpenTelemetry<W> {
    out: W,
    /// Attributes of the run.
    resource: Value,
}

impl<W: Write> OpenTelemetry<W> {
    pub(super) fn new(out: W, run: &str) -> OpenTelemetry<W> {
        let resource = json!({"attributes": [
            {"key": "service.name", "value": {"stringValue": "millrace"}},
            {"key": "millrace.run", "value": {"stringValue": run}},
        ]});
        OpenTelemetry { out, resource }
    }
}

impl<W: Write> Form for OpenTelemetry<W> {
    fn line(&mut self, line: &Line, at: Moment) -> io::Result<()> {
        // microseconds are exact in f64 until the year 2255; nanoseconds are not
        let nanoseconds = format!("{:.0}000", (at.unix * 1e6).max(0.0));
        let step = json!([{"key": "step", "value": {"intValue": line.step.to_string()}}]);
        let finite = line.values.iter().filter(|(_, value)| value.is_finite());
        let metrics: Vec<Value> = finite
            .map(|(name, value)| {
                let point =
                    json!({"attributes": step, "timeUnixNano": nanoseconds, "asDouble": value});
                json!({"name": format!("millrace.{name}"), "gauge": {"dataPoints": [point]}})
            })
            .collect();
        let scope = json!({"name": "millrace", "version": env!("CARGO_PKG_VERSION")});
        let text = json!({"resourceMetrics": [{
            "resource": self.resource,
            "scopeMetrics": [{"scope": scope, "metrics": metrics}],
        }]});
        writeln!(self.out, "{text}")
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Prints the personal data in texts: `personal_data KIND...` reads JSON lines with a `text` and writes for each one
//! `{"found": [[start, end, kind], ...], "seconds": s}`, positions in bytes.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use curate::pii::{PiiConfig, PiiKind};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let kinds = std::env::args()
        .skip(1)
        .map(|kind| serde_json::from_value(kind.into()));
    let config = PiiConfig {
        kinds: kinds.collect::<Result<Vec<PiiKind>, _>>()?,
        ..PiiConfig::default()
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let row: Value = serde_json::from_str(&line?)?;
        let text = row["text"].as_str().ok_or("a line has no text")?;
        let start = Instant::now();
        let found = config.find(text, "");
        let seconds = start.elapsed().as_secs_f64();
        let found: Vec<Value> = found
            .iter()
            .map(|f| json!([f.span.start, f.span.end, f.kind]))
            .collect();
        writeln!(out, "{}", json!({"found": found, "seconds": seconds}))?;
    }
    Ok(())
}

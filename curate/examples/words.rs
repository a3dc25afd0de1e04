//! Words of lines: reads `language TAB text` lines and writes a JSON list of the text's words for each.
//!
//! tests/oracles/word_agreement.py compares them with those of datatrove.

use std::io::{BufRead, Write};

use curate::text::Scratch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut scratch = Scratch::new();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (language, text) = line.split_once('\t').unwrap_or(("", &line));
        let words = scratch.words_in(language, text)?;
        serde_json::to_writer(&mut out, &words)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

//! Compares our sentence splits with another splitter's: `punkt_english.py compare ... | cargo run --release -p
//! millrace-index --example sentences`.
//!
//! Reads lines `{"text", "plain", "newlines"}` with spans of characters; prints the differences and counts.

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use std::io::BufRead;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut texts, mut bytes, mut sentences, mut wrong) = (0, 0, 0, 0);
    let english = index::sentences::Punkt::english();
    for line in std::io::stdin().lock().lines() {
        let row: serde_json::Value = serde_json::from_str(&line?)?;
        let text = row["text"].as_str().unwrap_or_default();
        let starts: Vec<usize> = text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .collect();
        for (name, keep) in [("plain", false), ("newlines", true)] {
            let mut ranges = Vec::new();
            english.clone().keep_newlines(keep).split(text, &mut ranges);
            let chars = |at| starts.binary_search(&at).unwrap_or(usize::MAX);
            let spans: Vec<[usize; 2]> = ranges
                .iter()
                .map(|r| [chars(r.start), chars(r.end)])
                .collect();
            sentences += spans.len();
            let wanted: Vec<[usize; 2]> = serde_json::from_value(row[name].clone())?;
            if spans != wanted {
                wrong += 1;
                let at = spans
                    .iter()
                    .zip(&wanted)
                    .position(|(a, b)| a != b)
                    .unwrap_or(0);
                let start = starts[wanted[at][0]];
                let shown: String = text[start..].chars().take(120).collect();
                eprintln!(
                    "{name}: sentence {at}: ours {:?}, wanted {:?}: {shown:?}",
                    spans.get(at),
                    wanted.get(at)
                );
            }
        }
        texts += 1;
        bytes += text.len();
    }
    eprintln!("{texts} texts, {bytes} bytes, {sentences} sentences, {wrong} splits differ");
    Ok(())
}

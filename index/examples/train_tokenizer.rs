//! Trains a tokenizer on every line's `text`:
//! `cargo run --release -p millrace-index --example train_tokenizer -- bpe|wordpiece|unigram VOCAB FILE.jsonl OUT.json`.

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use std::io::{BufRead, BufReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, vocab, file, out] = args.as_slice() else {
        return Err(
            "usage: train_tokenizer bpe|wordpiece|unigram VOCAB FILE.jsonl OUT.json".into(),
        );
    };
    let mut trainer = index::tokenizer::Trainer::new(index::tokenizer::TrainSettings {
        kind: serde_json::from_value(kind.as_str().into())?,
        vocab: vocab.parse()?,
        ..index::tokenizer::TrainSettings::default()
    })?;
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        trainer.feed(value["text"].as_str().unwrap_or_default())?;
    }
    let tokenizer = trainer.finish()?;
    std::fs::write(out, tokenizer.json())?;
    eprintln!("{} entries, {}", tokenizer.vocab(), tokenizer.identity());
    Ok(())
}

//! Prints the `tokenizer.json` of a GGUF file's tokenizer: `gguf_tokenizer FILE` (tests/oracles/gguf_tokenizers.py).

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("want a file")?;
    let found = train::checkpoint::gguf_tokenizer(path.as_ref())?.ok_or("no tokenizer")?;
    std::io::stdout().write_all(found.tokenizer.as_bytes())?;
    Ok(())
}

//! Extracts the main text of pages read from stdin in frames (length as four bytes, little endian, then the page):
//! one JSON line each with text, metadata and elapsed seconds. For tests/oracles/extraction_scores.py. With
//! `--urls` the frame before each page is its address; for tests/oracles/metadata_scores.py.
//!
//! With `--features [LOGITS]` writes the model's features of each page instead, in frames on stdout: blocks and
//! columns as four bytes each, the columns, then each block's text and then
//! its three lists of words (two bytes each), with lengths before them. LOGITS is
//! a file of all pages' logits of the first ensemble, four bytes each. For extraction_train.py.
//!
//! With `--judged LOGITS` the pages are written as text, but by these logits instead of the model's: of each page
//! their number and they, four bytes each. For extraction_train.py.

use std::io::{Read, Write};
use std::time::Instant;

use curate::extract::{ExtractConfig, PageSource, block_features, extract_html, extract_judged};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has_urls = arguments.first().is_some_and(|a| a == "--urls");
    let wants_features = arguments.first().is_some_and(|a| a == "--features");
    let is_judged = arguments.first().is_some_and(|a| a == "--judged");
    let logits = match arguments.get(1) {
        Some(path) => std::fs::read(path)?,
        None => Vec::new(),
    };
    let logits: Vec<i32> = logits
        .chunks_exact(4)
        .map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let mut input = std::io::stdin().lock();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut used = 0;
    while let Some(mut page) = frame(&mut input)? {
        let mut url = None;
        if has_urls {
            url = Some(String::from_utf8_lossy(&page).into_owned());
            page = frame(&mut input)?.unwrap_or_default();
        }
        if !wants_features {
            let start = Instant::now();
            let found = if is_judged {
                let count = logits
                    .get(used)
                    .map_or(0, |&n| usize::try_from(n).unwrap_or(0));
                let own = logits.get(used + 1..used + 1 + count);
                used += 1 + count;
                let source = PageSource {
                    bytes: &page,
                    ..PageSource::default()
                };
                extract_judged(&source, &ExtractConfig::default(), own.unwrap_or_default())
            } else {
                extract_html(&page, url.as_deref())
            };
            let seconds = start.elapsed().as_secs_f64();
            let line =
                serde_json::json!({ "text": found.text, "meta": found.meta, "seconds": seconds });
            writeln!(out, "{line}")?;
            continue;
        }
        let source = PageSource {
            bytes: &page,
            ..PageSource::default()
        };
        let mut view = block_features(&source, None);
        let blocks = view.texts.len();
        if !logits.is_empty() {
            view = block_features(&source, logits.get(used..used + blocks));
            used += blocks;
        }
        write_length(&mut out, blocks)?;
        write_length(&mut out, view.columns.len())?;
        for column in &view.columns {
            out.write_all(column)?;
        }
        for text in &view.texts {
            write_length(&mut out, text.len())?;
            out.write_all(text.as_bytes())?;
        }
        for words in view.words.iter().flatten() {
            write_length(&mut out, words.len())?;
            for word in words {
                out.write_all(&word.to_le_bytes())?;
            }
        }
    }
    out.flush()
}

fn frame(input: &mut impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut page = vec![0; u32::from_le_bytes(length) as usize];
    input.read_exact(&mut page)?;
    Ok(Some(page))
}

fn write_length(out: &mut impl Write, length: usize) -> std::io::Result<()> {
    out.write_all(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes())
}

//! Reader for ARPA files: counts, then the n-grams of each order as `log10 probability TAB words TAB log10
//! backoff`.

use std::io::Read;

use rustc_hash::FxHashMap;

use super::search::Search;
use super::weights::{MOST_ORDER, NO_UNKNOWN, Weights, Words, combine, murmur64a};

/// Decompressed bytes at most.
const MOST_TEXT: u64 = 256 << 30;

pub(super) fn parse(bytes: &[u8]) -> Result<(usize, Words, Search), String> {
    let mut plain = Vec::new();
    let unpacked = match bytes {
        [0x1f, 0x8b, ..] => {
            let reader = flate2::read::MultiGzDecoder::new(bytes);
            reader.take(MOST_TEXT).read_to_end(&mut plain)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::stream::read::Decoder::new(bytes)
            .and_then(|reader| reader.take(MOST_TEXT).read_to_end(&mut plain)),
        _ => return text(bytes),
    };
    unpacked.map_err(|e| format!("found damaged compression ({e}), wanted an ARPA file"))?;
    text(&plain)
}

fn text(bytes: &[u8]) -> Result<(usize, Words, Search), String> {
    let mut lines = (1usize..).zip(bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii));
    let show = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    let mut filled = || lines.find(|(_, line)| !line.is_empty());
    let Some((_, b"\\data\\")) = filled() else {
        return Err(
            "found no line \\data\\ at the start, wanted an ARPA file or a binary of KenLM's"
                .into(),
        );
    };
    let mut counts: Vec<usize> = Vec::new();
    let mut next = filled();
    while let Some((number, line)) = next
        && let Some(count) = line.strip_prefix(b"ngram ")
    {
        let wanted = format!("{}=", counts.len() + 1);
        let count = count.strip_prefix(wanted.as_bytes()).and_then(number_of);
        counts.push(count.ok_or_else(|| {
            format!(
                "line {number}: found {:?}, wanted \"ngram {wanted}COUNT\"",
                show(line)
            )
        })?);
        next = filled();
    }
    if !(1..=MOST_ORDER).contains(&counts.len()) {
        return Err(format!(
            "found {} orders, wanted 1 to {MOST_ORDER}",
            counts.len()
        ));
    }
    let mut words: FxHashMap<u64, u32> = FxHashMap::default();
    // an entry takes several bytes: a false count cannot cause more allocation than the file's size
    let room = |count: usize| count.min(bytes.len() / 4);
    words.reserve(room(counts[0]));
    words.insert(murmur64a(b"<unk>"), 0);
    words.insert(murmur64a(b"<UNK>"), 0);
    let mut maps: Vec<FxHashMap<u64, Weights>> = Vec::new();
    for (n, &count) in (1..).zip(&counts) {
        let (number, line) = next.unwrap_or((0, b""));
        if line != format!("\\{n}-grams:").as_bytes() {
            return Err(format!(
                "line {number}: found {:?}, wanted \"\\{n}-grams:\"",
                show(line)
            ));
        }
        let mut map = FxHashMap::default();
        map.reserve(room(count));
        for _ in 0..count {
            let Some((number, line)) = filled() else {
                return Err(format!("found the end, wanted {count} {n}-grams"));
            };
            let entry = entry(line, n, n == counts.len(), &mut words);
            let (hash, weights) = entry.map_err(|wanted| {
                format!("line {number}: found {:?}, wanted {wanted}", show(line))
            })?;
            map.insert(hash, weights);
        }
        maps.push(map);
        next = filled();
    }
    match next {
        Some((_, b"\\end\\")) => {}
        other => {
            let (number, line) = other.unwrap_or((0, b""));
            return Err(format!(
                "line {number}: found {:?}, wanted \"\\end\\\"",
                show(line)
            ));
        }
    }
    maps[0].entry(0).or_insert(Weights {
        prob: NO_UNKNOWN,
        backoff: 0.0,
    });
    Ok((counts.len(), Words::Map(words), Search::Maps(maps)))
}

fn number_of<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Hash and weights of a line of `n` words.
fn entry(
    line: &[u8],
    n: usize,
    is_longest: bool,
    words: &mut FxHashMap<u64, u32>,
) -> Result<(u64, Weights), String> {
    let mut fields = line
        .split(|b| matches!(b, b' ' | b'\t'))
        .filter(|f| !f.is_empty());
    let float = |f: Option<&[u8]>| f.and_then(number_of::<f32>).filter(|f| f.is_finite());
    let prob = float(fields.next()).filter(|p| *p <= 0.0);
    let prob = prob.ok_or("a log10 probability of 0 or less")?;
    let mut numbers = [0u32; MOST_ORDER];
    for place in &mut numbers[..n] {
        let word = fields.next().ok_or_else(|| format!("{n} words"))?;
        let known = u32::try_from(words.len()).map_err(|_| "fewer than 2^32 words")?;
        let hash = murmur64a(word);
        *place = match words.get(&hash) {
            Some(number) => *number,
            // two names of the unknown word have one number
            None if n == 1 => *words.entry(hash).or_insert(known - 1),
            None => return Err("words of the 1-grams".into()),
        };
    }
    let backoff = match fields.next() {
        None => 0.0,
        Some(_) if is_longest => return Err("no backoff with the longest n-grams".into()),
        some => float(some).ok_or("a log10 backoff")?,
    };
    let (last, before) = numbers[..n].split_last().ok_or("a word")?;
    let left = before.iter().rev();
    let hash = left.fold(u64::from(*last), |hash, word| combine(hash, *word));
    Ok((hash, Weights { prob, backoff }))
}

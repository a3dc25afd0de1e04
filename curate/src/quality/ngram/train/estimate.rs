//! Estimates probabilities and backoff weights from adjusted counts, and writes ARPA text.
//!
//! With a(h w) the adjusted count of a word after a context, a(h) their sum over all words and N_k(h) the number of words
//! with a count of k (3: and more),
//!
//! ```text
//! u(w | h) = (a(h w) - D(a(h w))) / a(h)
//! g(h)     = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3(h) + pruned counts) / a(h)
//! p(w | h) = u(w | h) + g(h) p(w | h without its first word)
//! ```
//!
//! down to the uniform distribution over all words but `<s>`; the backoff weight of h is g(h). Paper: Heafield et al.
//! 2013, "Scalable Modified Kneser-Ney Language Model Estimation", section 3. u and g are kept as f32, as lmplz does;
//! sums are f64, where it has f32.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use super::adjust::{Adjusted, count_of, is_pruned};
use super::count::{BEGIN, UNKNOWN, Vocabulary};
use super::sort::{Gram, MOST, Merge, Sorter};
use crate::error::{At, Result};
use crate::write::AtomicFile;

/// Intermediate values of one length before interpolation, both in the order of suffixes.
struct Initial {
    /// Values are u and g, as two f32.
    grams: Merge,
    /// Contexts, one word shorter; values are g.
    backoffs: Option<Merge>,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "they are kept in single precision"
)]
fn packed(u: f64, g: f64) -> u64 {
    u64::from((u as f32).to_bits()) << 32 | u64::from((g as f32).to_bits())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of the number"
)]
fn unpacked(value: u64) -> (f64, f64) {
    let half = |bits: u64| f64::from(f32::from_bits(bits as u32));
    (half(value >> 32), half(value))
}

fn place(count: u64) -> usize {
    usize::try_from(count.min(3)).unwrap_or(3)
}

/// a(h) and g(h) of the n-grams of one context.
fn sums(grams: &[Gram], discounts: &[f64; 4]) -> (f64, f64) {
    let (mut all, mut pruned, mut taken) = (0u64, 0u64, 0.0);
    for gram in grams {
        let count = count_of(gram.value);
        all += count;
        if is_pruned(gram.value) {
            pruned += count;
        } else {
            taken += discounts[place(count)];
        }
    }
    (all as f64, (taken + pruned as f64) / all as f64)
}

fn initial(
    folder: &Path,
    words: usize,
    grams: Merge,
    discounts: &[f64; 4],
    bytes: usize,
) -> Result<Initial> {
    let mut out = Sorter::new(folder, words, false, bytes);
    let mut backoffs = Sorter::new(folder, words - 1, false, bytes / 4);
    let mut group: Vec<Gram> = Vec::new();
    let mut flush = |group: &mut Vec<Gram>| -> Result<()> {
        let Some(first) = group.first() else {
            return Ok(());
        };
        let (all, g) = sums(group, discounts);
        let mut context = Gram {
            key: first.key,
            value: packed(0.0, g),
        };
        context.key[words - 1] = 0;
        backoffs.push(context)?;
        for gram in group.drain(..).filter(|g| !is_pruned(g.value)) {
            let count = count_of(gram.value);
            let u = (count as f64 - discounts[place(count)]) / all;
            let mut key = [0; MOST];
            key[0] = gram.key[words - 1];
            key[1..words].copy_from_slice(&gram.key[..words - 1]);
            let value = packed(u, g);
            out.push(Gram { key, value })?;
        }
        Ok(())
    };
    for gram in grams {
        let gram = gram?;
        let same = group
            .first()
            .is_none_or(|g| g.key[..words - 1] == gram.key[..words - 1]);
        if !same {
            flush(&mut group)?;
        }
        group.push(gram);
    }
    flush(&mut group)?;
    Ok(Initial {
        grams: out.finish()?,
        backoffs: Some(backoffs.finish()?),
    })
}

/// Single words, held in memory as the vocabulary is.
fn initial_words(folder: &Path, grams: &[Gram], discounts: &[f64; 4]) -> Result<Initial> {
    let (all, g) = sums(grams, discounts);
    let bytes = (grams.len() + 1) * size_of::<Gram>();
    let mut out = Sorter::new(folder, 1, false, bytes);
    for gram in grams {
        let word = gram.key[0];
        let count = count_of(gram.value);
        let value = match word {
            UNKNOWN => packed(0.0, g),
            // of probability 1, so that it may be scored as part of a sentence
            BEGIN => packed(1.0, 0.0),
            // the end of a sentence is never left out
            2 => packed((count as f64 - discounts[place(count)]) / all, g),
            _ if is_pruned(gram.value) => continue,
            _ => packed((count as f64 - discounts[place(count)]) / all, g),
        };
        let key = gram.key;
        out.push(Gram { key, value })?;
    }
    Ok(Initial {
        grams: out.finish()?,
        backoffs: None,
    })
}

/// One length while all are walked together.
struct Level {
    grams: std::iter::Peekable<Merge>,
    /// Weights of this length's n-grams as contexts.
    backoffs: Option<std::iter::Peekable<Merge>>,
    /// The n-gram that was walked last and its probability.
    last: ([u32; MOST], f64),
    section: BufWriter<File>,
    count: u64,
}

/// The first that is an error, as an error.
fn peek(merge: &mut std::iter::Peekable<Merge>) -> Result<Option<Gram>> {
    match merge.peek() {
        None => Ok(None),
        Some(Ok(gram)) => Ok(Some(*gram)),
        Some(Err(_)) => merge.next().transpose(),
    }
}

impl Level {
    fn backoff(&mut self, key: &[u32; MOST]) -> Result<f64> {
        let Some(backoffs) = &mut self.backoffs else {
            return Ok(1.0);
        };
        // contexts that were pruned are passed over
        while let Some(context) = peek(backoffs)? {
            if context.key > *key {
                break;
            }
            backoffs.next();
            if context.key == *key {
                return Ok(unpacked(context.value).1);
            }
        }
        Ok(1.0)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "ARPA files hold single precision"
)]
fn log10(p: f64) -> f32 {
    p.log10() as f32
}

/// Writes the model; returns how many n-grams of each length it has.
pub(super) fn write(
    folder: &Path,
    adjusted: Adjusted,
    discounts: &[[f64; 4]],
    vocabulary: &Vocabulary,
    bytes: usize,
    mut out: AtomicFile,
) -> Result<Vec<u64>> {
    let order = discounts.len();
    // all words that are kept, <unk> included, without <s>
    let uniform = 1.0 / (adjusted.statistics[0].kept - 1) as f64;
    let mut parts = vec![initial_words(folder, &adjusted.unigrams, &discounts[0])?];
    drop(adjusted.unigrams);
    for (words, grams) in (2..).zip(adjusted.longer) {
        let share = bytes / order;
        parts.push(initial(folder, words, grams, &discounts[words - 1], share)?);
    }
    let mut backoffs: Vec<Option<Merge>> = parts.iter_mut().map(|p| p.backoffs.take()).collect();
    backoffs.rotate_left(1);
    let mut levels = Vec::new();
    for (part, backoffs) in parts.into_iter().zip(backoffs) {
        let section = tempfile::tempfile_in(folder).at(folder)?;
        levels.push(Level {
            grams: part.grams.peekable(),
            backoffs: backoffs.map(Iterator::peekable),
            last: ([u32::MAX; MOST], 0.0),
            section: BufWriter::with_capacity(1 << 18, section),
            count: 0,
        });
    }
    while let Some(words) = least(&mut levels)? {
        let Some(gram) = levels[words - 1].grams.next().transpose()? else {
            break;
        };
        let (u, g) = unpacked(gram.value);
        let lower = match words {
            1 => uniform,
            n => levels[n - 2].last.1,
        };
        let p = u + g * lower;
        let level = &mut levels[words - 1];
        level.last = (gram.key, p);
        level.count += 1;
        let backoff = level.backoff(&gram.key)?;
        let line = &mut level.section;
        write!(line, "{}", log10(p).min(0.0)).at(folder)?;
        for (i, word) in gram.key[..words].iter().rev().enumerate() {
            let gap = if i == 0 { '\t' } else { ' ' };
            write!(line, "{gap}{}", vocabulary.word(*word)).at(folder)?;
        }
        let end = match words == order {
            true => writeln!(line),
            false => writeln!(line, "\t{}", log10(backoff)),
        };
        end.at(folder)?;
    }
    let counts: Vec<u64> = levels.iter().map(|l| l.count).collect();
    join(&mut out, levels).at(&out.path())?;
    out.finish()?;
    Ok(counts)
}

/// The length whose next n-gram comes first: those of the same last words from the shortest on.
fn least(levels: &mut [Level]) -> Result<Option<usize>> {
    let mut first: Option<(usize, [u32; MOST])> = None;
    for (words, level) in (1..).zip(levels) {
        if let Some(gram) = peek(&mut level.grams)? {
            let before = |(n, key): &(usize, [u32; MOST])| gram.key[..words] < key[..*n];
            if first.as_ref().is_none_or(before) {
                first = Some((words, gram.key));
            }
        }
    }
    Ok(first.map(|f| f.0))
}

fn join(out: &mut AtomicFile, levels: Vec<Level>) -> std::io::Result<()> {
    writeln!(out, "\\data\\")?;
    for (words, level) in (1..).zip(&levels) {
        writeln!(out, "ngram {words}={}", level.count)?;
    }
    for (words, level) in (1..).zip(levels) {
        writeln!(out, "\n\\{words}-grams:")?;
        let mut section = level.section.into_inner()?;
        section.rewind()?;
        std::io::copy(&mut section, out)?;
    }
    writeln!(out, "\n\\end\\")
}

//! External sorting of n-grams in a memory budget: sorted runs in unnamed files, merged.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;

use crate::error::{At, Result};

/// Longest n-grams.
pub(super) const MOST: usize = 5;
/// Runs that are merged at once; more are merged to one first.
const FAN_IN: usize = 64;

/// Words in the order in which they are compared (0 behind the last), and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gram {
    pub(super) key: [u32; MOST],
    pub(super) value: u64,
}

/// Takes n-grams in any order.
pub(super) struct Sorter {
    folder: PathBuf,
    words: usize,
    /// Equal keys become one, their values added.
    adds: bool,
    most: usize,
    held: Vec<Gram>,
    runs: Vec<File>,
}

impl Sorter {
    /// A sorter for n-grams of `words` words, in `bytes` of memory; runs are written to `folder`.
    pub(super) fn new(folder: &Path, words: usize, adds: bool, bytes: usize) -> Sorter {
        Sorter {
            folder: folder.to_path_buf(),
            words,
            adds,
            most: (bytes / size_of::<Gram>()).max(1024),
            held: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, gram: Gram) -> Result<()> {
        if self.held.len() == self.most {
            self.order();
            // if merging cannot halve the buffer, it would be sorted over and over
            if self.held.len() > self.most / 2 {
                self.spill()?;
            }
        }
        self.held.push(gram);
        Ok(())
    }

    fn order(&mut self) {
        self.held.par_sort_unstable();
        if self.adds {
            self.held.dedup_by(|later, first| {
                let same = later.key == first.key;
                if same {
                    first.value += later.value;
                }
                same
            });
        }
    }

    fn spill(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        let run = write(&self.folder, self.words, held.iter().map(|g| Ok(*g)))?;
        self.held = held;
        self.held.clear();
        self.runs.push(run);
        if self.runs.len() == FAN_IN {
            let runs = std::mem::take(&mut self.runs);
            let merged = Merge::new(&self.folder, self.words, self.adds, runs, Vec::new())?;
            self.runs = vec![write(&self.folder, self.words, merged)?];
        }
        Ok(())
    }

    /// All of them in order.
    pub(super) fn finish(mut self) -> Result<Merge> {
        self.order();
        Merge::new(&self.folder, self.words, self.adds, self.runs, self.held)
    }
}

fn write(folder: &Path, words: usize, grams: impl Iterator<Item = Result<Gram>>) -> Result<File> {
    let file = tempfile::tempfile_in(folder).at(folder)?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    for gram in grams {
        let gram = gram?;
        for word in &gram.key[..words] {
            out.write_all(&word.to_le_bytes()).at(folder)?;
        }
        out.write_all(&gram.value.to_le_bytes()).at(folder)?;
    }
    let done = out
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    let mut file = done.at(folder)?;
    file.rewind().at(folder)?;
    Ok(file)
}

/// Sorted n-grams.
pub(super) struct Merge {
    folder: PathBuf,
    words: usize,
    adds: bool,
    runs: Vec<BufReader<File>>,
    /// The next one of each run, the least last.
    heads: Vec<(Gram, usize)>,
    held: std::iter::Peekable<std::vec::IntoIter<Gram>>,
}

impl Merge {
    fn new(
        folder: &Path,
        words: usize,
        adds: bool,
        runs: Vec<File>,
        held: Vec<Gram>,
    ) -> Result<Merge> {
        let buffered = |run| BufReader::with_capacity(1 << 17, run);
        let mut made = Merge {
            folder: folder.to_path_buf(),
            words,
            adds,
            runs: runs.into_iter().map(buffered).collect(),
            heads: Vec::new(),
            held: held.into_iter().peekable(),
        };
        for run in 0..made.runs.len() {
            made.refill(run)?;
        }
        Ok(made)
    }

    fn refill(&mut self, run: usize) -> Result<()> {
        let mut bytes = [0u8; 4 * MOST + 8];
        let length = 4 * self.words + 8;
        let reader = &mut self.runs[run];
        let mut filled = 0;
        while filled < length {
            match reader.read(&mut bytes[filled..length]) {
                Ok(0) if filled == 0 => return Ok(()),
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()).at(&self.folder),
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).at(&self.folder),
            }
        }
        let mut gram = Gram::default();
        let (words, value) = bytes[..length].split_at(4 * self.words);
        for (word, four) in gram.key.iter_mut().zip(words.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*four);
        }
        gram.value = value.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let at = self.heads.partition_point(|head| *head > (gram, run));
        self.heads.insert(at, (gram, run));
        Ok(())
    }

    fn least(&mut self) -> Result<Option<Gram>> {
        let held = self.held.peek().copied();
        match self.heads.last().copied() {
            Some((gram, run)) if held.is_none_or(|h| gram <= h) => {
                self.heads.pop();
                self.refill(run)?;
                Ok(Some(gram))
            }
            _ => Ok(self.held.next()),
        }
    }

    fn next_key(&mut self) -> Option<[u32; MOST]> {
        let held = self.held.peek().map(|g| g.key);
        let head = self.heads.last().map(|h| h.0.key);
        held.into_iter().chain(head).min()
    }

    fn step(&mut self) -> Result<Option<Gram>> {
        let Some(mut gram) = self.least()? else {
            return Ok(None);
        };
        while self.adds && self.next_key() == Some(gram.key) {
            let more = self.least()?;
            gram.value += more.map_or(0, |g| g.value);
        }
        Ok(Some(gram))
    }
}

impl Iterator for Merge {
    type Item = Result<Gram>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_of_many_runs_is_the_sort_of_a_map() {
        let folder = tempfile::tempdir().unwrap();
        // 1024 n-grams fit: some 200 runs, so that runs of runs are merged too
        let mut sorter = Sorter::new(folder.path(), 3, true, 0);
        let mut wanted = std::collections::BTreeMap::new();
        let mut random = 7u64;
        for _ in 0..200_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let digit = |shift: u32| u32::try_from(random >> shift & 63).unwrap();
            let key = [digit(20), digit(30), digit(40), 0, 0];
            *wanted.entry(key).or_insert(0u64) += 3;
            sorter.push(Gram { key, value: 3 }).unwrap();
        }
        let found: Vec<Gram> = sorter.finish().unwrap().map(|g| g.unwrap()).collect();
        let wanted: Vec<Gram> = wanted
            .into_iter()
            .map(|(key, value)| Gram { key, value })
            .collect();
        assert_eq!(found, wanted);
    }
}

//! Training examples: selected, shuffled, and kept on disk.
//!
//! Hashes of the texts and the seed decide the selection and the order, so the order of files does not matter.
//! Texts are in one unnamed file; memory holds 24 bytes for each.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{At, Error, Result};
use crate::quality::fasttext::dictionary::LABEL;

/// One text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Example {
    /// By the text and the seed.
    hash: u64,
    offset: u64,
    length: u32,
    /// Set of labels.
    set: u32,
}

impl Example {
    /// Bytes of its text.
    pub(super) fn bytes(&self) -> u64 {
        self.length.into()
    }
}

/// Takes texts.
pub(super) struct Collector {
    folder: PathBuf,
    file: BufWriter<File>,
    offset: u64,
    seed: u64,
    /// Texts with one label at most; 0: all.
    per_label: usize,
    /// Hashes of the texts with a label that are in the choice; the greatest is evicted first.
    chosen: Vec<BinaryHeap<u64>>,
    examples: Vec<Example>,
    names: Vec<String>,
    sets: Vec<Vec<u32>>,
    set_numbers: FxHashMap<Vec<u32>, u32>,
}

/// Examples in the order of training.
pub(super) struct Examples {
    folder: PathBuf,
    file: File,
    pub(super) train: Vec<Example>,
    pub(super) held_out: Vec<Example>,
    pub(super) names: Vec<String>,
    pub(super) sets: Vec<Vec<u32>>,
}

/// True for separators of words in fastText.
pub(super) fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c | 0)
}

impl Collector {
    pub(super) fn new(folder: &Path, seed: u64, per_label: usize) -> Result<Collector> {
        let file = tempfile::tempfile_in(folder).at(folder)?;
        Ok(Collector {
            folder: folder.to_path_buf(),
            file: BufWriter::with_capacity(1 << 20, file),
            offset: 0,
            seed,
            per_label,
            chosen: Vec::new(),
            examples: Vec::new(),
            names: Vec::new(),
            sets: Vec::new(),
            set_numbers: FxHashMap::default(),
        })
    }

    /// Number of a label, which may begin with `__label__`.
    pub(super) fn label(&mut self, name: &str) -> u32 {
        let name = name.strip_prefix(LABEL).unwrap_or(name);
        let known = self.names.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// A line as fastText trains on: labels are its words with the prefix. A line without labels is no example.
    pub(super) fn add_line(&mut self, line: &str) -> Result<()> {
        let words = line.as_bytes().split(is_space);
        let labels = words.filter(|w| w.starts_with(LABEL.as_bytes()));
        let labels: Vec<String> = labels
            .map(|l| String::from_utf8_lossy(l).into_owned())
            .collect();
        let labels: Vec<u32> = labels.iter().map(|l| self.label(l)).collect();
        match labels.is_empty() {
            true => Ok(()),
            false => self.add(line, labels),
        }
    }

    /// Adds a text with its labels; the first one counts where labels are balanced.
    pub(super) fn add(&mut self, text: &str, labels: Vec<u32>) -> Result<()> {
        let hash = xxh3_64_with_seed(text.as_bytes(), self.seed);
        let first = labels.first().map_or(0, |l| *l as usize);
        if self.per_label > 0 {
            if self.chosen.len() <= first {
                self.chosen.resize_with(first + 1, BinaryHeap::new);
            }
            let chosen = &mut self.chosen[first];
            if chosen.len() == self.per_label {
                if chosen.peek().is_some_and(|most| hash >= *most) {
                    return Ok(());
                }
                chosen.pop();
            }
            chosen.push(hash);
        }
        let next = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        let set = *self.set_numbers.entry(labels).or_insert_with_key(|labels| {
            self.sets.push(labels.clone());
            next
        });
        self.file.write_all(text.as_bytes()).at(&self.folder)?;
        self.examples.push(Example {
            hash,
            offset: self.offset,
            // texts are shorter: the reader takes no longer records
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            set,
        });
        self.offset += text.len() as u64;
        Ok(())
    }

    /// Chooses, holds out and orders. `balanced`: as many texts of each label as the rarest has.
    pub(super) fn finish(mut self, balanced: bool, held_out: f64) -> Result<Examples> {
        let mut groups: Vec<Vec<Example>> = vec![Vec::new(); self.names.len()];
        for example in std::mem::take(&mut self.examples) {
            let first = self.sets[example.set as usize].first();
            groups[first.map_or(0, |l| *l as usize)].push(example);
        }
        groups.retain(|group| !group.is_empty());
        if self.names.len() < 2 {
            return Err(Error::Config {
                key: "labels".into(),
                found: format!("examples of {:?} alone", self.names),
                wanted: "at least two labels".into(),
            });
        }
        let most = match self.per_label {
            0 => usize::MAX,
            n => n,
        };
        let rarest = groups.iter().map(Vec::len).min().unwrap_or(0).min(most);
        let (mut train, mut tested) = (Vec::new(), Vec::new());
        let seed = self.seed;
        // another hash: those of a choice are small ones
        let order = |e: &Example| (xxh3_64_with_seed(&e.hash.to_le_bytes(), !seed), *e);
        for mut group in groups {
            group.sort_unstable();
            group.truncate(if balanced { rarest } else { most });
            group.sort_by_cached_key(order);
            let out = (group.len() as f64 * held_out).floor();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most the group's length"
            )]
            let out = (out as usize).min(group.len());
            tested.extend(group.drain(..out));
            train.extend(group);
        }
        train.sort_by_cached_key(order);
        tested.sort_by_cached_key(order);
        let file = self
            .file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        Ok(Examples {
            file: file.at(&self.folder)?,
            folder: self.folder,
            train,
            held_out: tested,
            names: self.names,
            sets: self.sets,
        })
    }
}

impl Examples {
    /// The text of an example.
    pub(super) fn text(&self, example: &Example) -> Result<String> {
        let mut bytes = vec![0; example.length as usize];
        let read = self.file.read_exact_at(&mut bytes, example.offset);
        read.at(&self.folder)?;
        String::from_utf8(bytes)
            .map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
            .at(&self.folder)
    }

    /// Labels of an example.
    pub(super) fn labels(&self, example: &Example) -> &[u32] {
        &self.sets[example.set as usize]
    }

    /// A number that depends only on the example's text, the seed and `what`.
    pub(super) fn draw(&self, example: &Example, what: u64) -> u64 {
        xxh3_64_with_seed(&example.hash.to_le_bytes(), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(texts: &[(String, u32)], per_label: usize, balanced: bool) -> Vec<(String, u32)> {
        let folder = tempfile::tempdir().unwrap();
        let mut collector = Collector::new(folder.path(), 7, per_label).unwrap();
        assert_eq!(["a", "__label__b"].map(|l| collector.label(l)), [0, 1]);
        for (text, label) in texts {
            collector.add(text, vec![*label]).unwrap();
        }
        let examples = collector.finish(balanced, 0.2).unwrap();
        assert_eq!(examples.names, ["a", "b"]);
        let all = examples.train.iter().chain(&examples.held_out);
        all.map(|e| (examples.text(e).unwrap(), examples.labels(e)[0]))
            .collect()
    }

    #[test]
    fn the_choice_is_balanced_and_does_not_hang_on_the_order() {
        let mut texts: Vec<(String, u32)> = (0..1000)
            .map(|i| (format!("t{i}"), u32::from(i % 10 == 0)))
            .collect();
        let first = chosen(&texts, 0, true);
        assert_eq!(first.iter().filter(|t| t.1 == 1).count(), 100);
        assert_eq!(first.len(), 200);
        // shuffled: long runs of one label would undo the training
        let runs = first[..160].windows(2).filter(|w| w[0].1 != w[1].1).count();
        assert!(runs > 50, "{runs}");
        let few = chosen(&texts, 30, false);
        texts.reverse();
        assert_eq!(chosen(&texts, 0, true), first);
        assert_eq!(chosen(&texts, 30, false), few);
        assert_eq!(few.len(), 60);
        assert!(few.iter().all(|t| chosen(&texts, 40, false).contains(t)));
    }
}

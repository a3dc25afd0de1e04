//! Sorting more fixed-size records than memory holds.
//!
//! Records are byte arrays compared as bytes (numbers in them are big-endian). They are collected up
//! to a budget, sorted and spilled to run files; reading merges the runs with a heap, at most 64 at once: of more, the oldest
//! are first merged to one, until 64 are left. Equal records
//! cannot occur (each ends in a document number), so the order is unique.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;

use crate::error::{At, Result};

/// Collects records, then hands them out in order.
pub(crate) struct Sorter<const N: usize> {
    folder: PathBuf,
    limit: usize,
    records: Vec<[u8; N]>,
    runs: Vec<PathBuf>,
}

impl<const N: usize> Sorter<N> {
    /// Keeps at most `memory` bytes of records; runs go under `folder`.
    pub(crate) fn new(folder: &Path, memory: usize) -> Sorter<N> {
        // At least a thousand, so that a tiny budget does not make a run per record.
        let limit = (memory / N).max(1000);
        Sorter {
            folder: folder.to_path_buf(),
            limit,
            records: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, record: [u8; N]) -> Result<()> {
        if self.records.len() == self.limit {
            self.spill()?;
        }
        self.records.push(record);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.records.par_sort_unstable();
        std::fs::create_dir_all(&self.folder).at(&self.folder)?;
        let path = self.folder.join(format!("run-{:05}", self.runs.len()));
        let mut out = BufWriter::new(File::create(&path).at(&path)?);
        for record in &self.records {
            out.write_all(record).at(&path)?;
        }
        out.flush().at(&path)?;
        self.records.clear();
        self.runs.push(path);
        Ok(())
    }

    /// Calls `each` for every record in order and removes the runs.
    pub(crate) fn drain(mut self, each: &mut dyn FnMut(&[u8; N]) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            self.records.par_sort_unstable();
            return self.records.iter().try_for_each(each);
        }
        if !self.records.is_empty() {
            self.spill()?;
        }
        self.records = Vec::new();
        let mut made = self.runs.len();
        while self.runs.len() > AT_ONCE {
            // So many that what is left can be merged at once, or as many as may be open.
            let many = (self.runs.len() - AT_ONCE + 1).min(AT_ONCE);
            let parts: Vec<PathBuf> = self.runs.drain(..many).collect();
            let path = self.folder.join(format!("run-{made:05}"));
            made += 1;
            let mut out = BufWriter::new(File::create(&path).at(&path)?);
            merge::<N>(&parts, &mut |record| out.write_all(record).at(&path))?;
            out.flush().at(&path)?;
            self.runs.push(path);
        }
        merge(&self.runs, each)
    }
}

/// Runs that are open at the same time.
const AT_ONCE: usize = 64;

/// Calls `each` for every record of some runs in order and removes the runs.
fn merge<const N: usize>(
    runs: &[PathBuf],
    each: &mut dyn FnMut(&[u8; N]) -> Result<()>,
) -> Result<()> {
    let mut readers = Vec::new();
    let mut heap = BinaryHeap::new();
    for (i, path) in runs.iter().enumerate() {
        let mut reader = BufReader::with_capacity(1 << 18, File::open(path).at(path)?);
        if let Some(record) = read_record::<N>(&mut reader, path)? {
            heap.push(Reverse((record, i)));
        }
        readers.push(reader);
    }
    while let Some(Reverse((record, i))) = heap.pop() {
        each(&record)?;
        if let Some(next) = read_record::<N>(&mut readers[i], &runs[i])? {
            heap.push(Reverse((next, i)));
        }
    }
    drop(readers);
    for path in runs {
        std::fs::remove_file(path).at(path)?;
    }
    Ok(())
}

/// The next record of a run, None at its end.
fn read_record<const N: usize>(
    reader: &mut BufReader<File>,
    path: &Path,
) -> Result<Option<[u8; N]>> {
    let mut record = [0; N];
    let mut filled = 0;
    while filled < N {
        let n = reader.read(&mut record[filled..]).at(path)?;
        if n == 0 {
            return if filled == 0 {
                Ok(None)
            } else {
                Err(crate::error::damaged(
                    path,
                    filled as u64,
                    "end of file inside a record",
                    format!("{N} bytes per record"),
                ))
            };
        }
        filled += n;
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spilled_runs_give_the_same_order_as_memory() {
        let folder = tempfile::tempdir().unwrap();
        // With the smallest budget 200 runs, more than may be open at once.
        let records: Vec<[u8; 8]> = (0..200_000u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
            .collect();
        let mut expected = records.clone();
        expected.sort_unstable();
        for memory in [0, 1 << 20] {
            let mut sorter = Sorter::new(folder.path(), memory);
            records.iter().for_each(|r| sorter.push(*r).unwrap());
            let mut got = Vec::new();
            sorter
                .drain(&mut |r| {
                    got.push(*r);
                    Ok(())
                })
                .unwrap();
            assert_eq!(got, expected);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

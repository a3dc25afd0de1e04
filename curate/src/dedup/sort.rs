//! External merge sort of fixed-size records.
//!
//! Records are byte arrays compared as bytes (numbers in them are big-endian). They are collected up
//! to a budget, sorted and spilled to run files; reading merges the runs with a heap. At most 64 files are open and
//! read at once, with buffers within the budget: more runs are first merged into longer ones, 64 at a time. Equal records
//! cannot occur (each ends in a document number), so the order is unique.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;

use crate::error::{At, Result};

/// Runs that are merged at once.
const FAN_IN: usize = 64;

/// Collects records, then returns them in order.
pub(crate) struct Sorter<const N: usize> {
    folder: PathBuf,
    limit: usize,
    records: Vec<[u8; N]>,
    runs: Vec<PathBuf>,
    /// Runs written so far.
    made: usize,
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
            made: 0,
        }
    }

    pub(crate) fn push(&mut self, record: [u8; N]) -> Result<()> {
        if self.records.len() == self.limit {
            self.spill()?;
        }
        if self.records.len() == self.records.capacity() {
            // doubling on its own could end at twice the limit
            let left = self.limit - self.records.len();
            self.records
                .reserve_exact(self.records.len().max(1000).min(left));
        }
        self.records.push(record);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.records.par_sort_unstable();
        let (path, mut out) = self.next_run(1 << 18)?;
        for record in &self.records {
            out.write_all(record).at(&path)?;
        }
        out.flush().at(&path)?;
        self.records.clear();
        self.runs.push(path);
        Ok(())
    }

    fn next_run(&mut self, buffer: usize) -> Result<(PathBuf, BufWriter<File>)> {
        std::fs::create_dir_all(&self.folder).at(&self.folder)?;
        let path = self.folder.join(format!("run-{:05}", self.made));
        self.made += 1;
        let file = File::create(&path).at(&path)?;
        Ok((path, BufWriter::with_capacity(buffer, file)))
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
        // one buffer per run and one for output
        let buffer = (self.limit * N / (FAN_IN + 1)).clamp(1 << 12, 1 << 18);
        while self.runs.len() > FAN_IN {
            let first: Vec<PathBuf> = self.runs.drain(..FAN_IN).collect();
            let (path, mut out) = self.next_run(buffer)?;
            merge::<N>(&first, buffer, &mut |record| {
                out.write_all(record).at(&path)
            })?;
            out.flush().at(&path)?;
            self.runs.push(path);
        }
        merge(&self.runs, buffer, each)
    }
}

/// Calls `each` for the records of some runs in order and removes these.
fn merge<const N: usize>(
    runs: &[PathBuf],
    buffer: usize,
    each: &mut dyn FnMut(&[u8; N]) -> Result<()>,
) -> Result<()> {
    let mut readers = Vec::with_capacity(runs.len());
    let mut heap = BinaryHeap::new();
    for (i, path) in runs.iter().enumerate() {
        let mut reader = BufReader::with_capacity(buffer, File::open(path).at(path)?);
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
        // of 5,000 records four runs are left over by 1,000s, of 130,000 two rounds of merges are made
        for count in [5000u64, 130_000] {
            let records: Vec<[u8; 8]> = (0..count)
                .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
                .collect();
            let mut expected = records.clone();
            expected.sort_unstable();
            for memory in [0, 2 << 20] {
                let mut sorter = Sorter::new(folder.path(), memory);
                records.iter().for_each(|r| sorter.push(*r).unwrap());
                assert!(sorter.records.capacity() <= sorter.limit);
                let mut got = Vec::new();
                let mut most = 0;
                sorter
                    .drain(&mut |r| {
                        if got.len() % 1000 == 0 {
                            let files = std::fs::read_dir(folder.path()).unwrap().count();
                            most = most.max(files);
                        }
                        got.push(*r);
                        Ok(())
                    })
                    .unwrap();
                assert!(got == expected, "{count} records in {memory} bytes");
                assert!(most <= FAN_IN, "{most} files");
            }
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}

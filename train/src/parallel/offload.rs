//! Activation offload: the activations that a rank's first blocks keep for their backward passes are written to a
//! file, as exact copies, so no bits change. The file is unlinked and disappears with its process; the system
//! writes it back in the background, so a pass costs a copy while memory lasts and a disk write after. Freed space
//! in it is reused, so it never grows beyond one step's peak.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use kernels::{DType, Tensor};

use crate::config::offload::Offload;
use crate::error::{Error, OnRank, Result};

/// One rank's file.
pub(crate) struct Scratch {
    rank: usize,
    folder: PathBuf,
    room: Mutex<Room>,
}

struct Room {
    file: File,
    /// Bytes of the file.
    end: u64,
    /// Starts of free ranges by bytes.
    free: BTreeMap<u64, Vec<u64>>,
}

/// Tensors that are in the file: dims, type and start of each.
pub(crate) struct Away(Vec<(Vec<usize>, DType, u64)>);

impl Scratch {
    /// A rank's file; None if nothing is offloaded.
    pub(crate) fn of(config: &Offload, rank: usize) -> Result<Option<Scratch>> {
        if config.layers == 0 {
            return Ok(None);
        }
        let folder = config.folder();
        let made = tempfile::tempfile_in(&folder);
        let file =
            made.map_err(|error| failed("make a file for activations in", &folder, error))?;
        let (end, free) = (0, BTreeMap::new());
        Ok(Some(Scratch {
            rank,
            folder,
            room: Mutex::new(Room { file, end, free }),
        }))
    }

    /// Writes tensors to the file and frees their memory; one number of each remains.
    pub(crate) fn put(&self, tensors: Vec<&mut Tensor>) -> Result<Away> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let mut away = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let bytes = tensor.read_bytes();
            let bytes = bytes.on_rank(self.rank, "put activations away")?;
            let at = room
                .write(&bytes)
                .map_err(|error| failed("write activations to a file in", &self.folder, error))?;
            drop(bytes);
            away.push((tensor.dims().to_vec(), tensor.dtype(), at));
            let left = Tensor::empty(&[1], DType::F32, tensor.device());
            *tensor = left.on_rank(self.rank, "put activations away")?;
        }
        Ok(Away(away))
    }

    /// Reads the tensors back; `tensors` are those of `put`, in its order.
    pub(crate) fn bring_back(&self, away: Away, tensors: Vec<&mut Tensor>) -> Result<()> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        for ((dims, dtype, at), tensor) in away.0.into_iter().zip(tensors) {
            let whole = Tensor::empty(&dims, dtype, tensor.device());
            let mut whole = whole.on_rank(self.rank, "bring activations back")?;
            let read = whole.renew_bytes(|bytes| room.read(at, bytes));
            read.on_rank(self.rank, "bring activations back")?
                .map_err(|error| failed("read activations from a file in", &self.folder, error))?;
            *tensor = whole;
        }
        Ok(())
    }
}

impl Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let len = bytes.len() as u64;
        let free = self.free.get_mut(&len).and_then(Vec::pop);
        let at = free.unwrap_or(self.end);
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(bytes)?;
        self.end = self.end.max(at + len);
        Ok(at)
    }

    /// Reads a range and frees it.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(bytes)?;
        self.free.entry(bytes.len() as u64).or_default().push(at);
        Ok(())
    }
}

fn failed(action: &'static str, folder: &std::path::Path, source: io::Error) -> Error {
    let path = folder.to_owned();
    Error::Io {
        action,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use kernels::Device;

    use super::*;

    #[test]
    fn tensors_come_back_and_their_room_is_used_again() {
        let layers = 1;
        let config = Offload {
            layers,
            folder: None,
        };
        let scratch = Scratch::of(&config, 0).unwrap().unwrap();
        let device = Device::cpu();
        let of = |first: u16, len: u16| {
            let values: Vec<f32> = (first..first + len).map(f32::from).collect();
            Tensor::from_f32(&[usize::from(len)], &values, &device).unwrap()
        };
        for round in 0..3 {
            let (mut a, mut b, mut c) = (of(round, 700), of(7, 300), of(round + 9, 700));
            let before = device.used_bytes();
            let first = scratch.put(vec![&mut a, &mut b]).unwrap();
            let second = scratch.put(vec![&mut c]).unwrap();
            assert!(device.used_bytes() < before / 10);
            scratch.bring_back(first, vec![&mut a, &mut b]).unwrap();
            scratch.bring_back(second, vec![&mut c]).unwrap();
            for (tensor, first, len) in [(&a, round, 700), (&b, 7, 300), (&c, round + 9, 700)] {
                assert_eq!(
                    tensor.host::<f32>().unwrap(),
                    of(first, len).host::<f32>().unwrap()
                );
            }
            assert_eq!(scratch.room.lock().unwrap().end, 4 * (700 + 300 + 700));
        }
    }

    #[test]
    fn a_folder_that_is_none_is_told() {
        let missing = PathBuf::from("/nowhere/at/all");
        let config = Offload {
            layers: 1,
            folder: Some(missing),
        };
        let mut problems = Vec::new();
        config.check(&mut |key: &str, found: String, wanted: &str| {
            problems.push(format!("{key} {found} {wanted}"));
        });
        let wanted = ["offload.folder /nowhere/at/all a folder that can be written to"];
        assert_eq!(problems, wanted);
        assert!(Scratch::of(&config, 0).is_err());
    }
}

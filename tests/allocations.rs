//! Test that a step's buffers come from the arena planned before the first step: after two steps no large
//! allocation is made any more, in any precision.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error as StdError;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use train::config::{
    CheckpointConfig, Determinism, Family, ModelConfig, ParallelConfig, Plan, Precision,
    TrainConfig,
};
use train::data::{Sample, Samples};
use train::metrics::{Events, StepRecord};

/// Bytes from which on an allocation counts: a quarter of the smallest activation below.
const LARGE: usize = 16 << 10;

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count(bytes: usize) {
    if bytes >= LARGE {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every method passes its arguments on to `System` unchanged and returns its result, so `System`'s
// guarantees hold.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size, which is all that `System.alloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller guarantees a layout of non-zero size, which is all that `System.alloc_zeroed` requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller guarantees that `at` came from this allocator, that is from `System`, with `layout`,
        // and that `size` is valid.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that `at` came from this allocator, that is from `System`, with `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Ramp;

impl Samples for Ramp {
    fn len(&self) -> u64 {
        1 << 20
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        for (at, token) in (index..).zip(&mut sample.text()?.tokens) {
            *token = u32::try_from(at % 251)?;
        }
        Ok(())
    }
}

/// The count at the end of each step.
#[derive(Default)]
struct Counts(Mutex<Vec<usize>>);

impl Events for Counts {
    fn step(&self, _record: &StepRecord) {
        let mut counts = self.0.lock().expect("no thread panics with the lock");
        counts.push(COUNT.load(Ordering::Relaxed));
    }

    fn validation(&self, _set: &str, _step: u64, _loss: f64) {}
    fn checkpoint(&self, _step: u64, _path: &Path) {}
    fn resumed(&self, _step: u64) {}
    fn note(&self, _note: &str) {}
}

fn plan(precision: Precision, determinism: Determinism) -> Plan {
    Plan {
        model: ModelConfig {
            family: Family::Gpt,
            layers: 2,
            d_model: 64,
            heads: 4,
            ..ModelConfig::default()
        },
        train: TrainConfig {
            steps: 6,
            global_batch: 8,
            micro_batch: 4,
            precision,
            warmup_steps: 1,
            eval_every: 0,
            checkpoint: CheckpointConfig {
                every: 0,
                keep: 1,
                ..CheckpointConfig::default()
            },
            ..TrainConfig::default()
        },
        parallel: ParallelConfig::default(),
        vocab: 256,
        seq_length: 64,
        decoder_length: 0,
        start: None,
        predictions: 0,
        eod: None,
        seed: 1,
        determinism,
        fingerprint: "allocations".into(),
    }
}

// A single test, so that no other one allocates concurrently.
#[test]
fn after_two_steps_nothing_large_is_allocated() {
    for precision in [Precision::F32, Precision::Bf16] {
        for determinism in [Determinism::Layout, Determinism::Off] {
            let (folder, counts) = (tempfile::tempdir().unwrap(), Counts::default());
            let plan = plan(precision, determinism);
            train::trainer::run(&plan, &Ramp, None, folder.path(), &counts).unwrap();
            let counts = counts.0.into_inner().unwrap();
            assert!(counts[0] > 0, "the arena and the weights");
            let after: Vec<usize> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(
                after[1..],
                [0; 4],
                "{precision:?} {determinism:?} {after:?}"
            );
        }
    }
}

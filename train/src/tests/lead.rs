//! Flow control in evaluation: how far a stage may run ahead of the next one, as it has no backward pass to wait
//! for. Its activations wait in memory until they are received.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::config::Plan;
use crate::data::{Sample, Samples};
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::tests::resume::remains;
use crate::trainer::run;

/// Validation samples; a rank that is behind another one reads them slowly.
struct Watched {
    chain: Chain,
    /// Last sample that each rank read, and the longest lead.
    read: Mutex<(HashMap<ThreadId, u64>, u64)>,
}

impl Samples for Watched {
    fn len(&self) -> u64 {
        self.chain.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let is_behind = {
            let mut read = self.read.lock().unwrap();
            let (last, longest) = &mut *read;
            last.insert(thread::current().id(), index);
            if last.len() == 2 {
                let (most, least) = (last.values().max(), last.values().min());
                let lead = most.unwrap() - least.unwrap();
                *longest = lead.max(*longest);
            }
            last.values().any(|other| *other > index)
        };
        if is_behind {
            thread::sleep(Duration::from_millis(5));
        }
        self.chain.read(index, sample)
    }
}

#[test]
fn a_stage_is_a_few_samples_ahead_of_the_next_in_an_evaluation() {
    let mut plan = tiny_gpt();
    (plan.train.steps, plan.train.warmup_steps) = (1, 1);
    plan.train.micro_batch = 1;
    plan.train.eval_every = 1;
    plan.train.eval_samples = 64;
    let (want, _) = evaluated(&plan);
    plan.parallel.pp = 2;
    let (found, longest) = evaluated(&plan);
    // two wait at the next rank, which computes one; one is computed here
    assert!((1..=4).contains(&longest), "{longest}");
    assert!(found == want);
}

/// Files of a run, and the longest lead.
fn evaluated(plan: &Plan) -> (Vec<(String, Vec<u8>)>, u64) {
    let out = tempfile::tempdir().unwrap();
    let valid = Watched {
        chain: Chain::of(plan),
        read: Mutex::default(),
    };
    let samples = Chain::of(plan);
    run(plan, &samples, Some(&valid), out.path(), &Log::default()).unwrap();
    let longest = valid.read.lock().unwrap().1;
    let mut left = remains(out.path());
    // it contains the layout
    left.retain(|(file, _)| !file.ends_with("state.json"));
    (left, longest)
}

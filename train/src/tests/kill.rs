//! `kill -9` of a real process at arbitrary moments, then the same command again, until enough of the kills have hit.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kernels::rng;

use crate::config::{ParallelConfig, Plan};
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::tests::resume::remains;
use crate::trainer::run;

const OUT: &str = "MILLRACE_TEST_OUT";
const SHARDED: &str = "MILLRACE_TEST_SHARDED";

fn plan(sharded: bool) -> Plan {
    let mut plan = tiny_gpt();
    plan.parallel = ParallelConfig {
        tp: 2,
        pp: 1,
        dp: 2,
        zero: 3,
        sequence: true,
        ..Default::default()
    };
    plan.train.steps = 240;
    plan.train.checkpoint.sharded = sharded;
    plan.train.checkpoint.every = 1; // so that many kills fall into writing one
    plan
}

fn train(out: &Path, sharded: bool) {
    let plan = plan(sharded);
    let samples = Chain {
        count: 2000,
        ..Chain::of(&plan)
    };
    run(&plan, &samples, Some(&samples), out, &Log::default()).unwrap();
}

/// Run in a separate process by the tests below.
#[test]
#[ignore = "is killed by the tests below"]
fn victim() {
    if let Some(out) = std::env::var_os(OUT) {
        train(Path::new(&out), std::env::var_os(SHARDED).is_some());
    }
}

fn start(out: &Path, sharded: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::kill::victim", "--ignored"]);
    command.env(OUT, out).stdout(Stdio::null());
    if sharded {
        command.env(SHARDED, "1");
    }
    command.spawn().unwrap()
}

/// Kills wanted of either kind, and the number of processes that are started for them at most.
const WANTED: usize = 5;
const MOST_TRIES: u64 = 100;

/// Kills with a checkpoint half written, and others.
struct Kills {
    in_a_write: usize,
    elsewhere: usize,
}

/// Waits for a checkpoint to be in progress; false if the process ends before, or none comes.
fn is_writing(child: &mut Child, out: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until && child.try_wait().unwrap().is_none() {
        let entries = std::fs::read_dir(out.join("checkpoints"));
        let is_half = |name: &str| name.ends_with(".partial");
        let mut names = entries.into_iter().flatten().flatten();
        if names.any(|entry| entry.file_name().to_str().is_some_and(is_half)) {
            return true;
        }
    }
    false
}

#[test]
fn a_killed_process_leaves_nothing_that_matters() {
    killed(false);
}

#[test]
fn a_process_killed_among_shards_leaves_nothing_that_matters() {
    killed(true);
}

fn killed(sharded: bool) {
    let (calm, stormy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(calm.path(), sharded);
    let mut kills = Kills {
        in_a_write: 0,
        elsewhere: 0,
    };
    for attempt in 0..MOST_TRIES {
        if kills.in_a_write >= WANTED && kills.elsewhere >= WANTED {
            break;
        }
        let mut child = start(stormy.path(), sharded);
        let millis = 20.0 + 150.0 * rng::uniform(1, 2, attempt);
        sleep(Duration::from_secs_f64(millis / 1000.0));
        // every second one while the other thread writes
        let is_in_a_write = attempt % 2 == 0 && is_writing(&mut child, stormy.path());
        let is_alive = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        if is_alive {
            kills.in_a_write += usize::from(is_in_a_write);
            kills.elsewhere += usize::from(!is_in_a_write);
        } else {
            // it was faster than its kill: from the start again
            std::fs::remove_dir_all(stormy.path()).unwrap();
            std::fs::create_dir(stormy.path()).unwrap();
        }
    }
    println!(
        "{} kills in a write, {} elsewhere",
        kills.in_a_write, kills.elsewhere
    );
    assert!(
        kills.in_a_write >= WANTED && kills.elsewhere >= WANTED,
        "processes ended before they were killed"
    );
    train(stormy.path(), sharded);
    let (found, wanted) = (remains(stormy.path()), remains(calm.path()));
    assert_eq!(found.len(), wanted.len());
    for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
        assert!(found == wanted, "{name}");
    }
}

//! `kill -9` of a real process at arbitrary moments, then the same command again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kernels::rng;

use crate::claims::resume::remains;
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::{ParallelConfig, Plan, run};

const OUT: &str = "MILLRACE_TEST_OUT";

fn plan() -> Plan {
    let mut plan = tiny_gpt();
    plan.parallel = ParallelConfig {
        tp: 2,
        pp: 1,
        dp: 2,
        zero: 3,
        sequence: true,
        ..Default::default()
    };
    plan.train.steps = 40;
    plan.train.checkpoint.every = 1; // so that many kills fall into writing one
    plan
}

fn train(out: &Path) {
    let plan = plan();
    let samples = Chain::of(&plan);
    run(&plan, &samples, Some(&samples), out, &Log::default()).unwrap();
}

/// Run in a process of its own by the test below.
#[test]
#[ignore = "is killed by a_killed_process_leaves_nothing_that_matters"]
fn victim() {
    if let Some(out) = std::env::var_os(OUT) {
        train(Path::new(&out));
    }
}

fn start(out: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "claims::kill::victim", "--ignored"])
        .env(OUT, out)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_process_leaves_nothing_that_matters() {
    let (calm, stormy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(calm.path());
    let mut kills = 0;
    for attempt in 0..12 {
        let mut child = start(stormy.path());
        let millis = 20.0 + 150.0 * rng::uniform(1, 2, attempt);
        sleep(Duration::from_secs_f64(millis / 1000.0));
        kills += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(kills > 0, "no process lived long enough to be killed");
    train(stormy.path());
    let (found, wanted) = (remains(stormy.path()), remains(calm.path()));
    assert_eq!(found.len(), wanted.len());
    for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
        assert!(found == wanted, "{name} after {kills} kills");
    }
}

//! Ranks in several processes, here threads of one test that communicate through sockets alone: the bytes of one
//! process, and each process's report when another fails.

use std::error::Error as StdError;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::checkpoint::Ended;
use crate::config::{ParallelConfig, Plan};
use crate::data::{Sample, Samples};
use crate::dist::launch::Launcher;
use crate::dist::{LaunchConfig, World};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_moe};
use crate::metrics::{Events, StepRecord};
use crate::tests::resume::remains;
use crate::trainer::run::run_in_world;
use crate::trainer::{Outcome, ValidationSet, run};
use crate::{Error, Result};

/// A free port that no other call in this process returns. It is below 32768, where the system takes the ports of
/// connections from, so that it stays free until it is used.
fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    loop {
        let call = u32::from(CALLS.fetch_add(1, Ordering::SeqCst));
        let port = 10_000 + (std::process::id() % 20_000 * 97 + call) % 20_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Calls `run` in each of this many processes and returns their results.
fn in_processes<T: Send>(
    (processes, plan, timeout): (usize, &Plan, &str),
    run: impl Fn(&World) -> T + Sync,
) -> Vec<T> {
    let config = LaunchConfig {
        port: free_port(),
        timeout: timeout.into(),
        patience: "20s".into(),
        ..LaunchConfig::default()
    };
    let launcher = |process| Launcher {
        name: "torchrun",
        size_key: "WORLD_SIZE",
        process,
        processes,
        address: Some("127.0.0.1".into()),
        port: 1,
        is_address_given: true,
        is_mpi: false,
        host: format!("host-{process}"),
    };
    let out = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let (config, run, out) = (&config, &run, out.path());
        let one = |process| {
            let launcher = launcher(process);
            scope
                .spawn(move || run(&World::among(config, &plan.parallel, (launcher, out)).unwrap()))
        };
        let threads: Vec<_> = (0..processes).map(one).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn train(plan: &Plan, out: &Path, world: &World, samples: &dyn Samples) -> (Result<Outcome>, Log) {
    let (valid, log) = (Chain::of(plan), Log::default());
    let sets = [ValidationSet {
        name: "valid",
        samples: &valid,
    }];
    let outcome = run_in_world(plan, samples, &sets, (out, world), &log);
    (outcome, log)
}

fn layouts() -> Vec<(Plan, usize)> {
    let with = |plan: Plan, parallel| Plan { parallel, ..plan };
    let layout = |tp, pp, dp, zero| ParallelConfig {
        tp,
        pp,
        dp,
        zero,
        ..ParallelConfig::default()
    };
    vec![
        (with(tiny_gpt(), layout(1, 1, 2, 0)), 2),
        (
            with(
                tiny_gpt(),
                ParallelConfig {
                    sequence: true,
                    ..layout(2, 2, 1, 0)
                },
            ),
            2,
        ),
        (
            with(
                tiny_gpt(),
                ParallelConfig {
                    order: "dp-tp-pp-cp-ep".into(),
                    ..layout(2, 1, 2, 3)
                },
            ),
            4,
        ),
        (
            with(
                tiny_gpt(),
                ParallelConfig {
                    ranks_per_node: 2,
                    cp: 2,
                    ..layout(1, 1, 4, 1)
                },
            ),
            4,
        ),
        (
            with(
                tiny_moe(),
                ParallelConfig {
                    ep: 2,
                    ..layout(1, 1, 4, 1)
                },
            ),
            2,
        ),
    ]
}

#[test]
fn processes_leave_the_bytes_of_one() {
    for (at, (mut plan, processes)) in layouts().into_iter().enumerate() {
        // every second in shards, which each process writes by itself
        plan.train.checkpoint.sharded = at % 2 == 1;
        let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let samples = Chain::of(&plan);
        run(&plan, &samples, Some(&samples), one.path(), &Log::default()).unwrap();
        let ends = in_processes((processes, &plan, "1m"), |world| {
            train(&plan, many.path(), world, &Chain::of(&plan))
        });
        assert!(
            remains(one.path()) == remains(many.path()),
            "{:?}",
            plan.parallel
        );
        for (process, (outcome, log)) in ends.into_iter().enumerate() {
            assert_eq!(outcome.unwrap().ended, Ended::Steps);
            // process 0 alone logs
            assert_eq!(log.lines().is_empty(), process > 0, "{:?}", log.lines());
        }
    }
}

/// A chain that calls a function, which may fail, before each read.
struct Failing<'a>(Chain, &'a (dyn Fn(u64) + Sync));

impl Samples for Failing<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        (self.1)(index);
        self.0.read(index, sample)
    }
}

fn two_by_two() -> Plan {
    let mut plan = tiny_gpt();
    (plan.parallel.dp, plan.parallel.tp) = (2, 2);
    plan.train.steps = 8;
    plan
}

#[test]
fn what_one_process_fails_with_all_end_with_and_the_next_run_goes_on() {
    let plan = two_by_two();
    let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let samples = Chain::of(&plan);
    run(&plan, &samples, Some(&samples), one.path(), &Log::default()).unwrap();
    for bad in [0, 1, 3] {
        let texts = in_processes((4, &plan, "1m"), |world| {
            // tensor-parallel ranks of one batch part: all of it is read by two processes
            let fails_at = (world.process() == bad).then_some(if bad < 2 { 16 } else { 20 });
            let samples = Chain {
                fails_at,
                ..Chain::of(&plan)
            };
            train(&plan, many.path(), world, &samples)
                .0
                .unwrap_err()
                .to_string()
        });
        for (process, text) in texts.iter().enumerate() {
            let sample = if bad < 2 { 16 } else { 20 };
            if process == bad {
                assert_eq!(*text, format!("read sample {sample}"));
            } else {
                let want =
                    format!("rank {bad} on host-{bad} failed: read sample {sample}: injected");
                assert_eq!(*text, want, "process {process}");
            }
        }
    }
    in_processes((2, &plan, "1m"), |world| {
        let (outcome, log) = train(&plan, many.path(), world, &samples);
        outcome.unwrap();
        assert!(world.process() > 0 || log.lines().contains(&"resumed 2".to_owned()));
    });
    assert!(remains(one.path()) == remains(many.path()));
}

#[test]
fn a_panic_in_one_process_is_told_by_the_others() {
    let plan = two_by_two();
    let out = tempfile::tempdir().unwrap();
    let texts = in_processes((2, &plan, "1m"), |world| {
        let dies = |index| assert!(index != 12 || world.process() == 0, "on purpose");
        let samples = Failing(Chain::of(&plan), &dies);
        train(&plan, out.path(), world, &samples)
            .0
            .unwrap_err()
            .to_string()
    });
    assert!(
        texts[0].starts_with("ranks 2 to 3 on host-1 failed: rank "),
        "{}",
        texts[0]
    );
    assert!(texts[0].ends_with("panicked: on purpose"), "{}", texts[0]);
    assert!(texts[1].ends_with("panicked: on purpose"), "{}", texts[1]);
}

/// Requests a stop after a step.
struct Asks(u64, AtomicBool);

impl Events for Asks {
    fn step(&self, _: &StepRecord) {}
    fn validation(&self, _: &str, _: u64, _: f64) {}
    fn checkpoint(&self, _: u64, _: &Path) {}
    fn resumed(&self, _: u64) {}
    fn note(&self, _: &str) {}
    fn is_stop_asked(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

#[test]
fn any_process_that_is_asked_to_stop_stops_all_with_a_checkpoint() {
    let plan = two_by_two();
    for asked in 0..2 {
        let out = tempfile::tempdir().unwrap();
        let ends = in_processes((2, &plan, "1m"), |world| {
            let events = Asks(3, AtomicBool::new(false));
            let notice = |index| {
                let is_there = index >= events.0 * 8 && world.process() == asked;
                events.1.fetch_or(is_there, Ordering::SeqCst);
            };
            let samples = Failing(Chain::of(&plan), &notice);
            run_in_world(&plan, &samples, &[], (out.path(), world), &events).unwrap()
        });
        for outcome in ends {
            assert_eq!((outcome.ended, outcome.steps), (Ended::Asked, 4), "{asked}");
        }
        assert!(
            out.path()
                .join("checkpoints/step-00000004/state.json")
                .exists()
        );
    }
}

#[test]
fn the_watchdog_ends_all_processes_when_a_rank_does_not_come() {
    let plan = two_by_two();
    let out = tempfile::tempdir().unwrap();
    let texts = in_processes((2, &plan, "1s"), |world| {
        let sleeps = |index| {
            if index == 12 && world.process() == 1 {
                thread::sleep(Duration::from_millis(2500));
            }
        };
        let samples = Failing(Chain::of(&plan), &sleeps);
        let error = train(&plan, out.path(), world, &samples).0.unwrap_err();
        (
            error.to_string(),
            matches!(error, Error::Kernel { .. } | Error::Peer { .. }),
        )
    });
    let all = texts
        .iter()
        .map(|(text, _)| text.as_str())
        .collect::<Vec<_>>()
        .join("\n");
    assert!(texts.iter().all(|(_, is_told)| *is_told), "{all}");
}

#[test]
fn what_processes_have_not_alike_is_named_on_each() {
    let plan = two_by_two();
    let texts = in_processes((2, &plan, "1m"), |world| {
        world
            .compare("job", &json!({"a": {"b": 1}, "c": [1]}))
            .unwrap();
        let mine = json!({"train": {"lr": world.process(), "steps": 4}});
        world.compare("job", &mine).unwrap_err().to_string()
    });
    let want = "the processes do not have the same job: rank 2 on host-1 has train.lr 1, rank 0 on host-0 0";
    assert_eq!(texts, [want, want]);
}

#[test]
fn a_number_of_processes_that_does_not_divide_the_ranks_is_refused_with_those_that_do() {
    let plan = two_by_two();
    let launcher = Launcher {
        name: "srun",
        size_key: "SLURM_STEP_NUM_TASKS",
        process: 0,
        processes: 3,
        address: None,
        port: 1,
        is_address_given: false,
        is_mpi: false,
        host: "a".into(),
    };
    let refused = |launcher| {
        let opened = World::among(
            &LaunchConfig::default(),
            &plan.parallel,
            (launcher, Path::new("/nowhere")),
        );
        opened.err().unwrap().to_string()
    };
    let text = refused(launcher.clone());
    let want = "SLURM_STEP_NUM_TASKS of srun: found 3 for 4 ranks (tp 2, pp 1, dp 2, cp 1), want a number that divides them: 1, 2, 4";
    assert!(text.ends_with(want), "{text}");
    let text = refused(Launcher {
        processes: 2,
        ..launcher
    });
    assert!(
        text.contains(
            "MASTER_ADDR: found nothing, want the host of process 0 (srun does not tell it)"
        ),
        "{text}"
    );
}

//! Every instruction set trains to the same bytes, in processes that `MILLRACE_CPU` restricts, with different
//! numbers of threads.

use std::path::Path;
use std::process::{Command, Output};

use kernels::Isa;

use crate::config::{Bf16Sums, Precision};
use crate::fixtures::{Chain, Log, tiny_gpt};
use crate::tests::resume::remains;
use crate::trainer::run;

const OUT: &str = "MILLRACE_TEST_OUT";
const PRECISION: &str = "MILLRACE_TEST_PRECISION";

/// Run in a separate process by the tests below; prints the run's report.
#[test]
#[ignore = "is started by the tests below"]
fn masked() {
    let Some(out) = std::env::var_os(OUT) else {
        return;
    };
    let mut plan = tiny_gpt();
    let precision = std::env::var(PRECISION).unwrap();
    if let Some(sums) = precision.strip_prefix("bf16, ") {
        plan.train.precision = Precision::Bf16;
        plan.train.bf16_sums = match sums {
            "pairs" => Bf16Sums::Pairs,
            "tiles" => Bf16Sums::Tiles,
            _ => panic!("{sums}"),
        };
    }
    let (samples, log) = (Chain::of(&plan), Log::default());
    match run(&plan, &samples, Some(&samples), Path::new(&out), &log) {
        Ok(_) => println!("kernels: {}", log.1.lock().unwrap()),
        Err(error) => println!("refused: {error}"),
    }
}

fn start(out: &Path, (precision, threads): (&str, usize), value: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::paths::masked", "--ignored"]);
    command.arg("--nocapture").env("MILLRACE_CPU", value);
    command.env("RAYON_NUM_THREADS", threads.to_string());
    let Output { status, stdout, .. } = command
        .env(OUT, out)
        .env(PRECISION, precision)
        .output()
        .unwrap();
    assert!(status.success());
    String::from_utf8(stdout).unwrap()
}

#[test]
fn every_instruction_set_trains_to_the_same_bytes_and_is_told() {
    let here = Isa::ALL.iter().filter(|isa| isa.is_available());
    let here: Vec<&str> = here.map(|isa| isa.name()).collect();
    for precision in ["f32", "bf16, pairs", "bf16, tiles"] {
        let mut first = None;
        for (at, name) in here.iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let said = start(folder.path(), (precision, 1 + at), name);
            let line = format!("kernels: {name}");
            assert!(said.contains(&line), "{said}");
            if at > 0 {
                let masked = format!("{} masked by MILLRACE_CPU", here[..at].join(", "));
                assert!(said.contains(&masked), "{said}");
            }
            let found = remains(folder.path());
            let wanted = first.get_or_insert_with(|| found.clone());
            assert_eq!(found.len(), wanted.len());
            for ((file, found), (_, wanted)) in found.iter().zip(wanted) {
                assert!(found == wanted, "{precision} {name}: {file}");
            }
        }
    }
}

#[test]
fn a_path_that_is_none_is_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let said = start(folder.path(), ("f32", 1), "avx1024");
    let wanted = "refused: MILLRACE_CPU: found \"avx1024\", want one that this machine has: ";
    assert!(said.contains(wanted), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

//! Launch environment: this process's number and peers, from the variables of torchrun, mpirun (Open MPI's and
//! MPICH's) or srun, and the `[launch]` table for the rest.
//!
//! | launcher | process, processes | where process 0 listens |
//! |---|---|---|
//! | torchrun and its like | `RANK`, `WORLD_SIZE` | `MASTER_ADDR`, `MASTER_PORT` |
//! | mpirun of Open MPI | `OMPI_COMM_WORLD_RANK`, `_SIZE` | MPI itself |
//! | mpirun of MPICH, Intel MPI | `PMI_RANK`, `PMI_SIZE` | MPI itself |
//! | srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | first host of the step |
//!
//! The first launcher found in this order counts; `MASTER_ADDR` and `MASTER_PORT` override any other source of the
//! address. A script under sbatch is not a step and trains alone.
//!
//! `MILLRACE_SECRET` authenticates the processes to each other over TCP (`secret.rs`).
//!
//! `MILLRACE_CPU` limits the instruction set that ops may use, to isolate a fault or a timing of one of them; the
//! bits are the same with each.

use std::time::Duration;

use kernels::comm::mpi;
use kernels::{CpuPath, Isa};
use serde::{Deserialize, Serialize};

use crate::config::train::duration;
use crate::error::{Error, Result};

/// Default port of process 0.
const PORT: u16 = 29_400;

/// Transport between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// MPI under mpirun, if `MASTER_ADDR` is not set; else sockets; threads without a launcher.
    Auto,
    /// All ranks are threads of one process, even under a launcher.
    Threads,
    /// TCP between processes.
    Sockets,
    /// MPI between processes; its library is opened at run time.
    Mpi,
}

/// How tensors on GPUs travel between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collectives {
    /// By NCCL in groups of which each rank has a GPU of its own, if every host has the library; else by copies between
    /// the devices of a process, and through the host between processes.
    #[default]
    Auto,
    /// By NCCL; without the library, or with two ranks on one GPU, the run does not start.
    Nccl,
    /// Through the host.
    Host,
}

/// `[launch]`: how ranks are spread over processes and hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LaunchConfig {
    /// Transport between ranks. Default: `auto`.
    pub transport: Transport,
    /// Library of MPI, a name or path; empty: the launcher's usual names. Default: empty.
    pub mpi_library: String,
    /// Port at which process 0 listens; 0: the launcher's. Default: 0.
    pub port: u16,
    /// Name or address of process 0's host that process 0 listens at over TCP; empty: `MASTER_ADDR`, or all
    /// addresses if that is not an address of this host. Default: empty.
    pub bind: String,
    /// File with the secret that authenticates processes over TCP, 16 characters or more, readable by its owner
    /// alone; `MILLRACE_SECRET` overrides it. Empty: `.secret` in `out`, which process 0 makes. Default: empty.
    pub secret: String,
    /// Time that a rank waits for ranks of other processes before it gives up and names them, and for ranks of its
    /// own process that wait for each other in a circle. Must be longer than writing a checkpoint takes, and than
    /// the computation between two collectives. Default: `10m`.
    pub timeout: String,
    /// Time that processes wait for each other at the start. Default: `2m`.
    pub patience: String,
    /// How tensors on GPUs travel between ranks: `auto`, `nccl` or `host`. Default: `auto`.
    pub collectives: Collectives,
}

impl Default for LaunchConfig {
    fn default() -> Self {
        LaunchConfig {
            transport: Transport::Auto,
            mpi_library: String::new(),
            port: 0,
            bind: String::new(),
            secret: String::new(),
            timeout: "10m".into(),
            patience: "2m".into(),
            collectives: Collectives::Auto,
        }
    }
}

impl LaunchConfig {
    /// Calls `problem` for every invalid value.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        for (key, value) in [("timeout", &self.timeout), ("patience", &self.patience)] {
            if time(value).is_none() {
                let wanted = "a time above 0, at most 3650 days, such as \"10m\" or \"90s\"";
                problem(key, format!("{value:?}"), wanted);
            }
        }
    }
}

/// Libraries of MPI by their usual names, that of the launcher first.
pub(crate) fn mpi_libraries(config: &LaunchConfig, launcher: &Launcher) -> Vec<String> {
    if !config.mpi_library.is_empty() {
        return vec![config.mpi_library.clone()];
    }
    let names = match launcher.name {
        "MPICH" => ["libmpi.so.12", "libmpi_abi.so.1", "libmpi.so"],
        _ => ["libmpi.so.40", "libmpi.so", "libmpi.so.12"],
    };
    names.map(str::to_owned).to_vec()
}

/// MPI libraries with the usual names that a run could use here; MPI is not started.
pub fn mpi_here() -> Vec<mpi::Found> {
    let names = [
        "libmpi.so.40",
        "libmpi.so.12",
        "libmpi_abi.so.1",
        "libmpi.so",
    ];
    mpi::found(&names.map(str::to_owned))
}

/// Whether a launcher started this process with others.
pub fn is_one_of_many() -> bool {
    let launcher = Launcher::of_this_process();
    launcher.is_ok_and(|launcher| launcher.is_some_and(|launcher| launcher.processes > 1))
}

/// A duration that the clock can represent.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let secs = duration(text).filter(|&secs| secs <= 3650.0 * 86_400.0);
    secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok())
}

/// This process as its launcher describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    /// For messages.
    pub name: &'static str,
    /// The variable with the number of processes, for messages.
    pub size_key: &'static str,
    pub process: usize,
    pub processes: usize,
    /// Address of process 0, if known.
    pub address: Option<String>,
    pub port: u16,
    /// Whether `MASTER_ADDR` is set.
    pub is_address_given: bool,
    pub is_mpi: bool,
    pub host: String,
}

/// Variables of a launcher: its name, process, processes, processes of this host.
type Kind = (&'static str, &'static str, &'static str, &'static str);

const KINDS: [Kind; 4] = [
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
];

impl Launcher {
    /// Detects the launcher from its variables; None without a launcher.
    pub(crate) fn find(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launcher>> {
        let Some((name, rank_key, size_key, local_key)) = kind(variable) else {
            return Ok(None);
        };
        let mut problems = Vec::new();
        let mut number = |key: &str| {
            let text = variable(key).unwrap_or_default();
            text.trim().parse::<usize>().ok().or_else(|| {
                let found = if text.is_empty() {
                    "nothing".into()
                } else {
                    format!("{text:?}")
                };
                problems.push(format!("{key}: found {found}, want a number ({name})"));
                None
            })
        };
        let (process, processes) = (number(rank_key), number(size_key));
        let port = port(name, variable, &mut problems);
        if let (Some(process), Some(processes)) = (process, processes)
            && process >= processes
        {
            problems.push(format!(
                "{rank_key}: found {process}, want a number below {size_key} = {processes}"
            ));
        }
        let (Some(process), Some(processes), true) = (process, processes, problems.is_empty())
        else {
            return Err(Error::Launch(problems));
        };
        let all_here =
            variable(local_key).is_some_and(|local| local.trim() == processes.to_string());
        let is_one_node =
            name == "srun" && variable("SLURM_STEP_NUM_NODES").as_deref() == Some("1");
        let given = variable("MASTER_ADDR").filter(|address| !address.is_empty());
        let is_address_given = given.is_some();
        let address = given.or_else(|| match all_here || is_one_node {
            true => Some("127.0.0.1".into()),
            false if name == "srun" => first_host(variable),
            false => None,
        });
        Ok(Some(Launcher {
            name,
            size_key,
            process,
            processes,
            address,
            port,
            is_address_given,
            is_mpi: matches!(name, "Open MPI" | "MPICH"),
            host: host(variable),
        }))
    }

    /// Whether the launcher ends all processes when one dies, before they can report which.
    pub(crate) fn ends_all_at_once(&self) -> bool {
        self.name == "MPICH"
    }

    /// Detects the launcher from this process's variables.
    pub(crate) fn of_this_process() -> Result<Option<Launcher>> {
        Launcher::find(&variable)
    }
}

/// The variable that limits the instruction set.
const CPU: &str = "MILLRACE_CPU";

/// The instruction set that ops use: the one that `MILLRACE_CPU` names, else the widest.
///
/// # Errors
/// `Cpu` if the variable names no instruction set, or one that this machine lacks.
pub fn cpu_path() -> Result<CpuPath> {
    path_of(&variable)
}

fn path_of(variable: &dyn Fn(&str) -> Option<String>) -> Result<CpuPath> {
    let Some(found) = variable(CPU).filter(|name| !name.is_empty()) else {
        return Ok(CpuPath::widest());
    };
    let path = Isa::named(&found).and_then(|isa| CpuPath::masked(isa, CPU));
    path.ok_or_else(|| {
        let here = Isa::ALL.iter().filter(|isa| isa.is_available());
        let here: Vec<&str> = here.map(|isa| isa.name()).collect();
        Error::Cpu {
            variable: CPU,
            found,
            wanted: here.join(", "),
        }
    })
}

/// The variable with the shared secret.
pub(crate) const SECRET: &str = "MILLRACE_SECRET";

/// Its text, if it has one.
pub(crate) fn secret_variable() -> Option<String> {
    variable(SECRET).filter(|text| !text.is_empty())
}

/// A variable of this process.
fn variable(key: &str) -> Option<String> {
    std::env::var(key).ok()
}

fn kind(variable: &dyn Fn(&str) -> Option<String>) -> Option<Kind> {
    let is_there = |key: &str| variable(key).is_some();
    KINDS.into_iter().find(|(name, rank, size, _)| match *name {
        // half of the pair is a mistake worth reporting; an sbatch script has SLURM_PROCID without a step
        "torchrun" => is_there(rank) || is_there(size),
        _ => is_there(rank) && is_there(size),
    })
}

fn port(name: &str, variable: &dyn Fn(&str) -> Option<String>, problems: &mut Vec<String>) -> u16 {
    if let Some(text) = variable("MASTER_PORT").filter(|text| !text.is_empty()) {
        let Some(port) = text.trim().parse::<u16>().ok().filter(|&port| port > 0) else {
            problems.push(format!(
                "MASTER_PORT: found {text:?}, want a number from 1 to 65535"
            ));
            return PORT;
        };
        // torchrun's agent listens there itself
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True");
        return if is_taken {
            port.checked_add(1).unwrap_or(PORT)
        } else {
            port
        };
    }
    let job = variable("SLURM_JOB_ID").and_then(|id| id.trim().parse::<u64>().ok());
    match job.filter(|_| name == "srun") {
        // two jobs may share a host
        Some(job) => u16::try_from(20_000 + job % 10_000).unwrap_or(PORT),
        None => PORT,
    }
}

/// The first name of a list such as `n[01-03,7],m2`.
fn first_host(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let keys = [
        "SLURM_STEP_NODELIST",
        "SLURM_NODELIST",
        "SLURM_JOB_NODELIST",
    ];
    let list = keys.iter().find_map(|key| variable(key))?;
    let end = |text: &str, ends: &[char]| text.find(ends).unwrap_or(text.len());
    let start = &list[..end(&list, &['[', ','])];
    match list[start.len()..].strip_prefix('[') {
        Some(numbers) => Some(format!(
            "{start}{}",
            &numbers[..end(numbers, &[',', '-', ']'])]
        )),
        None => Some(start.to_owned()).filter(|start| !start.is_empty()),
    }
}

/// Name of this host, for messages.
pub(crate) fn host(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let of_node = variable("SLURMD_NODENAME");
    let of_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = of_node.or_else(of_kernel).or_else(|| variable("HOSTNAME"));
    let name = name.unwrap_or_default();
    match name.trim() {
        "" => "localhost".into(),
        name => name.replace(char::is_whitespace, "-"),
    }
}

/// Name of the host of this process.
pub(crate) fn this_host() -> String {
    host(&variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Option<Launcher>> {
        Launcher::find(&|key| {
            let found = variables.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_launcher_tells_process_processes_and_place() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node-a"),
            ("MASTER_PORT", "29500"),
            // variables of the Slurm step around torchrun are ignored
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
        ];
        let found = find(&torchrun).unwrap().unwrap();
        assert_eq!(
            (found.name, found.process, found.processes),
            ("torchrun", 3, 4)
        );
        assert_eq!(
            (found.address.as_deref(), found.port),
            (Some("node-a"), 29_500)
        );
        let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(find(&agent).unwrap().unwrap().port, 29_501);

        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let found = find(&ompi).unwrap().unwrap();
        assert_eq!((found.name, found.is_mpi), ("Open MPI", true));
        assert_eq!(
            (found.address.as_deref(), found.port),
            (Some("127.0.0.1"), PORT)
        );
        let mpich = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALNRANKS", "1"),
        ];
        let found = find(&mpich).unwrap().unwrap();
        assert!(found.ends_all_at_once());
        assert_eq!(
            (found.process, found.is_mpi, found.address),
            (1, true, None)
        );

        let srun = |nodes| {
            [
                ("SLURM_PROCID", "1"),
                ("SLURM_STEP_NUM_TASKS", "2"),
                ("SLURM_JOB_ID", "123456"),
                ("SLURM_STEP_NODELIST", nodes),
                ("SLURMD_NODENAME", "n02"),
            ]
        };
        for (nodes, first) in [
            ("n[01-03,7],m2", "n01"),
            ("n2,n3", "n2"),
            ("solo", "solo"),
            ("r1n[5,9]", "r1n5"),
        ] {
            let found = find(&srun(nodes)).unwrap().unwrap();
            assert_eq!(found.address.as_deref(), Some(first));
            assert_eq!(
                (found.name, found.port, found.host.as_str()),
                ("srun", 23_456, "n02")
            );
        }
    }

    #[test]
    fn there_is_no_launcher_without_its_variables_and_in_an_sbatch_script() {
        assert_eq!(find(&[]).unwrap(), None);
        let one = find(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
        assert_eq!(one.unwrap().processes, 1);
        let sbatch = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_JOB_ID", "7"),
        ];
        assert_eq!(find(&sbatch).unwrap(), None);
    }

    #[test]
    fn variables_that_are_wrong_are_all_named_at_once() {
        let wrong = [("RANK", "x"), ("MASTER_PORT", "99999")];
        let text = find(&wrong).unwrap_err().to_string();
        for part in [
            "RANK: found \"x\", want a number (torchrun)",
            "WORLD_SIZE: found nothing, want a number (torchrun)",
            "MASTER_PORT: found \"99999\", want a number from 1 to 65535",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let text = find(&[("RANK", "2"), ("WORLD_SIZE", "2")])
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("RANK: found 2, want a number below WORLD_SIZE = 2"),
            "{text}"
        );
    }

    #[test]
    fn a_path_that_is_none_or_not_here_is_refused_with_those_that_are() {
        let path = |value: &'static str| path_of(&move |_| Some(value.to_owned()));
        assert_eq!(path_of(&|_| None).unwrap(), CpuPath::widest());
        assert_eq!(path("").unwrap(), CpuPath::widest());
        let mut refused = vec!["avx1024", "AVX2", "AMX"];
        for isa in Isa::ALL {
            match isa.is_available() {
                true => assert_eq!(path(isa.name()).unwrap().isa(), isa),
                false => refused.push(isa.name()),
            }
        }
        for value in refused {
            let error = path(value).unwrap_err().to_string();
            let found = format!("MILLRACE_CPU: found {value:?}, want one that this machine has: ");
            assert!(error.starts_with(&found), "{error}");
            assert!(error.ends_with("portable"), "{error}");
        }
    }

    #[test]
    fn times_that_are_none_are_refused() {
        let config = LaunchConfig {
            timeout: "soon".into(),
            patience: "99999999999d".into(),
            ..LaunchConfig::default()
        };
        let mut keys = Vec::new();
        config.check(&mut |key, _, _| keys.push(key.to_owned()));
        assert_eq!(keys, ["timeout", "patience"]);
    }
}

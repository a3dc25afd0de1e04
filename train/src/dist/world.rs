//! The processes of a run, each of which runs a share of the ranks as its threads, and their communication outside
//! steps: rendezvous, comparison of settings, failure reports.
//!
//! A process that fails reports why, and the others end with its message. One that ends without a report is named.
//! `kernels::comm` is the transport.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kernels::comm::socket::{self, Rendezvous};
use kernels::comm::{Collective, Failure, Network, Roster, Watch};
use kernels::comm::{local, mpi};
use kernels::peak_flops;
use serde_json::Value;

use crate::config::ParallelConfig;
use crate::config::numbers::numbers_of;
use crate::config::numbers::with_sums_on;
use crate::config::plan::Plan;
use crate::config::precision::Units;
use crate::dist::devices::Devices;
use crate::dist::keep_alive::KeepAlive;
use crate::dist::launch::{
    Collectives, LaunchConfig, Launcher, Transport, cpu_path, mpi_libraries, this_host, time,
};
use crate::dist::secret;
use crate::error::{Error, OnRank, Result};

/// Time to wait for the report of a process that failed.
const WORDS: Duration = Duration::from_secs(2);

/// This process among those of a run.
pub struct World {
    network: Option<Network>,
    /// Dropped after the connections.
    _guardian: Option<KeepAlive>,
    remarks: Vec<String>,
    watch: Arc<Watch>,
    host: String,
    /// This process has reported its end to the others.
    is_ended: AtomicBool,
    /// Peak floating-point operations per second of all processes, once measured; None inside if it is not known.
    peak: OnceLock<Option<f64>>,
    devices: Devices,
}

impl World {
    /// One process whose ranks wait for each other without a deadline.
    pub fn alone() -> World {
        World::of_threads(None)
    }

    fn of_threads(timeout: Option<Duration>) -> World {
        let host = this_host();
        // all ranks are in the first process
        let watch = Watch::new(timeout, vec![host.clone()], usize::MAX);
        World {
            network: None,
            _guardian: None,
            remarks: Vec::new(),
            watch: Arc::new(watch),
            host,
            is_ended: AtomicBool::new(false),
            peak: OnceLock::new(),
            devices: Devices::Cpu,
        }
    }

    /// The same with ranks that compute on these devices.
    pub fn on(self, devices: Devices) -> World {
        World { devices, ..self }
    }

    /// Devices that ranks compute on.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Number on this host of this process's first rank, of `ranks` in all; every process must ask.
    ///
    /// # Errors
    /// If a process has ended.
    pub(crate) fn first_local_rank(&self, ranks: usize) -> Result<usize> {
        let hosts = self.exchange(&self.host)?;
        let before = hosts.iter().take(self.process());
        let here = before.filter(|host| **host == self.host).count();
        Ok(here * self.ranks(ranks).len())
    }

    /// Checks that the devices of this process's ranks, of a run of `ranks`, can be opened; all processes must make the
    /// same call.
    ///
    /// # Errors
    /// `Device` if a library or device is missing.
    pub fn check_devices(&self, ranks: usize) -> Result<()> {
        let devices = self.devices();
        let first = match devices.collectives() {
            Collectives::Nccl => Some(self.first_local_rank(ranks)?),
            Collectives::Auto | Collectives::Host => None,
        };
        devices.check()?;
        first.map_or(Ok(()), |first| {
            devices.check_cards(first..first + self.ranks(ranks).len())
        })
    }

    /// Detects which process of the run this is and connects it to the others, which see the same folder `out`: it
    /// has the shared secret unless another one is configured.
    ///
    /// # Errors
    /// `Launch`: variables that are wrong or do not match the layout, an invalid secret; `Connect`:
    /// processes that do not find each other in time.
    pub fn open(config: &LaunchConfig, parallel: &ParallelConfig, out: &Path) -> Result<World> {
        let timeout = time(&config.timeout);
        let launcher = match config.transport {
            Transport::Threads => None,
            _ => Launcher::of_this_process()?,
        };
        let asks = matches!(config.transport, Transport::Sockets | Transport::Mpi);
        match launcher {
            None if asks => Err(Error::Launch(vec![
                "launch.transport: found sockets or mpi without a launcher, want torchrun, mpirun, srun or their variables".into(),
            ])),
            Some(launcher) if launcher.processes > 1 => {
                World::among(config, parallel, (launcher, out))
            }
            _ => Ok(World::of_threads(timeout)),
        }
    }

    pub(crate) fn among(
        config: &LaunchConfig,
        parallel: &ParallelConfig,
        (launcher, out): (Launcher, &Path),
    ) -> Result<World> {
        let (ranks, processes) = (parallel.world(), launcher.processes);
        if !ranks.is_multiple_of(processes) {
            let choices = (1..=ranks).filter(|choice| ranks.is_multiple_of(*choice));
            let choices: Vec<String> = choices.map(|choice| choice.to_string()).collect();
            let ParallelConfig { tp, pp, dp, cp, .. } = parallel;
            return Err(Error::Launch(vec![format!(
                "{} of {}: found {processes} for {ranks} ranks (tp {tp}, pp {pp}, dp {dp}, cp {cp}), want a number that divides them: {}",
                launcher.size_key,
                launcher.name,
                choices.join(", ")
            )]));
        }
        let (patience, timeout) = (time(&config.patience), time(&config.timeout));
        let (Some(patience), Some(timeout)) = (patience, timeout) else {
            let mut problems = Vec::new();
            config.check(&mut |key, found, wanted| {
                problems.push(format!("launch.{key}: found {found}, want {wanted}"));
            });
            return Err(Error::Launch(problems));
        };
        let is_mpi = match config.transport {
            Transport::Auto => launcher.is_mpi && !launcher.is_address_given,
            transport => transport == Transport::Mpi,
        };
        // before MPI is opened
        let (keep_alive, unguarded) = KeepAlive::under(&launcher);
        let mut remarks: Vec<String> = Vec::new();
        let network = if is_mpi {
            mpi::connect(&mpi::Start {
                process: launcher.process,
                processes,
                ranks_per_process: ranks / processes,
                host: launcher.host.clone(),
                libraries: mpi_libraries(config, &launcher),
                patience,
                timeout,
            })
        } else {
            let Some(address) = launcher.address else {
                return Err(Error::Launch(vec![format!(
                    "MASTER_ADDR: found nothing, want the host of process 0 ({} does not tell it)",
                    launcher.name
                )]));
            };
            let (secret, told) = secret::of_run(config, (launcher.process, out), patience)?;
            remarks.extend((launcher.process == 0).then_some(told));
            socket::connect(&Rendezvous {
                bind: (!config.bind.is_empty()).then(|| config.bind.clone()),
                secret,
                process: launcher.process,
                processes,
                ranks_per_process: ranks / processes,
                address,
                port: if config.port > 0 {
                    config.port
                } else {
                    launcher.port
                },
                host: launcher.host.clone(),
                patience,
                timeout,
            })
        };
        let network = network.map_err(|source| Error::Connect { source })?;
        remarks.extend(network.remarks().iter().cloned().chain(unguarded));
        Ok(World {
            watch: network.watch(),
            network: Some(network),
            _guardian: keep_alive,
            remarks,
            host: launcher.host,
            is_ended: AtomicBool::new(false),
            peak: OnceLock::new(),
            devices: Devices::Cpu,
        })
    }

    /// Measures the peak floating-point operations per second of all processes' threads in the number format of the
    /// plan's products, the denominator of `StepRecord::mfu`; takes about 60 ms. Every process must call it. None
    /// if a process uses an instruction set whose peak is not known. Without this call and without
    /// `train.peak_tflops` no MFU is reported.
    ///
    /// # Errors
    /// If a process has ended; `Cpu`.
    pub fn measure_peak(&self, plan: &Plan) -> Result<Option<f64>> {
        let isa = cpu_path()?.isa();
        let numbers = numbers_of(&with_sums_on(plan, Units::Cpu(isa)));
        let mine = peak_flops(isa, numbers).map_or(String::new(), |flops| flops.to_string());
        let all = self.exchange(&mine)?;
        let all: Option<Vec<f64>> = all.iter().map(|flops| flops.parse().ok()).collect();
        let sum = all.map(|flops| flops.iter().sum());
        Ok(*self.peak.get_or_init(|| sum))
    }

    /// Result of `measure_peak`.
    pub(crate) fn peak(&self) -> Option<f64> {
        self.peak.get().copied().flatten()
    }

    /// This process, from 0.
    pub fn process(&self) -> usize {
        self.network.as_ref().map_or(0, Network::process)
    }

    /// Processes of the run.
    pub fn processes(&self) -> usize {
        self.network.as_ref().map_or(1, Network::processes)
    }

    /// Whether this is process 0, which alone writes the files that are not a rank's own.
    pub fn is_first(&self) -> bool {
        self.process() == 0
    }

    /// Whether the run has other processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.network.is_some()
    }

    /// World ranks of this process, in a world of this size.
    pub(crate) fn ranks(&self, world: usize) -> Range<usize> {
        self.network.as_ref().map_or(0..world, Network::ranks)
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn shared_watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch)
    }

    /// Log lines about how the processes are connected.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Calls `tell` with the name and the reason as soon as a process ends without a report, once. That may be long
    /// before a rank here waits for it; under a launcher that then ends all processes, it is the only chance to
    /// report it.
    pub fn on_loss(&self, tell: impl Fn(&str, &str) + Send + Sync + 'static) {
        if let Some(network) = &self.network {
            network.on_loss(move |failure| tell(&failure.who, &failure.reason));
        }
    }

    /// Whether another process reported why the run ends, or died.
    pub(crate) fn knows_cause(&self) -> bool {
        let network = self.network.as_ref();
        network.is_some_and(|network| network.cause(Duration::ZERO).is_some())
    }

    /// Groups of world ranks, which have each rank of a world of `world` once: the connections of the
    /// ranks of this process, in order.
    pub(crate) fn connect(
        &self,
        name: &'static str,
        (lists, world): (&[Vec<usize>], usize),
    ) -> Vec<Box<dyn Collective>> {
        let here = self.ranks(world);
        let mut all: Vec<Option<Box<dyn Collective>>> = here.clone().map(|_| None).collect();
        for members in lists {
            let comms: Vec<Box<dyn Collective>> = match &self.network {
                Some(network) => network.group(name, members),
                None => {
                    let roster = Roster {
                        name,
                        members: members.clone(),
                        watch: Arc::clone(&self.watch),
                        is_patient: false,
                    };
                    let comms = local::watched(roster).into_iter();
                    comms
                        .map(|comm| Box::new(comm) as Box<dyn Collective>)
                        .collect()
                }
            };
            let mine = members.iter().filter(|&rank| here.contains(rank));
            for (rank, comm) in mine.zip(comms) {
                all[rank - here.start] = Some(comm);
            }
        }
        let all = all.into_iter();
        all.map(|comm| comm.expect("the lists have every rank"))
            .collect()
    }

    /// A connection to the other processes that waits without a deadline, if there are any.
    pub(crate) fn of_processes(&self, name: &'static str) -> Option<Box<dyn Collective>> {
        self.network
            .as_ref()
            .map(|network| network.of_processes(name))
    }

    /// All-gathers one text per process, in order of processes; waits without a deadline.
    ///
    /// # Errors
    /// If a process has ended.
    pub fn exchange(&self, text: &str) -> Result<Vec<String>> {
        match &self.network {
            None => Ok(vec![text.to_owned()]),
            Some(network) => {
                let first = network.ranks().start;
                network
                    .exchange(text)
                    .on_rank(first, "hear from the other processes")
            }
        }
    }

    /// Compares a value that all processes must agree on with process 0's.
    ///
    /// # Errors
    /// `Unlike`, on every process: hosts, ranks and every key that differs.
    pub fn compare(&self, what: &'static str, mine: &Value) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let all = self.exchange(&mine.to_string())?;
        let values: Vec<Value> = all
            .iter()
            .map(|text| serde_json::from_str(text).unwrap_or_default())
            .collect();
        let mut differences = Vec::new();
        let per = self.ranks(0).len();
        for (process, there) in values.iter().enumerate().skip(1) {
            let who = self.watch.name_of(process * per);
            each_difference(&values[0], there, "", &mut |key, first, other| {
                let key = if key.is_empty() {
                    String::new()
                } else {
                    format!("{key} ")
                };
                differences.push(format!(
                    "rank {who} has {key}{other}, rank {} {first}",
                    self.watch.name_of(0)
                ));
            });
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::Unlike { what, differences })
    }

    /// Reports to the other processes why this one ends, or finds out why they did; returns the cause.
    pub fn end(&self, error: Error) -> Error {
        let Some(network) = &self.network else {
            return error;
        };
        let heard = is_consequence(&error)
            .then(|| network.cause(WORDS))
            .flatten();
        let (error, failure) = match heard {
            Some(failure) => {
                let Failure { who, reason } = failure.clone();
                (Error::Peer { who, reason }, failure)
            }
            None => {
                let reason = format!("failed: {}", error.with_causes());
                (error, self.failure(reason))
            }
        };
        if !self.is_ended.swap(true, Ordering::SeqCst) {
            network.fail(&failure);
        }
        error
    }

    /// Reports to the other processes that this one ends, for a reason of its own.
    pub fn fail(&self, reason: &str) {
        if let Some(network) = &self.network
            && !self.is_ended.swap(true, Ordering::SeqCst)
        {
            network.fail(&self.failure(format!("failed: {reason}")));
        }
    }

    fn failure(&self, reason: String) -> Failure {
        let ranks = self.ranks(0);
        let who = match ranks.len() {
            0 | 1 => format!("rank {} on {}", ranks.start, self.host),
            _ => format!(
                "ranks {} to {} on {}",
                ranks.start,
                ranks.end - 1,
                self.host
            ),
        };
        Failure { who, reason }
    }
}

/// Whether an error is only the consequence of another rank's earlier failure.
pub(crate) fn is_consequence(error: &Error) -> bool {
    matches!(
        error,
        Error::Kernel {
            source: kernels::Error::PeerGone { .. },
            ..
        }
    )
}

/// Calls `visit` with key path and both values of every leaf that differs.
fn each_difference(a: &Value, b: &Value, key: &str, visit: &mut dyn FnMut(&str, &Value, &Value)) {
    let (Some(of_a), Some(of_b)) = (a.as_object(), b.as_object()) else {
        if a != b {
            visit(key, a, b);
        }
        return;
    };
    let added = of_b.keys().filter(|name| !of_a.contains_key(*name));
    for name in of_a.keys().chain(added) {
        let path = if key.is_empty() {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        each_difference(&a[name.as_str()], &b[name.as_str()], &path, visit);
    }
}

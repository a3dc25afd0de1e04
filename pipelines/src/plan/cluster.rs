//! Clusters: number of devices and their rates, from a TOML file or one of those that Millrace has.

use crate::job::place::places;
use crate::job::{LoadError, Problem};
use curate::text::near::or_nearest;
use std::path::Path;

/// A level of the network: groups of nodes below one switch, or several that work as one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Level {
    pub name: String,
    /// Nodes of a group.
    pub nodes: usize,
    /// The rate that comes to a group's switches from below over that of their links to the rest.
    pub oversubscription: f64,
}

/// Links that the devices of a group share on their way to all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Uplink {
    /// Devices of a group.
    pub devices: usize,
    /// The network's rate of all of them over that of the group's links to the rest.
    pub oversubscription: f64,
}

/// Devices and rates. Bandwidths are those of one device in one direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cluster {
    pub name: String,
    pub nodes: usize,
    pub devices_per_node: usize,
    /// Cores of a node that its devices share, if they do: ranks that are threads of one machine. `matrix`, `memory` and
    /// `memory_rate` are then those of the node.
    pub cores: Option<usize>,
    /// Dense products of 16-bit numbers, FLOP/s per device.
    pub matrix: f64,
    /// The same of f32.
    pub matrix_f32: Option<f64>,
    /// The same of 8-bit numbers.
    pub matrix_fp8: Option<f64>,
    /// The rate of products inside layers where it is another than `matrix`: they are planned in 8 bits.
    pub matrix_of_layers: Option<f64>,
    /// Share of `matrix` that the largest product was measured to reach, over the same share of the devices of the fit
    /// (`REACHED_BY_FITTED`). Without it a device is assumed to reach as much as those.
    pub matrix_reached: Option<f64>,
    /// The same of 8-bit numbers.
    pub matrix_fp8_reached: Option<f64>,
    /// Bytes of a number that products and layers read: 2, or 4 where they are planned in f32.
    pub number_bytes: f64,
    /// Bytes of a device.
    pub memory: f64,
    /// Bytes/s of a device's memory.
    pub memory_rate: f64,
    /// Seconds to start an operation of a device; 0 if it is not given.
    pub op_latency: f64,
    /// The same by a rank whose threads share the operation; `op_latency` if it is not given.
    pub shared_op_latency: f64,
    /// Seconds of a collective of one number inside a node; 0 if it is not given.
    pub link_latency: f64,
    /// Bytes/s between devices of a node.
    pub link: f64,
    /// Bytes/s between nodes, up to the first level.
    pub network: f64,
    /// Levels above nodes, the smallest groups first; none: all nodes reach each other at `network`.
    pub levels: Vec<Level>,
    /// Watts per device with its share of the node.
    pub watts: Option<f64>,
    /// Failures of a device in a year that stop a job.
    pub failures_per_year: Option<f64>,
    /// Price of a device for an hour, in any currency.
    pub price_per_hour: Option<f64>,
    /// Bytes/s at which all devices together write a checkpoint.
    pub checkpoint_rate: Option<f64>,
    /// Bytes of a node's own memory.
    pub host_memory: Option<f64>,
    /// Bytes/s of it.
    pub host_memory_rate: Option<f64>,
    /// Bytes/s between a device and its node's memory, in one direction.
    pub pcie: Option<f64>,
}

/// The key of a problem with the cluster's name.
const FLAG: &str = "--cluster";

/// The files of `pipelines/clusters`.
const KNOWN: [(&str, &str); 5] = [
    ("dgx-a100", include_str!("../../clusters/dgx-a100.toml")),
    ("dgx-h100", include_str!("../../clusters/dgx-h100.toml")),
    ("dgx-h200", include_str!("../../clusters/dgx-h200.toml")),
    ("dgx-b200", include_str!("../../clusters/dgx-b200.toml")),
    ("h800", include_str!("../../clusters/h800.toml")),
];

/// Keys of numbers that may be absent. Without one of the first four, what follows from it is not printed; without the others,
/// `Cluster::in_f32`, `Host` and `pipelines/docs/plan.md` have what is assumed or refused.
const OPTIONAL: [&str; 14] = [
    "watts",
    "failures_per_year",
    "price_per_hour",
    "checkpoint_gb_s",
    "matrix_f32_tflops",
    "op_latency_us",
    "link_latency_us",
    "shared_op_latency_us",
    "matrix_fp8_tflops",
    "host_memory_gb",
    "host_memory_gb_s",
    "pcie_gb_s",
    "matrix_reached_tflops",
    "matrix_fp8_reached_tflops",
];

/// Share of the datasheet's 16-bit rate that the largest product reaches on an A100 SXM: 271.2 of 312 TFLOP/s (ml-engineering, "Maximum
/// Achievable Matmul FLOPS comparison table"). The constants are fitted on A100 (`plan::fit`), so that a product there reaches its share of
/// 0.672 under this limit; where the limit is lower, so is the share.
const REACHED_BY_FITTED: f64 = 271.2 / 312.0;

impl Cluster {
    /// Number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.nodes * self.devices_per_node
    }

    /// The links out of the groups of each level, of those with several groups. What leaves a group has left those inside it, so that their
    /// oversubscriptions multiply.
    pub(crate) fn uplinks(&self) -> Vec<Uplink> {
        let mut oversubscription = 1.0;
        let levels = self.levels.iter().map(|level| {
            oversubscription *= level.oversubscription;
            Uplink {
                devices: level.nodes * self.devices_per_node,
                oversubscription,
            }
        });
        levels.collect()
    }

    /// Share of the rates of matrix and memory that each of `ranks` on one node reaches while it runs: that of its threads, one at
    /// least, among the shared cores.
    pub(crate) fn share(&self, ranks: usize) -> f64 {
        self.cores
            .map_or(1.0, |cores| (cores / ranks).max(1) as f64 / cores as f64)
    }

    /// Seconds to start an operation of one of `ranks` on one node.
    pub(crate) fn op_start(&self, ranks: usize) -> f64 {
        match self.cores {
            Some(cores) if cores >= 2 * ranks => self.shared_op_latency,
            Some(_) | None => self.op_latency,
        }
    }

    /// Ranks of a node that take turns on a core; 1 where each has its own.
    pub(crate) fn turns(&self, ranks: usize) -> f64 {
        self.cores
            .map_or(1.0, |cores| (ranks as f64 / cores as f64).max(1.0))
    }

    /// The cluster with products and activations of f32; `Err`: the reason why it cannot be planned. Devices that do not share
    /// cores and have no rate of f32 keep that of 16 bits.
    pub(crate) fn in_f32(self) -> Result<Cluster, Problem> {
        match (self.matrix_f32, self.cores) {
            (Some(matrix), _) => Ok(Cluster {
                matrix,
                matrix_reached: None,
                number_bytes: 4.0,
                ..self
            }),
            (None, None) => Ok(Cluster {
                number_bytes: 4.0,
                ..self
            }),
            (None, Some(_)) => Err(Problem {
                key: OPTIONAL[4].into(),
                found: "nothing".into(),
                wanted: "a number above 0: the job's products are of f32, whose rate does not follow from that of 16 bits".into(),
            }),
        }
    }

    /// The cluster with products of layers in 8 bits, and all others in 16; in 16 bits too, if it has no rate of 8.
    pub(crate) fn in_fp8(self) -> Cluster {
        Cluster {
            matrix_of_layers: self.matrix_fp8,
            ..self
        }
    }

    /// One of Millrace's own clusters by name, or that of a file.
    ///
    /// # Errors
    /// `LoadError`: no such file, no TOML, or keys that are missing, unknown or not in range, all of them at once.
    pub(crate) fn load(name_or_path: &str) -> Result<Cluster, LoadError> {
        let path = Path::new(name_or_path);
        if let Some((_, text)) = KNOWN.iter().find(|(name, _)| *name == name_or_path) {
            return Cluster::parse(text, path);
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            let nearest = or_nearest(name_or_path, known.iter().copied());
            let problem = Problem {
                key: FLAG.into(),
                found: format!("{name_or_path:?}: {error}{nearest}"),
                wanted: format!("a cluster file, or {}", known.join(", ")),
            };
            LoadError::problems(path.into(), vec![problem])
        })?;
        Cluster::parse(&text, path)
    }

    /// Problems of a job's key that names a cluster: no such name or file, and what is wrong in its file.
    pub(crate) fn problems_of(key: &str, name_or_path: &str) -> Vec<Problem> {
        let problem = |found: String, wanted: String| Problem {
            key: key.into(),
            found,
            wanted,
        };
        match Cluster::load(name_or_path) {
            Ok(_) => Vec::new(),
            Err(LoadError::File { why, .. }) => {
                vec![problem(
                    format!("{name_or_path:?}: {why}"),
                    "a cluster file".into(),
                )]
            }
            Err(LoadError::Problems { problems, .. }) => {
                let of_key = |of: Problem| match of.key == FLAG {
                    true => problem(of.found, of.wanted),
                    false => problem(
                        format!("{name_or_path:?}, in which {} is {}", of.key, of.found),
                        format!("{}: {}", of.key, of.wanted),
                    ),
                };
                problems.into_iter().map(of_key).collect()
            }
        }
    }

    /// The cluster of a file's text.
    ///
    /// # Errors
    /// As `load`.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Cluster, LoadError> {
        let mut problems = Vec::new();
        let table: toml::Table = text.parse().unwrap_or_else(|error: toml::de::Error| {
            problems.push(Problem {
                key: "(file)".into(),
                found: error.to_string().trim_end().to_owned(),
                wanted: "a TOML table".into(),
            });
            toml::Table::new()
        });
        if problems.is_empty() {
            let mut keys = Keys {
                table,
                problems: &mut problems,
            };
            let is_one_node = keys.table.get("nodes") == Some(&toml::Value::Integer(1));
            let has_cores = keys.table.contains_key("cores");
            let op_latency = 1e-6 * keys.optional(OPTIONAL[5]).unwrap_or(0.0);
            let shared = keys.optional(OPTIONAL[7]);
            let reached = [OPTIONAL[12], OPTIONAL[13]].map(|key| keys.optional(key));
            let cluster = Cluster {
                name: keys.text("name"),
                nodes: keys.count("nodes"),
                devices_per_node: keys.count("devices_per_node"),
                cores: has_cores.then(|| keys.count("cores")),
                matrix: 1e12 * keys.rate("matrix_tflops"),
                matrix_f32: keys.optional(OPTIONAL[4]).map(|rate| 1e12 * rate),
                matrix_fp8: keys.optional(OPTIONAL[8]).map(|rate| 1e12 * rate),
                matrix_of_layers: None,
                matrix_reached: None,
                matrix_fp8_reached: None,
                number_bytes: 2.0,
                memory: 1e9 * keys.rate("memory_gb"),
                memory_rate: 1e9 * keys.rate("memory_gb_s"),
                op_latency,
                shared_op_latency: shared.map_or(op_latency, |micro| 1e-6 * micro),
                link_latency: 1e-6 * keys.optional(OPTIONAL[6]).unwrap_or(0.0),
                link: 1e9 * keys.rate("link_gb_s"),
                // nothing leaves the only node
                network: match is_one_node && !keys.table.contains_key("network_gb_s") {
                    true => f64::INFINITY,
                    false => 1e9 * keys.rate("network_gb_s"),
                },
                watts: keys.optional(OPTIONAL[0]),
                failures_per_year: keys.optional(OPTIONAL[1]),
                price_per_hour: keys.optional(OPTIONAL[2]),
                checkpoint_rate: keys.optional(OPTIONAL[3]).map(|rate| 1e9 * rate),
                host_memory: keys.optional(OPTIONAL[9]).map(|bytes| 1e9 * bytes),
                host_memory_rate: keys.optional(OPTIONAL[10]).map(|rate| 1e9 * rate),
                pcie: keys.optional(OPTIONAL[11]).map(|rate| 1e9 * rate),
                levels: keys.levels(),
            };
            keys.refuse_others();
            check_levels(&cluster, &mut problems);
            let [matrix_reached, matrix_fp8_reached] =
                shares_reached(&cluster, reached, &mut problems);
            if problems.is_empty() {
                return Ok(Cluster {
                    matrix_reached,
                    matrix_fp8_reached,
                    ..cluster
                });
            }
        }
        let places = places(text, &problems);
        Err(LoadError::Problems {
            path: path.into(),
            problems,
            places,
        })
    }
}

/// The shares of `matrix_reached` and `matrix_fp8_reached` from TFLOP/s, with what contradicts the cluster's rates.
fn shares_reached(
    cluster: &Cluster,
    reached: [Option<f64>; 2],
    problems: &mut Vec<Problem>,
) -> [Option<f64>; 2] {
    let nominal = [
        (OPTIONAL[12], "matrix_tflops", Some(cluster.matrix)),
        (OPTIONAL[13], OPTIONAL[8], cluster.matrix_fp8),
    ];
    let mut shares = [None; 2];
    for ((share, reached), (key, of, nominal)) in shares.iter_mut().zip(reached).zip(nominal) {
        let Some(reached) = reached else { continue };
        let wanted = match (cluster.cores, nominal) {
            (Some(_), _) => Some(format!("nothing: with cores, {of} is measured itself")),
            (None, None) => Some(format!("{of} beside it")),
            (None, Some(nominal)) if 1e12 * reached > nominal => {
                Some(format!("at most {of}, {}", nominal / 1e12))
            }
            (None, Some(nominal)) => {
                *share = Some(1e12 * reached / nominal / REACHED_BY_FITTED);
                None
            }
        };
        problems.extend(wanted.map(|wanted| Problem {
            key: key.into(),
            found: reached.to_string(),
            wanted,
        }));
    }
    shares
}

/// Levels that contradict each other or the number of nodes.
fn check_levels(cluster: &Cluster, problems: &mut Vec<Problem>) {
    let mut below = Level {
        name: "a node".into(),
        nodes: 1,
        oversubscription: 1.0,
    };
    let mut names = Vec::new();
    for (at, level) in cluster.levels.iter().enumerate() {
        let mut problem = |key: &str, found: String, wanted: String| {
            problems.push(Problem {
                key: format!("level[{at}].{key}"),
                found,
                wanted,
            });
        };
        let Level {
            name,
            nodes,
            oversubscription,
        } = level;
        if names.contains(name) {
            problem(
                "name",
                format!("{name:?} again"),
                "a name of its own".into(),
            );
        }
        names.push(name.clone());
        if (at > 0 && *nodes <= below.nodes) || !nodes.is_multiple_of(below.nodes) {
            let wanted = format!(
                "more groups of {}, of {} nodes each",
                below.name, below.nodes
            );
            problem("nodes", nodes.to_string(), wanted);
        }
        if *nodes >= cluster.nodes {
            let wanted = format!(
                "fewer than the {} nodes of the cluster: nothing leaves a group of all",
                cluster.nodes
            );
            problem("nodes", nodes.to_string(), wanted);
        }
        if *oversubscription < 1.0 {
            let wanted = "1 or more: links up are no faster than what comes from below".into();
            problem("oversubscription", oversubscription.to_string(), wanted);
        }
        below = level.clone();
    }
}

/// Takes the keys of a table out of it, and collects problems.
struct Keys<'a> {
    table: toml::Table,
    problems: &'a mut Vec<Problem>,
}

impl Keys<'_> {
    fn problem(&mut self, key: &str, found: &str, wanted: &str) {
        self.problems.push(Problem {
            key: key.into(),
            found: found.into(),
            wanted: wanted.into(),
        });
    }

    fn text(&mut self, key: &str) -> String {
        match self.table.remove(key) {
            Some(toml::Value::String(text)) => return text,
            Some(other) => self.problem(key, &other.to_string(), "a string"),
            None => self.problem(key, "nothing", "a string"),
        }
        String::new()
    }

    fn count(&mut self, key: &str) -> usize {
        const WANTED: &str = "a number from 1 to 1000000";
        match self.table.remove(key) {
            Some(toml::Value::Integer(count @ 1..=1_000_000)) => {
                return usize::try_from(count).unwrap_or(1);
            }
            Some(other) => self.problem(key, &other.to_string(), WANTED),
            None => self.problem(key, "nothing", WANTED),
        }
        1
    }

    fn rate(&mut self, key: &str) -> f64 {
        if !self.table.contains_key(key) {
            self.problem(key, "nothing", "a number above 0");
        }
        self.optional(key).unwrap_or(1.0)
    }

    fn optional(&mut self, key: &str) -> Option<f64> {
        let value = self.table.remove(key)?;
        let number = match &value {
            toml::Value::Float(number) => *number,
            toml::Value::Integer(number) => *number as f64,
            _ => f64::NAN,
        };
        if number.is_finite() && number > 0.0 {
            return Some(number);
        }
        self.problem(key, &value.to_string(), "a number above 0");
        None
    }

    /// The tables of levels, each with all of its keys.
    fn levels(&mut self) -> Vec<Level> {
        const WANTED: &str = "tables [[level]] with name, nodes and oversubscription";
        let levels = match self.table.remove("level") {
            None => return Vec::new(),
            Some(toml::Value::Array(levels)) => levels,
            Some(other) => {
                self.problem("level", &other.to_string(), WANTED);
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        for (at, level) in levels.into_iter().enumerate() {
            let toml::Value::Table(table) = level else {
                self.problem("level", &level.to_string(), WANTED);
                continue;
            };
            let mut problems = Vec::new();
            let mut keys = Keys {
                table,
                problems: &mut problems,
            };
            found.push(Level {
                name: keys.text("name"),
                nodes: keys.count("nodes"),
                oversubscription: keys.rate("oversubscription"),
            });
            keys.refuse_others();
            self.problems.extend(problems.into_iter().map(|of| Problem {
                key: format!("level[{at}].{}", of.key),
                ..of
            }));
        }
        found
    }

    fn refuse_others(&mut self) {
        for (key, value) in std::mem::take(&mut self.table) {
            self.problem(&key, &value.to_string(), "a key of a cluster file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_clusters_have_the_name_of_their_file() {
        for (name, _) in KNOWN {
            let cluster = Cluster::load(name).unwrap();
            assert_eq!(cluster.name, name);
            assert!(cluster.devices() >= 1024, "{cluster:?}");
        }
    }

    #[test]
    fn all_problems_of_a_file_are_reported_at_once() {
        let text = "name = 3\nnodes = 0\ndevices_per_node = 8\nmatrix_tflops = nan\nmemory_gb = -80\nmemory_gb_s = 2039\nlink_gb_s = 300\nwats = 400\n";
        let Err(LoadError::Problems { problems, .. }) = Cluster::parse(text, Path::new("x.toml"))
        else {
            panic!("found no problem")
        };
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        let wanted = [
            "name",
            "nodes",
            "matrix_tflops",
            "memory_gb",
            "network_gb_s",
            "wats",
        ];
        assert_eq!(keys, wanted);
    }

    /// A machine of 4 cores.
    const CPU: &str = "name = \"x\"\nnodes = 1\ndevices_per_node = 8\ncores = 4\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 20\nlink_gb_s = 5\n";

    #[test]
    fn ranks_that_share_cores_have_threads_of_their_own_or_take_turns() {
        let cluster = Cluster::parse(CPU, Path::new("x.toml")).unwrap();
        for (ranks, share, turns) in [
            (1, 1.0, 1.0),
            (2, 0.5, 1.0),
            (3, 0.25, 1.0),
            (4, 0.25, 1.0),
            (8, 0.25, 2.0),
        ] {
            assert_eq!(cluster.share(ranks), share, "{ranks}");
            assert_eq!(cluster.turns(ranks), turns, "{ranks}");
        }
        let gpus = Cluster::load("dgx-h100").unwrap();
        assert_eq!((gpus.share(8), gpus.turns(8)), (1.0, 1.0));
    }

    #[test]
    fn a_missing_rate_of_f32_is_refused_where_cores_are_shared_and_assumed_elsewhere() {
        let cluster = Cluster::parse(CPU, Path::new("x.toml")).unwrap();
        let problem = cluster.in_f32().unwrap_err();
        assert_eq!(problem.key, "matrix_f32_tflops");
        let text = format!("{CPU}matrix_f32_tflops = 0.1\n");
        let cluster = Cluster::parse(&text, Path::new("x.toml")).unwrap();
        assert_eq!((cluster.matrix, cluster.number_bytes), (0.2e12, 2.0));
        let cluster = cluster.in_f32().unwrap();
        assert_eq!((cluster.matrix, cluster.number_bytes), (0.1e12, 4.0));
        let gpus = Cluster {
            matrix_f32: None,
            ..Cluster::load("dgx-h100").unwrap()
        };
        let wanted = Cluster {
            number_bytes: 4.0,
            ..gpus.clone()
        };
        assert_eq!(gpus.in_f32().unwrap(), wanted);
    }

    /// Products of layers alone have the rate of 8 bits.
    #[test]
    fn a_rate_of_8_bits_is_that_of_products_of_layers() {
        let gpus = Cluster::load("h800").unwrap();
        assert_eq!(gpus.matrix_of_layers, None);
        let in_fp8 = gpus.in_fp8();
        assert_eq!(in_fp8.matrix_of_layers, Some(1979e12));
        assert_eq!(in_fp8.matrix, 989e12);
        let without = Cluster::load("dgx-a100").unwrap();
        assert_eq!(without.clone().in_fp8(), without);
    }

    /// 794.5 of 989 TFLOP/s are 0.9242 of A100's share, 1402.6 of 1979 are 0.8154 of it.
    #[test]
    fn rates_that_products_reach_are_shares_of_those_of_the_fit() {
        let a100 = Cluster::load("dgx-a100").unwrap();
        let is_near = |share: Option<f64>, wanted: f64| (share.unwrap() - wanted).abs() < 1e-4;
        assert!(is_near(a100.matrix_reached, 1.0), "{a100:?}");
        assert_eq!(a100.matrix_fp8_reached, None);
        let h100 = Cluster::load("dgx-h100").unwrap();
        assert!(is_near(h100.matrix_reached, 0.9242), "{h100:?}");
        assert!(is_near(h100.matrix_fp8_reached, 0.8154), "{h100:?}");
        // products of f32 are not those that were measured
        assert_eq!(h100.in_f32().unwrap().matrix_reached, None);
    }

    #[test]
    fn rates_that_no_product_can_reach_are_refused() {
        let with = |text: &str| {
            let Err(LoadError::Problems { problems, .. }) =
                Cluster::parse(text, Path::new("x.toml"))
            else {
                panic!("{text} was taken");
            };
            let found = problems.into_iter().map(|of| (of.key, of.wanted));
            found.collect::<Vec<_>>()
        };
        let one = |key: &str, wanted: &str| vec![(key.to_owned(), wanted.to_owned())];
        let of_cores = format!("{CPU}matrix_reached_tflops = 0.1\n");
        let wanted = "nothing: with cores, matrix_tflops is measured itself";
        assert_eq!(with(&of_cores), one("matrix_reached_tflops", wanted));
        let gpus = CPU.replace("cores = 2\n", "").replace("cores = 4\n", "");
        let above = format!("{gpus}matrix_reached_tflops = 900\n");
        assert_eq!(
            with(&above),
            one("matrix_reached_tflops", "at most matrix_tflops, 0.2")
        );
        let alone = format!("{gpus}matrix_fp8_reached_tflops = 0.1\n");
        assert_eq!(
            with(&alone),
            one("matrix_fp8_reached_tflops", "matrix_fp8_tflops beside it")
        );
    }

    #[test]
    fn a_network_is_asked_for_where_there_are_nodes_to_connect() {
        let two = CPU.replace("nodes = 1", "nodes = 2");
        let Err(LoadError::Problems { problems, .. }) = Cluster::parse(&two, Path::new("x.toml"))
        else {
            panic!("found no problem")
        };
        assert_eq!(problems[0].key, "network_gb_s");
    }

    /// 64 nodes of 8 devices: leaves of 4 nodes, spines of 16.
    const LEVELS: &str = "name = 'x'\nnodes = 64\ndevices_per_node = 8\nmatrix_tflops = 100\nmemory_gb = 80\nmemory_gb_s = 2000\nlink_gb_s = 300\nnetwork_gb_s = 25\n[[level]]\nname = 'leaf'\nnodes = 4\noversubscription = 2\n[[level]]\nname = 'spine'\nnodes = 16\noversubscription = 3.5\n";

    #[test]
    fn what_leaves_a_group_shares_the_links_of_all_groups_around_it() {
        let cluster = Cluster::parse(LEVELS, Path::new("x.toml")).unwrap();
        let uplinks = cluster.uplinks().into_iter();
        let found: Vec<(usize, f64)> = uplinks
            .map(|of| (of.devices, of.oversubscription))
            .collect();
        assert_eq!(found, [(32, 2.0), (128, 7.0)]);
        assert!(Cluster::load("dgx-h100").unwrap().uplinks().is_empty());
    }

    #[test]
    fn levels_that_are_incomplete_or_contradict_each_other_are_refused() {
        let keys = |text: &str| -> Vec<String> {
            match Cluster::parse(text, Path::new("x.toml")) {
                Err(LoadError::Problems { problems, .. }) => {
                    problems.into_iter().map(|of| of.key).collect()
                }
                Err(_) | Ok(_) => Vec::new(),
            }
        };
        assert!(keys(LEVELS).is_empty());
        for (from, to, wanted) in [
            ("nodes = 4\n", "", &["level[0].nodes"][..]),
            ("nodes = 16\n", "nodes = 10\n", &["level[1].nodes"]),
            ("nodes = 16\n", "nodes = 4\n", &["level[1].nodes"]),
            ("nodes = 16\n", "nodes = 64\n", &["level[1].nodes"]),
            ("nodes = 64\n", "nodes = 8\n", &["level[1].nodes"]),
            ("= 3.5", "= 0.5", &["level[1].oversubscription"]),
            ("= 3.5", "= nan", &["level[1].oversubscription"]),
            ("'spine'", "'leaf'", &["level[1].name"]),
            (
                "name = 'spine'\n",
                "ratio = 2\n",
                &["level[1].name", "level[1].ratio"],
            ),
            ("oversubscription = 2\n", "", &["level[0].oversubscription"]),
        ] {
            assert_eq!(keys(&LEVELS.replacen(from, to, 1)), wanted, "{from} {to}");
        }
        let one = LEVELS.split("[[level]]").next().unwrap();
        assert_eq!(keys(&one.replace("name", "level = 3\nname")), ["level"]);
    }

    #[test]
    fn absent_files_and_other_texts_are_refused() {
        for name in ["no-such-cluster", "/"] {
            assert!(Cluster::load(name).is_err(), "{name}");
        }
        assert!(Cluster::parse("nodes = [", Path::new("x.toml")).is_err());
    }
}

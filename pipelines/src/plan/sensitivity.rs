//! Sensitivity of a plan: the step of the fastest layout with other rates of the cluster, and the layouts of the search that differ
//! from it in one setting.

use crate::plan::cluster::Cluster;
use crate::plan::layout::{Layout, Recompute, precision_name};
use crate::plan::memory::rank_bytes;
use crate::plan::rates::Constants;
use crate::plan::search::{Asked, Planned, Rejected};
use crate::plan::time::step_time;
use serde_json::{Value, json};
use train::config::Precision;

/// Factors of a rate.
const FACTORS: [f64; 2] = [0.8, 1.2];

/// The fastest layout's step at another rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateChange {
    /// Key of the cluster file.
    pub key: &'static str,
    pub factor: f64,
    /// Seconds of a step.
    pub step_s: f64,
}

/// A rate of a cluster.
struct Rate {
    key: &'static str,
    value: fn(&mut Cluster) -> &mut f64,
}

/// Steps of the layout with each rate 20% lower and higher; rates that nothing depends on are left out.
pub(crate) fn by_rate(asked: &Asked<'_>, best: &Planned) -> Vec<RateChange> {
    let cluster = asked.cluster_in(best.layout.precision);
    let constants = Constants::of(cluster);
    let is_f32 = cluster.number_bytes == 4.0 && cluster.matrix_f32.is_some();
    let rates = [
        Rate {
            key: if is_f32 {
                "matrix_f32_tflops"
            } else {
                "matrix_tflops"
            },
            value: |cluster| &mut cluster.matrix,
        },
        Rate {
            key: "matrix_fp8_tflops",
            // nothing depends on it unless products of layers are planned in 8 bits
            value: |cluster| cluster.matrix_of_layers.get_or_insert(f64::INFINITY),
        },
        Rate {
            key: "memory_gb_s",
            value: |cluster| &mut cluster.memory_rate,
        },
        Rate {
            key: "link_gb_s",
            value: |cluster| &mut cluster.link,
        },
        Rate {
            key: "network_gb_s",
            value: |cluster| &mut cluster.network,
        },
    ];
    let mut changes = Vec::new();
    for Rate { key, value } in rates {
        for factor in FACTORS {
            let mut other = cluster.clone();
            let rate = value(&mut other);
            if !rate.is_finite() {
                continue;
            }
            *rate *= factor;
            let step_s = step_time(&asked.shape, &best.layout, &other, &constants).total;
            changes.push(RateChange {
                key,
                factor,
                step_s,
            });
        }
    }
    changes
}

/// A setting of a layout whose values have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    MicroBatch,
    Tp,
    Pp,
    Ep,
    Recompute,
    Precision,
}

impl Setting {
    const ALL: [Setting; 6] = [
        Setting::MicroBatch,
        Setting::Tp,
        Setting::Pp,
        Setting::Ep,
        Setting::Recompute,
        Setting::Precision,
    ];

    /// Key of the job.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Setting::MicroBatch => "micro_batch",
            Setting::Tp => "tp",
            Setting::Pp => "pp",
            Setting::Ep => "ep",
            Setting::Recompute => "recompute",
            Setting::Precision => "precision",
        }
    }

    /// The value's place in its order.
    fn of(self, layout: &Layout) -> usize {
        match self {
            Setting::MicroBatch => layout.micro_batch,
            Setting::Tp => layout.tp,
            Setting::Pp => layout.pp,
            Setting::Ep => layout.ep,
            Setting::Recompute => layout.recompute.rank(),
            Setting::Precision => order(layout.precision),
        }
    }

    /// Whether `other` agrees with `one` in all but this setting and what follows from it: data parallelism takes the devices that
    /// another axis leaves, expert parallelism has to divide it, an axis of one rank has no further settings, and where some layers are
    /// computed again their number follows, down to none.
    fn is_only_difference(self, one: &Layout, other: &Layout) -> bool {
        let is_free = |of: Setting| of == Setting::Ep && !other.dp.is_multiple_of(one.ep);
        let follows = |of: Setting| {
            of == Setting::Recompute
                && one.recompute.layers().is_some()
                && matches!(other.recompute, Recompute::None | Recompute::Layers(_))
        };
        let same = |of: Setting| {
            of == self
                || of.of(one) == of.of(other)
                || is_free(of)
                || (self != Setting::Recompute && follows(of))
        };
        let alone = |axis: fn(&Layout) -> usize| axis(one) == 1 || axis(other) == 1;
        one.devices() == other.devices()
            && Setting::ALL.into_iter().all(same)
            && one.cp == other.cp
            && (one.is_data_outermost == other.is_data_outermost
                || alone(|of| of.pp)
                || alone(|of| of.dp))
            && (one.chunks == other.chunks || alone(|of| of.pp))
            && (one.zero == other.zero || alone(|of| of.dp))
            && (one.is_sequence_parallel == other.is_sequence_parallel || alone(|of| of.tp))
    }
}

/// The place of a precision among the others, by their digits.
fn order(precision: Precision) -> usize {
    match precision {
        Precision::Fp8 => 0,
        Precision::Fp16 => 1,
        Precision::Bf16 => 2,
        Precision::F32 => 3,
    }
}

/// The fastest layout in the next precisions below and above its own of which the cluster has rates, with their bytes; none where
/// precisions are searched, as their layouts are among the others then.
pub(crate) fn in_next_precisions(asked: &Asked<'_>, best: &Planned) -> Vec<Planned> {
    if asked.searches_precision {
        return Vec::new();
    }
    let own = order(best.layout.precision);
    let others = || asked.others.iter().map(|of| of.precision);
    let steps = [
        others()
            .filter(|of| order(*of) < own)
            .max_by_key(|of| order(*of)),
        others()
            .filter(|of| order(*of) > own)
            .min_by_key(|of| order(*of)),
    ];
    let in_precision = |precision| {
        let layout = Layout {
            precision,
            ..best.layout
        };
        asked.planned(layout, rank_bytes(&asked.shape, &layout))
    };
    steps.into_iter().flatten().map(in_precision).collect()
}

/// The same as a change of a setting, `accepted` or the reason why not. The search has no others in that precision.
pub(crate) fn precision_to_json(of: &Planned, rejected: Option<&Rejected>, whole: f64) -> Value {
    let alone = match rejected {
        None => Neighbour::Fits(of),
        Some(rejected) => Neighbour::DoesNot(rejected),
    };
    json!({
        "setting": Setting::Precision.key(), "value": precision_name(of.layout.precision), "only_change": alone.to_json(whole),
        "fastest": null, "searched": false,
    })
}

/// A layout with its time, and the change against a step of `whole` seconds.
fn time_to_json(of: &Planned, whole: f64) -> Value {
    json!({
        "layout": of.layout.to_json(), "step_s": of.time.total, "change": of.time.total / whole - 1.0,
    })
}

impl Neighbour<'_> {
    fn to_json(&self, whole: f64) -> Value {
        match self {
            Neighbour::Fits(of) => time_to_json(of, whole),
            Neighbour::DoesNot(of) => {
                json!({"layout": of.layout.to_json(), "refused": of.reason, "memory_gb": of.bytes.map(|bytes| bytes / 1e9)})
            }
            Neighbour::NotSearched => json!({"refused": "no such layout is searched"}),
        }
    }
}

/// The layout with one setting changed.
#[derive(Clone, Debug)]
pub(crate) enum Neighbour<'a> {
    Fits(&'a Planned),
    DoesNot(&'a Rejected),
    /// The search has no layout with the other settings.
    NotSearched,
}

/// The next lower or higher value of a setting among the layouts of the search that break no rule.
#[derive(Clone, Debug)]
pub(crate) struct SettingChange<'a> {
    pub setting: Setting,
    /// A layout with the value, which shows it.
    shown: &'a Layout,
    /// The layout that differs in nothing else.
    pub neighbour: Neighbour<'a>,
    /// The fastest of all layouts with the value.
    pub fastest: Option<&'a Planned>,
}

/// Changes of each setting of `best`, one of `planned`, by one step. `planned` is sorted by time.
pub(crate) fn by_setting<'a>(
    best: &Planned,
    planned: &'a [Planned],
    rejected: &'a [Rejected],
) -> Vec<SettingChange<'a>> {
    // values that break a rule in every layout are no step
    let too_large = rejected.iter().filter(|of| of.bytes.is_some());
    let all: Vec<&Layout> = (planned.iter().map(|of| &of.layout))
        .chain(too_large.map(|of| &of.layout))
        .collect();
    let mut changes = Vec::new();
    for setting in Setting::ALL {
        let own = setting.of(&best.layout);
        let lower = all.iter().filter(|of| setting.of(of) < own);
        let higher = all.iter().filter(|of| setting.of(of) > own);
        let steps = [
            lower.max_by_key(|of| setting.of(of)),
            higher.min_by_key(|of| setting.of(of)),
        ];
        for shown in steps.into_iter().flatten() {
            let value = setting.of(shown);
            let is_neighbour = |of: &Layout| {
                setting.of(of) == value && setting.is_only_difference(&best.layout, of)
            };
            let fits = planned.iter().find(|of| is_neighbour(&of.layout));
            let does_not = rejected.iter().find(|of| is_neighbour(&of.layout));
            changes.push(SettingChange {
                setting,
                shown,
                neighbour: match (fits, does_not) {
                    (Some(of), _) => Neighbour::Fits(of),
                    (None, Some(of)) => Neighbour::DoesNot(of),
                    (None, None) => Neighbour::NotSearched,
                },
                fastest: planned.iter().find(|of| setting.of(&of.layout) == value),
            });
        }
    }
    changes
}

impl SettingChange<'_> {
    /// The value as the job spells it; `full of some layers` where `recompute_layers` has a number.
    fn value(&self) -> Value {
        match self.setting {
            Setting::Recompute => match self.shown.recompute {
                Recompute::Layers(_) => json!("full of some layers"),
                whole @ (Recompute::None | Recompute::Selective | Recompute::Full) => {
                    json!(whole.name())
                }
            },
            Setting::Precision => json!(precision_name(self.shown.precision)),
            Setting::MicroBatch | Setting::Tp | Setting::Pp | Setting::Ep => {
                json!(self.setting.of(self.shown))
            }
        }
    }

    /// Times and their changes against a step of `whole` seconds.
    pub(crate) fn to_json(&self, whole: f64) -> Value {
        json!({
            "setting": self.setting.key(), "value": self.value(), "only_change": self.neighbour.to_json(whole),
            "fastest": self.fastest.map(|of| time_to_json(of, whole)), "searched": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::search::search;
    use crate::plan::shape::Shape;

    fn asked(cluster: &Cluster, devices: usize) -> Asked<'_> {
        Asked::of(Shape::gpt(24, 2304, 24), cluster, devices, 64)
    }

    #[test]
    fn a_slower_rate_never_makes_a_step_faster() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let asked = asked(&cluster, 16);
        let (planned, _) = search(&asked);
        let changes = by_rate(&asked, &planned[0]);
        assert_eq!(changes.len(), 8);
        for pair in changes.chunks(2) {
            assert_eq!(pair[0].key, pair[1].key);
            assert!(pair[0].step_s >= planned[0].time.total, "{pair:?}");
            assert!(pair[1].step_s <= planned[0].time.total, "{pair:?}");
        }
        // products are the larger part of a step
        let matrix = changes[0].step_s / planned[0].time.total;
        assert!((1.1..1.25).contains(&matrix), "{matrix}");
        let one = Cluster {
            network: f64::INFINITY,
            nodes: 1,
            ..cluster.clone()
        };
        let found = by_rate(
            &Asked {
                cluster: &one,
                devices: 8,
                ..asked
            },
            &planned[0],
        );
        assert!(found.iter().all(|of| of.key != "network_gb_s"));
    }

    #[test]
    fn neighbours_differ_in_one_setting_and_are_rows_of_the_search() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let (planned, rejected) = search(&asked(&cluster, 16));
        let best = &planned[0].layout;
        let changes = by_setting(&planned[0], &planned, &rejected);
        let mut count = 0;
        for change in &changes {
            let value = change.setting.of(change.shown);
            assert_ne!(value, change.setting.of(best));
            if let Some(fastest) = change.fastest {
                assert_eq!(change.setting.of(&fastest.layout), value);
                // no layout with the value is before it
                let before = planned.iter().take_while(|of| of.layout != fastest.layout);
                assert!(
                    before
                        .into_iter()
                        .all(|of| change.setting.of(&of.layout) != value)
                );
            }
            if let Neighbour::Fits(of) = &change.neighbour {
                // dense models have one rank of experts
                let others = Setting::ALL.into_iter().filter(|of| *of != change.setting);
                assert!(
                    others
                        .into_iter()
                        .all(|other| other.of(&of.layout) == other.of(best))
                );
                assert_eq!((of.layout.devices(), of.layout.cp), (16, best.cp));
                count += 1;
            }
        }
        assert!(count >= 3, "{changes:?}");
        let micro: Vec<usize> = (changes.iter())
            .filter(|of| of.setting == Setting::MicroBatch)
            .map(|of| of.shown.micro_batch)
            .collect();
        let around = [best.micro_batch / 2, best.micro_batch * 2];
        assert!(micro.iter().all(|of| around.contains(of)), "{micro:?}");
    }

    #[test]
    fn fewer_replicas_have_fewer_ranks_of_experts() {
        let one = Layout {
            dp: 8,
            ep: 8,
            zero: 1,
            overlap: true,
            ..Layout::one(64)
        };
        let halved = |ep| Layout {
            tp: 2,
            dp: 4,
            ep,
            is_sequence_parallel: true,
            ..one
        };
        // 8 ranks of experts are too many for 4 replicas
        assert!(Setting::Tp.is_only_difference(&one, &halved(4)));
        let small = Layout { ep: 2, ..one };
        assert!(Setting::Tp.is_only_difference(&small, &halved(2)));
        assert!(!Setting::Tp.is_only_difference(&small, &halved(4)));
        assert!(Setting::Ep.is_only_difference(&one, &small));
        assert!(!Setting::Tp.is_only_difference(&one, &small));
    }

    #[test]
    fn the_number_of_layers_computed_again_follows_from_another_setting() {
        let one = Layout {
            micro_batch: 2,
            recompute: Recompute::Layers(3),
            ..Layout::one(64)
        };
        let smaller = |recompute| Layout {
            micro_batch: 1,
            recompute,
            ..one
        };
        let of = Setting::MicroBatch;
        assert!(of.is_only_difference(&one, &smaller(Recompute::None)));
        assert!(of.is_only_difference(&one, &smaller(Recompute::Layers(1))));
        assert!(!of.is_only_difference(&one, &smaller(Recompute::Full)));
        assert!(!of.is_only_difference(&smaller(Recompute::None), &one));
    }
}

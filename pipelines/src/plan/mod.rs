//! The planner: time and memory of a training step, or of a server, from the model's shape, its layout and a cluster's rates,
//! without running anything, and its comparison with layouts that were run. `pipelines/docs/plan.md` has the model and how far it is from published figures.

mod cluster;
mod dualpipe;
#[cfg(test)]
mod fit;
mod host;
mod layer_time;
mod layout;
mod measured;
mod memory;
mod models;
mod offload;
mod pair;
mod placement;
mod rates;
mod reduction;
mod schedule;
mod search;
mod sensitivity;
mod serving;
mod shape;
mod sharded;
mod size;
mod tables;
mod time;
mod trial;

pub(crate) use cluster::Cluster;
pub(crate) use dualpipe::dualpipe;
pub(crate) use host::Host;
pub(crate) use layout::{Layout, Recompute};
pub(crate) use measured::Machine;
pub(crate) use memory::{RankBytes, rank_bytes, stage_bytes};
pub(crate) use offload::{host_bytes, offloaded};
pub(crate) use placement::Placement;
pub(crate) use schedule::Gantt;
pub(crate) use search::{Asked, InPrecision, Planned, Rejected, least_layers, search, sort};
pub(crate) use sensitivity::{by_rate, by_setting, in_next_precisions, precision_to_json};
pub(crate) use serving::{
    Demand, Served, Serving, ServingQuestion, Servings, Unfit, Way, WeightFormat, Windowed,
};
pub(crate) use shape::{Decoder, Latent, Mixture, OptimizerState, Shape};
pub(crate) use size::{SizedKind, model_of, parse_count};
pub(crate) use tables::{Row, check_tables};
pub(crate) use trial::{Measured, Trial, WARM_UP, by_time, correction, kendall_tau, winner};

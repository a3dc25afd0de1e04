//! The planner: time and memory of a training step from the model's shape, its layout and a cluster's rates, without running
//! anything. `pipelines/docs/plan.md` has the model and how far it is from published figures.

mod cluster;
#[cfg(test)]
mod fit;
mod layout;
mod memory;
mod schedule;
mod search;
mod shape;
mod size;
mod tables;
mod time;

pub(crate) use cluster::Cluster;
pub(crate) use layout::{Layout, Recompute};
pub(crate) use schedule::Gantt;
pub(crate) use search::{Asked, Planned, Rejected, search};
pub(crate) use shape::Shape;
pub(crate) use size::{chinchilla_tokens, model_of, parse_count};
pub(crate) use tables::{Row, check_tables};

//! Optimizer: learning rate, clipping, AdamW, Muon, selection biases of routers, averages.

pub(crate) mod adamw;
pub(crate) mod average;
pub(crate) mod clip;
pub(crate) mod guard;
pub(crate) mod loss_scale;
pub(crate) mod muon;
pub(crate) mod next_step;
pub(crate) mod rank_state;
pub(crate) mod router_bias;
pub(crate) mod schedule;

//! From gradients to new weights: learning rate, clipping, AdamW, Muon, selection biases of routers, averages.

pub(crate) mod adamw;
pub(crate) mod average;
pub(crate) mod clip;
pub(crate) mod guard;
pub(crate) mod loss_scale;
pub(crate) mod muon;
pub(crate) mod router_bias;
pub(crate) mod schedule;

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, where weights live"
)]
pub(crate) fn narrow(x: f64) -> f32 {
    x as f32
}

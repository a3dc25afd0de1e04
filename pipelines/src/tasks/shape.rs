//! Shapes of tasks.

use serde::Deserialize;

/// Requests to the model for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shape {
    /// Log-likelihoods of several answers after one prompt, or of one continuation after several contexts.
    MultipleChoice,
    /// Log-likelihood of one continuation, and whether it is greedy.
    Continuation,
    /// Log-likelihood of a whole text.
    Rolling,
    /// Greedy text until a stop string.
    Generation,
}

impl Shape {
    /// The name in a definition.
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::MultipleChoice => "multiple_choice",
            Shape::Continuation => "continuation",
            Shape::Rolling => "rolling",
            Shape::Generation => "generation",
        }
    }
}

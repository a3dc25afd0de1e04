//! Profiles: the definition of a rule set to follow.

use serde::{Deserialize, Serialize};

/// Whose definition of a rule set is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// datatrove 0.10.1.
    #[default]
    Datatrove,
}

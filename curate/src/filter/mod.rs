//! Filters: paper-named rule sets, one file each.
//!
//! Every filter of a paper has a `profile` naming whose definition it follows; only `datatrove` (0.10.1) exists. Its
//! rules run in datatrove's order. A recipe that others publish as a whole (DCLM's) is a filter of its own, in its order.
//! The first broken rule names the drop.

mod c4;
mod counts;
mod dclm;
mod fineweb;
mod gopher_quality;
mod gopher_repetition;
mod length;
mod url;

pub use c4::C4Quality;
pub(crate) use counts::HashCounts;
pub use dclm::Dclm;
pub use fineweb::FinewebQuality;
pub use gopher_quality::GopherQuality;
pub(crate) use gopher_quality::stop_word;
pub use gopher_repetition::GopherRepetition;
pub(crate) use gopher_repetition::duplicates;
pub use length::Length;
pub use url::{UrlConfig, UrlFilter};

use serde::{Deserialize, Serialize};

/// Whose definition of a rule set is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// datatrove 0.10.1.
    #[default]
    Datatrove,
}

//! Filters: paper-named rule sets, one file each.
//!
//! Every filter of a paper has a `profile` that names the definition it follows; only `datatrove` (0.10.1) exists.
//! Its rules run in datatrove's order. A recipe published as a whole (DCLM's) is a separate filter, with its order
//! of rules. The first broken rule names the drop.

mod bad_words;
mod c4;
mod dclm;
mod dolma;
mod fineweb;
mod fineweb2;
mod gopher_quality;
mod gopher_repetition;
mod group;
mod languages;
mod length;
mod limits;
mod lines;
mod massive_text;
mod nemo;
mod normalize;
mod openwebmath;
mod openwebtext;
mod opt_out;
mod profile;
mod redpajama;
mod sample;
mod source;
mod spans;
mod tag;
mod url;

pub use bad_words::{BadWords, BadWordsFilter};
pub use c4::{C4Profile, C4Quality};
pub use dclm::Dclm;
pub use dolma::{Dolma, DolmaGopher};
pub use fineweb::FinewebQuality;
pub use fineweb2::{Fineweb2, Fineweb2Filter};
pub use gopher_quality::GopherQuality;
pub(crate) use gopher_quality::stop_word;
pub use gopher_repetition::GopherRepetition;
pub(crate) use gopher_repetition::duplicates;
pub use group::GroupConfig;
pub use length::Length;
pub use limits::{Limit, Limits};
pub use lines::{LineAction, LineEdit, LineEditor, Lines};
pub use massive_text::MassiveText;
pub use nemo::Nemo;
pub use openwebmath::{MathPage, Openwebmath};
pub use openwebtext::Openwebtext;
pub use opt_out::OptOut;
pub use profile::Profile;
pub use redpajama::{QualitySignal, Redpajama, RedpajamaSignals};
pub use sample::SampleConfig;
pub use source::{
    FileLanguage, FileLayout, FileOrder, Issue, LanguageKind, License, LicenseClass, Notebook,
    NotebookForm, Repository, SourceCode, SourceFile, SourceProfile,
};
pub use spans::{SpanReplacement, Spans};
pub use tag::TagConfig;
pub use url::{UrlConfig, UrlFilter};

//! A configuration of dolma's mixer (1.2.1, `python/dolma/cli/mixer.py`), as it is written.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mixer {
    pub(super) streams: Vec<Stream>,
    pub(super) processes: Option<Value>,
    pub(super) work_dir: Option<Value>,
    pub(super) shuffle: Option<Value>,
    pub(super) dryrun: Option<Value>,
    pub(super) debug: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) documents: Vec<String>,
    #[serde(default)]
    pub(super) attributes: Option<Vec<String>>,
    pub(super) output: Output,
    pub(super) filter: Option<Filter>,
    pub(super) span_replacement: Option<Vec<Replacement>>,
    pub(super) compression: Option<Compression>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    pub(super) path: String,
    pub(super) max_size_in_bytes: Option<Value>,
    pub(super) discard_fields: Option<Vec<String>>,
    pub(super) min_text_length: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    pub(super) include: Option<Vec<String>>,
    pub(super) exclude: Option<Vec<String>>,
    pub(super) syntax: Option<Syntax>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Syntax {
    Jsonpath,
    Jq,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replacement {
    pub(super) span: String,
    pub(super) min_score: Option<f64>,
    pub(super) max_score: Option<f64>,
    #[serde(default)]
    pub(super) replacement: String,
    pub(super) syntax: Option<Syntax>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compression {
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
}

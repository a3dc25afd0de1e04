//! `state.json`: progress of the run, and the checksums of the checkpoint's files.
//!
//! The last field, `xxh3`, is the hash of every byte before it, so that this file vouches for
//! itself as it does for the others. Nothing in it depends on the clock or the layout's timing.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::checkpoint::STATE;
use crate::checkpoint::safetensors::Digest;
use crate::checkpoint::train_state::TrainState;
use crate::config::plan::Plan;
use crate::config::resume::SettingChange;
use crate::config::sums::SumsRecord;
use crate::error::{At, Error, Result};
use crate::model::fp8_delayed::Records;

/// Name and version of the format.
const FORMAT: &str = "millrace-checkpoint-1";

/// The initial weights of a run, as its checkpoints record them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub path: String,
    /// Identity of the weights.
    pub xxh3: String,
}

/// State of a run after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub format: String,
    #[serde(flatten)]
    pub train_state: TrainState,
    pub plan: Plan,
    /// Source of the initial weights, unless they were drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Record>,
    /// Scales of fp8's `delayed` recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Records>,
    /// How the run's sums were made; absent in older checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<SumsRecord>,
    /// Settings that changed when the run resumed from earlier checkpoints, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
    /// Written between two due checkpoints because a stop was requested. An undisturbed run has no such checkpoint,
    /// so it is removed as soon as a newer one exists, and `checkpoint.keep` does not count it.
    #[serde(
        default,
        rename = "interrupted",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_interrupted: bool,
}

impl State {
    pub(crate) fn new(plan: &Plan, train_state: &TrainState, init: Option<&Record>) -> State {
        State {
            format: FORMAT.into(),
            train_state: train_state.clone(),
            plan: plan.clone(),
            init: init.cloned(),
            fp8: None,
            sums: None,
            changes: Vec::new(),
            is_interrupted: false,
        }
    }
}

/// Checksums of the files of tensors, by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Digests(pub Vec<(String, Digest)>);

impl Digests {
    pub(crate) fn of(&self, file: &str) -> Option<&Digest> {
        let found = self.0.iter().find(|(name, _)| name == file);
        found.map(|(_, digest)| digest)
    }
}

/// The file without its checksum.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    state: &'a State,
    files: Value,
}

/// Writes and syncs the file.
pub(crate) fn write(folder: &Path, state: &State, digests: &Digests) -> Result<()> {
    let path = folder.join(STATE);
    let files = digests.0.iter();
    let files = files.map(|(name, digest)| (name.clone(), digest_value(digest)));
    let document = Document {
        state,
        files: files.collect::<Map<String, Value>>().into(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("a state is plain data");
    text.truncate(text.len() - "\n}".len());
    let seal = seal(&text);
    text.push_str(&seal);
    let mut file = File::create(&path).at("create", &path)?;
    file.write_all(text.as_bytes()).at("write", &path)?;
    file.sync_all().at("sync", &path)
}

/// Reads and verifies the file.
pub(crate) fn read(folder: &Path) -> Result<(State, Digests)> {
    let path = folder.join(STATE);
    let damaged = |offset: usize, what: &str, found: String, wanted: String| Error::Damaged {
        path: path.clone(),
        offset: offset as u64,
        what: what.into(),
        found,
        wanted,
    };
    let text = std::fs::read(&path).at("read", &path)?;
    let body = text.len().saturating_sub(seal("").len());
    let (sealed, found) = text.split_at(body);
    let wanted = seal_bytes(sealed);
    if found != wanted.as_bytes() {
        let found = String::from_utf8_lossy(found).trim().to_owned();
        return Err(damaged(
            body,
            "checksum of the file",
            found,
            wanted.trim().into(),
        ));
    }
    let value: Value = serde_json::from_slice(&text)
        .map_err(|e| damaged(0, "file", e.to_string(), "JSON".into()))?;
    let format = value["format"].to_string();
    if value["format"] != FORMAT {
        return Err(damaged(0, "format", format, FORMAT.into()));
    }
    let digests = value["files"].as_object().and_then(|files| {
        let files = files.iter();
        files
            .map(|(name, digest)| Some((name.clone(), parse_digest(digest)?)))
            .collect::<Option<Vec<_>>>()
    });
    let Some(digests) = digests else {
        let (found, wanted) = ("no checksums".into(), "checksums of every file".into());
        return Err(damaged(0, "files", found, wanted));
    };
    let state = serde_json::from_value(value).map_err(|e| {
        damaged(
            0,
            "state",
            e.to_string(),
            "the fields of this version".into(),
        )
    })?;
    Ok((state, Digests(digests)))
}

fn seal(text: &str) -> String {
    seal_bytes(text.as_bytes())
}

fn seal_bytes(text: &[u8]) -> String {
    format!(",\n  \"xxh3\": \"{:016x}\"\n}}\n", xxh3_64(text))
}

fn digest_value(digest: &Digest) -> Value {
    let hex = |hash: u64| Value::String(format!("{hash:016x}"));
    let tensors = digest
        .tensors
        .iter()
        .map(|(name, hash)| (name.clone(), hex(*hash)));
    json!({
        "bytes": digest.bytes,
        "header": hex(digest.header),
        "tensors": tensors.collect::<Map<String, Value>>(),
    })
}

fn parse_digest(value: &Value) -> Option<Digest> {
    let hash = |value: &Value| u64::from_str_radix(value.as_str()?, 16).ok();
    let tensors = value["tensors"].as_object()?.iter();
    Some(Digest {
        bytes: value["bytes"].as_u64()?,
        header: hash(&value["header"])?,
        tensors: tensors
            .map(|(name, v)| Some((name.clone(), hash(v)?)))
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::exact::Exact;
    use crate::fixtures::tiny_gpt;

    fn digests() -> Digests {
        let digest = Digest {
            bytes: 9,
            header: u64::MAX,
            tensors: vec![("b".into(), 1), ("a".into(), 2)],
        };
        Digests(vec![("one".into(), digest.clone()), ("two".into(), digest)])
    }

    fn state(loss: f64) -> State {
        let mut train_state = TrainState::start();
        use crate::checkpoint::train_state::StepStatus;
        train_state.stepped(
            &tiny_gpt(),
            8,
            crate::optim::next_step::GoodStep::new(loss, 1.0),
            StepStatus::Done,
        );
        State::new(&tiny_gpt(), &train_state, None)
    }

    #[test]
    fn state_comes_back_to_the_last_bit() {
        let folder = tempfile::tempdir().unwrap();
        for bits in [
            0x400b_ffff_ffff_ffff_u64,
            0x3fd5_5555_5555_5555,
            0x4008_1234_5678_9abc,
        ] {
            let mut state = state(f64::from_bits(bits));
            state.train_state.seconds = Some(Exact(f64::from_bits(bits + 1)));
            write(folder.path(), &state, &digests()).unwrap();
            let (found, files) = read(folder.path()).unwrap();
            assert_eq!(found, state);
            assert_eq!(files, digests());
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &state(1.5), &digests()).unwrap();
        let path = folder.path().join(STATE);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read(folder.path()).is_err(), "byte {at}");
        }
        std::fs::write(&path, b"").unwrap();
        assert!(read(folder.path()).is_err());
    }
}

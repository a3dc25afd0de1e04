//! Decisions of `tokenize`: of the tokenizer and each dataset.

use super::decision::{Action, Change, Decision, Effect, Reason, replaced};
use super::setting_changes;
use super::setting_changes::Changed;
use super::tokenize::{INPUTS, Stage, named, stage_name, tokenizer_print};
use crate::context::Context;
use crate::generation::tokenizer_path;
use crate::generation::trained_tokenizer::{
    TOKENIZER, check_new, other_tokens, trained_again, trained_data,
};
use crate::job::{TokenDataset, Tokenize};
use anyhow::Result;
use index::tokenizer::Tokenizer;
use serde_json::Value;

/// Keys that the tokens of every dataset depend on, but for the tokenizer.
const SETTINGS: [&str; 8] = [
    "tokenize.sentences",
    "tokenize.append_eod",
    "tokenize.add_special_tokens",
    "tokenize.split_special_tokens",
    "tokenize.dtype",
    "tokenize.max_record_bytes",
    "tokenize.dataset",
    "tokenize.inputs",
];

/// The documents of the stage.
pub(super) enum Documents<'a> {
    /// They are there; their identity.
    Here(Value),
    /// An earlier stage writes them again.
    Change(&'a Change),
}

/// Decisions of the tokenizer and of each dataset.
///
/// # Errors
/// A tokenizer that cannot be read; a store that cannot be reached.
pub(super) fn decisions(cx: &Context, documents: &Documents<'_>) -> Result<Vec<Decision>> {
    let Some(table) = &cx.job.tokenize else {
        return Ok(Vec::new());
    };
    let changed = setting_changes::of(&cx.job, &cx.out);
    let inputs = match documents {
        Documents::Here(now) if cx.job.curate.is_none() => input_reasons(cx, now)?,
        Documents::Here(_) => Vec::new(),
        Documents::Change(change) => vec![change.reason()],
    };
    let named = named(cx, table)?;
    let of_tokenizer = tokenizer(cx, table, named.as_ref(), documents, &changed, &inputs)?;
    let known = match (named, of_tokenizer.action) {
        (Some(named), _) => Some(named),
        (None, Action::Skip) => Some(Tokenizer::load(&tokenizer_path(cx))?),
        (None, Action::GoOn | Action::Run | Action::Depends) => None,
    };
    let stage = match (known, documents) {
        (Some(known), Documents::Here(now)) => Some(Stage::of(cx, table, known, now.clone())?),
        (Some(_) | None, Documents::Here(_) | Documents::Change(_)) => None,
    };
    let mut reasons: Vec<Reason> = setting_changes::within(&changed, &SETTINGS)
        .into_iter()
        .map(Reason::other)
        .collect();
    reasons.extend(inputs);
    let change = Change::of([&of_tokenizer]);
    let mut all = vec![of_tokenizer];
    for table in cx.job.datasets() {
        all.push(dataset(
            cx,
            &table,
            stage.as_ref(),
            &reasons,
            change.as_ref(),
        )?);
    }
    Ok(all)
}

fn tokenizer(
    cx: &Context,
    table: &Tokenize,
    named: Option<&Tokenizer>,
    documents: &Documents<'_>,
    changed: &[Changed],
    inputs: &[Reason],
) -> Result<Decision> {
    let before = cx.manifest.get(TOKENIZER)?;
    let print = match (named, documents) {
        (Some(named), _) => Some(tokenizer_print(table, Some(named), &Value::Null)),
        (None, Documents::Here(now)) => Some(tokenizer_print(table, None, now)),
        (None, Documents::Change(_)) => None,
    };
    if let Some(print) = &print
        && cx.done(TOKENIZER, print)?.is_some()
    {
        return Ok(Decision::skip(TOKENIZER));
    }
    let is_damaged = before.as_ref().map(|before| &before.fingerprint) == print.as_ref();
    let settings = setting_changes::within(changed, &["tokenize.tokenizer", "tokenize.json_keys"]);
    let mut reasons: Vec<Reason> = match (&before, named) {
        (Some(_), _) if is_damaged => {
            vec![Reason::new("its file is missing or damaged", Effect::Same)]
        }
        (_, Some(named)) => {
            let same = before
                .as_ref()
                .is_some_and(|before| before.counts["xxh3"] == named.identity());
            let mut texts = settings;
            if texts.is_empty() && before.is_some() {
                texts.push(format!("{} is another tokenizer", named.path().display()));
            }
            let effect = if same { Effect::Same } else { Effect::Other };
            let texts = texts.into_iter();
            texts.map(|text| Reason::new(text, effect)).collect()
        }
        (_, None) => {
            let settings = settings.into_iter().map(Reason::other);
            settings.chain(inputs.iter().cloned()).collect()
        }
    };
    if reasons.is_empty() {
        reasons.push(Reason::perhaps(match before {
            None => "it has not run",
            Some(_) => "its texts have changed",
        }));
    }
    let mut decision = Decision::run(TOKENIZER, reasons);
    decision.refusal = match named {
        Some(named) => check_new(cx, named).err().map(|error| error.to_string()),
        None if decision.effect() == Effect::Other => {
            trained_again(cx, &decision.why())?.map(|refused| refused.to_string())
        }
        None => None,
    };
    decision.replaces = replaced(&cx.out, before.as_ref());
    Ok(decision)
}

/// A dataset. `stage`: if its tokenizer and documents are known; `change`: of the tokenizer.
fn dataset(
    cx: &Context,
    dataset: &TokenDataset,
    stage: Option<&Stage<'_>>,
    reasons: &[Reason],
    change: Option<&Change>,
) -> Result<Decision> {
    let name = stage_name(&dataset.name);
    let before = cx.manifest.get(&name)?;
    let is_print =
        |print: &str| (before.as_ref()).is_some_and(|before| before.fingerprint == print);
    let mut reasons = reasons.to_vec();
    reasons.extend(change.map(Change::reason));
    if let Some(stage) = stage {
        let print = stage.fingerprint(dataset);
        if cx.done(&name, &print)?.is_some() {
            return Ok(Decision::skip(name));
        }
        if is_print(&print) {
            reasons = vec![Reason::perhaps("its files are missing or damaged")];
        }
    }
    if reasons.is_empty() {
        reasons.push(Reason::perhaps(match before {
            None => "it has not run, or not to its end",
            Some(_) => "its documents have changed",
        }));
    }
    let mut decision = Decision::run(name, reasons);
    let is_only_tokenizer = stage.is_none() && decision.reasons.len() == 1 && change.is_some();
    if is_only_tokenizer && decision.effect() == Effect::Perhaps {
        decision.action = Action::Depends;
    }
    decision.replaces = replaced(&cx.out, before.as_ref());
    if trained_data(cx, &dataset.name)?.is_some() {
        decision.needed_by = Some("the checkpoints in checkpoints/ were trained on it".into());
        let allows = (cx.job.train.as_ref()).is_some_and(|train| train.resume.allows_data());
        if decision.effect() == Effect::Other && !allows {
            let what = format!("would be there after this run ({})", decision.why());
            decision.refusal = Some(other_tokens(cx, &dataset.name, &what).to_string());
        }
    }
    Ok(decision)
}

/// How the inputs differ from those of the record, of a job without a curation.
fn input_reasons(cx: &Context, now: &Value) -> Result<Vec<Reason>> {
    let Some(record) = cx.manifest.get("tokenize")? else {
        return Ok(Vec::new());
    };
    let before = record.counts[INPUTS].as_array();
    let (Some(before), Some(now)) = (before, now.as_array()) else {
        return Ok(Vec::new());
    };
    let path_of = |file: &Value| file[0]["path"].as_str().unwrap_or_default().to_owned();
    let mut reasons = Vec::new();
    for file in now {
        let path = path_of(file);
        let shown = curate::secrets::without_passwords(&path);
        match before.iter().find(|before| path_of(before) == path) {
            None => reasons.push(Reason::other(format!("new input: {shown}"))),
            Some(same) if same == file => {}
            Some(other) if other[0]["bytes"] != file[0]["bytes"] => {
                reasons.push(Reason::other(format!("another size of input: {shown}")));
            }
            Some(_) => {
                let text = format!("another time of change, and the same size, of input: {shown}");
                reasons.push(Reason::perhaps(text));
            }
        }
    }
    let gone = before
        .iter()
        .filter(|before| now.iter().all(|now| path_of(now) != path_of(before)));
    reasons.extend(gone.map(|file| Reason::other(format!("input is gone: {}", path_of(file)))));
    Ok(reasons)
}

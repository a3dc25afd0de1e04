//! Decisions of `tokenize`: of the tokenizer and each dataset.

use super::decision::{Action, Change, Decision, Effect, Reason, replaced};
use super::setting_changes::Changed;
use super::texts::{is_of, is_source_of};
use super::tokenize::{
    DOCUMENTS, INPUTS, SOURCE, Stage, documents_print, named, stage_name, tokenizer_print,
};
use super::{curate_work, setting_changes};
use crate::context::Context;
use crate::generation::tokenizer_path;
use crate::generation::trained_tokenizer::{
    TOKENIZER, check_new, other_tokens, trained_again, trained_data,
};
use crate::job::{TokenDataset, Tokenize};
use anyhow::Result;
use curate::read::Shard;
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
        Documents::Here(now) => input_reasons(cx, now, |_| true)?,
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
    let settings = setting_changes::within(&changed, &SETTINGS);
    let change = Change::of([&of_tokenizer]);
    let mut all = vec![of_tokenizer];
    for table in cx.job.datasets() {
        let mut reasons: Vec<Reason> = settings.iter().map(Reason::other).collect();
        match documents {
            Documents::Here(now) => {
                let is_own = |source: &str| is_source_of(&table, source);
                let own = input_reasons(cx, now, is_own)?;
                if own.is_empty() && !inputs.is_empty() {
                    reasons.push(Reason::perhaps("inputs of other sources have changed"));
                }
                reasons.extend(own);
            }
            Documents::Change(change) => reasons.push(of_change(cx, &table, change)?),
        }
        all.push(dataset(
            cx,
            &table,
            stage.as_ref(),
            reasons,
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

/// The work of an earlier stage as a reason of a dataset, whose tokens stay as they are if its documents do.
fn of_change(cx: &Context, dataset: &TokenDataset, change: &Change) -> Result<Reason> {
    let reason = change.reason();
    match reason.effect {
        Effect::Other if keeps_documents(cx, dataset)? => Ok(Reason {
            text: format!("{}, for other sources", reason.text),
            effect: Effect::Perhaps,
            ..reason
        }),
        Effect::Same | Effect::Perhaps | Effect::Other => Ok(reason),
    }
}

/// Whether a curation that works again is known to leave a dataset its documents: all shards of its sources are done, and the
/// dataset was made of them. So it stays when that run is killed. A deduplication compares the documents of all sources, so that
/// those that it keeps are known only afterwards.
fn keeps_documents(cx: &Context, dataset: &TokenDataset) -> Result<bool> {
    if cx.job.curate.is_none() || cx.job.has_keep_lists() {
        return Ok(false);
    }
    let Some(before) = cx.manifest.get(&stage_name(&dataset.name))? else {
        return Ok(false);
    };
    let own = cx.shards()?.iter().filter(|shard| is_of(dataset, shard));
    let own: Vec<Shard> = own.cloned().collect();
    let prints = curate_work::prints_of(cx, &own);
    let left = curate_work::left(&own, &prints, |stage, print| {
        Ok(cx.done(stage, print)?.is_some())
    })?;
    if !left.is_empty() {
        return Ok(false);
    }
    let documents = documents_print(cx, dataset)?;
    Ok(documents.is_some() && documents.as_deref() == before.counts[DOCUMENTS].as_str())
}

/// A dataset. `stage`: if its tokenizer and documents are known; `change`: of the tokenizer.
fn dataset(
    cx: &Context,
    dataset: &TokenDataset,
    stage: Option<&Stage<'_>>,
    mut reasons: Vec<Reason>,
    change: Option<&Change>,
) -> Result<Decision> {
    let name = stage_name(&dataset.name);
    let before = cx.manifest.get(&name)?;
    let is_print =
        |print: &str| (before.as_ref()).is_some_and(|before| before.fingerprint == print);
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

/// How the inputs of these sources differ from those of the record, of a job without a curation.
fn input_reasons(
    cx: &Context,
    now: &Value,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Reason>> {
    let record = match cx.job.curate {
        None => cx.manifest.get("tokenize")?,
        Some(_) => None,
    };
    let Some(record) = record else {
        return Ok(Vec::new());
    };
    let before = record.counts[INPUTS].as_array();
    let (Some(before), Some(now)) = (before, now.as_array()) else {
        return Ok(Vec::new());
    };
    let is_own = |file: &&Value| file[SOURCE].as_str().is_none_or(&is_wanted);
    let before: Vec<&Value> = before.iter().filter(is_own).collect();
    let now: Vec<&Value> = now.iter().filter(is_own).collect();
    let path_of = |file: &Value| file[0]["path"].as_str().unwrap_or_default().to_owned();
    let mut reasons = Vec::new();
    for file in &now {
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

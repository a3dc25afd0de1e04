//! The decisions of all stages of a job before the first one changes a file. `run` refuses by them, and `run --plan` prints them.

use super::curate_work::Work;
use super::decision::{Action, Change, Decision, Reason, Replaced, files_there};
use super::tokenize_decision::Documents;
use super::{dedup, tokenize, tokenize_decision, training_decision};
use crate::context::{Context, expect_whole};
use crate::folder_lock;
use crate::job::Refused;
use crate::log::{message, muted, print, printable};
use crate::machine::{grouped, megabytes};
use anyhow::Result;
use serde_json::{Value, json};

/// The decisions of stages, in the order of a run.
pub(super) struct Outlook(Vec<Decision>);

impl Outlook {
    /// Of every stage that a run of the job has.
    ///
    /// # Errors
    /// Inputs, records or checkpoints that cannot be read.
    pub(super) fn of(cx: &Context) -> Result<Outlook> {
        let job = &cx.job;
        let mut all = Vec::new();
        if job.curate.is_some() {
            all.push(Work::of(cx)?.decision(cx)?);
        }
        if job.has_keep_lists() {
            let change = Change::of(&all);
            let sums = match change {
                Some(_) => Value::Null,
                None => dedup::sums(cx, cx.shards()?.len())?,
            };
            all.push(dedup::decision(cx, change.as_ref(), &sums)?);
        }
        let before = all.len();
        let change = Change::of(&all);
        if job.tokenize.is_some() {
            let documents = match &change {
                Some(change) => Documents::Change(change),
                None if job.curate.is_some() => {
                    Documents::Here(tokenize::curated(cx, cx.shards()?.len())?)
                }
                None => Documents::Here(tokenize::upstream(cx)?),
            };
            all.extend(tokenize_decision::decisions(cx, &documents)?);
        }
        let change = Change::of(&all[before..]);
        all.extend(training_of(cx, change.as_ref())?);
        if job.report.is_some() {
            let reasons = vec![Reason::perhaps("every run writes it")];
            let mut decision = Decision::run("report", reasons);
            decision.replaces = files_there(&cx.out, std::iter::once("report.html".into()));
            all.push(decision);
        }
        Ok(Outlook(all))
    }

    /// Of `curate` alone.
    ///
    /// # Errors
    /// Inputs or records that cannot be read.
    pub(super) fn of_curate(cx: &Context) -> Result<Outlook> {
        match cx.job.curate {
            Some(_) => Ok(Outlook(vec![Work::of(cx)?.decision(cx)?])),
            None => Ok(Outlook(Vec::new())),
        }
    }

    /// Of `dedup` alone.
    ///
    /// # Errors
    /// Records that cannot be read; a curation that has not run.
    pub(super) fn of_dedup(cx: &Context) -> Result<Outlook> {
        if !cx.job.has_keep_lists() {
            return Ok(Outlook(Vec::new()));
        }
        let (_, sums) = dedup::upstream(cx)?;
        Ok(Outlook(vec![dedup::decision(cx, None, &sums)?]))
    }

    /// Of `tokenize` alone.
    ///
    /// # Errors
    /// As of [`Outlook::of`]; an earlier stage that has not run.
    pub(super) fn of_tokenize(cx: &Context) -> Result<Outlook> {
        let documents = match cx.job.tokenize {
            Some(_) => Documents::Here(tokenize::upstream(cx)?),
            None => return Ok(Outlook(Vec::new())),
        };
        tokenize_decision::decisions(cx, &documents).map(Outlook)
    }

    /// Of `train` alone.
    ///
    /// # Errors
    /// As of [`Outlook::of`]; data that is not there.
    pub(super) fn of_train(cx: &Context) -> Result<Outlook> {
        training_of(cx, None).map(Outlook)
    }

    /// Of a training that begins, whose initial weights are compared before texts are curated for them.
    pub(super) fn of_new(cx: &Context) -> Outlook {
        if cx.job.train.is_none() {
            return Outlook(Vec::new());
        }
        let mut decision = Decision::run("train", vec![Reason::other("it has no checkpoint")]);
        decision.refusal = training_decision::init_refusal(cx);
        Outlook(vec![decision])
    }

    /// Refuses the job if a stage would.
    ///
    /// # Errors
    /// `Refused` with what every stage has against it.
    pub(super) fn expect_allowed(&self) -> Result<(), Refused> {
        let refusals: Vec<&str> = (self.0.iter())
            .filter_map(|decision| decision.refusal.as_deref())
            .collect();
        match refusals.is_empty() {
            true => Ok(()),
            false => Err(Refused::new(refusals.join("\n"))),
        }
    }

    /// Logs whether each stage runs, and why, each reason on a line of its own, for `--verbose`.
    pub(super) fn detail(&self) {
        for decision in &self.0 {
            let (stage, action) = (&decision.stage, in_words(decision.action));
            match &decision.progress {
                Some(progress) => detail!("{stage}: {action}; {progress}"),
                None => detail!("{stage}: {action}"),
            }
            for reason in &decision.reasons {
                detail!("{stage}: because {}", reason.text);
            }
        }
    }
}

/// The stages from the blend on. Of a training without checkpoints nothing can be refused but its initial weights: a process that is
/// about to run does not open its data for it.
fn training_of(cx: &Context, change: Option<&Change>) -> Result<Vec<Decision>> {
    if !cx.is_owner() || training_decision::has_history(&cx.job) {
        // the stages log the same once more
        return muted(|| training_decision::decisions(cx, change));
    }
    Ok(Outlook::of_new(cx).0)
}

/// `run --plan`: prints what a run would do now. Nothing is written, and no lock is taken.
///
/// # Errors
/// `Refused` if the run would be; what cannot be read.
pub(crate) fn outlook(cx: &Context, as_json: bool) -> Result<()> {
    // a folder that a takedown has left halfway cannot be run in
    let whole = expect_whole(&cx.out, &cx.manifest);
    let outlook = Outlook::of(cx)?;
    let holder = folder_lock::running(&cx.out);
    let refused = match (whole, outlook.expect_allowed()) {
        (Err(error), _) => Some(Refused::new(message(&error))),
        (Ok(()), allowed) => allowed.err(),
    };
    if as_json {
        let stages: Vec<Value> = outlook.0.iter().map(to_json).collect();
        let all = json!({
            "job": cx.job.name, "out": cx.out, "running": holder, "possible": refused.is_none(), "stages": stages,
        });
        print(&format!("{all:#}\n"))?;
    } else {
        let mut text = format!("job {:?} in {}\n", cx.job.name, cx.out.display());
        if let Some(holder) = holder {
            text += &format!(
                "a job is running there now ({holder}): this is what a run would do with the files as they are\n"
            );
        }
        outlook.0.iter().for_each(|one| text += &lines(one));
        print(&printable(&text))?;
    }
    match refused {
        Some(refused) => Err(refused.into()),
        None => Ok(()),
    }
}

fn in_words(action: Action) -> &'static str {
    match action {
        Action::Skip => "finished, will be skipped",
        Action::GoOn => "will go on",
        Action::Run => "will run",
        Action::Depends => "will run, unless what it reads comes out as before",
    }
}

fn to_json(decision: &Decision) -> Value {
    let texts: Vec<&str> = (decision.reasons.iter())
        .map(|reason| reason.text.as_str())
        .collect();
    json!({
        "stage": decision.stage, "action": decision.action, "progress": decision.progress, "reasons": texts,
        "replaces": decision.replaces, "needed_by": decision.needed_by, "refusal": decision.refusal,
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{} bytes", grouped(bytes)),
        _ => megabytes(bytes),
    }
}

/// The lines of a stage.
fn lines(decision: &Decision) -> String {
    let action = match decision.refusal {
        None => in_words(decision.action),
        Some(_) => "is refused",
    };
    let mut text = format!("\n{}: {action}", decision.stage);
    if let Some(progress) = &decision.progress {
        text += &format!("; {progress}");
    }
    text += "\n";
    for reason in &decision.reasons {
        text += &format!("  because   {}\n", reason.text);
    }
    for Replaced { path, files, bytes } in &decision.replaces {
        let (path, size) = (path.display(), size(*bytes));
        text += &match files {
            1 => format!("  replaces  {path} ({size})\n"),
            files => format!("  replaces  {files} files in {path} ({size})\n"),
        };
    }
    if let Some(needed_by) = decision.needed_by.as_ref() {
        text += &format!("  note      {needed_by}\n");
    }
    if let Some(refusal) = &decision.refusal {
        text += &format!("  refused   {refusal}\n");
    }
    text
}

//! Files in the folders of a job's inputs that it does not read, for the log.

use crate::job::Job;
use curate::read::{Input, LeftOut, Overview, WhyLeftOut, overview};
use std::collections::BTreeMap;

/// Names that are shown of each kind.
const SHOWN: usize = 3;

/// Prints a line for each input and reason, with the number of files.
pub(crate) fn note(job: &Job) {
    let table = match job.curate {
        Some(_) => "curate",
        None => "tokenize",
    };
    for (i, input) in job.inputs().iter().enumerate() {
        let folder = overview(input);
        for line in lines(&folder.left_out, &input.path) {
            log!("{table}.inputs[{i}]: left out {line}");
        }
        if let Some(line) = together(&folder, input) {
            log!("{table}.inputs[{i}]: {line}");
        }
    }
}

/// Tells that splits or configurations of a dataset are read together, if nobody asked for one of them.
fn together(folder: &Overview, input: &Input) -> Option<String> {
    let line = |kind: &str, names: &[String], key: &str| {
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        let shown = names[..names.len().min(SHOWN)].join(", ");
        format!("the {kind} {shown}{more} are read together; `{key}` chooses one")
    };
    match (&folder.splits[..], &folder.configs[..]) {
        (splits @ [_, _, ..], _) if input.dataset_split.is_none() => {
            Some(line("splits", splits, "dataset_split"))
        }
        (_, configs @ [_, _, ..]) => Some(line("configurations", configs, "dataset_config")),
        _ => None,
    }
}

/// `2 files about a dataset: README.md, LICENSE`.
pub(super) fn lines(files: &[LeftOut], folder: &str) -> Vec<String> {
    let mut by_reason: BTreeMap<WhyLeftOut, Vec<String>> = BTreeMap::new();
    for file in files {
        let name = file.path.strip_prefix(folder).unwrap_or(&file.path);
        let name = name.to_string_lossy().into_owned();
        by_reason.entry(file.why).or_default().push(name);
    }
    let line = |(why, names): (WhyLeftOut, Vec<String>)| {
        let count = match names.len() {
            1 => "1 file".to_string(),
            n => format!("{n} files"),
        };
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        let names = &names[..names.len().min(SHOWN)];
        format!("{count} {}: {}{more}", why.in_words(), names.join(", "))
    };
    by_reason.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_number_the_reason_and_some_names() {
        let file = |name: &str, why| LeftOut {
            path: format!("/d/{name}").into(),
            why,
        };
        let files = [
            file("b.csv", WhyLeftOut::OtherFormat),
            file("README.md", WhyLeftOut::Card),
            file("c.csv", WhyLeftOut::OtherFormat),
            file("x/d.csv", WhyLeftOut::OtherFormat),
            file("e.csv", WhyLeftOut::OtherFormat),
        ];
        let want = [
            "1 file about a dataset: README.md",
            "4 files of another format by name and content (`format = \"auto\"` reads all): b.csv, c.csv, x/d.csv, ...",
        ];
        assert_eq!(lines(&files, "/d"), want);
        assert_eq!(lines(&[], "/d"), [""; 0]);
    }

    #[test]
    fn splits_that_are_read_together_are_told_unless_one_was_chosen() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let folder = |splits: &[&str], configs: &[&str]| Overview {
            splits: names(splits),
            configs: names(configs),
            ..Overview::default()
        };
        let all = Input::default();
        let two = folder(&["test", "train"], &[]);
        let want = "the splits test, train are read together; `dataset_split` chooses one";
        assert_eq!(together(&two, &all).as_deref(), Some(want));
        let configs = folder(&["train"], &["a", "b", "c", "d"]);
        let want =
            "the configurations a, b, c, ... are read together; `dataset_config` chooses one";
        assert_eq!(together(&configs, &all).as_deref(), Some(want));
        assert_eq!(together(&folder(&["train"], &["a"]), &all), None);
        let one = Input {
            dataset_split: Some("train".to_string()),
            ..Input::default()
        };
        assert_eq!(together(&folder(&["train"], &[]), &one), None);
    }
}

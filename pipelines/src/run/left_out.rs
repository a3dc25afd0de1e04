//! Files in the folders of a job's inputs that it does not read, for the log.

use crate::job::Job;
use curate::read::{LeftOut, WhyLeftOut, left_out};
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
        for line in lines(&left_out(input), &input.path) {
            log!("{table}.inputs[{i}]: left out {line}");
        }
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
}

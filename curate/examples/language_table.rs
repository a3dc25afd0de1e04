//! Accuracy per language of the built-in identifier, and of a fastText model, on held-out lines.
//!
//! `cargo run --release -p millrace-curate --example language_table -- SETS.tsv [MODEL.ftz]`
//!
//! Reads the `test SOURCE CODE TEXT` lines of `tests/oracles/language_sets.py`. Labels of lid.176 are mapped to
//! ours where they mean the same (`no` is `nb`, `arz` is `ar`). Prints a table per source and one per language,
//! with the languages that the model does not have left out of the comparison.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use curate::language::{Identifier, LanguageScratch};

/// lid.176 labels that correspond to one of our codes.
const SAME: &[(&str, &str)] = &[
    ("no", "nb"),
    ("arz", "ar"),
    ("azb", "az"),
    ("pnb", "pa"),
    ("wuu", "zh"),
    ("yue", "zh"),
    ("bh", "bho"),
    ("fil", "tl"),
];

#[derive(Default, Clone, Copy)]
struct Count {
    lines: usize,
    ours: usize,
    theirs: usize,
}

impl Count {
    fn add(&mut self, ours: bool, theirs: bool) {
        self.lines += 1;
        self.ours += usize::from(ours);
        self.theirs += usize::from(theirs);
    }

    fn print(&self, name: &str) {
        let percent = |n: usize| 100.0 * n as f64 / self.lines.max(1) as f64;
        let (ours, theirs) = (percent(self.ours), percent(self.theirs));
        println!("{name:24} {:6} {ours:7.2} {theirs:7.2}", self.lines);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sets = args.first().ok_or("wanted: SETS.tsv [MODEL]")?;
    let ours = Identifier::built_in();
    let theirs = Identifier::open(args.get(1).map_or("builtin", String::as_str))?;
    let mut scratch = LanguageScratch::default();
    let mut by_source: BTreeMap<String, [Count; 2]> = BTreeMap::new();
    let mut by_language: BTreeMap<String, BTreeMap<String, Count>> = BTreeMap::new();
    let mut confused: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for line in std::io::BufReader::new(std::fs::File::open(sets)?).lines() {
        let line = line?;
        let ["test", source, code, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        let (guess, _) = ours.identify(text, &mut scratch);
        let right = guess == code;
        if !right && source == "lingua-sentences" {
            *confused.entry((code.into(), guess.into())).or_default() += 1;
        }
        let (label, _) = theirs.identify(text, &mut scratch);
        let label = SAME.iter().find(|s| s.0 == label).map_or(label, |s| s.1);
        let both = theirs.knows(code) || SAME.iter().any(|s| s.1 == code && theirs.knows(s.0));
        if !both {
            unknown.insert(code.to_string());
        }
        let counts = by_source.entry(source.into()).or_default();
        counts[usize::from(both)].add(right, label == code);
        let language = by_language.entry(code.into()).or_default();
        let count = language.entry(source.into()).or_default();
        count.add(right, label == code);
    }
    println!("source                    lines    ours  theirs   (per cent)");
    for (source, [only, both]) in &by_source {
        both.print(source);
        if only.lines > 0 {
            only.print(&format!("  {source}: ours only"));
        }
    }
    println!("\nunknown to theirs: {unknown:?}\n\nlanguage source");
    for (language, sources) in &by_language {
        for (source, count) in sources {
            count.print(&format!("{language:4} {source}"));
        }
    }
    let mut worst: Vec<_> = confused.into_iter().collect();
    worst.sort_by_key(|w| std::cmp::Reverse(w.1));
    println!(
        "\nsentences most often confused: {:?}",
        &worst[..worst.len().min(40)]
    );
    Ok(())
}

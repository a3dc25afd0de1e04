//! The funnel of each source: how its records ended, step by step and by rule.

use super::html::{fold, table};
use super::material::Material;
use super::outcomes::{LATER, dropped_by_step};
use super::sections::ranked;
use super::values::{number, percent};
use crate::machine::{grouped, megabytes};
use serde_json::Value;
use std::collections::BTreeMap;

/// Sources in rows of their own, those with the most records; the others are added up in one row.
const SHOWN: usize = 12;
/// Those in the folded table of all.
const LISTED: usize = 500;
/// Those whose rules are listed.
const RULES: usize = 50;
/// Records of shards whose source was not recorded.
const UNKNOWN: &str = "(source not recorded)";

/// How the records of a source, or of all, ended.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ends {
    records: u64,
    bytes_in: u64,
    bytes_out: u64,
    kept: u64,
    /// Records that were not kept, by outcome.
    lost: BTreeMap<String, u64>,
}

impl Ends {
    /// From counts of `curate` and, if it has run, of `dedup`, which have the same names for a source and for all.
    fn of(curate: &Value, dedup: &Value) -> Ends {
        let mut lost: BTreeMap<String, u64> = ranked(&curate["dropped"]).into_iter().collect();
        lost.insert("quarantined".into(), number(&curate["quarantined"]));
        let of_dedup = [("exact", "duplicate.exact"), ("fuzzy", "duplicate.near")];
        let later = LATER.iter().map(|(key, _, outcome)| (*key, *outcome));
        for (key, outcome) in of_dedup.into_iter().chain(later) {
            *lost.entry(outcome.into()).or_default() += number(&dedup[key]);
        }
        lost.retain(|_, count| *count > 0);
        let last = if dedup.is_object() { dedup } else { curate };
        Ends {
            records: number(&curate["records"]),
            bytes_in: number(&curate["bytes_in"]),
            bytes_out: number(&curate["bytes_out"]),
            kept: number(&last["kept"]),
            lost,
        }
    }

    fn add(&mut self, other: &Ends) {
        self.records += other.records;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.kept += other.kept;
        for (outcome, count) in &other.lost {
            *self.lost.entry(outcome.clone()).or_default() += count;
        }
    }

    /// The counts that `others` leave of these.
    fn without(&self, others: &Ends) -> Ends {
        let mut lost = self.lost.clone();
        for (outcome, count) in &mut lost {
            *count = count.saturating_sub(others.of_outcome(outcome));
        }
        lost.retain(|_, count| *count > 0);
        Ends {
            records: self.records.saturating_sub(others.records),
            bytes_in: self.bytes_in.saturating_sub(others.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(others.bytes_out),
            kept: self.kept.saturating_sub(others.kept),
            lost,
        }
    }

    fn of_outcome(&self, outcome: &str) -> u64 {
        self.lost.get(outcome).copied().unwrap_or(0)
    }

    /// Whether every record ended in exactly one count.
    fn adds_up(&self) -> bool {
        self.records == self.kept + self.lost.values().sum::<u64>()
    }
}

/// The sources by falling number of records, with one for records whose source is not known; none if no source is.
fn sources(curate: &Value, dedup: &Value, whole: &Ends) -> Vec<(String, Ends)> {
    let of_curate = curate["by_source"].as_object().into_iter().flatten();
    let of = |(name, counts): (&String, &Value)| {
        let of_dedup = &dedup["by_source"][name.as_str()];
        (name.clone(), Ends::of(counts, of_dedup))
    };
    let mut all: Vec<(String, Ends)> = of_curate.map(of).collect();
    if all.is_empty() {
        return all;
    }
    all.sort_by(|a, b| (b.1.records, &a.0).cmp(&(a.1.records, &b.0)));
    let mut sum = Ends::default();
    all.iter().for_each(|(_, ends)| sum.add(ends));
    let rest = whole.without(&sum);
    if rest.records > 0 {
        all.push((UNKNOWN.into(), rest));
    }
    all
}

/// The columns behind the records and the kept ones: name, and the outcomes that each adds up.
fn columns(m: &Material, whole: &Ends) -> Vec<(String, Vec<String>)> {
    let named = |of: &dyn Fn(&str) -> bool| -> Vec<String> {
        whole.lost.keys().filter(|o| of(o)).cloned().collect()
    };
    let is_step = |outcome: &str| {
        outcome != "quarantined" && !outcome.starts_with("duplicate.") && outcome != CUT
    };
    let is_other = |outcome: &str| {
        let is_later = outcome.starts_with("duplicate.") || outcome == CUT;
        is_later && outcome != "duplicate.exact" && outcome != "duplicate.near"
    };
    let rules = whole.lost.iter().map(|(rule, n)| (rule.as_str(), *n));
    let rules = rules.filter(|(rule, _)| is_step(rule));
    let mut columns = vec![("unreadable".to_string(), vec!["quarantined".to_string()])];
    for (step, _) in dropped_by_step(&m.job, rules) {
        let own = |rule: &str| is_step(rule) && rule.split('.').next() == Some(step.as_str());
        let outcomes = named(&own);
        columns.push((step.clone(), outcomes));
    }
    if m.counts("dedup").is_object() {
        let exact = vec!["duplicate.exact".to_string()];
        let near = vec!["duplicate.near".to_string()];
        columns.push(("exact duplicates".into(), exact));
        columns.push(("near duplicates".into(), near));
        let others = named(&is_other);
        if !others.is_empty() {
            columns.push(("removed otherwise".into(), others));
        }
    }
    columns
}

/// Outcome of documents whose evaluation texts were cut, in a stage behind the filters.
const CUT: &str = "decontaminate.cut";

/// A table with a row for each source, whether it adds up, and the rules of each source; empty before `curate`.
pub(super) fn by_source(m: &Material) -> String {
    let curate = m.counts("curate");
    let recorded = m.counts("dedup");
    let has_dedup = recorded["by_source"].is_object();
    // without counts by source the duplicates are left out of the table
    let dedup = if has_dedup { recorded } else { &Value::Null };
    let whole = Ends::of(curate, dedup);
    let all = sources(curate, dedup, &whole);
    let title = "<h3>By source</h3>";
    if all.is_empty() {
        let why = "The counts of this run are of an earlier version, which did not record them by source.";
        return format!("{title}<p class=quiet>{why}</p>");
    }
    let mut body = title.to_string();
    if recorded.is_object() && !has_dedup {
        body += "<p class=quiet>The duplicates were removed by an earlier version, which did not record them by source: the rows end before deduplication.</p>";
    }
    let mut columns = columns(m, &whole);
    if !has_dedup {
        columns.retain(|(name, _)| !name.ends_with(" duplicates"));
    }
    let mut head = vec!["source", "records", "kept", "of these"];
    head.extend(columns.iter().map(|(name, _)| name.as_str()));
    head.extend(["bytes read", "text behind the filters"]);
    let row = |name: &str, ends: &Ends| {
        let mut cells = vec![
            name.to_string(),
            grouped(ends.records),
            grouped(ends.kept),
            percent(ends.kept, ends.records),
        ];
        cells.extend(columns.iter().map(|(_, outcomes)| {
            let count = outcomes.iter().map(|outcome| ends.of_outcome(outcome));
            grouped(count.sum())
        }));
        cells.push(megabytes(ends.bytes_in));
        cells.push(megabytes(ends.bytes_out));
        cells
    };
    let rows = |most: usize| {
        let shown = first(&all, most);
        let mut rows: Vec<Vec<String>> = shown.iter().map(|(n, ends)| row(n, ends)).collect();
        rows.push(row("all", &whole));
        table(&head, &rows)
    };
    body += &rows(SHOWN);
    let mut sum = Ends::default();
    all.iter().for_each(|(_, ends)| sum.add(ends));
    let adds_up = sum == whole && whole.adds_up() && all.iter().all(|(_, ends)| ends.adds_up());
    body += &match adds_up {
        true => format!(
            "<p class=quiet>Every row adds up to its records, and the rows to the {} of all.</p>",
            grouped(whole.records)
        ),
        false => "<p class=quiet>The rows do NOT add up to the records of all.</p>".to_string(),
    };
    if all.len() > SHOWN {
        let name = format!("All {} sources", grouped(all.len() as u64));
        body += &fold(&name, &rows(LISTED));
    }
    let listed = first(&all, RULES);
    let by_rule = listed.iter().map(|(name, ends)| rules(name, ends));
    body + &fold("The rules of each source", &by_rule.collect::<String>())
}

/// The first sources, and one that adds up the others.
fn first(all: &[(String, Ends)], most: usize) -> Vec<(String, Ends)> {
    let (shown, others) = all.split_at(most.min(all.len()));
    let mut shown = shown.to_vec();
    if !others.is_empty() {
        let mut rest = Ends::default();
        others.iter().for_each(|(_, ends)| rest.add(ends));
        shown.push((format!("{} others", others.len()), rest));
    }
    shown
}

/// The rules of a source, folded.
fn rules(name: &str, ends: &Ends) -> String {
    let mut lost: Vec<(&String, &u64)> = ends.lost.iter().collect();
    lost.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let kept = "kept".to_string();
    let all = std::iter::once((&kept, &ends.kept)).chain(lost);
    let rows: Vec<Vec<String>> = all
        .map(|(outcome, n)| vec![outcome.clone(), grouped(*n), percent(*n, ends.records)])
        .collect();
    let (kept, records) = (grouped(ends.kept), grouped(ends.records));
    fold(
        &format!("{name}: {kept} of {records} records kept, by rule"),
        &table(&["outcome", "records", "share"], &rows),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn material(manifest: Value) -> Material {
        let text = "out = \"/nowhere\"\n[curate]\ninputs = [{ path = \"/a\", source = \"a\" }]\n\
            [[curate.step]]\ngopher_quality = {}\n[[curate.step]]\nfineweb = {}";
        Material::of_manifest(toml::from_str(text).unwrap(), manifest)
    }

    fn curate() -> Value {
        json!({"records": 100, "quarantined": 3, "kept": 60, "bytes_in": 9_000_000, "bytes_out": 5_000_000,
            "dropped": {"gopher_quality.short_doc": 20, "fineweb.line_punct": 12, "fineweb.short_lines": 5},
            "by_source": {
                "a": {"records": 70, "quarantined": 3, "kept": 40, "bytes_in": 6_000_000, "bytes_out": 3_000_000,
                    "dropped": {"gopher_quality.short_doc": 20, "fineweb.line_punct": 7}},
                "<b>": {"records": 30, "quarantined": 0, "kept": 20, "bytes_in": 3_000_000, "bytes_out": 2_000_000,
                    "dropped": {"fineweb.line_punct": 5, "fineweb.short_lines": 5}}}})
    }

    fn dedup() -> Value {
        json!({"documents": 60, "kept": 50, "exact": 6, "fuzzy": 3, "url": 1,
            "by_source": {"a": {"documents": 40, "kept": 34, "exact": 5, "url": 1},
                "<b>": {"documents": 20, "kept": 16, "exact": 1, "fuzzy": 3}}})
    }

    fn cells(row: &[&str]) -> String {
        let cell = |text: &&str| format!("<td class=number>{text}</td>");
        row.iter().map(cell).collect()
    }

    const SUM: &str = "Every row adds up to its records, and the rows to the 100 of all.";

    #[test]
    fn rows_are_sources_and_columns_the_steps_in_their_order() {
        let page = by_source(&material(
            json!({"curate": {"counts": curate()}, "dedup": {"counts": dedup()}}),
        ));
        let head = [
            "records",
            "kept",
            "of these",
            "unreadable",
            "gopher_quality",
            "fineweb",
            "exact duplicates",
            "near duplicates",
            "removed otherwise",
            "bytes read",
        ];
        let at = |text: &str| page.find(&format!(">{text}</th>"));
        assert!(
            head.windows(2)
                .all(|w| at(w[0]).unwrap() < at(w[1]).unwrap())
        );
        let a = ["70", "34", "48.6%", "3", "20", "7", "5", "0", "1"];
        assert!(page.contains(&format!("<td>a</td>{}", cells(&a))), "{page}");
        let b = ["30", "16", "53.3%", "0", "0", "10", "1", "3", "0"];
        assert!(page.contains(&format!("<td>&lt;b&gt;</td>{}", cells(&b))));
        let all = ["100", "50", "50.0%", "3", "20", "17", "6", "3", "1"];
        assert!(page.contains(&format!("<td>all</td>{}", cells(&all))));
        assert!(page.contains(SUM));
        assert!(page.contains("<summary>a: 34 of 70 records kept, by rule</summary>"));
        assert!(page.contains(&format!(
            "<td>fineweb.short_lines</td>{}",
            cells(&["5", "16.7%"])
        )));
    }

    #[test]
    fn counts_that_do_not_add_up_are_said_to() {
        let mut wrong = curate();
        wrong["by_source"]["a"]["kept"] = json!(41);
        let page = by_source(&material(json!({"curate": {"counts": wrong}})));
        assert!(page.contains("do NOT add up"));
        let right = by_source(&material(json!({"curate": {"counts": curate()}})));
        assert!(right.contains(SUM) && !right.contains("exact duplicates"));
    }

    #[test]
    fn records_of_earlier_versions_are_shown_as_what_they_are() {
        let mut old = curate();
        old["by_source"].take();
        let page = by_source(&material(json!({"curate": {"counts": old}})));
        assert!(page.contains("did not record them by source") && !page.contains("<table"));
        // one shard of before, and the deduplication
        let mut mixed = curate();
        let sources = mixed["by_source"].as_object_mut().unwrap();
        sources.remove("<b>");
        let mut before = dedup();
        before["by_source"].take();
        let page = by_source(&material(
            json!({"curate": {"counts": mixed}, "dedup": {"counts": before}}),
        ));
        let rest = ["30", "20", "66.7%", "0", "0", "10"];
        assert!(
            page.contains(&format!("<td>{UNKNOWN}</td>{}", cells(&rest))),
            "{page}"
        );
        assert!(page.contains("the rows end before deduplication") && page.contains(SUM));
    }
}

//! Steps for source code and mathematics against the programs and definitions that published them (recorded by
//! tests/oracles/source_golden.py).

use std::collections::BTreeMap;

use curate::contract::{Draft, Opening, StepConfig, StepScratch};
use curate::filter::{
    FileLanguage, Issue, License, MathPage, Notebook, NotebookForm, Openwebmath, SourceCode,
    SourceFile, SourceProfile,
};
use curate::verdict::{Judge, Verdict};
use serde_json::{Value, json};

fn golden(key: &str) -> Vec<Value> {
    let packed = include_bytes!("../data/source.json.zst");
    let all = zstd::decode_all(&packed[..]).unwrap();
    let mut all: Value = serde_json::from_slice(&all).unwrap();
    match all[key].take() {
        Value::Array(rows) => rows,
        other => panic!("{key}: {other}"),
    }
}

fn file(row: &Value) -> SourceFile<'_> {
    let text = |key: &str| row[key].as_str().unwrap();
    SourceFile {
        path: text("path"),
        language: text("language"),
        text: text("text"),
    }
}

fn rule(verdict: Verdict) -> Option<String> {
    let reason = verdict.break_value()?;
    Some(reason.rule.replace("source_code.", ""))
}

#[test]
fn starcoders_filters_give_the_same_verdicts() {
    for (profile, key) in [
        (SourceProfile::Starcoder, "starcoder"),
        (SourceProfile::Starcoder2, "starcoder2"),
    ] {
        let rules = SourceCode {
            profile,
            ..SourceCode::default()
        };
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for row in golden("files").iter().filter(|row| row.get(key).is_some()) {
            let ours = rule(rules.measure(file(row), &mut Judge::strict()));
            let theirs = row[key].as_str();
            assert_eq!(ours.as_deref(), theirs, "{key} {}", row["path"]);
            *seen.entry(ours.unwrap_or_default()).or_default() += 1;
        }
        assert!(seen.len() > 5 && seen[""] > 50, "{key}: {seen:?}");
    }
}

#[test]
fn redpajamas_figures_are_the_same() {
    let rules = SourceCode {
        profile: SourceProfile::Redpajama,
        ..SourceCode::default()
    };
    for row in golden("files") {
        let mut judge = Judge::measuring();
        assert!(rules.measure(file(&row), &mut judge).is_continue());
        for metric in judge.metrics() {
            let theirs = row["redpajama"][metric.rule.replace("source_code.", "")].as_f64();
            let theirs = theirs.unwrap();
            let same = (metric.value - theirs).abs() <= 1e-12 * theirs.max(1.0);
            assert!(same, "{}: {metric:?}, want {theirs}", row["path"]);
        }
    }
}

#[test]
fn shares_of_comments_are_near_those_of_python_and_pygments() {
    let rules = SourceCode {
        profile: SourceProfile::Starcoder,
        comments: true,
        any_extension: true,
        limits: serde_json::from_value(
            json!({"max_line_length": false, "max_mean_line_length": false,
            "min_alphanumeric_ratio": false, "max_xml_declarations": false}),
        )
        .unwrap(),
        ..SourceCode::default()
    };
    let mut checked = 0;
    for row in golden("files") {
        // texts that Python cannot parse have no share there
        let is_real = row["path"].as_str().unwrap().starts_with("tests/");
        let theirs = row.get("comments").and_then(Value::as_f64);
        let Some(theirs) = theirs.filter(|share| is_real && *share > 0.0) else {
            continue;
        };
        let mut judge = Judge::measuring();
        drop(rules.measure(file(&row), &mut judge));
        let found = judge
            .metrics()
            .iter()
            .find(|m| m.rule.ends_with("min_comment_ratio"));
        let ours = found.unwrap().value;
        assert!(
            (ours - theirs).abs() < 0.02,
            "{}: {ours} {theirs}",
            row["path"]
        );
        checked += 1;
    }
    assert!(checked > 3, "{checked}");
}

#[test]
fn notebooks_are_written_as_jupytext_writes_them() {
    for row in golden("notebooks") {
        let [notebook, script, markdown] = [0, 1, 2].map(|i| row[i].as_str().unwrap());
        for (form, want) in [
            (NotebookForm::Script, script),
            (NotebookForm::Markdown, markdown),
        ] {
            let mut out = String::new();
            let config = Notebook {
                form,
                ..Notebook::default()
            };
            config.convert(notebook, &mut out).unwrap();
            assert_eq!(out, want);
        }
    }
}

#[test]
fn issues_are_filtered_and_written_as_bigcode_does() {
    let (mut kept, mut dropped) = (0, 0);
    for row in golden("issues") {
        let mut out = String::new();
        let verdict = Issue::default().convert(row[0].as_array().unwrap(), &mut out);
        match row[1].as_str() {
            Some(text) => {
                assert!(verdict.is_continue(), "{verdict:?} of {}", row[0]);
                assert_eq!(out, text);
                kept += 1;
            }
            None => {
                assert!(verdict.is_break(), "{}", row[0]);
                dropped += 1;
            }
        }
    }
    assert!(kept > 30 && dropped > 20, "{kept} {dropped}");
}

#[test]
fn texts_of_licences_are_known() {
    let step = License::default();
    let mut missed = Vec::new();
    let rows = golden("licenses");
    for row in &rows {
        let mut draft = Draft {
            text: row[1].as_str().unwrap().to_string(),
            ..Draft::default()
        };
        let filter = step
            .open(&Opening {
                number: 0,
                before: &[],
                models: &curate::classifier::NoModels,
            })
            .unwrap();
        drop(filter.apply(
            &mut draft,
            &mut StepScratch::default(),
            &mut Judge::strict(),
        ));
        let found = draft.meta.unwrap()["licenses"].clone();
        if found != json!([row[0]]) {
            missed.push(format!("{}: {found}", row[0]));
        }
    }
    assert!(missed.is_empty() && rows.len() > 40, "{missed:#?}");
}

#[test]
fn openwebmaths_rules_give_the_same_pages() {
    let (mut kept, mut out) = (0, String::new());
    for row in golden("mathematics") {
        let page = MathPage {
            url: row[0].as_str().unwrap(),
            text: row[1].as_str().unwrap(),
            score: row[2].as_f64(),
            perplexity: row[3].as_f64(),
        };
        let verdict = Openwebmath::default().measure(&page, &mut out, &mut Judge::strict());
        let ours = verdict.is_continue().then_some(out.as_str());
        assert_eq!(ours, row[4].as_str(), "{page:?} {verdict:?}");
        kept += usize::from(ours.is_some());
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn generated_files_are_known_by_linguists_names() {
    let rules = SourceCode::default();
    let rows = golden("generated");
    for row in &rows {
        let file = SourceFile {
            path: row[0].as_str().unwrap(),
            language: "Python",
            text: "words of a file\n",
        };
        let ours = rule(rules.measure(file, &mut Judge::strict()));
        assert_eq!(
            ours.as_deref() == Some("generated"),
            row[1] == true,
            "{}",
            row[0]
        );
    }
    assert!(rows.len() > 60);
}

#[test]
fn languages_and_licences_are_noted_and_filtered() {
    let mut draft = Draft {
        text: "#!/usr/bin/env python3\n# SPDX-License-Identifier: MIT\nprint(1)\n".to_string(),
        ..Draft::default()
    };
    let mut scratch = StepScratch::default();
    let opening = Opening {
        number: 0,
        before: &[],
        models: &curate::classifier::NoModels,
    };
    let language: FileLanguage = serde_json::from_str(r#"{"keep": ["Python"]}"#).unwrap();
    let license: License = serde_json::from_str(r#"{"keep": ["permissive"]}"#).unwrap();
    for step in [&language as &dyn StepConfig, &license] {
        let filter = step.open(&opening).unwrap();
        assert!(
            filter
                .apply(&mut draft, &mut scratch, &mut Judge::strict())
                .is_continue()
        );
    }
    let want =
        json!({"file_language": "Python", "licenses": ["MIT"], "license_class": "permissive"});
    assert_eq!(draft.meta, Some(want));
}

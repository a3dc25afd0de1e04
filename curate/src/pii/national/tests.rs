//! Verdicts against python-stdnum's, recorded by `tests/oracles/national_ids.py`.

use serde_json::Value;

use super::*;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../tests/data/national_ids.json")).unwrap()
}

/// A kind's golden numbers, with their verdicts.
fn numbers(golden: &Value, kind: &Kind) -> Vec<(String, bool)> {
    let name = kind.rule.strip_prefix("pii.national_id.").unwrap();
    let of = |key: &str| {
        golden["numbers"][name][key]
            .as_array()
            .unwrap_or_else(|| panic!("{name}"))
            .clone()
    };
    let text = |v: &Value| v.as_str().unwrap().to_string();
    let valid = of("valid")
        .iter()
        .map(|v| (text(v), true))
        .collect::<Vec<_>>();
    valid
        .into_iter()
        .chain(of("invalid").iter().map(|v| (text(v), false)))
        .collect()
}

/// The number as the template writes it.
fn written(template: &str, number: &str) -> Option<String> {
    let mut characters = number.chars();
    let each = template.chars().map(|t| {
        if "9A?Nsc".contains(t) {
            characters.next()
        } else {
            Some(t)
        }
    });
    let text: String = each.collect::<Option<String>>()?;
    (characters.next().is_none() && fit(template.as_bytes(), text.as_bytes(), 0).is_some())
        .then_some(text)
}

fn found(text: &str, countries: &[&str]) -> Vec<(&'static str, String)> {
    let countries: Vec<String> = countries.iter().map(ToString::to_string).collect();
    let mut out = Vec::new();
    find(text, 0..text.len(), &countries, &mut out);
    out.into_iter()
        .map(|f| (f.rule, text[f.span].to_string()))
        .collect()
}

#[test]
fn verdicts_are_stdnums() {
    let golden = golden();
    let mut count = 0;
    for kind in &KINDS {
        for (number, is_valid) in numbers(&golden, kind) {
            assert_eq!(
                (kind.check)(number.as_bytes()),
                is_valid,
                "{} {number}",
                kind.rule
            );
            count += 1;
        }
    }
    assert_eq!(golden["numbers"].as_object().unwrap().len(), KINDS.len());
    assert!(count > 3000, "{count}");
}

#[test]
fn valid_numbers_are_found_in_every_form_and_others_are_not() {
    let golden = golden();
    for kind in &KINDS {
        let word = kind.words[0];
        for (template, needs) in kind.forms {
            let mut seen = 0;
            for (number, is_valid) in numbers(&golden, kind) {
                let Some(number) = written(template, &number) else {
                    continue;
                };
                let near = format!("{word}: {number}, ok");
                let wanted = is_valid.then(|| (kind.rule, number.clone()));
                let of_kind = |text: &str| {
                    found(text, kind.countries)
                        .into_iter()
                        .find(|f| f.0 == kind.rule)
                };
                assert_eq!(of_kind(&near), wanted, "{near:?}");
                seen += usize::from(is_valid);
                // without the word only in a form of its own
                let alone = of_kind(&format!("see {number}, ok"));
                assert!(
                    alone.is_none() || (*needs == Needs::Nothing && is_valid),
                    "{number}"
                );
                for inside in [
                    format!("{word}: x{number}"),
                    format!("{word}: {number}7"),
                    format!("{word}: 5-{number}"),
                ] {
                    assert!(
                        !found(&inside, kind.countries).iter().any(|f| f.1 == number),
                        "{inside:?}"
                    );
                }
            }
            // Swedish numbers of ten digits come with their sign alone
            let is_plain_swedish = kind.countries == ["SE"] && *needs == Needs::Word;
            assert!(seen > 0 || is_plain_swedish, "{} {template}", kind.rule);
        }
    }
}

#[test]
fn a_word_must_be_whole_and_near() {
    for near in [
        "BSN 111222333",
        "bsn-nr.: 111222333",
        "Burgerservicenummer\n111222333",
        "111222333 (BSN)",
    ] {
        assert_eq!(
            found(near, &[]),
            [("pii.national_id.nl_bsn", "111222333".to_string())],
            "{near:?}"
        );
    }
    for far in [
        "absn 111222333",
        "bsnx 111222333",
        &format!("bsn {} 111222333", "x ".repeat(40)),
        "111222333",
    ] {
        assert_eq!(found(far, &[]), [], "{far:?}");
    }
    // the word decides between numbers of one form
    assert_eq!(
        found("PESEL 44051401359", &[])[0].0,
        "pii.national_id.pl_pesel"
    );
    assert_eq!(
        found("rodn\u{e9} \u{10d}\u{ed}slo: 900101/1230", &[]).len(),
        0
    );
    assert_eq!(found("my SSN is 536\u{a0}90\u{a0}4399", &[]).len(), 1);
}

#[test]
fn only_numbers_of_the_countries_are_found() {
    let text = "SSN 536-90-4399, DNI 54362315K";
    assert_eq!(
        found(text, &["US"]),
        [("pii.national_id.us_ssn", "536-90-4399".to_string())]
    );
    assert_eq!(
        found(text, &["ES"]),
        [("pii.national_id.es_dni", "54362315K".to_string())]
    );
    assert_eq!(found(text, &[]).len(), 2);
    let mut names: Vec<&str> = KINDS.iter().map(|k| k.rule).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
    assert!(
        KINDS
            .iter()
            .all(|k| k.countries.iter().all(|c| has_country(c)) && !has_country("XX"))
    );
}

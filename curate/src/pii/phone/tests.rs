//! Matches against PhoneNumberMatcher's, recorded by `tests/oracles/phone_matches.py`.

use serde_json::Value;

use super::*;

fn found<'a>(text: &'a str, regions: &[&str]) -> Vec<&'a str> {
    let mut out = Vec::new();
    find(
        text,
        0..text.len(),
        &Regions::new(regions.iter().copied()),
        &mut out,
    );
    out.into_iter().map(|span| &text[span]).collect()
}

#[test]
fn matches_are_phone_number_matchers() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../tests/data/phone_matches.json")).unwrap();
    let (mut numbers, mut without) = (0, 0);
    for row in golden["rows"].as_array().unwrap() {
        let (region, line) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let wanted: Vec<&str> = row[2]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m.as_str().unwrap())
            .collect();
        assert_eq!(found(line, &[region]), wanted, "{region} {line:?}");
        numbers += wanted.len();
        without += usize::from(wanted.is_empty());
    }
    assert!(numbers > 500 && without > 100, "{numbers} {without}");
}

#[test]
fn national_numbers_are_those_of_the_regions_in_their_order() {
    let text = "030 901820, 020 7946 0958, (212) 736-5000, +33 1 42 68 53 00";
    assert_eq!(found(text, &[]), ["+33 1 42 68 53 00"]);
    assert_eq!(
        found(text, &["US"]),
        ["(212) 736-5000", "+33 1 42 68 53 00"]
    );
    assert_eq!(
        found(text, &["GB", "US"]),
        ["020 7946 0958", "(212) 736-5000", "+33 1 42 68 53 00"]
    );
    assert!(found(text, &["DE"]).contains(&"030 901820"));
    assert!(is_region("DE") && !is_region("001") && !is_region("XX") && !is_region("de"));
}

#[test]
fn dates_are_no_numbers() {
    for date in [
        "07.06.2026",
        "24. 1. 2025 12:38",
        "02.02. - 23.02.23",
        "09-06-2022",
        "2022-06-09",
        "08.11.24",
        "12.31.2020",
    ] {
        for region in ["DE", "CZ", "NL", "NO", "US", "PL"] {
            assert_eq!(
                found(&format!("am {date} um"), &[region]),
                [""; 0],
                "{region} {date}"
            );
        }
    }
    // groups of two digits are no date if there are more of them
    assert_eq!(found("01.42.68.05.23", &["FR"]), ["01.42.68.05.23"]);
    assert_eq!(found("05.11.2021, 030 901820", &["DE"]), ["030 901820"]);
}

#[test]
fn every_plan_can_be_read() {
    assert_eq!(plans::of_code(1).first().map(|p| p.region), Some("US"));
    assert!(plans::of_code(210).is_empty() && plans::of_code(0).is_empty());
    // compiles all patterns
    let mut plans = 0;
    for code in 1..1000 {
        for plan in plans::of_code(code) {
            plans += 1;
            assert!(
                !plan.has("0") && !plan.has("12345678901234567890"),
                "{}",
                plan.region
            );
            plan.without_inside("0123456789");
            plan.after_abroad("0012345678");
            plan.wants_inside("123456789");
            plans::is_valid(code, "123456789");
        }
    }
    assert_eq!(plans, 254);
}

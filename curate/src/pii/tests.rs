//! Spans against datatrove's (recorded by `tests/oracles/datatrove_pii.py`), the checks of numbers against
//! python-stdnum's.

use std::ops::Range;

use serde_json::Value;

use super::{PiiAction, PiiConfig, PiiKind};
use crate::contract::StepConfig;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../tests/data/pii.json")).unwrap()
}

fn all(action: PiiAction) -> PiiConfig {
    PiiConfig {
        kinds: super::KINDS.to_vec(),
        action,
        ..PiiConfig::default()
    }
}

fn applied(config: &PiiConfig, text: &str) -> String {
    let mut out = String::new();
    match config.apply_to(text, "", &mut out, &mut |_| ()) {
        std::ops::ControlFlow::Continue(true) => out,
        _ => text.to_string(),
    }
}

fn spans(config: &PiiConfig, text: &str) -> Vec<(PiiKind, Range<usize>)> {
    config
        .find(text, "")
        .into_iter()
        .map(|f| (f.kind, f.span))
        .collect()
}

#[test]
fn emails_and_addresses_are_datatroves() {
    let golden = golden();
    let mut changed = 0;
    for (key, only_public_ips) in [("public", true), ("all", false)] {
        let config = PiiConfig {
            action: PiiAction::Tag,
            only_public_ips,
            standalone_ips: false,
            ..PiiConfig::default()
        };
        for row in golden["texts"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            // datatrove knows no IPv6
            let found = config.find(text, "");
            let is_v6 = |span: &Range<usize>| {
                text[span.clone()].contains(':') && !text[span.clone()].contains('@')
            };
            if found.iter().any(|f| is_v6(&f.span)) {
                continue;
            }
            let wanted = row[key].as_str().unwrap_or(text);
            assert_eq!(applied(&config, text), wanted, "{text:?}");
            changed += usize::from(wanted != text);
        }
    }
    assert!(changed > 500, "{changed}");
}

#[test]
fn account_and_card_numbers_are_those_that_stdnum_calls_valid() {
    for (key, kind) in [("iban", PiiKind::Iban), ("card", PiiKind::CreditCard)] {
        let config = PiiConfig {
            kinds: vec![kind],
            ..PiiConfig::default()
        };
        let mut valid = 0;
        for row in golden()[key].as_array().unwrap() {
            let (number, is_valid) = (row[0].as_str().unwrap(), row[1].as_bool().unwrap());
            let text = format!("pay to {number}, please");
            let wanted = is_valid.then(|| vec![(kind, 7..7 + number.len())]);
            assert_eq!(spans(&config, &text), wanted.unwrap_or_default(), "{text}");
            valid += usize::from(is_valid);
        }
        assert!(valid >= 20, "{key}: {valid}");
    }
}

#[test]
fn telephones_are_told_from_other_numbers() {
    let config = PiiConfig {
        kinds: vec![PiiKind::Phone],
        action: PiiAction::Tag,
        ..PiiConfig::default()
    };
    for phone in [
        "+1 (212) 736-5000",
        "+44 20 7946 0958",
        "+49-30-901820",
        "+33 1 42 68 53 00",
        "+8613912345678",
        "(212) 736-5000",
        "212-736-5000",
        "1-800-273-8255",
        "212.736.5000",
        "+91 98765 43210",
    ] {
        assert_eq!(
            applied(&config, &format!("call {phone}.")),
            "call <PHONE>.",
            "{phone}"
        );
    }
    for other in [
        "2024-11-21",
        "3.141592653",
        "10.1109/5.771073",
        "1,234,567,890",
        "ISBN 978-3-16-148410-0",
        "+5",
        "+1 or +2",
        "192.168.100.200",
        "123-456-7890",
        "212-136-5000",
        "x12345678901",
        "212 736 50001",
        "v1.212.736.5000",
        "port 8080",
        "12:30:45",
        "a+4915112345678b",
    ] {
        assert_eq!(applied(&config, other), other);
    }
}

#[test]
fn secrets_of_every_form_are_found_and_placeholders_are_not() {
    let config = PiiConfig {
        kinds: vec![PiiKind::Secret],
        action: PiiAction::Tag,
        ..PiiConfig::default()
    };
    let body: String = ('a'..='z')
        .chain('A'..='Z')
        .chain('0'..='9')
        .cycle()
        .take(90)
        .collect();
    for (head, n) in [
        ("ghp_", 36),
        ("github_pat_", 82),
        ("glpat-", 20),
        ("xoxb-", 40),
        ("AIza", 35),
        ("sk_live_", 24),
        ("sk-", 48),
        ("sk-ant-", 60),
        ("npm_", 36),
        ("pypi-AgE", 80),
        ("hf_", 34),
        ("ya29.", 60),
    ] {
        let text = format!("key: {head}{} end", &body[..n]);
        assert_eq!(applied(&config, &text), "key: <SECRET> end", "{head}");
        let short = format!("key: {head}{} end", &body[..n.min(12) - 4]);
        assert_eq!(applied(&config, &short), short);
        let inside = format!("x{head}{}", &body[..n]);
        assert_eq!(applied(&config, &inside), inside);
    }
    assert_eq!(
        applied(&config, "id = AKIAIOSFODNN7EXAMPLE"),
        "id = <SECRET>"
    );
    let jwt = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
    assert_eq!(applied(&config, jwt), "<SECRET>");
    let pem = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----\nb";
    assert_eq!(applied(&config, pem), "a\n<SECRET>\nb");
    let public = pem.replace("PRIVATE", "PUBLIC");
    assert_eq!(applied(&config, &public), public);
    assert_eq!(
        applied(&config, "password = \"hT7#kd92Lq_mZ41x\" # x"),
        "password = \"<SECRET>\" # x"
    );
    for harmless in [
        "password = \"correct horse battery staple\"",
        "api_key: \"xxxxxxxxxxxxxxxxxxxxxxxx\"",
        "secret = 'short1'",
        "the secret of 12 people",
        "password=\"aaaaaaaaaaaaaaaa1\"",
    ] {
        assert_eq!(applied(&config, harmless), harmless);
    }
}

#[test]
fn only_assigned_addresses_of_version_6_are_found() {
    let config = PiiConfig {
        kinds: vec![PiiKind::Ip],
        action: PiiAction::Tag,
        ..PiiConfig::default()
    };
    for (text, wanted) in [
        ("at 2a00:1450:4001:81b::200e: ok", "at <IP_ADDRESS>: ok"),
        (
            "2606:4700:4700::1111 and 1.1.1.1",
            "<IP_ADDRESS> and <IP_ADDRESS>",
        ),
        ("2001:db8::1", "2001:db8::1"),
        (
            "fe80::1 ::1 a::b std::vector 12:30:45",
            "fe80::1 ::1 a::b std::vector 12:30:45",
        ),
        ("x2a00:1450:4001:81b::200e", "x2a00:1450:4001:81b::200e"),
        ("caf\u{e9}2a00:1450::1", "caf\u{e9}2a00:1450::1"),
    ] {
        assert_eq!(applied(&config, text), wanted);
    }
}

#[test]
fn oids_versions_and_longer_numbers_are_no_addresses() {
    let config = PiiConfig {
        kinds: vec![PiiKind::Ip],
        ..PiiConfig::default()
    };
    let datatroves = PiiConfig {
        standalone_ips: false,
        ..config.clone()
    };
    let mut changed = 0;
    for other in [
        "1.3.6.1.4.1.311.21.20",
        "OID 1.3.6.1",
        "OID: 2.5.29.17",
        "ObjectIdentifier(\"2.5.4.3\")",
        "1.2.840.113549.1.1.11",
        "2.16.840.1.113883.4.1",
        "8.8.8.8.8",
        "0.8.8.8.8",
        "1234.5.6.7",
        "8.8.8.8000",
        "v8.8.8.8",
        "8.8.8.8b1",
        "8.8.8.8_x86",
        "8.8.8.8.el7",
        "8.8.8.8-rc1",
        "version 8.8.8.8",
        "Version: 8.8.8.8",
        "ver. 8.8.8.8",
        "firmware \"8.8.8.8\"",
        "Firefox/3.6.0.1",
        "Server: openresty/1.9.7.1",
        "see section 7.8.2.1",
        "Kapitel 3.1.2.4",
    ] {
        assert_eq!(spans(&config, other), [], "{other}");
        changed += usize::from(!spans(&datatroves, other).is_empty());
    }
    assert!(changed >= 19, "{changed}");
    for (text, wanted) in [
        ("8.8.8.8", 0..7),
        ("at 8.8.8.8.", 3..10),
        ("8.8.8.8...", 0..7),
        ("[8.8.8.8]:80", 1..8),
        ("http://8.8.8.8/x", 7..14),
        ("whois.com/ip/8.8.8.8", 13..20),
        ("8.8.8.8/24", 0..7),
        ("8.8.8.8-", 0..7),
        ("\u{5730}\u{5740}8.8.8.8\u{662f}", 6..13),
        ("conversion 8.8.8.8", 11..18),
        ("ip: 8.8.8.8 -> x", 4..11),
    ] {
        assert_eq!(spans(&config, text), [(PiiKind::Ip, wanted)], "{text}");
    }
    let range = spans(&config, "8.8.8.8-9.9.9.9");
    assert_eq!(range, [(PiiKind::Ip, 0..7), (PiiKind::Ip, 8..15)]);
}

/// The rule once more, by one expression over the text around datatrove's matches.
#[test]
fn addresses_that_stand_alone_are_datatroves_matches_of_four_whole_parts() {
    let config = PiiConfig {
        kinds: vec![PiiKind::Ip],
        only_public_ips: false,
        ..PiiConfig::default()
    };
    let datatroves = PiiConfig {
        standalone_ips: false,
        ..config.clone()
    };
    let before = regex::Regex::new(r"(?:^|[^A-Za-z0-9_.]|(?:^|[^A-Za-z0-9_])\.)$").unwrap();
    let behind =
        regex::Regex::new(r"^(?:$|[^A-Za-z0-9_.-]|\.(?:$|[^A-Za-z0-9_])|-(?:$|[^A-Za-z]))")
            .unwrap();
    let (mut kept, mut left) = (0, 0);
    for row in golden()["texts"].as_array().unwrap() {
        let text = row["text"].as_str().unwrap();
        let mut wanted = spans(&datatroves, text);
        let all = wanted.len();
        wanted.retain(|(_, s)| {
            text[s.clone()].contains(':')
                || (before.is_match(&text[..s.start]) && behind.is_match(&text[s.end..]))
        });
        assert_eq!(spans(&config, text), wanted, "{text:?}");
        kept += wanted.len();
        left += all - wanted.len();
    }
    assert!(kept > 200 && left > 200, "{kept} {left}");
}

#[test]
fn identity_numbers_are_counted_and_tagged_by_their_names() {
    let config = PiiConfig {
        kinds: vec![PiiKind::NationalId, PiiKind::Phone],
        ..PiiConfig::default()
    };
    let (mut out, mut counts) = (String::new(), Vec::new());
    let text = "SSN 536-90-4399, NHS 943 476 5919, call (212) 736-5000";
    let verdict = config.apply_to(text, "en", &mut out, &mut |rule| counts.push(rule));
    assert!(verdict.is_continue());
    assert!(
        out.starts_with("SSN <US_SSN>, NHS <UK_NHS>, call 555-555-01"),
        "{out}"
    );
    assert_eq!(
        counts,
        [
            "pii.national_id.us_ssn",
            "pii.national_id.uk_nhs",
            "pii.phone"
        ]
    );
}

#[test]
fn national_telephones_follow_the_language_or_the_list() {
    let mut config = PiiConfig {
        kinds: vec![PiiKind::Phone],
        ..PiiConfig::default()
    };
    let text = "Tel. 030 901820";
    assert_eq!(config.find(text, "en").len(), 0);
    assert_eq!(config.find(text, "").len(), 0);
    assert_eq!(config.find(text, "de").len(), 1);
    assert_eq!(config.find(text, "deu_Latn").len(), 1);
    config.phone_regions = vec!["DE".to_string()];
    assert_eq!(config.find(text, "en").len(), 1);
}

#[test]
fn unknown_regions_and_countries_are_refused() {
    let config = PiiConfig {
        phone_regions: vec!["DE".to_string(), "de".to_string()],
        id_countries: vec!["US".to_string(), "JP".to_string()],
        ..PiiConfig::default()
    };
    let mut problems = Vec::new();
    config.check(&mut |key, found, wanted| problems.push(format!("{key}: {found}: {wanted}")));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("phone_regions: de: "),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("id_countries: JP: some of AT, BE, BG, CH"),
        "{problems:?}"
    );
}

#[test]
fn what_is_put_in_depends_on_what_was_there_alone_and_is_nobodys() {
    let config = all(PiiAction::Replace);
    let (a, b) = (
        "write to jane.roe@mail.org",
        "from 8.8.8.8, +44 20 7946 0958",
    );
    let apart = [applied(&config, a), applied(&config, b)];
    assert_eq!(
        applied(&config, &format!("{b} {a}")),
        format!("{} {}", apart[1], apart[0])
    );
    assert!(
        !apart[0].contains("jane.roe") && apart[0].contains("@example."),
        "{}",
        apart[0]
    );
    // nothing that was put in is found again, but mail names of example.com, which are put in as they are
    let again = applied(&config, &apart[1]);
    assert!(
        again.starts_with(&apart[1][..apart[1].find(',').unwrap()]),
        "{again}"
    );
}

#[test]
fn a_document_is_dropped_by_the_rule_of_its_first_match() {
    let config = PiiConfig {
        max_matches: 1,
        ..all(PiiAction::Drop)
    };
    let verdict = |text: &str| config.apply_to(text, "", &mut String::new(), &mut |_| ());
    assert!(verdict("a@b.com").is_continue());
    let reason = verdict("8.8.8.8 and a@b.com").break_value().unwrap();
    assert_eq!((reason.rule.as_str(), reason.value), ("pii.ip", 2.0.into()));
}

proptest::proptest! {
    #[test]
    fn spans_are_in_order_apart_and_whole_characters(text in "([a-z0-9@.:+ ()\"=-]|\\PC|password|AKIA|DE8937|sk-|SSN |AC|sig=|Q~|\\+49 |x){0,120}") {
        let mut end = 0;
        for (_, span) in spans(&all(PiiAction::Tag), &text) {
            proptest::prop_assert!(span.start >= end && span.end > span.start);
            proptest::prop_assert!(text.is_char_boundary(span.start) && text.is_char_boundary(span.end));
            end = span.end;
        }
    }
}

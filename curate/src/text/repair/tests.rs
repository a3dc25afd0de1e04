//! Tests of repairs against ftfy's own results, and of the Unicode forms' laws.

use super::*;

fn repair(config: &NormalizeConfig, text: &str) -> String {
    let mut out = text.to_string();
    config.repair(text, &mut out);
    out
}

fn only(set: impl Fn(&mut NormalizeConfig)) -> NormalizeConfig {
    let mut config = NormalizeConfig::NOTHING;
    set(&mut config);
    config
}

/// ftfy 6.3.1's answers (`tests/oracles/ftfy_golden.py`).
const GOLDEN: &str = include_str!("../../../tests/data/ftfy/golden.jsonl");

#[derive(Deserialize)]
struct Golden {
    text: String,
    fixed: String,
    encoding: String,
    bad: bool,
}

#[test]
fn texts_are_repaired_as_ftfy_repairs_them() {
    let all = NormalizeConfig::default();
    let mojibake = only(|c| c.mojibake = true);
    let mut wrong = Vec::new();
    let mut lines = 0;
    for line in GOLDEN.lines() {
        let golden: Golden = serde_json::from_str(line).unwrap();
        lines += 1;
        if badness::is_bad(&golden.text) != golden.bad {
            wrong.push(format!("bad is {}: {:?}", golden.bad, golden.text));
        }
        for (config, wanted) in [(&all, &golden.fixed), (&mojibake, &golden.encoding)] {
            let found = repair(config, &golden.text);
            if found != *wanted {
                wrong.push(format!("{:?}: {found:?}, ftfy {wanted:?}", golden.text));
            }
        }
    }
    assert!(lines > 1000);
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn each_repair_can_be_switched_off_and_is_counted() {
    let text = "\u{201c}a\u{fb01}\u{ff21}e\u{301}\u{1b}[1m\u{7}\r\n&amp; sÃ³\u{85}";
    let mut out = String::new();
    let repairs = NormalizeConfig::default().repair(text, &mut out);
    let made: Vec<&str> = repairs.made().map(|m| m.0).collect();
    assert!(made.len() >= 8, "{made:?}");
    let none = only(|c| c.white_space = true);
    let mut out = "left alone".to_string();
    assert!(none.repair("a b", &mut out).is_empty());
    assert_eq!(out, "left alone");
    for (config, text, wanted) in [
        (
            only(|c| c.quotes = true),
            "\u{201c}\u{2019}\u{fb01}",
            "\"'\u{fb01}",
        ),
        (
            only(|c| c.ligatures = true),
            "\u{fb01}\u{2019}",
            "fi\u{2019}",
        ),
        (
            only(|c| c.widths = true),
            "\u{ff21}\u{3000}\u{fb01}",
            "A \u{fb01}",
        ),
        (
            only(|c| c.controls = true),
            "a\u{feff}\u{0}b\tc\n",
            "ab\tc\n",
        ),
        (
            only(|c| c.terminal_escapes = true),
            "\u{1b}[1;31mred\u{1b}[0m \u{1b}[",
            "red \u{1b}[",
        ),
        (
            only(|c| c.line_breaks = true),
            "a\r\nb\rc\u{2028}d",
            "a\nb\nc\nd",
        ),
        (
            only(|c| c.form = Form::Nfkc),
            "\u{fb01}e\u{301}\u{b2}",
            "fi\u{e9}2",
        ),
        (
            only(|c| c.form = Form::Nfc),
            "\u{fb01}e\u{301}\u{b2}",
            "\u{fb01}\u{e9}\u{b2}",
        ),
        (
            only(|c| c.entities = true),
            "&lt;&EACUTE;&nosuch;&#x41;&#0;",
            "<\u{c9}&nosuch;A\u{fffd}",
        ),
        (
            only(|c| c.white_space = true),
            "  a \u{a0}b\t\n\n\n\nc  \n",
            "  a b\n\nc\n",
        ),
        (
            only(|c| c.c1 = true),
            "\u{80}\u{85}\u{81}",
            "\u{20ac}\u{2026}\u{81}",
        ),
    ] {
        assert_eq!(repair(&config, text), wanted, "{text:?}");
    }
}

#[test]
fn entities_are_left_alone_once_markup_is_seen() {
    let config = NormalizeConfig::default();
    assert_eq!(repair(&config, "&amp;\n"), "&\n");
    assert_eq!(repair(&config, "<b>\n&amp;\n"), "<b>\n&amp;\n");
    assert_eq!(repair(&config, "&amp;\n<b>\n&amp;\n"), "&\n<b>\n&amp;\n");
}

proptest::proptest! {
    #[test]
    fn repair_of_a_repaired_text_changes_nothing(text in "[ -~\u{80}-\u{ff}\u{2018}-\u{2022}\u{20ac}\u{410}-\u{44f}\n]{0,60}") {
        let config = NormalizeConfig { entities: false, ..NormalizeConfig::default() };
        let once = repair(&config, &text);
        // a line that falls apart is repaired in parts the next time
        proptest::prop_assume!(once.matches('\n').count() == text.matches('\n').count());
        proptest::prop_assert_eq!(&repair(&config, &once), &once);
    }

    #[test]
    fn any_text_is_repaired_without_panic(text in "\\PC{0,80}", form in 0..3) {
        let form = [Form::None, Form::Nfc, Form::Nfkc][form as usize];
        let config = NormalizeConfig { form, white_space: true, ..NormalizeConfig::default() };
        repair(&config, &text);
    }

    #[test]
    fn plain_ascii_is_found_plain_only_where_no_repair_changes_it(text in "[\u{0}-\u{7f}]{0,90}") {
        if is_plain(text.as_bytes()) {
            let config = NormalizeConfig::default();
            proptest::prop_assert!(config.repair_line(&text, true, &mut Repairs::default()).is_none());
        }
    }
}

//! Names and addresses in known passages, awkward and hostile texts.

use std::time::{Duration, Instant};

use super::{MODEL, find, reads};
use crate::pii::{PiiAction, PiiConfig, PiiKind};

/// A line of `names.tsv`: a passage with its names in `{}` and its addresses in `[]`; `\n` is the end of a line.
const PASSAGES: &str = include_str!("../../../tests/data/names.tsv");

fn config(kinds: &[PiiKind], action: PiiAction) -> PiiConfig {
    PiiConfig {
        kinds: kinds.to_vec(),
        action,
        ..PiiConfig::default()
    }
}

const BOTH: [PiiKind; 2] = [PiiKind::PersonName, PiiKind::StreetAddress];

/// The text with what is found marked as in `PASSAGES`.
fn marked(text: &str) -> String {
    let mut out = String::new();
    let mut from = 0;
    for found in config(&BOTH, PiiAction::Tag).find(text, "en") {
        let [open, close] = match found.kind {
            PiiKind::PersonName => ['{', '}'],
            _ => ['[', ']'],
        };
        out.push_str(&text[from..found.span.start]);
        out.push(open);
        out.push_str(&text[found.span.clone()]);
        out.push(close);
        from = found.span.end;
    }
    out + &text[from..]
}

#[test]
fn known_passages_have_their_names_and_addresses() {
    let passages: Vec<&str> = PASSAGES.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(passages.len() >= 20);
    for passage in passages {
        let passage = passage.replace("\\n", "\n");
        let text = passage.replace(['{', '}', '[', ']'], "");
        assert_eq!(marked(&text), passage);
    }
}

#[test]
fn spans_are_at_the_bytes_of_characters_of_several_bytes() {
    let text = "“Zoë Müller” – écrivit “José García” à Łódź, said Jürgen Schäfer’s friend.";
    let found = find(text);
    assert!(found.persons.len() >= 2, "{found:?}");
    let names: Vec<&str> = found.persons.iter().map(|s| &text[s.clone()]).collect();
    assert!(names.contains(&"Zoë Müller"), "{names:?}");
    assert!(names.contains(&"Jürgen Schäfer"), "{names:?}");
    // any text cut anywhere gives spans that are texts
    let mixed = "Ünal Öz ’s 12 Straße Ave, Zürich 8000\u{301}\u{200d}Ñ Ann\u{0} Lee\u{7f}, 5 Elm St.\r\nΑθήνα Иван Петров 東京";
    for (at, _) in mixed.char_indices() {
        let found = find(&mixed[at..]);
        for span in found.persons.iter().chain(&found.addresses) {
            assert!(mixed[at..].get(span.clone()).is_some(), "{at}: {span:?}");
        }
    }
}

#[test]
fn spans_are_in_order_and_apart_whatever_the_text() {
    let words = [
        "John", "Smith", "12", "Main", "St", ".", ",", "\n", "Suite", "van", "O'Neil", "NY",
        "10001", "the", "\n\n", "Dr", "-", "Ann's",
    ];
    let mut state = 7u64;
    for _ in 0..2000 {
        let mut text = String::new();
        for _ in 0..24 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text += words[(state >> 33) as usize % words.len()];
            text += if state >> 60 == 0 { "" } else { " " };
        }
        let found = config(&BOTH, PiiAction::Tag).find(&text, "");
        for pair in found.windows(2) {
            assert!(
                pair[0].span.end <= pair[1].span.start,
                "{text:?}: {found:?}"
            );
        }
        let names = find(&text);
        assert_eq!(
            found.len(),
            names.persons.len() + names.addresses.len(),
            "{text:?}"
        );
    }
}

#[test]
fn hostile_texts_take_time_in_proportion_to_their_length() {
    const SIZE: usize = 1 << 20;
    let texts = [
        "a".repeat(SIZE),
        "A".repeat(SIZE),
        "1".repeat(SIZE),
        "A ".repeat(SIZE / 2),
        "12 A, ".repeat(SIZE / 6),
        "'".repeat(SIZE),
        "A'a".repeat(SIZE / 3),
        "\n".repeat(SIZE),
        "\u{0}\u{1}\u{7f}".repeat(SIZE / 3),
        "É’".repeat(SIZE / 5),
        "John Smith ".repeat(SIZE / 11),
        "12 Main St, Springfield, IL 62704\n".repeat(SIZE / 34),
        "漢字".repeat(SIZE / 6),
    ];
    for text in &texts {
        let start = Instant::now();
        let found = find(text);
        // in a program without optimization, of a machine that is busy
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{:?}",
            &text[..6]
        );
        assert!(found.persons.len() + found.addresses.len() <= text.len());
    }
}

#[test]
fn both_kinds_are_found_in_one_look_and_each_alone_is_the_same() {
    let text = "Mail Mary Johnson at 221 Baker Street, London NW1 6XE, or mary.johnson@mail.org.";
    let both = config(&BOTH, PiiAction::Tag).find(text, "");
    assert_eq!(both.len(), 2, "{both:?}");
    for kind in BOTH {
        let alone = config(&[kind], PiiAction::Tag).find(text, "");
        let wanted: Vec<_> = both.iter().filter(|f| f.kind == kind).cloned().collect();
        assert_eq!(alone, wanted);
    }
    // what another kind has taken is not taken again
    let three = config(&[PiiKind::Email, BOTH[0], BOTH[1]], PiiAction::Tag);
    let mut out = String::new();
    let mut counted = Vec::new();
    let flow = three.apply_to(text, "en", &mut out, &mut |rule| counted.push(rule));
    assert!(flow.is_continue());
    assert_eq!(out, "Mail <PERSON> at <STREET_ADDRESS>, or <EMAIL>.");
    assert_eq!(
        counted,
        ["pii.person_name", "pii.street_address", "pii.email"]
    );
    let dropped = config(&BOTH, PiiAction::Drop).apply_to(text, "en", &mut out, &mut |_| ());
    assert_eq!(dropped.break_value().unwrap().rule, "pii.person_name");
}

#[test]
fn texts_of_other_languages_are_left_alone() {
    let text = "Mary Johnson lives at 221 Baker Street, London.";
    let config = config(&BOTH, PiiAction::Tag);
    for (language, is_read) in [
        ("", true),
        ("en", true),
        ("eng_Latn", true),
        ("und", true),
        ("de", false),
        ("fra", false),
    ] {
        assert_eq!(reads(language), is_read, "{language}");
        assert_eq!(
            config.find(text, language).is_empty(),
            !is_read,
            "{language}"
        );
    }
}

#[test]
fn other_kinds_do_not_load_the_model() {
    let config = PiiConfig::default();
    assert!(
        !config.kinds.iter().any(|k| BOTH.contains(k)),
        "{:?}",
        config.kinds
    );
    let text = "Mary Johnson, 221 Baker Street, London, jane@mail.org";
    let mut out = String::new();
    let flow = config.apply_to(text, "en", &mut out, &mut |_| ());
    assert!(flow.is_continue());
    assert!(
        out.starts_with("Mary Johnson, 221 Baker Street, London, "),
        "{out}"
    );
}

#[test]
fn the_built_in_model_is_whole_and_damaged_ones_are_refused() {
    assert_eq!(
        MODEL.classes(super::list_hash("london")) & super::PLACE,
        super::PLACE
    );
    let packed = include_bytes!("model.bin");
    let file = zstd::decode_all(&packed[..]).unwrap();
    for cut in [
        0,
        7,
        8,
        11,
        12,
        100,
        140,
        1000,
        file.len() / 2,
        file.len() - 1,
    ] {
        let cut = zstd::encode_all(&file[..cut], 1).unwrap();
        assert!(super::Model::parse(&cut).is_none());
    }
    assert!(super::Model::parse(&packed[..packed.len() / 2]).is_none());
    let mut longer = file.clone();
    longer.push(0);
    assert!(super::Model::parse(&zstd::encode_all(longer.as_slice(), 1).unwrap()).is_none());
}

#[test]
fn training_twice_gives_the_same_file_and_finds_what_it_was_shown() {
    use super::{NameExamples, NameTraining, NamedSpan};
    let train = || {
        let mut examples = NameExamples::new(NameTraining {
            bits: 12,
            features: 2000,
            passes: 4,
            ..NameTraining::default()
        });
        examples.word("anna", 1);
        for _ in 0..3 {
            examples.text(
                "Yesterday Anna Berg wrote.",
                &[NamedSpan {
                    start: 10,
                    end: 19,
                    is_address: false,
                }],
            );
            examples.text(
                "Come to 12 Elm Street, Salem today.",
                &[NamedSpan {
                    start: 8,
                    end: 28,
                    is_address: true,
                }],
            );
            examples.text("The Berg is high. In May it snows.", &[]);
        }
        examples.train(|_| ()).unwrap()
    };
    let file = train();
    assert_eq!(file, train());
    let model = super::Model::parse(&file).unwrap();
    let found = super::find_with(
        &model,
        "Yesterday Anna Berg wrote. Come to 12 Elm Street, Salem today.",
    );
    assert_eq!(found.persons.first(), Some(&(10..19)));
    assert_eq!(found.addresses.first(), Some(&(35..55)));
    assert_eq!([found.persons.len(), found.addresses.len()], [1, 1]);
}

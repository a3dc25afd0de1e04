//! Words of other languages, against datatrove's tokenizers.

use curate::text::Scratch;

/// (language, text, words)
type Row = (String, String, Vec<String>);

/// curate/tests/data/words.json.zst (tests/oracles/word_golden.py).
fn rows() -> Vec<Row> {
    let packed = include_bytes!("../data/words.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

#[test]
fn words_by_rules_are_those_of_datatrove() {
    let mut scratch = Scratch::new();
    let (mut languages, mut several) = (std::collections::BTreeSet::new(), 0);
    for (language, text, theirs) in rows() {
        let ours = scratch.words_in(&language, &text).unwrap();
        // a number whose parts stand apart keeps its spaces here
        let ours: Vec<String> = match language == "hin_Deva" {
            true => ours.iter().map(|w| w.replace(". ", ".")).collect(),
            false => ours.iter().map(|w| w.to_string()).collect(),
        };
        assert_eq!(ours, theirs, "{language} {text}");
        // the words of English would not do
        several += usize::from(scratch.words_in("", &text).unwrap().len() != theirs.len());
        languages.insert(language);
    }
    assert_eq!(languages.len(), 43);
    assert!(several > 300, "{several}");
}

#[test]
fn scripts_without_spaces_are_split_into_words() {
    let mut scratch = Scratch::new();
    let mut words = |language: &str, text: &'static str| scratch.words_in(language, text).unwrap();
    assert_eq!(words("tha_Thai", "ผมรักเมืองไทย"), ["ผม", "รัก", "เมือง", "ไทย"]);
    assert_eq!(words("zh", "我们在北京 工作。"), ["我们", "在", "北京", "工作", "。"]);
    assert_eq!(words("ja", "日本語を勉強する"), ["日本語", "を", "勉強", "する"]);
    assert_eq!(words("kor_Hang", "나는 학교에 간다"), ["나", "는", "학교", "에", "간다"]);
    assert_eq!(words("vi", "Hà Nội là thủ đô của Việt Nam"), ["Hà Nội", "là", "thủ đô", "của", "Việt Nam"]);
    for (language, text) in [
        ("khm_Khmr", "មនុស្សទាំងអស់កើតមកមានសេរីភាព"),
        ("lao_Laoo", "ມະນຸດທຸກຄົນເກີດມາມີສິດ"),
        ("mya_Mymr", "လူတိုင်းသည်တူညီလွတ်လပ်သော"),
    ] {
        let found = words(language, text);
        assert!((3..15).contains(&found.len()), "{language} {found:?}");
        assert_eq!(found.concat(), text);
    }
    assert!(scratch.words_in("xyz_Abcd", "a").is_err());
}

#[test]
fn words_of_every_language_are_in_order_and_hold_all_but_white_space() {
    let mut scratch = Scratch::new();
    let texts: Vec<String> = rows().into_iter().step_by(29).map(|row| row.1).collect();
    for language in [
        "deu_Latn", "ind_Latn", "hin_Deva", "tha_Thai", "cmn_Hani", "bod_Tibt", "kor_Hang", "vie_Latn",
    ] {
        for text in &texts {
            let solid = |s: &str| -> String { s.chars().filter(|c| !c.is_whitespace()).collect() };
            let words = scratch.words_in(language, text).unwrap();
            assert!(words.iter().all(|w| !w.is_empty()));
            assert_eq!(solid(&words.concat()), solid(text), "{language}");
        }
    }
}

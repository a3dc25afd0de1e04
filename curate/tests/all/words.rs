//! Words of other languages, against datatrove's tokenizers.

use curate::Silent;
use curate::dedup::{DedupConfig, MinhashConfig, dedup};
use curate::language::LanguageConfig;
use curate::pipeline::{CurateConfig, Curator, Step, shards};
use curate::read::{Format, Input};
use curate::statistics::Statistics;
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

// datatrove's words but for Japanese, Khmer, Lao and Burmese
#[test]
fn scripts_without_spaces_are_split_into_words() {
    let mut scratch = Scratch::new();
    let mut words = |language: &str, text: &'static str| scratch.words_in(language, text).unwrap();
    assert_eq!(
        words("tha_Thai", "ภาษาไทยเป็นภาษาราชการ"),
        ["ภาษาไทย", "เป็น", "ภาษาราชการ"]
    );
    assert_eq!(
        words("zh", "他2010年 来到上海交通大学。"),
        ["他", "2010", "年", "来到", "上海交通大学", "。"]
    );
    // where SudachiPy has 日本 and 語
    assert_eq!(
        words("ja", "日本語を勉強する"),
        ["日本語", "を", "勉強", "する"]
    );
    assert_eq!(
        words("kor_Hang", "책을 읽었습니다"),
        ["책", "을", "읽", "었", "습니다"]
    );
    assert_eq!(
        words("vi", "Hà Nội là thủ đô của Việt Nam"),
        ["Hà Nội", "là", "thủ đô", "của", "Việt Nam"]
    );
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
        "deu_Latn", "ind_Latn", "hin_Deva", "tha_Thai", "cmn_Hani", "bod_Tibt", "kor_Hang",
        "vie_Latn",
    ] {
        for text in &texts {
            let solid = |s: &str| -> String { s.chars().filter(|c| !c.is_whitespace()).collect() };
            let words = scratch.words_in(language, text).unwrap();
            assert!(words.iter().all(|w| !w.is_empty()));
            assert_eq!(solid(&words.concat()), solid(text), "{language}");
        }
    }
}

/// Words of Thai in an order without a pattern, with no space between them; `other` replaces the word in the middle.
fn thai(count: usize, other: &str) -> String {
    let words = [
        "บ้าน",
        "น้ำ",
        "โรงเรียน",
        "ประเทศ",
        "รัฐบาล",
        "เศรษฐกิจ",
        "ภาษา",
        "อาหาร",
        "หนังสือ",
        "ตลาด",
        "รถไฟ",
        "ทะเล",
        "ภูเขา",
        "วัฒนธรรม",
        "ประชาชน",
        "ต้นไม้",
    ];
    let mut state = 7_u64;
    let mut text = String::new();
    for i in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let word = words[usize::try_from(state >> 40).unwrap() % words.len()];
        text += if i == count / 2 { other } else { word };
    }
    text
}

#[test]
fn minhash_and_statistics_take_the_words_of_a_documents_language() {
    let records = [
        thai(400, "แมว"),
        thai(400, "หมา"),
        thai(400, "แมว").replace("น้ำ", "ไฟ"),
    ];
    let run = |language: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        let lines = records
            .iter()
            .map(|text| format!("{}\n", serde_json::json!({ "text": text })));
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.to_string_lossy().into_owned(),
                format: Format::Jsonl,
                ..Input::default()
            }],
            statistics: true,
            statistics_language: language.to_string(),
            step: vec![Step::Language(LanguageConfig::default())],
            ..CurateConfig::default()
        };
        let settings = DedupConfig {
            minhash: Some(MinhashConfig {
                language: language.to_string(),
                verify: 0.8,
                ..MinhashConfig::default()
            }),
            ..DedupConfig::default()
        };
        let out = folder.path().join("out");
        let curator = Curator::new(&config, None, Some(&settings), 1).unwrap();
        curator
            .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
            .unwrap();
        let report = dedup(&settings, &out, 1, &Silent).unwrap();
        let mut statistics = Statistics::default();
        statistics
            .read(&out.join("statistics/00000.jsonl.zst"))
            .unwrap();
        let rows = statistics.rows();
        let words = rows.iter().find(|row| row.figure == "n_words").unwrap();
        (report.fuzzy, words.values.range().unwrap())
    };
    // one run of letters is one word of English, too few for a shingle
    assert_eq!(run(""), (0, (1.0, 1.0)));
    for language in ["document", "tha_Thai"] {
        let (fuzzy, (least, most)) = run(language);
        assert_eq!(fuzzy, 1);
        assert!(least > 300.0 && most < 600.0, "{least} {most}");
    }
}

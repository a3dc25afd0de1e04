//! The steps `normalize`, `language` and `code` end to end.

use std::io::Write;
use std::path::Path;

use curate::corpus::CleanDocument;
use curate::corpus::documents;
use curate::language::{LanguageConfig, OtherParagraphs};
use curate::pipeline::Step;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::quality::CodeConfig;
use curate::read::{Format, Input};
use curate::text::repair::NormalizeConfig;
use curate::{Error, Silent};

const ENGLISH: &str = "The house is on the hill and the children play in the garden every day.";
const GERMAN: &str = "Das Haus steht auf dem Berg und die Kinder spielen jeden Tag im Garten.";
const PYTHON: &str =
    "import os\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n";

fn config(folder: &Path, texts: &[&str], step: Vec<Step>) -> CurateConfig {
    let path = folder.join("in.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    for text in texts {
        writeln!(file, "{}", serde_json::json!({ "text": text })).unwrap();
    }
    CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            format: Format::Jsonl,
            source: "s".to_string(),
            ..Input::default()
        }],
        step,
        ..CurateConfig::default()
    }
}

fn run(texts: &[&str], step: Vec<Step>) -> (ShardReport, Vec<CleanDocument>) {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), texts, step);
    let curator = Curator::new(&config, None, None, 1).unwrap();
    let shard = &shards(&config).unwrap()[0];
    let out = folder.path().join("out");
    let report = curator.run_shard(shard, &out, &Silent).unwrap();
    let kept = documents(&out, 0).unwrap().map(|d| d.unwrap()).collect();
    (report, kept)
}

/// A small fastText model of the tests of the reader, unpacked.
fn model(folder: &Path) -> String {
    let packed = include_bytes!("../data/fasttext/hs-pruned.ftz.zst");
    let path = folder.join("model.ftz");
    std::fs::write(&path, zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    path.to_string_lossy().into_owned()
}

fn problems(config: &CurateConfig) -> Vec<String> {
    let mut found = Vec::new();
    config.check(&mut |key, found_, wanted| found.push(format!("{key}: {found_}, {wanted}")));
    found
}

#[test]
fn repairs_are_made_before_later_steps_and_counted() {
    let texts = ["\u{201c}sÃ³\u{201d}", "plain", "a\u{0}\nb\u{fb01}", "\u{0}"];
    let (report, kept) = run(&texts, vec![Step::Normalize(NormalizeConfig::default())]);
    let found: Vec<&str> = kept.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(found, ["\"s\u{f3}\"", "plain", "a\nbfi"]);
    let counts: Vec<(&str, u64)> = report
        .normalized
        .iter()
        .map(|(k, n)| (k.as_str(), *n))
        .collect();
    // the last document has nothing left and is dropped, its repair is counted
    assert_eq!(
        counts,
        [
            ("controls", 2),
            ("ligatures", 1),
            ("mojibake", 1),
            ("quotes", 1)
        ]
    );
    assert_eq!(report.dropped["read.empty"], 1);
    assert_eq!(kept[1].meta, None);
    let meta = kept[2].meta.as_ref().unwrap();
    assert_eq!(
        *meta,
        serde_json::json!({"normalized": {"ligatures": 1, "controls": 1}})
    );
}

#[test]
fn languages_are_told_by_document_or_by_paragraph() {
    let mixed = format!("{ENGLISH}\n{GERMAN}\n{GERMAN}");
    let keep_german = |per_paragraph, min_confidence| {
        let config = LanguageConfig {
            keep: vec!["de".into()],
            per_paragraph,
            min_confidence,
            scripts: true,
            ..LanguageConfig::default()
        };
        run(&[ENGLISH, GERMAN, &mixed], vec![Step::Language(config)])
    };
    let (report, kept) = keep_german(false, 0.3);
    assert!(kept.iter().any(|d| d.text == GERMAN && d.language == "de"));
    assert_eq!(report.dropped["language.keep"], report.languages["en"]);
    let (report, kept) = keep_german(true, 0.6);
    assert_eq!(kept.len(), 2);
    assert_eq!(report.languages["de"], 2);
    let meta = kept[1].meta.as_ref().unwrap();
    let share = meta["languages"]["de"].as_f64().unwrap();
    assert!((0.6..0.75).contains(&share), "{meta}");
    assert_eq!(meta["scripts"]["Latn"], 1.0);
    let (report, _) = keep_german(true, 0.8);
    assert_eq!(report.dropped["language.min_confidence"], 1);
}

#[test]
fn paragraphs_in_other_languages_are_listed_or_removed() {
    let mixed = format!("{GERMAN}\n{GERMAN}\nMenu\n{ENGLISH}\n{GERMAN}");
    let run_with = |other_paragraphs, keep: &[&str]| {
        let config = LanguageConfig {
            keep: keep.iter().map(|code| code.to_string()).collect(),
            per_paragraph: true,
            other_paragraphs,
            ..LanguageConfig::default()
        };
        let (_, kept) = run(&[&mixed], vec![Step::Language(config)]);
        let meta = kept[0].meta.clone().unwrap();
        (kept[0].text.clone(), meta)
    };
    let (text, meta) = run_with(OtherParagraphs::Keep, &[]);
    assert_eq!((text, meta.get("other_paragraphs")), (mixed.clone(), None));
    let (text, meta) = run_with(OtherParagraphs::List, &[]);
    let start = 2 * (GERMAN.chars().count() + 1) + 5;
    let end = start + ENGLISH.chars().count();
    assert_eq!(text, mixed);
    assert_eq!(
        meta["other_paragraphs"],
        serde_json::json!([[start, end, "en"]])
    );
    let (text, meta) = run_with(OtherParagraphs::Remove, &[]);
    assert_eq!(text, format!("{GERMAN}\n{GERMAN}\nMenu\n{GERMAN}"));
    assert_eq!(
        meta["removed_languages"],
        serde_json::json!({"en": ENGLISH.chars().count()})
    );
    // both languages are wanted
    let (text, meta) = run_with(OtherParagraphs::Remove, &["de", "en"]);
    assert_eq!((text, meta.get("removed_languages")), (mixed.clone(), None));
}

#[test]
fn a_fasttext_model_takes_the_built_in_ones_place() {
    let folder = tempfile::tempdir().unwrap();
    let language = LanguageConfig {
        model: model(folder.path()),
        keep: vec!["eng".into()],
        ..LanguageConfig::default()
    };
    let path = language.model.clone();
    let both = vec![
        Step::Language(LanguageConfig::default()),
        Step::Language(language.clone()),
    ];
    let files = config(folder.path(), &[], both);
    assert_eq!(files.step_files(), [std::path::PathBuf::from(path)]);
    let english = "Everyone has the right to freedom of thought, conscience and religion.";
    let german = "Jeder hat das Recht auf Gedanken-, Gewissens- und Religionsfreiheit.";
    let (report, kept) = run(&[english, german], vec![Step::Language(language)]);
    assert_eq!((report.kept, kept[0].language.as_str()), (1, "eng"));
    assert_eq!(report.languages["deu_1901"], 1);
}

#[test]
fn a_wrong_model_stops_the_job_before_any_data_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    let wrong = |name: &str, bytes: &[u8], keep: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let language = LanguageConfig {
            model: path.to_string_lossy().into_owned(),
            keep: vec![keep.to_string()],
            ..LanguageConfig::default()
        };
        let mut config = config(folder.path(), &[ENGLISH], vec![Step::Language(language)]);
        config.inputs[0].path = "not-there.jsonl".to_string();
        Curator::new(&config, None, None, 1).err()
    };
    assert!(wrong("whole.ftz", &bytes, "eng").is_none());
    let cut = wrong("cut.ftz", &bytes[..bytes.len() / 2], "eng");
    assert!(matches!(cut, Some(Error::Damaged { offset, .. }) if offset > 0));
    let text = wrong("text.ftz", ENGLISH.as_bytes(), "eng");
    assert!(matches!(text, Some(Error::Damaged { offset: 0, .. })));
    let label = wrong("label.ftz", &bytes, "en").unwrap().to_string();
    assert!(
        label.starts_with("step[0].language.keep[0]: found \"en\""),
        "{label}"
    );
    let language = LanguageConfig {
        model: "not-there.ftz".to_string(),
        ..LanguageConfig::default()
    };
    let config = config(folder.path(), &[], vec![Step::Language(language)]);
    let absent = Curator::new(&config, None, None, 1).err();
    assert!(matches!(absent, Some(Error::Io { .. })));
}

#[test]
fn code_is_kept_apart_from_prose() {
    let keep = CodeConfig {
        keep: vec!["Python".into()],
        min_confidence: 0.5,
    };
    let (report, kept) = run(&[ENGLISH, PYTHON, GERMAN], vec![Step::Code(keep)]);
    assert_eq!(report.dropped["code.keep"], 2);
    assert_eq!(kept[0].meta.as_ref().unwrap()["code"], "Python");
}

#[test]
fn bad_values_are_reported_together() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = NormalizeConfig::NOTHING;
    let language = LanguageConfig {
        keep: vec!["en".into(), "klingon".into()],
        min_confidence: 2.0,
        ..LanguageConfig::default()
    };
    let no_model = LanguageConfig {
        model: String::new(),
        ..LanguageConfig::default()
    };
    let code = CodeConfig {
        keep: vec!["Perl".into()],
        min_confidence: -1.0,
    };
    let steps = vec![
        Step::Normalize(nothing),
        Step::Language(language),
        Step::Language(no_model),
        Step::Code(code),
    ];
    let found = problems(&config(folder.path(), &[], steps));
    let keys: Vec<&str> = found.iter().filter_map(|f| f.split(": ").next()).collect();
    assert_eq!(
        keys,
        [
            "step[0].normalize.form",
            "step[1].language.min_confidence",
            "step[1].language.keep[1]",
            "step[2].language.model",
            "step[3].code.min_confidence",
            "step[3].code.keep[0]",
        ]
    );
}

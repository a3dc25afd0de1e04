//! Parity with the programs that published the rules, on awkward pages (recorded by tests/oracles/profiles_*.py).

use std::collections::BTreeMap;

use curate::contract::{Draft, Opening, StepConfig, StepScratch};
use curate::filter::{
    BadWords, BadWordsFilter, C4Profile, C4Quality, Dclm, Dolma, DolmaGopher, Fineweb2,
    Fineweb2Filter, GopherQuality, Nemo, Redpajama, RedpajamaSignals,
};
use curate::text::Scratch;
use curate::verdict::{Judge, Metric, Verdict};
use serde_json::Value;

fn rows(packed: &[u8]) -> Vec<Value> {
    serde_json::from_slice(&zstd::decode_all(packed).unwrap()).unwrap()
}

fn text(row: &Value) -> &str {
    row["input"].as_str().unwrap()
}

/// Figures by the rule's name without the recipe's.
fn figures(measures: &[Metric]) -> BTreeMap<&str, f64> {
    let short = |m: &Metric| m.rule.find('.').map_or(0, |i| i + 1);
    measures
        .iter()
        .map(|m| (&m.rule[short(m)..], m.value))
        .collect()
}

fn same(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= 1e-12 * theirs.abs().max(1.0)
}

#[test]
fn nemo_curators_figures_and_verdicts() {
    let mut scratch = Scratch::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (i, row) in rows(include_bytes!("../data/profiles/nemo.json.zst"))
        .iter()
        .enumerate()
    {
        let mut judge = Judge::measuring();
        assert!(
            Nemo::default()
                .measure(text(row), &mut scratch, &mut judge)
                .is_continue()
        );
        let ours = figures(judge.metrics());
        for (name, theirs) in row["figures"].as_object().unwrap() {
            let theirs = theirs.as_f64().unwrap();
            assert!(
                same(ours[name.as_str()], theirs),
                "row {i} {name}: {} {theirs} in {:?}",
                ours[name.as_str()],
                text(row)
            );
        }
        let drops: Vec<&str> = row["drops"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d.as_str().unwrap())
            .collect();
        let first = match Nemo::default().judge(text(row), &mut scratch) {
            Verdict::Break(reason) => reason.rule.trim_start_matches("nemo.").to_string(),
            Verdict::Continue(()) => "kept".to_string(),
        };
        // there one filter has both limits
        let named = match first.as_str() {
            "max_words" => "min_words",
            "max_mean_word_length" => "min_mean_word_length",
            other => other,
        };
        assert_eq!(
            drops.first().copied().unwrap_or("kept"),
            named,
            "row {i} {drops:?}"
        );
        *seen.entry(first).or_default() += 1;
    }
    assert!(seen.len() > 15 && seen["kept"] > 30, "{seen:?}");
}

#[test]
fn dolmas_attributes() {
    let mut scratch = Scratch::new();
    let mut checked = 0;
    for (i, row) in rows(include_bytes!("../data/profiles/dolma.json.zst"))
        .iter()
        .enumerate()
    {
        for (key, gopher) in [("v1", DolmaGopher::V1), ("v2", DolmaGopher::V2)] {
            let rules = Dolma {
                gopher,
                ..Dolma::default()
            };
            let mut judge = Judge::measuring();
            if rules
                .measure(text(row), &mut scratch, &mut judge)
                .is_break()
            {
                assert!(text(row).trim().is_empty());
                continue;
            }
            let ours = figures(judge.metrics());
            for (name, theirs) in row[key].as_object().unwrap() {
                let theirs = theirs.as_f64().unwrap();
                let ours = ours[name.as_str()];
                assert!(
                    same(ours, theirs),
                    "row {i} {key} {name}: {ours} {theirs} in {:?}",
                    text(row)
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 10_000, "{checked}");
}

#[test]
fn dolmas_repetitions() {
    let mut scratch = Scratch::new();
    let rules = Dolma {
        repetitions: true,
        ..Dolma::default()
    };
    let mut longest = 0.0f64;
    for (i, row) in rows(include_bytes!("../data/profiles/dolma.json.zst"))
        .iter()
        .enumerate()
    {
        let mut judge = Judge::measuring();
        if rules
            .measure(text(row), &mut scratch, &mut judge)
            .is_break()
        {
            continue;
        }
        let ours = figures(judge.metrics());
        for (name, theirs) in [
            ("max_repetition_times", "doc_max_score_repetition"),
            ("max_repetition_chars", "doc_max_length_repetition"),
            ("max_repetition_ratio", "doc_frac_repetition"),
        ] {
            let theirs = row["repetitions"][theirs].as_f64().unwrap();
            assert!(
                same(ours[name], theirs),
                "row {i} {name}: {} {theirs} in {:?}",
                ours[name],
                text(row)
            );
        }
        longest = longest.max(ours["max_repetition_chars"]);
    }
    assert!(longest > 30.0);
}

#[test]
fn dolmas_c4() {
    let rules = C4Quality::of(C4Profile::Dolma);
    let (mut scratch, mut out) = (Scratch::new(), String::new());
    let (mut kept, mut dropped) = (0, 0);
    for (i, row) in rows(include_bytes!("../data/profiles/dolma.json.zst"))
        .iter()
        .enumerate()
    {
        match rules.judge(text(row), &mut scratch, &mut out) {
            Verdict::Break(reason) => {
                let theirs = row["c4"].as_str().unwrap_or_default();
                let named = reason
                    .rule
                    .trim_start_matches("c4.")
                    .replace("curly_bracket", "curly_brace");
                assert_eq!(named, theirs, "row {i}");
                dropped += 1;
            }
            Verdict::Continue(()) if row["shifts"] == false => {
                assert_eq!(Some(out.as_str()), row["text"].as_str(), "row {i}");
                kept += 1;
            }
            Verdict::Continue(()) => {}
        }
    }
    assert!(kept > 200 && dropped > 50, "{kept} {dropped}");
}

#[test]
fn redpajamas_signals() {
    let folder = tempfile::tempdir().unwrap();
    let list = "batman\nuse cookies\nof the people\nwashington\n";
    std::fs::write(folder.path().join("en.txt"), list).unwrap();
    let signals = RedpajamaSignals::open(&Redpajama {
        bad_words: folder.path().display().to_string(),
        ..Redpajama::default()
    })
    .unwrap();
    for (i, row) in rows(include_bytes!("../data/profiles/redpajama.json.zst"))
        .iter()
        .enumerate()
    {
        let ours = signals.of(text(row));
        assert_eq!(ours.len(), row["signals"].as_object().unwrap().len());
        for signal in &ours {
            let theirs = row["signals"][signal.name].as_array().unwrap();
            // without lines, RedPajama leaves out some of the signals
            if text(row).is_empty() && signal.name.starts_with("rps_lines") {
                continue;
            }
            let of = |v: &Value| {
                if v.is_array() {
                    v[2].clone()
                } else {
                    v.clone()
                }
            };
            assert_eq!(theirs.len(), signal.spans.len(), "row {i} {}", signal.name);
            for (ours, theirs) in signal.spans.iter().zip(theirs) {
                assert_eq!(
                    ours.2,
                    of(theirs).as_f64(),
                    "row {i} {} in {:?}",
                    signal.name,
                    text(row)
                );
                if theirs.is_array() {
                    let spans = (theirs[0].as_u64(), theirs[1].as_u64());
                    assert_eq!((Some(ours.0 as u64), Some(ours.1 as u64)), spans);
                }
            }
        }
    }
}

#[test]
fn c4_as_it_was_made() {
    let rules = C4Quality::of(C4Profile::Google);
    let (mut scratch, mut out) = (Scratch::new(), String::new());
    let mut kept = 0;
    for (i, row) in rows(include_bytes!("../data/profiles/c4.json.zst"))
        .iter()
        .enumerate()
    {
        match rules.judge(text(row), &mut scratch, &mut out) {
            Verdict::Continue(()) => {
                assert_eq!(Some(out.as_str()), row["google"].as_str(), "row {i}");
                kept += 1;
            }
            Verdict::Break(reason) => {
                let theirs = match row["google"]["drop"].as_str().unwrap_or_default() {
                    "filtered:loremipsum" => "c4.lorem_ipsum",
                    "filtered:squigglybracket" => "c4.curly_bracket",
                    "filtered:too_few_sentences" => "c4.too_few_sentences",
                    other => other,
                };
                assert_eq!(reason.rule, theirs, "row {i} {:?}", text(row));
            }
        }
    }
    assert!(kept > 60, "{kept}");
}

#[test]
fn addresses_go_as_dclm_takes_them_out() {
    // no other rule interferes
    let rules = Dclm {
        min_words: 0,
        max_words: usize::MAX,
        min_mean_word_length: 0.0,
        max_mean_word_length: 1e6,
        max_symbol_ratio: 1e6,
        max_bullet_ratio: 1.0,
        max_ellipsis_ratio: 1.0,
        max_non_alphabetic_ratio: 1.0,
        min_stop_words: 0,
        repetition: false,
        edit_lines: false,
        ..Dclm::default()
    };
    let (mut scratch, mut out) = (Scratch::new(), String::new());
    let mut changed = 0;
    for (i, row) in rows(include_bytes!("../data/profiles/c4.json.zst"))
        .iter()
        .enumerate()
    {
        let theirs = row["urls"].as_str();
        match rules.judge(text(row), &mut scratch, &mut out) {
            Verdict::Continue(()) => {
                let mut wanted = theirs.unwrap_or_default().to_string();
                while wanted.contains("\n\n\n") {
                    wanted = wanted.replace("\n\n\n", "\n\n");
                }
                assert_eq!(out, wanted, "row {i}: {:?}", text(row));
                changed += usize::from(theirs != Some(text(row)));
            }
            // a page without a word has no figures
            Verdict::Break(reason) => assert!(
                theirs.is_none() || reason.rule == "dclm.min_words",
                "row {i} {reason:?}"
            ),
        }
    }
    assert!(changed > 30, "{changed}");
}

#[test]
fn bad_words_as_c4_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let english = "batman\nuse cookies\nof the people\nwashington\nit\n";
    std::fs::write(folder.path().join("en"), english).unwrap();
    std::fs::write(folder.path().join("zh"), "\u{4f60}\nsm\n").unwrap();
    let filter = BadWordsFilter::open(&BadWords {
        lists: folder.path().display().to_string(),
        ..BadWords::default()
    })
    .unwrap();
    let mut found = [0, 0];
    for (i, row) in rows(include_bytes!("../data/profiles/c4.json.zst"))
        .iter()
        .enumerate()
    {
        for (n, language) in ["en", "zh"].into_iter().enumerate() {
            let drops = filter.judge(text(row), "id", language).is_break();
            // "sm" is a common part of words, which datatrove leaves out
            let common = language == "zh" && !text(row).contains('\u{4f60}');
            assert!(
                common && !drops || row["bad"][n] == drops,
                "row {i} {language}"
            );
            found[n] += usize::from(drops);
        }
    }
    assert!(found[0] > 100 && found[1] > 5, "{found:?}");
}

#[test]
fn fineweb_2_in_many_languages() {
    let rows = rows(include_bytes!("../data/profiles/fineweb2.json.zst"));
    let mut scratch = Scratch::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut languages = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        let language = row["language"].as_str().unwrap();
        let filter = languages.entry(language).or_insert_with(|| {
            Fineweb2Filter::open(&Fineweb2 {
                language: language.into(),
                ..Fineweb2::default()
            })
            .unwrap()
        });
        if let Some(theirs) = row["words"].as_array() {
            let words = filter.words(text(row), &mut scratch);
            let theirs: Vec<&str> = theirs.iter().map(|w| w.as_str().unwrap()).collect();
            assert_eq!(words, theirs, "row {i} {language}");
        }
        let ours = match filter.judge(text(row), &mut scratch) {
            Verdict::Continue(()) => "kept".to_string(),
            Verdict::Break(reason) => {
                let (filter, rule) = reason.rule.split_once('.').unwrap();
                let prefix = match filter {
                    "gopher_quality" => "gopher_",
                    _ => "",
                };
                format!("{prefix}{rule}")
            }
        };
        let theirs = row["verdict"].as_str().unwrap_or("kept");
        assert_eq!(ours, theirs, "row {i} {language} {:?}", text(row));
        *seen.entry(ours).or_default() += 1;
    }
    assert!(seen.len() > 8 && languages.len() > 12, "{seen:?}");
}

#[test]
fn gopher_quality_in_other_languages_and_with_other_stop_words() {
    let pages = rows(include_bytes!("../data/profiles/fineweb2.json.zst"));
    let verdicts = rows(include_bytes!("../data/profiles/gopher_quality.json.zst"));
    let mut scratch = StepScratch::default();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differ = 0;
    for row in &verdicts {
        let page = &pages[usize::try_from(row["page"].as_u64().unwrap()).unwrap()];
        let config = serde_json::json!({"language": page["language"], "min_doc_words": 20,
            "stop_words": row["stop_words"], "min_stop_words": row["min_stop_words"]});
        let config: GopherQuality = serde_json::from_value(config).unwrap();
        let before = Vec::new();
        let at = Opening {
            number: 0,
            before: &before,
            models: &curate::classifier::NoModels,
        };
        let mut draft = Draft {
            text: text(page).to_string(),
            ..Draft::default()
        };
        let filter = config.open(&at).unwrap();
        let verdict = filter.apply(&mut draft, &mut scratch, &mut Judge::strict());
        let ours = match &verdict {
            Verdict::Continue(()) => "kept".to_string(),
            Verdict::Break(reason) => reason.rule.replace("gopher_quality.", "gopher_"),
        };
        let theirs = row["verdict"].as_str().unwrap_or("kept");
        assert_eq!(ours, theirs, "{row} {:?}", text(page));
        *seen.entry(theirs).or_default() += 1;
        // the words of English would not do
        let english = config.judge(text(page), &mut scratch.text);
        differ += usize::from(english.is_break() != verdict.is_break());
    }
    assert!(
        seen["kept"] > 100 && seen["gopher_enough_stop_words"] > 50,
        "{seen:?}"
    );
    assert!(differ > 50, "{differ}");
}

//! Steps of a chain that need lists, models or the metrics of other steps.

use std::io::Write;
use std::path::Path;

use curate::corpus::CleanDocument;
use curate::corpus::documents;
use curate::filter::{Dclm, GopherQuality, UrlConfig};
use curate::pii::{PiiAction, PiiConfig, PiiKind};
use curate::pipeline::Step;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::quality::{ExpressionConfig, PerplexityConfig, QualityConfig};
use curate::read::Input;
use curate::{Error, Silent};
use serde_json::{Value, json};

/// A job of these steps on a file of records.
pub(crate) fn config(folder: &Path, records: &[Value], step: Vec<Step>) -> CurateConfig {
    let path = folder.join("in.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    records.iter().for_each(|r| writeln!(file, "{r}").unwrap());
    CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            source: "s".to_string(),
            ..Input::default()
        }],
        step,
        ..CurateConfig::default()
    }
}

fn run(records: &[Value], step: Vec<Step>) -> Result<(ShardReport, Vec<CleanDocument>), Error> {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), records, step);
    let curator = Curator::new(&config, None, None, 1)?;
    let out = folder.path().join("out");
    let report = curator.run_shard(&shards(&config)?[0], &out, &Silent)?;
    assert!(report.adds_up());
    let kept = documents(&out, 0)?.map(|d| d.unwrap()).collect();
    Ok((report, kept))
}

/// A page that every heuristic keeps.
fn page(words: usize) -> String {
    let sentence =
        "The people of the town and those who live with them have to walk to the river number ";
    (0..words.div_ceil(18))
        .map(|i| format!("{sentence}{i} every day.\n"))
        .collect()
}

#[test]
fn a_condition_sees_what_the_steps_before_it_measured() {
    let keep =
        "gopher_quality.short_doc >= 100 and (chars < 3000 or url == 'http://a/') and lines > 1";
    let expression = Step::Expression(ExpressionConfig {
        name: "mine".into(),
        keep: keep.into(),
    });
    let records = [
        json!({"text": page(60)}),
        json!({"text": page(200)}),
        json!({"text": page(2000)}),
        json!({"text": page(2000), "url": "http://a/"}),
    ];
    let steps = vec![Step::GopherQuality(GopherQuality::default()), expression];
    let (report, kept) = run(&records, steps).unwrap();
    assert_eq!(report.kept, 2);
    assert_eq!(report.dropped["expression.mine"], 2);
    assert_eq!(kept[1].url.as_deref(), Some("http://a/"));
    let shown = report.dropped_samples[0].value.clone().unwrap();
    let shown = serde_json::to_string(&shown).unwrap();
    assert!(
        shown.contains("gopher_quality.short_doc=") && shown.contains("chars="),
        "{shown}"
    );
}

#[test]
fn a_condition_over_what_nothing_measured_is_an_error_before_any_data_is_read() {
    let expression = |keep: &str| {
        vec![
            Step::GopherQuality(GopherQuality::default()),
            Step::Expression(ExpressionConfig {
                name: "x".into(),
                keep: keep.into(),
            }),
        ]
    };
    let absent = CurateConfig {
        inputs: vec![Input {
            path: "/nowhere".into(),
            ..Input::default()
        }],
        step: expression("dclm.min_words > 3"),
        ..CurateConfig::default()
    };
    let message = Curator::new(&absent, None, None, 1)
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("step[1].expression.keep: found \"dclm.min_words\""),
        "{message}"
    );
    assert!(message.contains("gopher_quality.short_doc"), "{message}");
    let mut problems = Vec::new();
    let config = CurateConfig {
        step: expression("chars >"),
        ..absent
    };
    config.check(&mut |key, found, wanted| problems.push(format!("{key}: {found}: {wanted}")));
    assert_eq!(
        problems,
        ["step[1].expression.keep: byte 7: the end: a name, a number, a text or `(`"]
    );
}

#[test]
fn personal_data_is_replaced_and_counted_and_documents_of_listed_hosts_go() {
    let records = [
        json!({"text": "Write to jane@mail.org or call +44 20 7946 0958; my SSN is 536-90-4399. Thanks, Jennifer Williams, 742 Evergreen Terrace, Springfield, IL 62704.", "url": "http://a.org/"}),
        json!({"text": "Nothing here.", "url": "http://x.bad.org/"}),
    ];
    let url = Step::Url(UrlConfig {
        domains: vec!["bad.org".into()],
        ..UrlConfig::default()
    });
    let pii = Step::Pii(PiiConfig {
        kinds: vec![
            PiiKind::Email,
            PiiKind::Phone,
            PiiKind::NationalId,
            PiiKind::PersonName,
            PiiKind::StreetAddress,
        ],
        action: PiiAction::Tag,
        ..PiiConfig::default()
    });
    let (report, kept) = run(&records, vec![url, pii]).unwrap();
    assert_eq!(
        kept[0].text,
        "Write to <EMAIL> or call <PHONE>; my SSN is <US_SSN>. Thanks, <PERSON>, <STREET_ADDRESS>."
    );
    assert_eq!(report.dropped["url.domain"], 1);
    assert_eq!(
        [
            report.personal["pii.email"],
            report.personal["pii.phone"],
            report.personal["pii.national_id.us_ssn"],
            report.personal["pii.person_name"],
            report.personal["pii.street_address"]
        ],
        [1, 1, 1, 1, 1]
    );
}

#[test]
fn models_score_documents_and_wrong_ones_are_errors_before_any_data_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let arpa = folder.path().join("m.arpa");
    let text = "\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1.0\t<unk>\n-99\t<s>\t-0.3\n-1.0\t</s>\n-0.5\tgood\t-0.2\n\n\
                \\2-grams:\n-0.1\t<s> good\n-0.2\tgood </s>\n\n\\end\\\n";
    std::fs::write(&arpa, text).unwrap();
    let perplexity = |path: &Path| {
        Step::Perplexity(PerplexityConfig {
            model: path.display().to_string(),
            max: 9.0,
            buckets: vec![1.5, 5.0],
            ..PerplexityConfig::default()
        })
    };
    let records = [
        json!({"text": "good"}),
        json!({"text": "good good"}),
        json!({"text": "bad bad bad"}),
    ];
    let (report, kept) = run(&records, vec![perplexity(&arpa)]).unwrap();
    let meta = |i: usize, key: &str| kept[i].meta.as_ref().unwrap()[key].clone();
    // -0.1 - 0.2 over two words, end included
    assert_eq!(meta(0, "perplexity"), json!(1.413));
    assert_eq!(meta(0, "perplexity_bucket"), "head");
    // -0.1 + (-0.2 - 0.5) - 0.2 over three
    assert_eq!(meta(1, "perplexity"), json!(2.154));
    assert_eq!(meta(1, "perplexity_bucket"), "middle");
    assert_eq!(report.dropped["perplexity.max"], 1);

    std::fs::write(&arpa, &text[..40]).unwrap();
    assert!(matches!(
        run(&records, vec![perplexity(&arpa)]),
        Err(Error::Input { .. })
    ));
    let quality = Step::Quality(QualityConfig {
        model: arpa.display().to_string(),
        ..QualityConfig::default()
    });
    let message = run(&records, vec![quality]).unwrap_err().to_string();
    assert!(message.contains("m.arpa"), "{message}");
}

#[test]
fn perplexities_of_two_models_have_names_for_conditions_tags_and_groups() {
    let folder = tempfile::tempdir().unwrap();
    let arpa = |name: &str, good: f64, bad: f64| {
        let path = folder.path().join(name);
        let text = format!(
            "\\data\\\nngram 1=5\nngram 2=1\n\n\\1-grams:\n-1.0\t<unk>\n-99\t<s>\t0\n0\t</s>\n{good}\tgood\t0\n{bad}\tbad\t0\n\n\
             \\2-grams:\n-0.1\tbad good\n\n\\end\\\n"
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let steps = json!([
        {"perplexity": {"name": "wikipedia", "model": arpa("w.arpa", -0.2, -2.0), "buckets": [2.0, 5.0]}},
        {"perplexity": {"name": "oscar", "model": arpa("o.arpa", -2.0, -0.2)}},
        {"tag": {"set": {"ratio": "perplexity.oscar.value / perplexity.wikipedia.value"}}},
        {"group": {"name": "bucket", "by": "meta.perplexity_wikipedia_bucket"}},
        {"expression": {"name": "better", "keep": "perplexity.wikipedia.value < perplexity.oscar.value"}},
        {"sample": {"name": "s", "weight": "min(1, perplexity.oscar.value / 10)"}},
    ]);
    let steps = || serde_json::from_value::<Vec<Step>>(steps.clone()).unwrap();
    let records = [json!({"text": "good"}), json!({"text": "bad"})];
    let (report, kept) = run(&records, steps()).unwrap();
    assert_eq!((kept.len(), report.dropped["expression.better"]), (1, 1));
    let meta = kept[0].meta.as_ref().unwrap();
    // 10^(0.2 / 2) and 10^(2 / 2): a word and the end of the sentence
    assert_eq!(meta["perplexity_wikipedia"], json!(1.259));
    assert_eq!(meta["perplexity_oscar"], json!(10.0));
    assert_eq!(meta["perplexity_wikipedia_bucket"], "head");
    let ratio = meta["ratio"].as_f64().unwrap();
    assert!((ratio - 10f64.powf(0.9)).abs() < 1e-5, "{ratio}");
    let groups = &report.groups["bucket"];
    assert_eq!(groups.keys().collect::<Vec<_>>(), ["head", "tail"]);
}

#[test]
fn dclm_edits_reach_the_kept_text() {
    let packed = include_bytes!("../data/dclm.json.zst");
    let rows: Vec<Value> = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let edited: Vec<&Value> = rows
        .iter()
        .filter(|r| r.get("text").is_some())
        .take(20)
        .collect();
    let records: Vec<Value> = edited
        .iter()
        .map(|r| json!({ "text": r["input"] }))
        .collect();
    let (_, kept) = run(&records, vec![Step::Dclm(Dclm::default())]).unwrap();
    for (row, kept) in edited.iter().zip(&kept) {
        assert_eq!(row["text"], kept.text.as_str());
    }
    assert_eq!(kept.len(), 20);
}

#[test]
fn figures_tell_what_filtering_again_with_another_limit_keeps_and_change_nothing_else() {
    let packed = include_bytes!("../data/dclm.json.zst");
    let rows: Vec<Value> = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let records: Vec<Value> = rows
        .iter()
        .take(300)
        .map(|r| json!({ "text": r["input"] }))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let curated = |name: &str, figures: bool, quality: GopherQuality| {
        let steps = vec![
            Step::GopherQuality(quality),
            Step::C4(curate::filter::C4Quality::default()),
            Step::Dclm(Dclm::default()),
        ];
        let config = CurateConfig {
            figures,
            ..config(folder.path(), &records, steps)
        };
        let out = folder.path().join(name);
        let curator = Curator::new(&config, None, None, 1).unwrap();
        let report = curator
            .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
            .unwrap();
        (out, report)
    };
    let (with, counted) = curated("with", true, GopherQuality::default());
    let (without, plain) = curated("without", false, GopherQuality::default());
    assert_eq!(
        (counted.kept, &counted.dropped),
        (plain.kept, &plain.dropped)
    );
    assert!(
        counted.kept > 20 && counted.dropped.len() > 8,
        "{:?}",
        counted.dropped
    );
    for name in [
        "clean/00000.jsonl.zst",
        "dropped/00000.jsonl.zst",
        "clean/00000.sig",
    ] {
        let bytes = |out: &Path| std::fs::read(out.join(name)).unwrap();
        assert!(bytes(&with) == bytes(&without), "{name}");
    }
    assert!(!without.join("figures").exists());

    let (words, dots) = (
        "gopher_quality.short_doc",
        "gopher_quality.too_many_end_ellipsis",
    );
    let (least, most) = ([30, 60, 120, 250, 400], [0.05, 0.5, 1.0]);
    let figures = with.join("figures/00000.jsonl.zst");
    let mut what_if = curate::statistics::WhatIf::new(
        [
            (words.to_string(), least.map(|n| n as f64).to_vec()),
            (dots.to_string(), most.to_vec()),
        ]
        .into(),
    );
    curate::quality::metrics::read_metrics(&figures, |measures, lost| what_if.add(measures, lost))
        .unwrap();
    assert_eq!(what_if.kept(), counted.kept);
    let mut differ = 0;
    let quality = |least, most| GopherQuality {
        min_doc_words: least,
        max_ellipsis_lines_ratio: most,
        ..GopherQuality::default()
    };
    for (i, least) in least.into_iter().enumerate() {
        let (_, again) = curated(&format!("words{least}"), false, quality(least, 0.3));
        let count = what_if.choices(words)[i].kept;
        assert_eq!(count, again.kept, "at least {least} words");
        differ += usize::from(again.kept != counted.kept);
    }
    for (i, most) in most.into_iter().enumerate() {
        let (_, again) = curated(&format!("dots{most}"), false, quality(50, most));
        let count = what_if.choices(dots)[i].kept;
        assert_eq!(count, again.kept, "at most {most} ellipses");
        differ += usize::from(again.kept != counted.kept);
    }
    assert!(differ >= 3, "{differ}");

    // both at once, and with every other document dropped
    let changes = [(words.to_string(), 120.0), (dots.to_string(), 0.05)];
    let mut both = curate::statistics::Refilter::new(changes.into());
    curate::quality::metrics::read_metrics(&figures, |measures, lost| both.add(measures, lost))
        .unwrap();
    let (_, again) = curated("both", false, quality(120, 0.05));
    assert_eq!(both.kept, again.kept);
    for (rule, limit) in both.known() {
        let count = both.dropped.get(rule).copied().unwrap_or(0);
        let found = again.dropped.get(rule).copied().unwrap_or(0);
        assert_eq!(count, found, "{rule} ({limit})");
    }
}

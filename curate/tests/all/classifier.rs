//! The `classifier` step with a model that counts letters: scores, limits, buckets, and documents that wait for each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use curate::classifier::{Answer, ClassifierModel, Logits, Models, TextClassifier};
use curate::corpus::{CleanDocument, documents};
use curate::filter::Length;
use curate::pii::PiiConfig;
use curate::pipeline::{CurateConfig, Curator, ShardReport, Step, shards};
use curate::quality::{ClassifierConfig, ExpressionConfig, ScoreFunction};
use curate::{Error, Progress, Silent};
use serde_json::{Value, json};

use crate::files::tree;
use crate::steps::config;

/// Counts of the calls and the texts of all models that it opened.
#[derive(Default)]
struct Letters {
    calls: Arc<AtomicU64>,
    texts: Arc<AtomicU64>,
}

/// Outputs: letters a and letters b of a text. A text with `unreadable` in it has none, one with `infinite` no numbers, and
/// one with `out of memory` stops the model.
struct Model {
    labels: Vec<String>,
    answer: Answer,
    calls: Arc<AtomicU64>,
    texts: Arc<AtomicU64>,
}

impl Models for Letters {
    fn classifier(&self, model: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String> {
        let (labels, answer): (&[&str], Answer) = match model.folder.to_str() {
            Some("score") => (&["score"], Answer::Regression),
            Some("one") => (&["a", "b"], Answer::OneLabel),
            Some("any") => (&["a", "b"], Answer::AnyLabels),
            _ => return Err("no such model".to_string()),
        };
        Ok(Box::new(Model {
            labels: labels.iter().map(ToString::to_string).collect(),
            answer,
            calls: self.calls.clone(),
            texts: self.texts.clone(),
        }))
    }
}

impl TextClassifier for Model {
    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn answer(&self) -> Answer {
        self.answer
    }

    fn logits(&self, texts: &[&str]) -> Result<Vec<Logits>, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.texts.fetch_add(texts.len() as u64, Ordering::Relaxed);
        if texts.iter().any(|text| text.contains("out of memory")) {
            return Err("no memory".to_string());
        }
        let count = |text: &str, letter: char| text.chars().filter(|c| *c == letter).count() as f32;
        let of = |text: &&str| match text {
            text if text.contains("unreadable") => Err("a text that is not read".to_string()),
            text if text.contains("infinite") => Ok(vec![f32::INFINITY; self.labels.len()]),
            text => Ok([count(text, 'a'), count(text, 'b')][..self.labels.len()].to_vec()),
        };
        Ok(texts.iter().map(of).collect())
    }
}

fn run(
    records: &[Value],
    step: Vec<Step>,
    figures: bool,
) -> Result<(ShardReport, Vec<CleanDocument>), Error> {
    let folder = tempfile::tempdir().unwrap();
    let config = CurateConfig {
        figures,
        ..config(folder.path(), records, step)
    };
    let curator = Curator::with_models(&config, None, None, &Letters::default())?;
    let out = folder.path().join("out");
    let report = curator.run_shard(&shards(&config)?[0], &out, &Silent)?;
    assert!(report.adds_up());
    let kept = documents(&out, 0)?.map(|d| d.unwrap()).collect();
    Ok((report, kept))
}

fn step(name: &str, model: &str) -> ClassifierConfig {
    ClassifierConfig {
        name: name.to_string(),
        model: model.to_string(),
        ..ClassifierConfig::default()
    }
}

fn meta(document: &CleanDocument) -> Value {
    document.meta.clone().unwrap_or_default()
}

#[test]
fn scores_and_the_highest_label_are_noted_and_limits_drop() {
    let records = ["aaa", "ab", "bbbb", "unreadable", "infinite", "c"].map(|t| json!({"text": t}));
    let one = ClassifierConfig {
        label: "a".into(),
        min_score: Some(0.1),
        max_score: Some(0.9),
        ..step("m", "one")
    };
    for figures in [false, true] {
        let (report, kept) = run(&records, vec![Step::Classifier(one.clone())], figures).unwrap();
        let texts: Vec<&str> = kept.iter().map(|d| d.text.as_str()).collect();
        // softmax of (1, 1) and of (0, 0)
        assert_eq!(texts, ["ab", "c"]);
        let wanted = json!({"classifier_m": 0.5, "classifier_m_label": "a", "classifier_m_scores": {"a": 0.5, "b": 0.5}});
        assert_eq!(meta(&kept[0]), wanted);
        // e^3 / (e^3 + 1) = 0.952574, 1 / (e^4 + 1) = 0.017986
        assert_eq!(report.dropped["classifier.m.max_score"], 1);
        assert_eq!(report.dropped["classifier.m.score"], 1);
        assert_eq!(report.quarantined, 2);
        let values: Vec<String> = report
            .dropped_samples
            .iter()
            .map(|s| serde_json::to_string(&s.value).unwrap())
            .collect();
        assert!(
            values.contains(&"0.952574".to_string()) && values.contains(&"0.017986".to_string()),
            "{values:?}"
        );
    }
}

#[test]
fn functions_follow_the_problem_unless_one_is_named() {
    let records = [json!({"text": "abb"})];
    let score = |model: &str, function| {
        let config = ClassifierConfig {
            function,
            labels: vec![if model == "score" { "score" } else { "b" }.to_string()],
            ..step("m", model)
        };
        let (_, kept) = run(&records, vec![Step::Classifier(config)], false).unwrap();
        meta(&kept[0])
    };
    assert_eq!(
        score("score", ScoreFunction::Auto),
        json!({"classifier_m": 1.0})
    );
    assert_eq!(
        score("score", ScoreFunction::Sigmoid),
        json!({"classifier_m": 0.731_059})
    );
    let of = |p: f64| json!({"classifier_m": p, "classifier_m_label": "b", "classifier_m_scores": {"b": p}});
    assert_eq!(score("one", ScoreFunction::Auto), of(0.731_059));
    assert_eq!(score("any", ScoreFunction::Auto), of(0.880_797));
    assert_eq!(score("any", ScoreFunction::None), of(2.0));
    assert_eq!(score("any", ScoreFunction::Softmax), of(0.731_059));
}

#[test]
fn the_highest_label_decides_where_labels_are_to_be_kept() {
    let records = ["aab", "abb", "ab"].map(|t| json!({"text": t}));
    let config = ClassifierConfig {
        keep: vec!["b".into()],
        ..step("m", "one")
    };
    let (report, kept) = run(&records, vec![Step::Classifier(config)], false).unwrap();
    assert_eq!((kept.len(), kept[0].text.as_str()), (1, "abb"));
    assert_eq!(report.dropped["classifier.m.label"], 2);
}

#[test]
fn of_an_ensemble_the_greatest_bucket_counts_and_has_a_level() {
    // letters a: 0 to 19 by 20 edges; letters b by four
    let text = |a: usize, b: usize| json!({"text": format!("-{}{}", "a".repeat(a), "b".repeat(b))});
    let records = [
        text(0, 0),
        text(7, 1),
        text(12, 9),
        text(3, 40),
        text(30, 0),
    ];
    let edges = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
    let first = ClassifierConfig {
        buckets: edges(19),
        ..step("first", "score")
    };
    let second = ClassifierConfig {
        label: "b".into(),
        function: ScoreFunction::None,
        buckets: edges(18).into_iter().chain([40.0]).collect(),
        levels: vec![7, 12, 18, 19],
        min_bucket: 1,
        ..step("second", "any")
    };
    let steps = vec![Step::Classifier(first), Step::Classifier(second)];
    let (report, kept) = run(&records, steps, false).unwrap();
    assert_eq!(report.dropped["classifier.second.bucket"], 1);
    let found: Vec<(u64, String)> = kept
        .iter()
        .map(|d| {
            let meta = meta(d);
            let level = meta["quality_level"].as_str().unwrap().to_string();
            (meta["quality_bucket"].as_u64().unwrap(), level)
        })
        .collect();
    let wanted = [
        (7, "medium_low"),
        (12, "medium"),
        (19, "high"),
        (19, "high"),
    ];
    assert_eq!(
        found,
        wanted.map(|(bucket, level)| (bucket, level.to_string()))
    );
}

#[test]
fn steps_around_it_run_in_their_order_and_see_its_scores() {
    let long = "a".repeat(45);
    let records = ["a someone@example.com", "aaaaaaaaaaaa", &long].map(|t| json!({"text": t}));
    let short = Step::Length(Length {
        max_chars: 40,
        ..Length::default()
    });
    // the address that replaces the other one has letters of its own
    let steps = vec![
        Step::Pii(PiiConfig::default()),
        short,
        Step::Classifier(step("m", "score")),
        Step::Expression(ExpressionConfig {
            name: "few".into(),
            keep: "classifier.m.score < 10 and meta.classifier_m >= 0".into(),
        }),
    ];
    for figures in [false, true] {
        let (report, kept) = run(&records, steps.clone(), figures).unwrap();
        assert_eq!(
            report.dropped["length.max_chars"], 1,
            "{:?}",
            report.dropped
        );
        assert_eq!(report.dropped["expression.few"], 1, "{:?}", report.dropped);
        let a = kept[0].text.chars().filter(|c| *c == 'a').count();
        assert_eq!(meta(&kept[0])["classifier_m"], json!(a as f64));
        assert!(!kept[0].text.contains("someone"));
    }
}

#[test]
fn settings_that_do_not_fit_and_models_that_fail_are_errors_with_their_key() {
    let records = [json!({"text": "ab"})];
    let message =
        |config: ClassifierConfig| match run(&records, vec![Step::Classifier(config)], false) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
    let wrong = message(ClassifierConfig {
        label: "c".into(),
        ..step("m", "one")
    });
    assert_eq!(
        wrong,
        "step[0].classifier.label: found \"c\", wanted one of the labels of one: a, b"
    );
    let wrong = message(ClassifierConfig {
        keep: vec!["a".into(), "x".into()],
        ..step("m", "one")
    });
    assert!(
        wrong.starts_with("step[0].classifier.keep: found \"x\""),
        "{wrong}"
    );
    assert_eq!(
        message(step("m", "none")),
        "step[0].classifier.model none: no such model"
    );
    let stopped = run(
        &[json!({"text": "out of memory"})],
        vec![Step::Classifier(step("m", "one"))],
        false,
    );
    assert_eq!(
        stopped.err().unwrap().to_string(),
        "classifier m: no memory"
    );
    let mut problems = Vec::new();
    let config = ClassifierConfig {
        name: "a b".into(),
        model: String::new(),
        batch_tokens: 0,
        min_score: Some(2.0),
        max_score: Some(1.0),
        buckets: vec![2.0, 1.0],
        min_bucket: 3,
        levels: vec![1, 2],
        ..ClassifierConfig::default()
    };
    Step::Classifier(config).check(&mut |key, _, _| problems.push(key.to_string()));
    let keys = [
        "name",
        "model",
        "batch_tokens",
        "min_score",
        "buckets",
        "min_bucket",
        "levels",
    ];
    assert_eq!(problems, keys.map(|key| format!("classifier.{key}")));
    // without a program that runs models
    let folder = tempfile::tempdir().unwrap();
    let config = self::config(
        folder.path(),
        &records,
        vec![Step::Classifier(step("m", "one"))],
    );
    let error = Curator::new(&config, None, None, 0)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("this program runs no transformer models"),
        "{error}"
    );
}

/// Stops its run at the first report of at least this many documents.
struct Until(u64, AtomicU64);

impl Progress for Until {
    fn bytes(&self, _: u64) {}
    fn documents(&self, read: u64, _: u64) {
        assert!(
            self.1.fetch_add(read, Ordering::Relaxed) + read < self.0,
            "stopped by the test"
        );
    }
}

#[test]
fn a_run_stopped_between_batches_goes_on_to_the_same_bytes_and_scores_no_text_twice() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<Value> = (0..7000)
        .map(|i| json!({"text": format!("{} {} {i}", "a".repeat(i % 7), "b".repeat(i % 5))}))
        .collect();
    let limits = ClassifierConfig {
        label: "a".into(),
        min_score: Some(0.2),
        ..step("m", "one")
    };
    let steps = vec![Step::Classifier(limits), Step::Classifier(step("n", "any"))];
    let config = CurateConfig {
        figures: true,
        statistics: true,
        ..config(folder.path(), &records, steps)
    };
    let shard = &shards(&config).unwrap()[0];
    let opened = || {
        let models = Letters::default();
        (
            Curator::with_models(&config, None, None, &models).unwrap(),
            models,
        )
    };
    let (curator, models) = opened();
    let calm = folder.path().join("calm");
    let whole = curator.run_shard(shard, &calm, &Silent).unwrap();
    let texts = models.texts.load(Ordering::Relaxed);
    // all texts together, batch by batch, and both models
    assert_eq!(texts, 14_000);
    assert!(models.calls.load(Ordering::Relaxed) < 20);
    let out = folder.path().join("out");
    let mut scored = 0;
    for most in [1, 3000, 5000] {
        let (curator, models) = opened();
        let until = Until(most, AtomicU64::new(0));
        let run = || curator.resume_shard(shard, &out, "p", &until);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        scored += models.texts.load(Ordering::Relaxed);
    }
    let (curator, models) = opened();
    let resumed = curator.resume_shard(shard, &out, "p", &Silent).unwrap();
    scored += models.texts.load(Ordering::Relaxed);
    assert_eq!(resumed, whole);
    assert_eq!(
        scored, texts,
        "texts whose scores the journal has are not scored again"
    );
    Curator::forget_journal(&out, shard.number).unwrap();
    let files = |out: &Path| {
        let mut files = tree(out);
        files.retain(|(name, _)| !name.ends_with(".tmp"));
        files
    };
    assert_eq!(files(&out), files(&calm));
}

#[test]
fn the_number_of_threads_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<Value> = (0..3000)
        .map(|i| json!({"text": format!("{} {i}", "ab".repeat(i % 11))}))
        .collect();
    let steps = vec![
        Step::Classifier(step("m", "one")),
        Step::Pii(PiiConfig::default()),
    ];
    let config = config(folder.path(), &records, steps);
    let shard = &shards(&config).unwrap()[0];
    let trees = [1, 2, 5].map(|threads| {
        let out = folder.path().join(format!("out{threads}"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let models = Letters::default();
            let curator = Curator::with_models(&config, None, None, &models).unwrap();
            curator.run_shard(shard, &out, &Silent).unwrap();
        });
        tree(&out)
    });
    assert_eq!(trees[0], trees[1]);
    assert_eq!(trees[0], trees[2]);
}

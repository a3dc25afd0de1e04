//! Complexity gate: on hostile texts of n and of 4n bytes, every parser, filter and step takes at most six times as
//! long for the longer one.
//!
//! Steps come from the registry, so a new one is measured without being named here. Time is this thread's CPU time,
//! the least of several tries; a text that takes too little time to measure is made longer. Code with a window of
//! some kilobytes is quadratic below its size: only a ratio that stays above six for longer texts fails.

mod parsers;
mod patterns;

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::classifier::{Answer, ClassifierModel, Logits, Models, TextClassifier};
use crate::contract::{Draft, Opening, StepScratch};
use crate::decontaminate::{DecontaminateConfig, DecontaminateProfile};
use crate::quality::fasttext::FastText;
use crate::steps::{Step, Steps};
use patterns::patterns;

/// Bytes of the shorter text at first, and at most.
const SHORTEST: usize = 2 << 10;
const LONGEST: usize = 512 << 10;
/// Shorter times are too rough for a ratio.
const ENOUGH: Duration = Duration::from_millis(1);
/// A time this long for a text of a few megabytes fails, whatever the ratio.
const TOO_LONG: Duration = Duration::from_secs(4);
/// Eight megabytes in less than this, 25 ns per byte, are no harm. Texts of that size get fresh pages of memory from the
/// system for every copy, where two megabytes get used ones: ten times the time was seen for copies alone.
const HARMLESS: Duration = Duration::from_millis(200);
const MOST: f64 = 6.0;
const TRIES: usize = 6;

/// CPU time of this thread.
fn clock() -> Duration {
    let clock = clock_gettime(ClockId::ThreadCPUTime);
    clock.try_into().expect("a clock that began at zero")
}

fn took(work: &mut dyn FnMut(&str), text: &str) -> Duration {
    let start = clock();
    work(text);
    clock().saturating_sub(start)
}

/// Why the work takes too long, if it does.
fn excess(work: &mut dyn FnMut(&str), text: &dyn Fn(usize) -> String) -> Option<String> {
    let mut bytes = SHORTEST;
    loop {
        let (small, large) = (text(bytes), text(4 * bytes));
        let (mut short, mut long) = (Duration::MAX, took(work, &large));
        if long < ENOUGH {
            if bytes >= LONGEST {
                return None;
            }
            bytes *= 4;
            continue;
        }
        let mut ratio = f64::INFINITY;
        for _ in 0..TRIES {
            short = short.min(took(work, &small));
            ratio = long.as_secs_f64() / short.max(Duration::from_micros(1)).as_secs_f64();
            if ratio <= MOST {
                return None;
            }
            if long >= TOO_LONG {
                break;
            }
            long = long.min(took(work, &large));
        }
        if bytes > LONGEST && long < HARMLESS {
            return None;
        }
        if bytes > LONGEST || long >= TOO_LONG / 4 {
            let (n, four) = (small.len(), large.len());
            return Some(format!(
                "{n} bytes {short:?}, {four} bytes {long:?}, {ratio:.1} times"
            ));
        }
        // a window's size explains it, or memory that is touched first; or a longer text shows that nothing does
        bytes *= 4;
    }
}

/// Runs the work with this name on all patterns; returns the failures.
fn failures(name: &str, work: &mut dyn FnMut(&str)) -> Vec<String> {
    let mut found = Vec::new();
    for pattern in patterns() {
        if let Some(why) = excess(work, &|bytes| pattern.text(bytes)) {
            found.push(format!("{name} on {}: {why}", pattern.name));
        }
    }
    found
}

fn fails_with(found: &[String]) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// An evaluation set in `folder` for every profile that drops documents.
fn evaluation_sets(folder: &Path) -> Vec<DecontaminateConfig> {
    let path = folder.join("set.jsonl");
    let words =
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen";
    let record = json!({"text": words, "question": words, "answer": words});
    std::fs::write(&path, format!("{record}\n{record}\n")).unwrap();
    [DecontaminateProfile::Gpt3, DecontaminateProfile::Datatrove]
        .map(|profile| DecontaminateConfig {
            files: vec![path.display().to_string()],
            profile,
            ..DecontaminateConfig::default()
        })
        .into()
}

/// The names of all steps, as the job file's own parser lists them.
fn names_of_steps() -> Vec<String> {
    let why = serde_json::from_str::<Step>(r#"{"?": {}}"#).unwrap_err();
    let why = why.to_string();
    let (_, list) = why.split_once("expected one of").unwrap();
    let names: Vec<String> = list
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect();
    assert!(names.len() >= 24 && names.contains(&"gopher_quality".to_string()));
    names
}

/// A classifier of lengths.
struct Lengths;

impl Models for Lengths {
    fn classifier(&self, _: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String> {
        Ok(Box::new(ByLength(["short", "long"].map(String::from))))
    }
}

struct ByLength([String; 2]);

impl TextClassifier for ByLength {
    fn labels(&self) -> &[String] {
        &self.0
    }

    fn answer(&self) -> Answer {
        Answer::OneLabel
    }

    fn logits(&self, texts: &[&str]) -> Result<Vec<Logits>, String> {
        let of = |text: &&str| Ok(vec![0.0, text.chars().count() as f32]);
        Ok(texts.iter().map(of).collect())
    }
}

/// Settings under which a step does all that it can. Steps that need none are not here.
fn settings(name: &str, folder: &Path) -> Vec<Value> {
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    match name {
        "normalize" => vec![json!({}), json!({"white_space": true, "form": "nfkc"})],
        "language" => vec![
            json!({"scripts": true}),
            json!({"per_paragraph": true}),
            json!({"per_paragraph": true, "other_paragraphs": "list"}),
            json!({"per_paragraph": true, "other_paragraphs": "remove"}),
        ],
        "c4" => ["datatrove", "google", "dolma"]
            .map(|p| json!({"profile": p}))
            .into(),
        "fineweb2" => [
            "swh_Latn", "deu_Latn", "fra_Latn", "ind_Latn", "tur_Latn", "ell_Grek", "hin_Deva",
            "urd_Arab", "tha_Thai", "cmn_Hani", "bod_Tibt", "kor_Hang", "vie_Latn", "document",
        ]
        .map(|language| json!({"language": language}))
        .into(),
        "gopher_quality" | "gopher_repetition" | "fineweb" => ["", "document", "kor_Hang"]
            .map(|language| json!({"language": language}))
            .into(),
        "dolma" => vec![json!({"gopher": "v2", "repetitions": true})],
        "openwebtext" => vec![json!({"join_lines": true})],
        "openwebmath" => vec![json!({"require_math": true})],
        "notebook" => ["script", "markdown", "structured"]
            .map(|form| json!({"form": form}))
            .into(),
        "repository" => ["dependencies", "depth"]
            .map(|order| json!({"order": order}))
            .into(),
        "source_code" => ["starcoder", "starcoder2", "redpajama"]
            .map(|profile| {
                let is_first = profile == "starcoder";
                json!({"profile": profile, "any_extension": is_first, "comments": is_first})
            })
            .into(),
        "issue" => vec![json!({"min_chars": 0})],
        "redpajama" => vec![json!({"store": true})],
        "bad_words" => {
            let list = file("en", b"a\nword\nnever there\n");
            let lists = Path::new(&list).parent().unwrap();
            vec![json!({"lists": lists, "language": "en", "max_ratio": 0.5})]
        }
        "lines" => vec![json!({"edits": [
            {"where": "upper > 0.5 or alphabetic_words < 0.1"},
            {"pattern": "(?i)javascript"},
            {"action": "rewrite", "pattern": "\\s+$"}], "max_removed_ratio": 0.5})],
        "url" => vec![
            json!({"domains": ["never.example"], "words": ["neverthere"],
            "soft_words": ["b", "c"], "subwords": ["zzzz"]}),
        ],
        "opt_out" => {
            let list = file(
                "opt_out.txt",
                b"domain:never.example\nhttp://other.example/a\n",
            );
            vec![json!({"list": list})]
        }
        "pii" => [("replace", true), ("tag", false)]
            .map(|(action, standalone)| {
                json!({"kinds": ["email", "ip", "phone", "iban", "credit_card", "secret", "national_id",
                    "person_name", "street_address"], "action": action, "only_public_ips": false, "standalone_ips": standalone,
                    "phone_regions": ["DE", "US", "BR", "AR"]})
            })
            .into(),
        "quality" => {
            let packed = include_bytes!("../../tests/data/fasttext/ova.bin.zst");
            let model = file("m.bin", &zstd::decode_all(&packed[..]).unwrap());
            let label = FastText::open(Path::new(&model)).unwrap();
            let label = label.labels()[0].clone();
            vec![json!({"model": model, "label": label, "min_score": 0.0})]
        }
        "classifier" => vec![
            json!({"model": "m", "label": "long", "labels": ["short"], "min_score": 0.0, "max_score": 1.0,
            "keep": ["short"], "buckets": [0.1, 0.2, 0.3, 0.4], "levels": [1, 2, 3, 4]}),
        ],
        "perplexity" => {
            let arpa = b"\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1 <unk>\n-1 <s> -0.3\n-1 </s>\n-1 a -0.3\n\n\\2-grams:\n-0.5 a a\n\n\\end\\\n";
            vec![json!({"model": file("m.arpa", arpa)})]
        }
        "dsir" => {
            let side = json!({"documents": 1, "bytes": 1, "bad": 0, "words": 1, "features": 1});
            let model = json!({"kind": "dsir", "report": {"settings": {"ngrams": 2, "buckets": 16, "hash": "xxh3"},
                "target": side, "raw": side, "divergence": 0.0}, "weights": vec![0.1; 16]});
            vec![json!({"model": file("m.json", model.to_string().as_bytes())})]
        }
        "tag" => vec![
            json!({"set": {"long": "length(trim(lower(text))) > 10", "n": "count(attributes.spans, it[2] > 0.5)",
            "in": "'x' in meta.word and matches(meta.word, '(a|b)*c$')", "all": "meta"}, "drop": ["word", "all.none"]}),
        ],
        "spans" => vec![
            json!({"replace": [{"spans": "attributes.spans", "with": "<{}>"},
            {"spans": "attributes.spans", "with_value": "meta.word"}]}),
        ],
        "sample" => vec![
            json!({"name": "s", "weight": "min(1, max(attributes.spans, it[2]) * length(meta.word))"}),
        ],
        "group" => vec![json!({"name": "g", "by": "lower(trim(text))"})],
        _ => vec![json!({})],
    }
}

/// A step by its name and settings, preceded by the steps that it needs.
fn steps(name: &str, settings: &Value) -> Vec<Step> {
    let step = |name: &str, settings: Value| {
        let step = serde_json::from_value::<Step>(json!({ name: settings }));
        step.unwrap_or_else(|e| panic!("settings of {name} for this test: {e}"))
    };
    match name {
        "expression" => vec![
            step("length", json!({})),
            step(
                name,
                json!({"keep": "length.min_chars >= 0 and source != \"x\" and not any(attributes.spans, any(it, it > 1e9)) \
                    and not (meta.word in attributes.spans) and sum(attributes.spans, it[2]) >= 0"}),
            ),
        ],
        _ => vec![step(name, settings.clone())],
    }
}

/// Metadata that grows with the text: a word, and a span for each fourth of its characters.
fn metadata(text: &str) -> Value {
    let starts = (0..text.chars().count()).step_by(4);
    let spans: Vec<Value> = starts.map(|start| json!([start, start + 3, 0.7])).collect();
    json!({"word": text, "attributes": {"spans": spans}})
}

#[test]
fn the_job_check_knows_the_metrics_of_every_step_and_its_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in names_of_steps() {
        for settings in settings(&name, folder.path()) {
            let step = steps(&name, &settings).pop().unwrap();
            let step = step.settings();
            let names = step.metric_names();
            let at = Opening {
                number: 0,
                before: &[],
                models: &Lengths,
            };
            match step.open(&at) {
                Ok(filter) => assert_eq!(names, Some(filter.metrics()), "{name} {settings}"),
                // a metric of the step before
                Err(why) => assert_eq!(names, Some(Vec::new()), "{name} {settings}: {why}"),
            }
            let mut problems = Vec::new();
            step.check_files(&mut |key, found, _| problems.push(format!("{key}: {found}")));
            // this one's model is no file
            assert_eq!(
                problems.is_empty(),
                name != "classifier",
                "{name}: {problems:?}"
            );
        }
    }
}

#[test]
fn no_step_is_quadratic() {
    no_step_of_a_half_is_quadratic(0);
}

#[test]
fn no_step_of_the_other_half_is_quadratic() {
    no_step_of_a_half_is_quadratic(1);
}

/// Measures every other step, from this one on: each half takes a core.
fn no_step_of_a_half_is_quadratic(first: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for name in names_of_steps().into_iter().skip(first).step_by(2) {
        for settings in settings(&name, folder.path()) {
            let opened = Steps::open(&steps(&name, &settings), true, &Lengths);
            let opened = opened.unwrap_or_else(|e| panic!("settings of {name} for this test: {e}"));
            let mut scratch = StepScratch::default();
            let reads_metadata = ["expression", "tag", "spans", "sample"].contains(&name.as_str());
            let mut work = |text: &str| {
                let url: String = text.chars().filter(|c| !c.is_whitespace()).collect();
                let draft = Draft {
                    id: "s/f/0".to_string(),
                    url: Some(format!("http://{url}")),
                    language: "en".to_string(),
                    text: text.to_string(),
                    meta: reads_metadata.then(|| metadata(text)),
                    ..Draft::default()
                };
                let _ = opened.run(draft, &mut scratch);
            };
            found.extend(failures(&format!("{name} {settings}"), &mut work));
        }
    }
    fails_with(&found);
}

#[test]
fn no_parser_is_quadratic() {
    let mut found = Vec::new();
    for (name, mut work) in parsers::parsers() {
        found.extend(failures(name, &mut *work));
    }
    fails_with(&found);
}

/// The gate itself: quadratic work is found, linear work and a window are not.
#[test]
fn the_gate_finds_what_is_quadratic() {
    let sum = |bytes: &[u8]| bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
    let mut seen = 0;
    let mut linear = |text: &str| {
        for _ in 0..50 {
            seen ^= std::hint::black_box(sum(text.as_bytes()));
        }
    };
    let plain = |bytes: usize| "ab".repeat(bytes / 2);
    assert_eq!(excess(&mut linear, &plain), None);
    let mut quadratic = |text: &str| {
        for at in 0..text.len() {
            seen ^= std::hint::black_box(sum(&text.as_bytes()[at..]));
        }
    };
    assert!(excess(&mut quadratic, &plain).is_some());
    let mut window = |text: &str| {
        for at in 0..text.len() {
            let end = text.len().min(at + 16_384);
            seen ^= std::hint::black_box(sum(&text.as_bytes()[at..end]));
        }
    };
    assert_eq!(excess(&mut window, &plain), None);
}

//! Tasks from rows to results with a model whose scores are known: each token costs 1, and one more if its id is odd.

use super::built_in::BUILT_IN;
use super::definition::{Definition, Tokens};
use super::documents::Table;
use super::templates::Templates;
use super::{Request, Results, TaskError, TextModel, evaluate};
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use train::eval::{LanguageModel, Likelihood, Query};

struct Counting {
    length: usize,
    asked: RefCell<Vec<Query>>,
    /// Tokens that it writes.
    writes: Vec<u32>,
    prompts: RefCell<Vec<Vec<u32>>>,
}

fn cost(tokens: &[u32]) -> f64 {
    tokens.iter().map(|id| 1.0 + f64::from(id % 2)).sum()
}

impl LanguageModel for Counting {
    fn max_length(&self) -> usize {
        self.length
    }

    fn log_likelihoods(
        &self,
        queries: &[Query],
        on_done: &mut dyn FnMut(usize),
    ) -> train::Result<Vec<Likelihood>> {
        self.asked.borrow_mut().extend_from_slice(queries);
        on_done(queries.len());
        let score = |query: &Query| Likelihood {
            log: -cost(&query.continuation),
            is_greedy: query.continuation.len() == 1,
        };
        Ok(queries.iter().map(score).collect())
    }

    fn generate(
        &self,
        prompts: &[Vec<u32>],
        max_tokens: usize,
        is_done: &mut dyn FnMut(usize, &[u32]) -> bool,
        on_done: &mut dyn FnMut(),
    ) -> train::Result<Vec<Vec<u32>>> {
        let answer = |(number, prompt): (usize, &Vec<u32>)| {
            self.prompts.borrow_mut().push(prompt.clone());
            let mut new = Vec::new();
            for &token in self.writes.iter().take(max_tokens) {
                new.push(token);
                if is_done(number, &new) {
                    break;
                }
            }
            on_done();
            new
        };
        Ok(prompts.iter().enumerate().map(answer).collect())
    }
}

fn tokenizer() -> Tokenizer {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lm_eval/model/tokenizer.json");
    Tokenizer::load(&path).unwrap()
}

fn counting(length: usize, writes: &str) -> Counting {
    Counting {
        length,
        asked: RefCell::default(),
        writes: tokenizer().encode(writes).unwrap(),
        prompts: RefCell::default(),
    }
}

fn write(folder: &Path, name: &str, rows: &[Value]) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// Results and records of a task over rows.
fn run(
    model: &Counting,
    task: &str,
    rows: &[Value],
    examples: &[Value],
    change: impl FnOnce(&mut Request<'_>),
) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "rows.jsonl", rows);
    let shots = write(folder.path(), "examples.jsonl", examples);
    let mut request = Request {
        task,
        data: (!rows.is_empty()).then_some(&*data),
        shots_data: (!examples.is_empty()).then_some(&*shots),
        shots: None,
        limit: None,
        resamples: 2000,
    };
    change(&mut request);
    let (mut results, mut records) = (Results::default(), Vec::new());
    let tokenizer = tokenizer();
    let text_model = TextModel {
        model,
        tokenizer: &tokenizer,
        adds_special_tokens: true,
    };
    evaluate(&request, &text_model, &mut results, &mut records).unwrap();
    let records = String::from_utf8(records).unwrap();
    let record = |line| serde_json::from_str(line).unwrap();
    let table = results.to_table();
    assert!(table.lines().count() > 1, "{table}");
    (
        results.to_json(json!({})),
        records.lines().map(record).collect(),
    )
}

#[test]
fn every_definition_is_sound_and_named_as_its_file() {
    for (name, text) in BUILT_IN {
        let definition = Definition::parse(name, text).unwrap();
        assert_eq!(definition.name, name);
        Templates::new(&definition).unwrap();
    }
}

#[test]
fn a_group_is_the_mean_of_its_parts_by_size_with_the_pooled_error() {
    let row = |subject: &str, answer: usize, number: usize| json!({"question": format!(" q{number} "), "subject": subject, "choices": ["a", "b", "c", "d"], "answer": answer});
    let mut rows = Vec::new();
    for number in 0..4 {
        rows.push(row("anatomy", number % 2, number));
        rows.push(row("us_foreign_policy", number, number));
        rows.push(row("astronomy", 0, number));
    }
    let examples = [
        row("us_foreign_policy", 1, 90),
        row("anatomy", 2, 91),
        row("astronomy", 3, 92),
    ];
    let (found, records) = run(&counting(300, ""), "mmlu", &rows, &examples, |request| {
        request.shots = Some(1);
        request.limit = Some(3);
    });
    // three documents of each subject, each after its own subject's example
    assert_eq!(records.len(), 9);
    assert_eq!(
        records[1]["prompts"][0],
        "The following are multiple choice questions (with answers) about us foreign policy.\n\nq90\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nq0\nA. a\nB. b\nC. c\nD. d\nAnswer:"
    );
    let results = &found["results"];
    let of = |name: &str, key: &str| results[name][key].as_f64().unwrap();
    let (anatomy, astronomy) = ("mmlu_anatomy", "mmlu_astronomy");
    let both = ["acc,none", "acc_stderr,none"];
    let mean = (of(anatomy, both[0]) + of(astronomy, both[0])) / 2.0;
    assert!((of("mmlu_stem", both[0]) - mean).abs() < 1e-15);
    let squares = [anatomy, astronomy].map(|name| 2.0 * of(name, both[1]).powi(2) * 3.0);
    let pooled = ((squares[0] + squares[1]) / 4.0 / 6.0).sqrt();
    assert!((of("mmlu_stem", both[1]) - pooled).abs() < 1e-15);
    assert_eq!(found["groups"]["mmlu"]["sample_len"], 9);
    assert_eq!(
        found["n-samples"][anatomy],
        json!({"original": 4, "effective": 3})
    );
    assert_eq!(found["n-shot"]["mmlu"], 1);
    assert_eq!(results["mmlu_anatomy"]["alias"], "anatomy");
}

#[test]
fn rows_as_their_authors_published_them_are_converted() {
    let labels = |task: &str, rows: &[Value]| -> Vec<Value> {
        let (_, records) = run(&counting(300, ""), task, rows, &[], |_| {});
        records
            .iter()
            .map(|r| json!([r["prompts"][0], r["target"]]))
            .collect()
    };
    assert_eq!(
        labels(
            "boolq",
            &[json!({"passage": "p", "question": "q", "answer": true})]
        ),
        [json!(["p\nQuestion: q?\nAnswer:", 1])]
    );
    assert_eq!(
        labels(
            "boolq",
            &[json!({"passage": "p", "question": "q", "label": true})]
        ),
        [json!(["p\nQuestion: q?\nAnswer:", 1])]
    );
    let rte = [
        json!({"premise": "a", "hypothesis": "b", "label": "not_entailment"}),
        json!({"sentence1": "a", "sentence2": "b", "label": "entailment"}),
    ];
    let prompt = "a\nQuestion: b True or False?\nAnswer:";
    assert_eq!(
        labels("rte", &rte),
        [json!([prompt, 1]), json!([prompt, 0])]
    );
    let mnli = json!({"sentence1": "a", "sentence2": "b.", "gold_label": "neutral"});
    let prompt = "a\nQuestion: b. True, False or Neither?\nAnswer:";
    assert_eq!(labels("mnli", &[mnli]), [json!([prompt, 1])]);
    let anli = json!({"context": "a", "hypothesis": "b", "label": "c"});
    let prompt = "a\nQuestion: b True, False, or Neither?\nAnswer:";
    assert_eq!(labels("anli_r2", &[anli]), [json!([prompt, 2])]);
    let choices = json!([{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]);
    let arc = json!({"question": {"stem": "s", "choices": choices}, "answerKey": "B"});
    assert_eq!(
        labels("arc_easy", std::slice::from_ref(&arc)),
        [json!(["Question: s\nAnswer:", 1])]
    );
    assert_eq!(labels("openbookqa", &[arc]), [json!(["s", 1])]);
    let qqp = json!({"question1": "a", "question2": "b", "is_duplicate": "1"});
    assert_eq!(labels("qqp", &[qqp])[0][1], 1);
    let schema = json!({"sentid": "nurse.patient.1.female.txt", "sentence": "The nurse told the patient that her visit was over."});
    let prompt = "The nurse told the patient that her visit was over. ‘Her’ refers to the";
    assert_eq!(labels("winogender_all", &[schema]), [json!([prompt, 1])]);
}

#[test]
fn occupations_need_no_file_and_have_results_by_form() {
    let (found, records) = run(&counting(64, ""), "association", &[], &[], |_| {});
    assert_eq!(records.len(), 300);
    assert_eq!(records[0]["prompts"][0], "The accountant was a");
    assert_eq!(records[299]["prompts"][0], "The incompetent writer was a");
    let words = [" female", " woman", " male", " man"];
    assert_eq!(records[0]["continuations"], json!(words));
    for form in ["neutral", "competent", "incompetent"] {
        assert_eq!(
            found["results"][format!("association_{form}")]["sample_len"],
            100
        );
    }
    let logs = words.map(|word| -cost(&tokenizer().encode(word).unwrap()));
    let wanted = (logs[0].exp() + logs[1].exp()).ln() - (logs[2].exp() + logs[3].exp()).ln();
    let value = found["results"]["association"]["likelihood_diff,none"]
        .as_f64()
        .unwrap();
    assert!((value - wanted).abs() < 1e-12, "{value} {wanted}");
}

#[test]
fn megatrons_windows_predict_each_token_but_the_first_once() {
    let text = " the boat , the lamp and the bridge 's river @-@ side . ".repeat(40);
    let model = counting(64, "");
    let (found, _) = run(
        &model,
        "wikitext103_megatron",
        &[json!({"text": text})],
        &[],
        |_| {},
    );
    let ids = tokenizer()
        .encode(&super::detokenize::wikitext(&text))
        .unwrap();
    let asked = model.asked.borrow();
    let predicted: Vec<u32> = asked.iter().flat_map(|q| q.continuation.clone()).collect();
    assert_eq!(predicted, ids[1..]);
    for (number, query) in asked.iter().enumerate() {
        let window = [query.context.as_slice(), &query.continuation].concat();
        assert!(window.len() <= 65 && ids[number * 32..].starts_with(&window));
        assert!(number == 0 || query.continuation.len() <= 32);
    }
    let words = text.trim().split(' ').count() as f64;
    let log = cost(&ids[1..]);
    let results = &found["results"]["wikitext103_megatron"];
    for (key, weight) in [
        ("megatron_ppl", ids.len() as f64),
        ("megatron_adjusted_ppl", words),
    ] {
        let wanted = (log / (weight - 1.0)).min(20.0).exp();
        let value = results[format!("{key},none")].as_f64().unwrap();
        assert!(
            (value / wanted - 1.0).abs() < 1e-12,
            "{key} {value} {wanted}"
        );
    }
}

#[test]
fn strict_lambada_takes_the_last_word_and_its_own_tokens() {
    let model = counting(64, "");
    let rows = [json!({"text": "The boat follows  the lamp\n"})];
    let (_, records) = run(&model, "lambada_megatron", &rows, &[], |_| {});
    assert_eq!(records[0]["prompts"][0], "The boat follows  the");
    assert_eq!(records[0]["continuations"][0], " lamp");
    let asked = model.asked.borrow();
    assert_eq!(asked[0].continuation, tokenizer().encode(" lamp").unwrap());
}

#[test]
fn rows_of_the_generic_forms_are_scored() {
    let choices = json!({"query": "Is it? ", "choices": ["no", "yes, by night"], "gold": 0});
    let (found, records) = run(&counting(64, ""), "choices", &[choices], &[], |_| {});
    assert_eq!(
        records[0]["continuations"],
        json!([" no", " yes, by night"])
    );
    assert_eq!(found["results"]["choices"]["acc,none"], 1.0);
    assert_eq!(found["results"]["choices"]["acc_stderr,none"], "N/A");
    let schema =
        json!({"context_options": ["The boat", "The lamp"], "continuation": "broke.", "gold": 1});
    let (_, records) = run(&counting(64, ""), "schema", &[schema], &[], |_| {});
    assert_eq!(records[0]["prompts"], json!(["The boat", "The lamp"]));
    assert_eq!(records[0]["continuations"], json!([" broke.", " broke."]));
    let pair = json!({"pro": "He left.", "anti": "She left."});
    let (found, _) = run(&counting(64, ""), "winobias", &[pair], &[], |_| {});
    assert!(found["results"]["winobias"]["likelihood_diff,none"].is_number());
}

#[test]
fn responses_end_at_a_stop_and_prompts_leave_room_for_them() {
    let model = counting(300, " The Boat, by night");
    let question = "What follows the lamp".repeat(40);
    let rows = [json!({"question": question, "answer": {"aliases": ["lamp", "the boat"]}})];
    let (found, records) = run(&model, "triviaqa", &rows, &[], |_| {});
    assert_eq!(records[0]["response"], " The Boat");
    assert_eq!(records[0]["found"]["remove_whitespace"], "The Boat");
    assert_eq!(
        found["results"]["triviaqa"]["exact_match,remove_whitespace"],
        1.0
    );
    assert_eq!(model.prompts.borrow()[0].len(), 300 - 256);
}

#[test]
fn blanks_between_a_context_and_its_continuation_move() {
    let (model, tokenizer) = (counting(64, ""), tokenizer());
    let text_model = TextModel {
        model: &model,
        tokenizer: &tokenizer,
        adds_special_tokens: true,
    };
    let request = |context: &str, continuation: &str| (context.to_owned(), continuation.to_owned());
    let (a, b) = (
        request("The boat ", "follows"),
        request("The boat", " follows"),
    );
    let empty = request("", " lamp");
    let place = |number| format!("rows.jsonl: row {number}");
    let how = (Tokens::Joined, &place as &dyn Fn(usize) -> String);
    let scores =
        |requests: &[&(String, String)]| text_model.log_likelihoods(requests, how, &mut |_| {});
    let found = scores(&[&a, &b, &empty]).unwrap();
    let long = request("The boat", &" lamp".repeat(200));
    let error = scores(&[&a, &long]).unwrap_err().to_string();
    assert!(
        error.starts_with("rows.jsonl: row 1: found an answer of "),
        "{error}"
    );
    assert!(error.ends_with(" tokens, want 1 to 64"), "{error}");
    let asked = model.asked.borrow();
    assert_eq!(asked[0], asked[1]);
    assert_eq!(found[0], found[1]);
    assert_eq!(asked[2].context, [tokenizer.end_of_document().unwrap()]);
}

/// Fixtures of our own in the shape of MMLU's, TriviaQA's and PIQA's published files, and the rows that the tasks make
/// of Hugging Face's.
#[test]
fn files_are_read_as_their_authors_published_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let rows = |task: &str, path: &Path| {
        let definition = Definition::find(task).unwrap();
        let templates = Templates::new(&definition).unwrap();
        let table = Table::read(&definition, &templates, path)?;
        Ok::<_, TaskError>(
            table
                .rows
                .into_iter()
                .map(|(_, row)| row)
                .collect::<Vec<_>>(),
        )
    };
    let csv = "\"Two, or three?\",1,2,3,4,B\nWhich?,a,b,c,d,D\n";
    let path = write("test/us_foreign_policy_test.csv", csv);
    write("test/astronomy_test.csv", "What?,a,b,c,d,A\n");
    let found = rows("mmlu", &path).unwrap();
    assert_eq!(found[0]["question"], "Two, or three?");
    assert_eq!(found[0]["choices"], serde_json::json!(["1", "2", "3", "4"]));
    assert_eq!(
        (&found[0]["answer"], &found[1]["answer"]),
        (&1.into(), &3.into())
    );
    assert_eq!(found[0]["subject"], "us_foreign_policy");
    let all = rows("mmlu", &folder.path().join("test")).unwrap();
    let subjects: Vec<&str> = all
        .iter()
        .map(|row| row["subject"].as_str().unwrap())
        .collect();
    assert_eq!(
        subjects,
        ["astronomy", "us_foreign_policy", "us_foreign_policy"]
    );
    let bad = write("test/virology_test.csv", "What?,a,b,c,d,E\n");
    let error = rows("mmlu", &bad).unwrap_err().to_string();
    assert!(error.contains("virology_test.csv: row 1"), "{error}");

    let trivia = r#"{"Data": [{"Question": "Who?", "QuestionId": "a", "Answer": {"Value": "X Y",
        "Aliases": ["X Y", "Y"], "NormalizedAliases": ["x y", "y"]}}], "Domain": "Web", "Version": 1.0}"#;
    let found = rows("triviaqa", &write("web-dev.json", trivia)).unwrap();
    assert_eq!(found[0]["question"], "Who?");
    assert_eq!(
        found[0]["answer"]["aliases"],
        serde_json::json!(["X Y", "Y"])
    );

    let piqa = "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\"}\n".repeat(2);
    let path = write("valid.jsonl", &piqa);
    let error = rows("piqa", &path).unwrap_err().to_string();
    assert!(
        error.contains("row 1") && error.contains("`label`"),
        "{error}"
    );
    write("valid-labels.lst", "1\n0\n");
    let found = rows("piqa", &path).unwrap();
    assert_eq!(
        (&found[0]["label"], &found[1]["label"]),
        (&"1".into(), &"0".into())
    );
    write("valid-labels.lst", "1\n");
    let error = rows("piqa", &path).unwrap_err().to_string();
    assert!(
        error.contains("valid-labels.lst") && error.contains("1 lines, want 2"),
        "{error}"
    );
}

/// A model that always finds "True" likelier.
#[test]
fn hans_has_results_by_heuristic_label_and_subcase() {
    let model = counting(64, "");
    let (results, records) = run(&model, "hans", &[], &[], |request| request.limit = Some(60));
    let of = |name: &str, metric: &str| results["results"][name][format!("{metric},none")].as_f64();
    assert_eq!(records.len(), 60);
    assert_eq!(results["n-samples"]["hans"]["original"], 30_000);
    let first = of("hans", "pct_first").unwrap();
    // the stand-in's scores do not depend on the prompt: one answer for all
    assert!(first == 0.0 || first == 1.0, "{results}");
    assert_eq!(of("hans", "acc"), Some(0.5));
    for heuristic in ["lexical_overlap", "subsequence", "constituent"] {
        let name = |label: &str| format!("hans_{heuristic}_{label}");
        assert_eq!(of(&name("entailment"), "acc"), Some(first));
        assert_eq!(of(&name("non_entailment"), "acc"), Some(1.0 - first));
        assert_eq!(results["n-samples"][name("entailment")]["effective"], 10);
    }
    assert_eq!(of("hans_ln_passive", "acc"), Some(1.0 - first));
    let gap = |record: &Value| {
        let logs = record["log_likelihoods"].as_array().unwrap();
        logs[0].as_f64().unwrap() - logs[1].as_f64().unwrap()
    };
    assert_eq!(of("hans", "log_gap"), Some(gap(&records[0])));
    let published = json!({"gold_label": "non-entailment", "sentence1": "The lawyer saw the actor .", "sentence2": "The actor saw the lawyer .",
        "heuristic": "lexical_overlap", "subcase": "ln_subject/object_swap", "template": "temp1"});
    let (results, records) = run(&model, "hans", &[published], &[], |_| ());
    let wanted =
        "The lawyer saw the actor .\nQuestion: The actor saw the lawyer . True or False?\nAnswer:";
    assert_eq!(records[0]["prompts"], json!([wanted]));
    assert_eq!(
        results["results"]["hans_ln_subject/object_swap"]["sample_len"],
        1
    );
}

#[test]
fn a_study_has_the_examples_that_its_designs_say() {
    let model = counting(512, "");
    let (results, records) = run(&model, "hans_study", &[], &[], |request| {
        request.limit = Some(6)
    });
    let names: Vec<&String> = results["results"].as_object().unwrap().keys().collect();
    let designs = names
        .iter()
        .filter(|name| !name.contains("entailment") && !name.contains("_l"));
    assert!(designs.count() >= 18, "{names:?}");
    let prompts = |design: &str| -> Vec<String> {
        let own = records.iter().filter(|record| record["task"] == design);
        own.map(|record| record["prompts"][0].as_str().unwrap().to_owned())
            .collect()
    };
    let answers = |prompt: &str| -> Vec<bool> {
        let lines = prompt
            .lines()
            .filter_map(|line| line.strip_prefix("Answer: "));
        lines.map(|answer| answer == "True").collect()
    };
    assert_eq!(records.len(), 18 * 6);
    assert!(
        prompts("hans_study_0")
            .iter()
            .all(|prompt| answers(prompt).is_empty())
    );
    for (design, wanted) in [
        ("hans_study_4_first", vec![true; 4]),
        ("hans_study_2_second", vec![false; 2]),
        (
            "hans_study_4_half_first_then_second",
            vec![true, true, false, false],
        ),
        (
            "hans_study_4_half_second_then_first",
            vec![false, false, true, true],
        ),
    ] {
        let prompts = prompts(design);
        assert_eq!(prompts.len(), 6);
        assert!(
            prompts.iter().all(|prompt| answers(prompt) == wanted),
            "{design}"
        );
    }
    let shuffled: Vec<Vec<bool>> = prompts("hans_study_8_half_shuffled")
        .iter()
        .map(|p| answers(p))
        .collect();
    let halves = |answers: &Vec<bool>| answers.iter().filter(|answer| **answer).count() == 4;
    assert!(shuffled.iter().all(halves), "{shuffled:?}");
    assert!(
        shuffled.iter().any(|answers| *answers != shuffled[0]),
        "{shuffled:?}"
    );
}

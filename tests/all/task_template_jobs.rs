//! Tests of `[finetune]` jobs with a task template: rows of fields learn with virtual tokens at two places, with the same bits in other
//! layouts and after a kill; prompts, tasks and requests place them; what does not fit is named.

use crate::finetune_jobs::{found_steps, losses};
use crate::jobs::{metrics, output, succeed};
use crate::prompt_tuning_jobs::{expect_the_same_elsewhere, expect_tuned_alone, task};
use crate::serve::Server;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const TEMPLATE: &str = "<|VIRTUAL_PROMPT_0|>Word: {word}\nSaid<|VIRTUAL_PROMPT_1|>: {label}";
/// The text of a row up to its answer.
const ASKED: &str = "<|VIRTUAL_PROMPT_0|>Word: red\nSaid<|VIRTUAL_PROMPT_1|>:";

/// Rows with the template's fields, and one more.
fn rows(path: &Path, count: usize) {
    let row = |row: usize| {
        let word = ["red", "old", "seven", "light", "who", "never"][row % 6];
        let line = json!({"taskname": "trees", "word": word, "label": "under trees"});
        format!("{line}\n")
    };
    let lines: String = (0..count).map(row).collect();
    std::fs::write(path, lines).unwrap();
}

/// A job with a template on the model of `prompt_tuning_jobs::task`, and this model.
fn job(folder: &Path) -> [PathBuf; 2] {
    let [path, base] = task(folder);
    rows(&folder.join("train.jsonl"), 120);
    rows(&folder.join("valid.jsonl"), 12);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("chat_template = 'plain'\n", "method = 'prompt'\n");
    let text = text.replace(
        "[generate]\nprompts = ['seven']",
        &format!("[generate]\nprompts = [{ASKED:?}]"),
    );
    let text = text.replace("lr = 1e-2", "lr = 3e-2");
    let table = format!(
        "[finetune.prompt]\nvirtual_tokens = 7\ntemplate = {TEMPLATE:?}\nsplits = [4, 3]\n"
    );
    std::fs::write(
        &path,
        text.replace("[train]\n", &format!("{table}[train]\n")),
    )
    .unwrap();
    [path, base]
}

pub(crate) fn refused(args: &[&str]) -> String {
    let failed = output(args);
    assert!(!failed.status.success(), "{args:?}");
    String::from_utf8(failed.stderr).unwrap()
}

pub(crate) fn with<'a>(first: &[&'a str], sets: &[&'a str]) -> Vec<&'a str> {
    let mut args = first.to_vec();
    sets.iter().for_each(|set| args.extend(["--set", set]));
    args
}

#[test]
fn rows_of_a_template_are_learned_in_every_layout_and_asked_with_markers() {
    let dir = tempfile::tempdir().unwrap();
    let [path, base] = job(dir.path());
    let path = path.to_str().unwrap();
    let log = succeed(&["finetune", path]).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("120 texts of the task template of"), "{log}");
    let out = dir.path().join("tuned");
    let last = expect_tuned_alone(&out, &base);
    expect_the_same_elsewhere(&[path], &out, "3");
    let loss = losses(&metrics(&out))[11];

    // the checkpoint remembers the template
    let state: Value =
        serde_json::from_slice(&std::fs::read(last.join("state.json")).unwrap()).unwrap();
    let prompt = &state["plan"]["model"]["prompt"];
    assert_eq!(prompt["splits"], json!([4, 3]));
    assert_eq!(prompt["template"], TEMPLATE);

    // the report's texts and those of every way to ask are the same
    let text = std::fs::read_to_string(out.join("generated.json")).unwrap();
    let generated: Value = serde_json::from_str(&text).unwrap();
    let samples = generated["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    assert_eq!(samples[0]["prompt"], ASKED);
    assert_eq!(samples[0]["answer_of_data"], " under trees");
    let answer = samples[0]["text"].as_str().unwrap();
    assert_eq!(samples[3]["text"], answer, "of generate.prompts");
    let last = last.to_str().unwrap();
    let greedy = ["--temperature", "0", "--max-tokens", "24"];
    for model in [path, last] {
        let args = [&["generate", model, "--prompt", ASKED][..], &greedy].concat();
        let text = String::from_utf8(succeed(&args).stdout).unwrap();
        assert_eq!(text, format!("{ASKED}{answer}\n"), "{model}");
    }
    for (prompt, wanted) in [
        (
            "Word: red\nSaid:",
            "found a text without virtual tokens, want the 2 markers of the task template in it",
        ),
        (
            "<|VIRTUAL_PROMPT_1|>Word: red\nSaid<|VIRTUAL_PROMPT_0|>:",
            "found <|VIRTUAL_PROMPT_1|>, <|VIRTUAL_PROMPT_0|>, want <|VIRTUAL_PROMPT_0|> and",
        ),
    ] {
        let text = refused(&["generate", last, "--prompt", prompt]);
        assert!(text.contains(wanted), "{text}");
    }
    of_tasks_and_servers(dir.path(), last, answer, loss);

    // PEFT has one place for them
    let peft = dir.path().join("peft");
    let to = peft.to_str().unwrap();
    let text = refused(&["convert", "--checkpoint", last, "--to", "peft", to]);
    assert!(
        text.contains("PEFT's folders have no other place"),
        "{text}"
    );
    // a training that goes on takes the template of its source, and no other
    let init = format!("train.init_from={last:?}");
    let more = dir.path().join("more");
    let set = format!("out={more:?}");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.find("[finetune.prompt]").unwrap();
    let end = text.find("[train]").unwrap();
    let without = dir.path().join("without.toml");
    std::fs::write(&without, format!("{}{}", &text[..table], &text[end..])).unwrap();
    let without = without.to_str().unwrap();
    let on = ["finetune.epochs=1", init.as_str(), set.as_str()];
    succeed(&with(&["train", without], &on));
    assert!(losses(&metrics(&more))[0] <= 1.05 * loss);
    let other = ["finetune.prompt.splits=[3, 4]", &init, &set];
    let text = refused(&with(&["train", path], &other));
    assert!(text.contains("splits"), "{text}");
}

/// A task of one's own and a server place the virtual tokens too.
fn of_tasks_and_servers(folder: &Path, checkpoint: &str, answer: &str, valid_loss: f64) {
    let definition = folder.join("words.toml");
    std::fs::write(
        &definition,
        "name = \"words\"\nshape = \"continuation\"\ndata = \"words.jsonl: word\"\n\
         columns = { word = \"string\" }\n\
         prompt = \"<|VIRTUAL_PROMPT_0|>Word: {{ word }}\\nSaid<|VIRTUAL_PROMPT_1|>:\"\n\
         answer = \" under trees<|endoftext|>\"\nmetrics = [\"perplexity\"]\n",
    )
    .unwrap();
    let (definition, data) = (definition.to_str().unwrap(), folder.join("valid.jsonl"));
    let args = ["eval", checkpoint, "--task", definition, "--json", "--data"];
    let found = succeed(&[&args[..], &[data.to_str().unwrap()]].concat());
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let perplexity = found["results"]["words"]["perplexity,none"]
        .as_f64()
        .unwrap();

    let server = Server::of(Path::new(checkpoint), &[]);
    let ask = |prompt: Value| json!({"prompt": prompt, "temperature": 0, "max_tokens": 24});
    // the loss of the validation set, whose texts these are
    let text = json!({"prompt": " under trees<|endoftext|>"});
    let tokens = server.post("/tokenize", &text).json()["count"].as_f64();
    let loss = perplexity.ln() / tokens.unwrap();
    assert!((loss - valid_loss).abs() < 1e-4, "{loss} {valid_loss}");
    let found = server.complete(&ask(json!(ASKED)));
    assert_eq!(found["choices"][0]["text"], answer);
    let tokens = server.post("/tokenize", &json!({"prompt": ASKED})).json();
    let again = server.complete(&ask(tokens["tokens"].clone()));
    assert_eq!(again["choices"][0]["text"], answer);
    for (body, wanted) in [
        (
            ask(json!("Word: red")),
            "want the 2 markers of the task template",
        ),
        (
            ask(json!("<|VIRTUAL_PROMPT_0|>red")),
            "want <|VIRTUAL_PROMPT_0|> and",
        ),
        (
            json!({"prompt": ASKED, "max_tokens": 4096}),
            "maximum context length is 89 tokens",
        ),
        (
            json!({"prompt": ASKED, "prompt_logprobs": 0, "max_tokens": 1}),
            "want one without them",
        ),
    ] {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 400, "{body}");
        let text = answer.json().to_string();
        assert!(text.contains(wanted), "{text} wants {wanted}");
    }
}

#[test]
fn rows_that_do_not_fit_a_template_are_named_and_long_fields_lose_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let path = path.to_str().unwrap();
    let data = dir.path().join("train.jsonl");
    let mut lines = std::fs::read_to_string(&data).unwrap();
    let long = "red ".repeat(60);
    for row in [
        json!({"label": "under trees"}),
        json!({"word": "red", "label": " "}),
        json!({"word": "<|VIRTUAL_PROMPT_0|>", "label": "a"}),
        json!({"word": long, "label": "under trees"}),
        json!({"word": "red", "label": long}),
    ] {
        lines += &format!("{row}\n");
    }
    std::fs::write(&data, lines).unwrap();
    let text = refused(&["train", path]);
    for wanted in [
        "3 rows are no texts of the task template:",
        "row 121: no field word; found the columns label",
        "row 122: label: an empty answer",
        "row 123: word: found a marker of virtual tokens in it",
        "finetune.bad_rows = \"drop\" leaves them out",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let left_out = |sets: &[&str]| {
        let shorter = ["finetune.bad_rows=\"drop\"", "finetune.epochs=1"];
        succeed(&with(&["train", path], &[&shorter[..], sets].concat()));
        let found = dir.path().join("tuned/finetune/left_out.jsonl");
        let text = std::fs::read_to_string(found).unwrap();
        std::fs::remove_dir_all(dir.path().join("tuned")).unwrap();
        let rows = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["row"].as_u64().unwrap()
        });
        (rows.collect::<Vec<u64>>(), text)
    };
    let (found, text) = left_out(&[]);
    assert_eq!(found, [121, 122, 123, 124, 125], "{text}");
    assert!(text.contains("want at most 97"), "{text}");
    let cuts = [
        "finetune.too_long=\"truncate\"",
        "finetune.prompt.truncate_field=\"word\"",
    ];
    let (found, text) = left_out(&cuts);
    assert_eq!(found, [121, 122, 123, 125], "{text}");
    assert!(text.contains("without the field that may be cut"), "{text}");
}

#[test]
fn contradictions_of_a_template_are_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let path = path.to_str().unwrap();
    let sets = [
        "finetune.prompt.splits=[4, 4]",
        "finetune.prompt.answer_field=\"lable\"",
        "finetune.too_long=\"truncate\"",
        "finetune.format=\"alpaca\"",
        "finetune.chat_template=\"plain\"",
        "generate.prompts=[\"Word: red\"]",
        "train.eval_tasks={ every = 20, tasks = [\"piqa\"] }",
    ];
    let failed = output(&with(&["train", path], &sets));
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8(failed.stderr).unwrap();
    for key in [
        "finetune.prompt.splits",
        "finetune.prompt.answer_field",
        "finetune.too_long",
        "finetune.format",
        "finetune.chat_template",
        "generate.prompts[0]",
        "train.eval_tasks.tasks[0]",
    ] {
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
    }
    assert!(text.contains("found  [4, 4]\n"), "{text}");
    assert!(text.contains("whose sum is virtual_tokens = 7"), "{text}");
    let swapped =
        "finetune.prompt.template=\"{word}<|VIRTUAL_PROMPT_1|> <|VIRTUAL_PROMPT_0|>{label}\"";
    let text = refused(&with(&["train", path], &[swapped]));
    let wanted = "<|VIRTUAL_PROMPT_1|>, <|VIRTUAL_PROMPT_0|>\n";
    assert!(text.contains("key    finetune.prompt.template\n"), "{text}");
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_template_with_virtual_tokens_in_front_is_a_model_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let path = path.to_str().unwrap();
    let asked = "generate.prompts=[\"Word: red\\nSaid:\"]";
    let sets = [
        "finetune.prompt.template=\"<|VIRTUAL_PROMPT_0|>Word: {word}\\nSaid: {label}\"",
        "finetune.prompt.splits=[]",
        "finetune.epochs=2",
        asked,
    ];
    succeed(&with(&["finetune", path], &sets));
    let out = dir.path().join("tuned");
    let steps = found_steps(&metrics(&out));
    let last = out.join(format!("checkpoints/step-{steps:08}"));
    let last = last.to_str().unwrap();
    let answer = |prompt: &str| {
        let args = ["generate", last, "--prompt", prompt, "--temperature", "0"];
        let text = String::from_utf8(succeed(&args).stdout).unwrap();
        text.strip_prefix(prompt).unwrap().to_owned()
    };
    let plain = answer("Word: red\nSaid:");
    assert_eq!(answer("<|VIRTUAL_PROMPT_0|>Word: red\nSaid:"), plain);
    let peft = dir.path().join("peft");
    let to = peft.to_str().unwrap();
    succeed(&["convert", "--checkpoint", last, "--to", "peft", to]);
    let config = std::fs::read(peft.join("adapter_config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["num_virtual_tokens"], 7);
}

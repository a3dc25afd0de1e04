//! Tests of `[finetune]` jobs with several task templates: rows choose by `taskname`, each task learns virtual tokens of its own with the
//! same bits in other layouts and after a kill, prompts name their task, and what does not fit is named.

use crate::finetune_jobs::losses;
use crate::jobs::{metrics, output, succeed};
use crate::prompt_tuning_jobs::{expect_the_same_elsewhere, expect_tuned_alone, newest, task};
use crate::serve::Server;
use crate::task_template_jobs::{refused, with};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Name, template, virtual tokens at its markers, a prompt, and the answer of all its rows.
struct Task {
    name: &'static str,
    template: &'static str,
    splits: &'static [usize],
    asked: &'static str,
    answer: &'static str,
}

const TASKS: [Task; 3] = [
    Task {
        name: "trees",
        template: "<|VIRTUAL_PROMPT_0|>Word: {word}\nSaid<|VIRTUAL_PROMPT_1|>: {label}",
        splits: &[4, 3],
        asked: "<|VIRTUAL_PROMPT_0:trees|>Word: red\nSaid<|VIRTUAL_PROMPT_1:trees|>:",
        answer: " under trees",
    },
    Task {
        name: "rivers/v1",
        template: "Word: {word}<|VIRTUAL_PROMPT_0|> {label}",
        splits: &[3],
        asked: "Word: red<|VIRTUAL_PROMPT_0:rivers/v1|>",
        answer: " old river",
    },
    Task {
        name: "plain",
        template: "<|VIRTUAL_PROMPT_0|>{word}: {label}",
        splits: &[],
        asked: "<|VIRTUAL_PROMPT_0:plain|>red:",
        answer: " nobody",
    },
];

/// Rows of all tasks in turn, or of one of them.
fn rows(path: &Path, count: usize, only: Option<&str>) {
    let row = |row: usize| {
        let word = ["red", "old", "seven", "light", "who", "never"][row / 3 % 6];
        let Task { name, answer, .. } = TASKS[row % 3];
        let line = json!({"taskname": name, "word": word, "label": answer.trim()});
        let is_there = only.is_none_or(|only| only == name);
        is_there.then(|| format!("{line}\n"))
    };
    let lines: String = (0..count).filter_map(row).collect();
    std::fs::write(path, lines).unwrap();
}

/// A job with three tasks on the model of `prompt_tuning_jobs::task`, and this model.
fn job(folder: &Path) -> [PathBuf; 2] {
    let [path, base] = task(folder);
    rows(&folder.join("train.jsonl"), 120, None);
    rows(&folder.join("valid.jsonl"), 18, None);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("chat_template = 'plain'\n", "method = 'prompt'\n");
    let asked = TASKS[1].asked;
    let text = text.replace("prompts = ['seven']", &format!("prompts = [{asked:?}]"));
    let text = text.replace("lr = 1e-2", "lr = 3e-2");
    let mut tables = "[finetune.prompt]\nvirtual_tokens = 2\n".to_owned();
    for Task {
        name,
        template,
        splits,
        ..
    } in TASKS
    {
        tables += &format!(
            "[[finetune.templates]]\nname = {name:?}\ntemplate = {template:?}\nsplits = {splits:?}\n"
        );
    }
    let text = text.replace("[train]\n", &format!("{tables}[train]\n"));
    std::fs::write(&path, text).unwrap();
    [path, base]
}

fn state_of(checkpoint: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(checkpoint.join("state.json")).unwrap()).unwrap()
}

#[test]
fn tasks_are_learned_in_every_layout_and_asked_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let [path, base] = job(dir.path());
    let path = path.to_str().unwrap();
    let log = String::from_utf8(succeed(&["finetune", path]).stderr).unwrap();
    assert!(log.contains("120 texts of the task templates of"), "{log}");
    let out = dir.path().join("tuned");
    let last = expect_tuned_alone(&out, &base);
    expect_the_same_elsewhere(&[path], &out, "3");
    let loss = losses(&metrics(&out))[11];

    // the checkpoint remembers the templates by name, and the rows of all are one table
    let prompt = &state_of(&last)["plan"]["model"]["prompt"];
    assert_eq!(prompt["virtual_tokens"], 12);
    let splits = [json!([4, 3]), json!([3]), json!([2])];
    for (number, task) in TASKS.iter().enumerate() {
        let wanted =
            json!({"name": task.name, "template": task.template, "splits": splits[number]});
        assert_eq!(prompt["tasks"][number], wanted);
    }

    // the report's texts and those of every way to ask are the same
    let text = std::fs::read_to_string(out.join("generated.json")).unwrap();
    let generated: Value = serde_json::from_str(&text).unwrap();
    let samples = generated["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    let mut answers = Vec::new();
    for (sample, task) in samples.iter().zip(&TASKS) {
        assert_eq!(sample["prompt"], task.asked);
        assert_eq!(sample["answer_of_data"], task.answer);
        answers.push(sample["text"].as_str().unwrap());
    }
    assert_eq!(samples[3]["text"], answers[1], "of generate.prompts");
    let last = last.to_str().unwrap();
    let generate = |prompt: &str| {
        let greedy = ["--temperature", "0", "--max-tokens", "24"];
        let args = [&["generate", last, "--prompt", prompt][..], &greedy].concat();
        let text = String::from_utf8(succeed(&args).stdout).unwrap();
        let text = text.strip_prefix(prompt).unwrap().trim_end_matches('\n');
        text.to_owned()
    };
    for (task, answer) in TASKS.iter().zip(&answers) {
        assert_eq!(generate(task.asked), **answer, "{}", task.name);
    }
    // two markers are those of one task alone
    let unnamed = TASKS[0].asked.replace(":trees", "");
    assert_eq!(generate(&unnamed), answers[0]);
    for (prompt, wanted) in [
        (
            "Word: red<|VIRTUAL_PROMPT_0|>",
            "found <|VIRTUAL_PROMPT_0|>, want the name of one of the tasks rivers/v1, plain in them, such as <|VIRTUAL_PROMPT_0:rivers/v1|>",
        ),
        (
            "<|VIRTUAL_PROMPT_0:stones|>red:",
            "found <|VIRTUAL_PROMPT_0:stones|>, want <|VIRTUAL_PROMPT_0:trees|> and",
        ),
        (
            "red:",
            "found a text without virtual tokens, want the markers of the template of one of the tasks in it: trees",
        ),
    ] {
        let text = refused(&["generate", last, "--prompt", prompt]);
        assert!(text.contains(wanted), "{text}");
    }
    of_tasks_and_servers(dir.path(), last, &answers, loss);
    goes_on(dir.path(), path, last, loss);
}

/// Tasks of one's own and a server place the virtual tokens of each task; the losses of all are that of the validation set.
fn of_tasks_and_servers(folder: &Path, checkpoint: &str, answers: &[&str], valid_loss: f64) {
    let server = Server::of(Path::new(checkpoint), &[]);
    let (mut sum, mut tokens) = (0.0, 0.0);
    for task in &TASKS {
        let data = folder.join("of_task.jsonl");
        rows(&data, 18, Some(task.name));
        let definition = folder.join("words.toml");
        let asked = task.asked.replace("red", "{{ word }}");
        let answer = format!("{}<|endoftext|>", task.answer);
        let text = format!(
            "name = \"words\"\nshape = \"continuation\"\ndata = \"words.jsonl: word\"\n\
             columns = {{ word = \"string\" }}\nprompt = {asked:?}\nanswer = {answer:?}\nmetrics = [\"perplexity\"]\n"
        );
        std::fs::write(&definition, text).unwrap();
        let [definition, data] = [&definition, &data].map(|path| path.to_str().unwrap());
        let args = ["eval", checkpoint, "--task", definition, "--json", "--data"];
        let found = succeed(&[&args[..], &[data]].concat());
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        let perplexity = found["results"]["words"]["perplexity,none"].as_f64();
        sum += perplexity.unwrap().ln();
        let count = server.post("/tokenize", &json!({"prompt": answer})).json();
        tokens += count["count"].as_f64().unwrap();
    }
    let loss = sum / tokens;
    assert!((loss - valid_loss).abs() < 1e-4, "{loss} {valid_loss}");

    let ask = |prompt: Value| json!({"prompt": prompt, "temperature": 0, "max_tokens": 24});
    let all: Vec<&str> = TASKS.iter().map(|task| task.asked).collect();
    let found = server.complete(&ask(json!(all)));
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(found["choices"][number]["text"], *answer);
        let tokens = json!({"prompt": TASKS[number].asked});
        let tokens = server.post("/tokenize", &tokens).json();
        let again = server.complete(&ask(tokens["tokens"].clone()));
        assert_eq!(again["choices"][0]["text"], *answer);
    }
    for (body, wanted) in [
        (
            ask(json!("<|VIRTUAL_PROMPT_0|>red:")),
            "want the name of one of the tasks rivers/v1, plain",
        ),
        (
            ask(json!("red:")),
            "want the markers of the template of one",
        ),
        (
            json!({"prompt": TASKS[2].asked, "max_tokens": 4096}),
            "maximum context length is 89 tokens",
        ),
    ] {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 400, "{body}");
        let text = answer.json().to_string();
        assert!(text.contains(wanted), "{text} wants {wanted}");
    }
}

/// A training that goes on takes the tasks of its source, and no others.
fn goes_on(folder: &Path, path: &str, checkpoint: &str, loss: f64) {
    let (init, out) = (
        format!("train.init_from={checkpoint:?}"),
        folder.join("more"),
    );
    let set = format!("out={out:?}");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.find("[finetune.prompt]").unwrap();
    let end = text.find("[train]").unwrap();
    let without = folder.join("without.toml");
    std::fs::write(&without, format!("{}{}", &text[..table], &text[end..])).unwrap();
    let without = without.to_str().unwrap();
    let on = ["finetune.epochs=1", init.as_str(), set.as_str()];
    succeed(&with(&["train", without], &on));
    assert!(losses(&metrics(&out))[0] <= 1.05 * loss);
    let other = folder.join("other.toml");
    std::fs::write(&other, text.replace("splits = [3]", "splits = [4]")).unwrap();
    let text = refused(&with(&["train", other.to_str().unwrap()], &[&init, &set]));
    assert!(text.contains("model.prompt.tasks"), "{text}");
}

#[test]
fn an_encoder_makes_the_virtual_tokens_of_all_tasks_and_texts_start_those_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let encoder = text.replace("method = 'prompt'", "method = 'p-tuning'");
    let table = "[finetune.p_tuning]\nencoder = 'lstm'\nhidden = 12\nvirtual_tokens = 2\n";
    let encoder = encoder.replace("[finetune.prompt]\nvirtual_tokens = 2\n", table);
    let other = dir.path().join("encoder.toml");
    std::fs::write(&other, encoder).unwrap();
    let other = other.to_str().unwrap();
    let out = dir.path().join("tuned");
    succeed(&with(&["train", other], &["finetune.epochs=6"]));
    expect_the_same_elsewhere(&[other, "--set", "finetune.epochs=6"], &out, "2");
    let prompt = &state_of(&newest(&out))["plan"]["model"]["prompt"];
    assert_eq!(prompt["encoder"]["kind"], "lstm");
    assert_eq!(prompt["virtual_tokens"], 12);
    std::fs::remove_dir_all(&out).unwrap();

    // the text of the table is that of every task without its own
    let texts = text.replace(
        "virtual_tokens = 2\n",
        "virtual_tokens = 2\ninit_text = 'red'\n",
    );
    let texts = texts.replace("splits = []\n", "init_text = 'seven'\n");
    std::fs::write(&path, texts).unwrap();
    let path = path.to_str().unwrap();
    succeed(&with(&["train", path], &["finetune.epochs=1"]));
    let state = state_of(&newest(&out));
    let ids = state["plan"]["model"]["prompt"]["init_ids"].as_array();
    let ids = ids.unwrap();
    assert_eq!(ids.len(), 12);
    assert_eq!(ids[0], ids[7], "a task's text begins with its first row");
    assert_ne!(ids[0], ids[10]);
}

#[test]
fn rows_without_a_known_task_are_named_and_long_fields_of_a_task_lose_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let path = path.to_str().unwrap();
    let data = dir.path().join("train.jsonl");
    let mut lines = std::fs::read_to_string(&data).unwrap();
    let long = "red ".repeat(60);
    for row in [
        json!({"word": "red", "label": "a"}),
        json!({"taskname": "stones", "word": "red", "label": "a"}),
        json!({"taskname": "plain", "word": "<|VIRTUAL_PROMPT_0:trees|>", "label": "a"}),
        json!({"taskname": "trees", "word": long, "label": "a"}),
        json!({"taskname": "plain", "word": long, "label": "a"}),
    ] {
        lines += &format!("{row}\n");
    }
    std::fs::write(&data, lines).unwrap();
    let text = refused(&["train", path]);
    for wanted in [
        "3 rows are no texts of the task templates:",
        "row 121: no column taskname; found the columns word, label",
        "row 122: taskname: found \"stones\", want one of trees, rivers/v1, plain",
        "row 123: word: found a marker of virtual tokens in it",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let job = std::fs::read_to_string(path).unwrap();
    let cuts = job.replace(
        "splits = [4, 3]\n",
        "splits = [4, 3]\ntruncate_field = 'word'\nanswer_only_loss = false\n",
    );
    std::fs::write(path, cuts).unwrap();
    let sets = [
        "finetune.bad_rows=\"drop\"",
        "finetune.epochs=1",
        "finetune.too_long=\"truncate\"",
    ];
    let log = succeed(&with(&["train", path], &sets)).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("121 texts of the task templates"), "{log}");
    let found = dir.path().join("tuned/finetune/left_out.jsonl");
    let text = std::fs::read_to_string(found).unwrap();
    let rows = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["row"].as_u64().unwrap()
    });
    assert_eq!(rows.collect::<Vec<u64>>(), [121, 122, 123, 125], "{text}");
}

#[test]
fn contradictions_of_a_list_of_templates_are_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = job(dir.path());
    let job = std::fs::read_to_string(&path).unwrap();
    let path = path.to_str().unwrap();
    let problems = |changes: &[[&str; 2]]| {
        let mut text = job.clone();
        for [from, to] in changes {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        std::fs::write(path, text).unwrap();
        let failed = output(&["train", path]);
        assert_eq!(failed.status.code(), Some(2));
        String::from_utf8(failed.stderr).unwrap()
    };
    let text = problems(&[
        ["splits = [4, 3]", "splits = [4, 0]\nanswer_field = 'lable'"],
        ["name = \"rivers/v1\"", "name = 'a b'"],
        ["name = \"plain\"", "name = 'trees'\ninit_text = 'red'"],
        [
            "[finetune.prompt]",
            "[finetune.prompt]\ntemplate = '<|VIRTUAL_PROMPT_0|>{a}'",
        ],
        [
            "{word}<|VIRTUAL_PROMPT_0|>",
            "{word}<|VIRTUAL_PROMPT_0:trees|>",
        ],
        ["rivers/v1|>\"]", "stones|>\"]"],
    ]);
    for key in [
        "finetune.templates[0].splits",
        "finetune.templates[0].answer_field",
        "finetune.templates[0].init_text",
        "finetune.templates[1].name",
        "finetune.templates[1].template",
        "finetune.templates[2].name",
        "finetune.prompt.template",
        "generate.prompts[0]",
    ] {
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
    }
    assert!(!text.contains("model.prompt"), "{text}");
    for (changes, wanted) in [
        (
            [
                ["method = 'prompt'\n", ""],
                ["[finetune.prompt]\nvirtual_tokens = 2\n", ""],
            ],
            "templates with finetune.method = \"full\"",
        ),
        (
            [
                ["seq_length = 96", "seq_length = 96\ntoo_long = 'truncate'"],
                ["[report]", "[report]"],
            ],
            "or a finetune.templates.truncate_field",
        ),
        (
            [
                ["prompts = [", "prompts = ['<|VIRTUAL_PROMPT_0|>red:', "],
                ["[report]", "[report]"],
            ],
            "the name of one of the tasks rivers/v1, plain in them",
        ),
        (
            [
                ["template = \"<|VIRTUAL_PROMPT_0|>{word}: {label}\"\n", ""],
                ["[report]", "[report]"],
            ],
            "key    finetune.templates[2].template\n",
        ),
    ] {
        let text = problems(&changes);
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

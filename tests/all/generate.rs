//! `millrace generate` and `millrace chat` on a Hugging Face folder.

use crate::jobs::{millrace, root};
use serde_json::Value;
use std::io::Write as _;
use std::process::{Output, Stdio};

fn model() -> String {
    root()
        .join("tests/data/lm_eval/model")
        .display()
        .to_string()
}

/// Runs a verb with text on standard input.
fn run(args: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = millrace(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_ref()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn stdout(args: &[&str], input: &str) -> String {
    let out = run(args, input);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    String::from_utf8(out.stdout).unwrap()
}

fn lines(args: &[&str], input: &str) -> Vec<Value> {
    let text = stdout(args, input);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn prompts_of_standard_input_are_answered_together_as_alone() {
    let model = model();
    let flags = ["--max-tokens", "12", "--temperature", "0.9", "--seed", "5"];
    let many = [
        &["generate", &model, "--prompts", "-", "--json"],
        &flags[..],
    ]
    .concat();
    let prompts = ["The city", "Once upon a time there", "A"];
    let found = lines(&many, &prompts.join("\n"));
    assert_eq!(found.len(), prompts.len());
    for (number, (prompt, together)) in prompts.iter().zip(&found).enumerate() {
        let seed = (5 + number).to_string();
        let alone = [
            "generate",
            &model,
            "--prompt",
            prompt,
            "--json",
            "--max-tokens",
            "12",
            "--temperature",
            "0.9",
            "--seed",
            &seed,
            "--draft-tokens",
            "2",
        ];
        assert_eq!(&lines(&alone, "")[0], together);
        assert_eq!(together["prompt"], *prompt);
        assert!(together["tokens"].as_array().unwrap().len() <= 12);
    }
    let shown = stdout(
        &[&["generate", &model, "--prompts", "-"], &flags[..]].concat(),
        &prompts.join("\n"),
    );
    let whole = |answer: &Value| {
        let text = |key: &str| answer[key].as_str().unwrap().to_owned();
        format!("{}{}\n", text("prompt"), text("text"))
    };
    assert_eq!(shown, found.iter().map(whole).collect::<String>());
}

#[test]
fn stops_samples_beams_and_log_probabilities() {
    let model = model();
    let greedy = [
        "generate",
        &model,
        "--prompt",
        "The city",
        "--max-tokens",
        "10",
        "--json",
        "--ignore-eos",
        "--temperature",
    ];
    let at =
        |temperature: &str, more: &[&str]| lines(&[&greedy[..], &[temperature], more].concat(), "");
    let with = |more: &[&str]| at("0", more);
    let plain = with(&["--logprobs", "2"]).remove(0);
    let text = plain["text"].as_str().unwrap();
    assert_eq!(plain["finish_reason"], "length");
    let scored = plain["logprobs"].as_array().unwrap();
    assert_eq!(scored.len(), 10);
    for one in scored {
        assert_eq!(one["rank"], 1);
        assert_eq!(one["top"][0]["logprob"], one["logprob"], "the same number");
        assert!(one["logprob"].as_f64().unwrap() <= 0.0);
    }
    let third = text.char_indices().nth(3).unwrap().0;
    let stop: String = text[third..].chars().take(2).collect();
    let stopped = with(&["--stop", &stop]).remove(0);
    assert_eq!(stopped["text"], text[..text.find(&stop).unwrap()]);
    assert_eq!(stopped["finish_reason"], "stop");
    let sampled = at("1", &["--samples", "3"]);
    assert_eq!(sampled.len(), 3);
    assert!(sampled[0]["text"] != sampled[1]["text"] || sampled[1]["text"] != sampled[2]["text"]);
    // what samples has no meaning for beams, and is refused
    let too_long = run(
        &[
            &greedy[..3],
            &["b", "--max-tokens", "400", "--beam-width", "3"],
        ]
        .concat(),
        "",
    );
    let message = String::from_utf8_lossy(&too_long.stderr);
    assert!(
        message.contains("prompt 1: prompt: found ") && message.contains("at most 320 together"),
        "{message}"
    );
    let beams = lines(&[&greedy[..7], &["--beam-width", "3"]].concat(), "");
    assert_eq!(beams.len(), 3);
    let score = |beam: &Value| beam["score"].as_f64().unwrap();
    assert!(beams.is_sorted_by(|a, b| score(a) >= score(b)));
}

/// The model's own format is float32. Greedy answers have the same tokens in bfloat16, with log-probabilities that its rounding changes.
#[test]
fn products_have_the_number_format_that_is_asked_for() {
    let model = model();
    let answers = |verb: &[&str], dtype: &str| {
        let wanted = ["--max-tokens", "4", "--temperature", "0", "--json"];
        let args = [verb, &wanted, &["--logprobs", "1", "--dtype", dtype]].concat();
        lines(&args, "").remove(0)
    };
    let generate = ["generate", &model, "--prompt", "The city"];
    let auto = answers(&generate, "auto");
    assert_eq!(answers(&generate, "float32"), auto);
    assert_eq!(answers(&generate, "f32"), auto);
    let rounded = answers(&generate, "bfloat16");
    assert_eq!(answers(&generate, "bf16"), rounded);
    assert_eq!(rounded["tokens"], auto["tokens"]);
    let first = |answer: &Value| answer["logprobs"][0]["logprob"].as_f64().unwrap();
    let difference = (first(&rounded) - first(&auto)).abs();
    assert!(difference > 0.0 && difference < 1e-2, "{difference}");
    let wrong = run(&[&generate[..], &["--dtype", "float16"]].concat(), "");
    assert_eq!(wrong.status.code(), Some(2));
    let message = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        message.contains("auto, float32, bfloat16, int8"),
        "{message}"
    );
}

/// Activations are rounded where weights are in blocks, and a model without such weights is refused.
#[test]
fn activations_are_rounded_for_weights_in_blocks() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf").display().to_string();
    let args = ["quantize", &model, "--type", "q8_0", "--to", "gguf", &file];
    stdout(&args, "");
    let first = |dtype: &str| {
        let wanted = ["--max-tokens", "4", "--temperature", "0", "--json"];
        let args = ["generate", &file, "--prompt", "The city"];
        let args = [&args, &wanted[..], &["--logprobs", "1", "--dtype", dtype]].concat();
        let answer = lines(&args, "").remove(0);
        answer["logprobs"][0]["logprob"].as_f64().unwrap()
    };
    let difference = (first("int8") - first("float32")).abs();
    assert!(difference > 0.0 && difference < 0.05, "{difference}");
    let whole = [
        "generate", &model, "--prompt", "The city", "--dtype", "int8",
    ];
    let wrong = run(&whole, "");
    assert_eq!(wrong.status.code(), Some(2));
    let message = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        message.contains("--dtype int8: found no weights in whole numbers"),
        "{message}"
    );
}

#[test]
fn a_conversation_is_kept_and_wrong_flags_are_named() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("chat.jinja");
    std::fs::write(
        &template,
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
    )
    .unwrap();
    let template = template.display().to_string();
    let args = [
        "chat",
        &model,
        "--chat-template",
        &template,
        "--temperature",
        "0",
        "--max-tokens",
        "5",
    ];
    let one = stdout(&args, "Hi\n/exit\nnever read\n");
    assert!(one.ends_with('\n') && one.trim().len() > 1, "{one:?}");
    let reset = stdout(&args, "Hi\n/reset\nHi\n");
    assert_eq!(reset, one.repeat(2), "a forgotten conversation starts anew");
    let refused = |args: &[&str], wanted: &str| {
        let out = run(args, "");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && stderr.contains(wanted), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    };
    refused(&["chat", &model], "chat template");
    // what cannot be read is left out, and the conversation goes on as without it
    let long = "word ".repeat(4000);
    let out = run(
        &args,
        [b"Hi\n", long.as_bytes(), b"\n\xff\xfe\nAnd then?\n"].concat(),
    );
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    for wanted in [
        "tokens in the message and the instructions, want fewer than",
        "a message that is not UTF-8",
        "2 messages were left out",
    ] {
        assert!(stderr.contains(wanted), "{stderr}");
    }
    let found = String::from_utf8(out.stdout).unwrap();
    assert_eq!(found, stdout(&args, "Hi\nAnd then?\n"));
    let cut = run(
        &["generate", &model, "--prompt", &long, "--max-tokens", "1"],
        "",
    );
    let stderr = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert!(
        cut.status.success() && stderr.contains("the model sees the newest 320 of them"),
        "{stderr}"
    );
    refused(
        &["generate", &model, "--prompt", "a", "--temperature", "NaN"],
        "--temperature: found NaN",
    );
    refused(
        &["generate", &model, "--prompt", "a", "--top-p", "1.5"],
        "--top-p: found 1.5",
    );
    refused(
        &[
            "generate",
            &model,
            "--prompt",
            "a",
            "--stop-token",
            "4000000000",
        ],
        "--stop-token: found 4000000000",
    );
    refused(&["generate", &model, "--prompts", "/nowhere"], "/nowhere");
    refused(&["generate", "/nowhere", "--prompt", "a"], "/nowhere");
    let rows = folder.path().join("rows.jsonl");
    std::fs::write(&rows, "{\"prompt\": \"a\"}\n{\"text\": 1}\n").unwrap();
    refused(
        &["generate", &model, "--prompts", &rows.display().to_string()],
        "line 2",
    );
}

//! Evaluation tasks against lm-evaluation-harness 0.4.13 with its `hf` backend on the same model and rows: the same
//! requests byte for byte, log-likelihoods within 1e-4, every greedy flag and answer, the same metrics and standard
//! errors. The golden is `tests/oracles/lm_eval_tasks.py`'s.

use crate::jobs::{millrace, output, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lm_eval")
}

fn golden(file: &str) -> Value {
    let text = std::fs::read_to_string(data().join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Rows of a data set: those of a split.
fn rows(name: &str, split: &Value) -> Option<String> {
    let file = format!("rows/{name}.{}.jsonl", split.as_str()?);
    let path = data().join(file);
    path.exists().then(|| path.display().to_string())
}

struct Run {
    results: Value,
    records: Vec<Value>,
}

/// Evaluates the rows of a case with the `more` flags.
fn run(case: &Value, bootstrap: u64, more: &[&str]) -> Run {
    let name = case["rows"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl").display().to_string();
    let model = data().join("model").display().to_string();
    let questions = rows(name, &case["splits"][0]).unwrap();
    let (shots, bootstrap) = (case["shots"].to_string(), bootstrap.to_string());
    let mut args = vec![
        "eval", &model, "--task", name, "--data", &questions, "--json",
    ];
    args.extend([
        "--shots",
        &shots,
        "--bootstrap",
        &bootstrap,
        "--records",
        &records,
    ]);
    let examples = rows(name, &case["splits"][1]);
    if let Some(examples) = &examples {
        args.extend(["--shots-data", examples]);
    }
    args.extend(more);
    let out = succeed(&args);
    let lines = std::fs::read_to_string(&records).unwrap();
    Run {
        results: serde_json::from_slice(&out.stdout).unwrap(),
        records: lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    }
}

/// Requests of a record as the harness logs them.
fn requests(record: &Value) -> Vec<[&str; 2]> {
    let texts = |key: &str| -> Vec<&str> {
        let list = record[key].as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap()).collect()
    };
    let (prompts, continuations) = (texts("prompts"), texts("continuations"));
    let prompt = |i: usize| prompts[i.min(prompts.len() - 1)];
    let pairs = continuations.iter().enumerate();
    pairs.map(|(i, &text)| [prompt(i), text]).collect()
}

fn compare_document(record: &Value, wanted: &Value, at: &str) {
    if let Some(prompt) = wanted.get("prompt") {
        assert_eq!(record["prompts"][0], *prompt, "{at}");
        assert_eq!(record["response"], wanted["response"], "{at}");
        assert_eq!(record["found"], wanted["found"], "{at}");
        return;
    }
    let asked: Vec<[&str; 2]> = wanted["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| [pair[0].as_str().unwrap(), pair[1].as_str().unwrap()])
        .collect();
    assert_eq!(requests(record), asked, "{at}");
    let logs = |value: &Value| -> Vec<f64> {
        let list = value["log_likelihoods"].as_array().unwrap().iter();
        list.map(|log| log.as_f64().unwrap()).collect()
    };
    for (found, wanted) in logs(record).iter().zip(logs(wanted)) {
        assert!((found - wanted).abs() < 1e-4, "{at}: {found} {wanted}");
    }
    if let Some(flags) = wanted.get("is_greedy") {
        assert_eq!(record["is_greedy"], *flags, "{at}");
    }
}

/// Whether a metric is a count of right answers, so that it is the same number.
fn is_exact(metric: &str) -> bool {
    ["acc", "f1", "exact_match", "pct", "bias_score"]
        .iter()
        .any(|part| metric.contains(part))
}

fn compare_results(found: &Value, case: &Value, at: &str) {
    let task = case["task"].as_str().unwrap();
    let own = &found["results"][task];
    let mut metrics = 0;
    for (key, wanted) in case["results"].as_object().unwrap() {
        let at = format!("{at} {key}");
        match (key.contains(','), wanted.as_f64()) {
            (true, Some(wanted)) => {
                let value = own[key].as_f64().unwrap_or_else(|| panic!("{at}: {own}"));
                let most = if is_exact(key) {
                    1e-12
                } else {
                    1e-4 * wanted.abs().max(1.0)
                };
                assert!((value - wanted).abs() <= most, "{at}: {value} {wanted}");
                metrics += 1;
            }
            // "N/A", and no number
            (true, None) => assert_eq!(own[key], *wanted, "{at}"),
            (false, _) if key == "sample_len" || key == "alias" => {
                assert_eq!(own[key], *wanted, "{at}")
            }
            (false, _) => {}
        }
    }
    assert!(metrics > 0, "{at}");
    for key in ["n-samples", "n-shot", "higher_is_better"] {
        assert_eq!(found[key][task], case[key], "{at} {key}");
    }
    assert_eq!(
        found["versions"][task].as_f64(),
        case["version"].as_f64(),
        "{at}"
    );
}

/// Documents that were compared, and those with a greedy continuation.
struct Compared {
    documents: usize,
    greedy: usize,
}

/// Compares what the program makes of every case of a golden file, with the `more` flags.
fn compare(golden: &Value, more: &[&str]) -> Compared {
    let bootstrap = golden["bootstrap"].as_u64().unwrap();
    let mut compared = Compared {
        documents: 0,
        greedy: 0,
    };
    for case in golden["cases"].as_array().unwrap() {
        let (task, name) = (
            case["task"].as_str().unwrap(),
            case["rows"].as_str().unwrap(),
        );
        let at = format!("{task} with {} shots", case["shots"]);
        let run = run(case, bootstrap, more);
        compare_results(&run.results, case, &at);
        let wanted = case["documents"].as_array().unwrap();
        // the harness evaluates a part of the rows as a task of its own
        let is_of_part = |record: &&Value| {
            let row = usize::try_from(record["row"].as_u64().unwrap()).unwrap() - 1;
            let text = std::fs::read_to_string(rows(name, &case["splits"][0]).unwrap()).unwrap();
            let row: Value = serde_json::from_str(text.lines().nth(row).unwrap()).unwrap();
            let part = ["subject", "bias_type", "gender"].map(|key| row.get(key).cloned());
            let part = part.into_iter().flatten().next();
            let part = part.and_then(|part| part.as_str().map(str::to_owned));
            task == name
                || task == "winogender_all"
                || part.is_some_and(|part| task.ends_with(&part))
        };
        let own: Vec<&Value> = run.records.iter().filter(is_of_part).collect();
        assert_eq!(own.len(), wanted.len(), "{at}");
        for (number, (record, wanted)) in own.into_iter().zip(wanted).enumerate() {
            compare_document(record, wanted, &format!("{at}, document {number}"));
            compared.greedy += usize::from(record["is_greedy"].to_string().contains("true"));
            compared.documents += 1;
        }
    }
    compared
}

#[test]
fn tasks_give_the_harnesss_requests_scores_metrics_and_errors() {
    let golden = golden("golden.json");
    assert!(golden["cases"].as_array().unwrap().len() > 30);
    let Compared { documents, greedy } = compare(&golden, &[]);
    // the comparison of flags is worth something
    assert!(greedy > 10 && greedy < documents, "{greedy} of {documents}");
}

/// As LLaMA's tokenizers do; the harness takes the tokenizer's word for it.
#[test]
fn a_tokenizer_that_begins_texts_with_a_token_gives_the_harnesss_scores_too() {
    let tokenizer = data().join("bos/tokenizer.json").display().to_string();
    let with = ["--tokenizer", &*tokenizer];
    let golden = golden("golden_bos.json");
    assert!(compare(&golden, &with).documents > 50);
    // without that token scores are others
    let case = (golden["cases"].as_array().unwrap().iter()).find(|case| case["task"] == "boolq");
    let case = case.unwrap();
    let bare = run(
        case,
        0,
        &[&with[..], &["--add-bos-token", "false"]].concat(),
    );
    let log = |value: &Value| value["log_likelihoods"][0].as_f64().unwrap();
    assert!((log(&bare.records[0]) - log(&case["documents"][0])).abs() > 1e-3);
}

/// Writes a file in `folder`; returns its path.
fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn wrong_tasks_and_data_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| written(folder.path(), name, text);
    let model = data().join("model").display().to_string();
    let good = write("good.jsonl", "{\"text\": \"The boat follows the lamp\"}\n");
    let wrong = write("wrong.jsonl", "{\"text\": \"a b\"}\n{\"text\": 3}\n");
    let absent = write("absent.jsonl", "{\"words\": \"a b\"}\n");
    let own = "name = \"own\"\nshape = \"continuation\"\ndata = \"rows\"\ncolumns = { text = \"string\" }\nprompt = \"{{ text }}\"\nanswer = \" lamp\"\nmetrics = [\"acc\"]\n";
    let bad = write("bad.toml", &own.replace("\"acc\"", "\"f1\""));
    let unclosed = write("unclosed.toml", &own.replace("text }}", "text"));
    let named = |name: &str| {
        let file = format!("named_{name}.toml");
        write(&file, &own.replace("\"own\"", &format!("{name:?}")))
    };
    let misspelt = write("misspelt.toml", &own.replace("{{ text", "{{ texte"));
    let chosen = |choices: &str| {
        let text = format!(
            "name = \"own\"\nshape = \"multiple_choice\"\ndata = \"rows\"\nprompt = \"{{{{ text }}}}\"\n\
             choices = \"{choices}\"\ntarget = \"0\"\nmetrics = [\"acc\"]\n"
        );
        write(&format!("{choices}.toml"), &text)
    };
    let long = " lamp".repeat(2000);
    let choices = write(
        "choices.jsonl",
        &format!(
            "{}\n{}\n",
            json!({"text": "a", "choices": ["b", "c"]}),
            json!({"text": "a", "choices": ["b", long]})
        ),
    );
    let own = write("own.toml", own);
    let eval = |task: &str, data: &str| {
        let out = output(&["eval", &model, "--task", task, "--data", data]);
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    for (task, data, code, parts) in [
        (
            "hellaswagg",
            &good,
            2,
            &["no task \"hellaswagg\"", "did you mean \"hellaswag\"?"][..],
        ),
        (
            &bad,
            &good,
            2,
            &["metric \"f1\" does not go with shape \"continuation\""],
        ),
        (
            &named(""),
            &good,
            2,
            &["name: found \"\", want a name, under which results are listed"],
        ),
        (
            &named("hellaswag"),
            &good,
            2,
            &["name: found \"hellaswag\", want another name than a built-in task's"],
        ),
        (
            &named("labels"),
            &good,
            2,
            &["name: found \"labels\", want another name than a built-in task's"],
        ),
        (
            &misspelt,
            &good,
            1,
            &[
                "good.jsonl: row 1: prompt: undefined value (in prompt:1): found no texte among text",
            ],
        ),
        (
            &chosen("choises"),
            &choices,
            1,
            &[
                "choices.jsonl: row 1: choices: undefined value: found no choises among choices, text",
            ],
        ),
        (
            &chosen("choices"),
            &choices,
            1,
            &[
                "choices.jsonl: row 2: found an answer of ",
                " tokens, want 1 to ",
            ],
        ),
        (&unclosed, &good, 2, &["prompt"]),
        (
            &own,
            &wrong,
            1,
            &["row 2, column `text`", "a number", "a string"],
        ),
        (&own, &absent, 1, &["row 1, column `text`", "words"]),
        (
            "lambada_openai",
            &"nowhere.jsonl".to_owned(),
            1,
            &["nowhere.jsonl", "EleutherAI/lambada_openai"],
        ),
        ("gsm8k", &good, 1, &["row 1, column `answer`"]),
    ] {
        let (found, stderr) = eval(task, data);
        assert_eq!(found, Some(code), "{task}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{task}: {stderr}");
        }
    }
    for (task, parts) in [
        ("piqa", ["0 --data", "piqa (baber/piqa, validation)"]),
        ("association", ["1 --data", "rows of their own"]),
    ] {
        let mut args = vec!["eval", &model, "--task", task];
        if task == "association" {
            args.extend(["--data", &good]);
        }
        let out = output(&args);
        let stderr = String::from_utf8(out.stderr).unwrap();
        let is_told = parts.iter().all(|part| stderr.contains(part));
        assert!(!out.status.success() && is_told, "{stderr}");
    }
    let both = [
        "--task",
        "association",
        "--task",
        &own,
        "--data",
        &good,
        "--limit",
        "2",
    ];
    let table = succeed(&[&["eval", &model][..], &both].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("association_neutral") && table.contains("own"),
        "{table}"
    );
    let listed = succeed(&["eval", &model, "--task", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("gsm8k") && listed.contains("cais/mmlu"),
        "{listed}"
    );
    let table = succeed(&["eval", &model, "--task", &own, "--data", &good]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("own") && table.contains("acc"), "{table}");
}

#[test]
fn a_job_its_checkpoints_and_its_export_are_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let job = crate::jobs::write_small_job(dir.path())
        .display()
        .to_string();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let questions = rows("arc_easy", &json!("test")).unwrap();
    // tasks beside the training: at steps 6 and 12; a file that is not there is told before anything runs
    let during = |file: &str| {
        format!(
            "train.eval_tasks={{every = 6, tasks = [\"arc_easy\"], data = [{file:?}], limit = 5}}"
        )
    };
    let refused = output(&["run", &job, "--set", &during("absent.jsonl")]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("train.eval_tasks") && stderr.contains("absent.jsonl"),
        "{stderr}"
    );
    assert!(!dir.path().join("out/tokens").exists(), "nothing has run");
    succeed(&["run", &job, "--set", &during(&questions)]);
    let results = |text: &[u8]| -> Value {
        let all: Value = serde_json::from_slice(text).unwrap();
        all["results"].clone()
    };
    let of_step =
        |step: u64| std::fs::read(path(&format!("out/tasks/step-{step:08}.json"))).unwrap();
    assert_eq!(std::fs::read_dir(path("out/tasks")).unwrap().count(), 2);
    let args = [
        "--task", "arc_easy", "--data", &questions, "--limit", "5", "--json",
    ];
    let newest = succeed(&[&["eval", &job], &args[..]].concat()).stdout;
    let on_ranks = ["--tensor-parallel-size", "2"];
    let ranks = succeed(&[&["eval", &job], &args[..], &on_ranks].concat()).stdout;
    assert_eq!(results(&newest), results(&of_step(12)));
    assert_eq!(results(&newest), results(&ranks));
    assert!(results(&of_step(6))["arc_easy"]["acc,none"].is_number());
    let report = std::fs::read_to_string(path("out/report.html")).unwrap();
    assert!(report.contains("<h2>Evaluation tasks</h2>") && report.contains("Accuracy by step"));
    let last = path("out/checkpoints/step-00000012");
    succeed(&["convert", "--checkpoint", &last, &path("hf")]);
    let tokenizer = path("out/tokens/tokenizer.json");
    let rows = path("rows.jsonl");
    let text = "{\"query\": \"The city\", \"choices\": [\"of the state\", \"and\"], \"gold\": 0}\n";
    std::fs::write(&rows, text).unwrap();
    let records = path("records.jsonl");
    let scores = |model: &str, more: &[&str]| -> Vec<f64> {
        let args = ["eval", model, "--task", "choices", "--data", &rows];
        let tail = ["--records", &records];
        // one that exists is refused
        let _ = std::fs::remove_file(&records);
        succeed(&[&args[..], &tail, more].concat());
        let record = std::fs::read_to_string(&records).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        let list = record["log_likelihoods"].as_array().unwrap().iter();
        list.map(|log| log.as_f64().unwrap()).collect()
    };
    let wanted = scores(&job, &[]);
    assert_eq!(scores(&path("out/checkpoints"), &[]), wanted);
    assert_eq!(scores(&last, &["--tokenizer", &tokenizer]), wanted);
    // the exported folder has the tokenizer of the job
    for (found, wanted) in scores(&path("hf"), &[]).iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
    }
    std::fs::remove_file(path("hf/tokenizer.json")).unwrap();
    assert_eq!(
        scores(&path("hf"), &["--tokenizer", &tokenizer]).len(),
        wanted.len()
    );
    let out = output(&["eval", &path("hf"), "--task", "choices", "--data", &rows]);
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(
        !out.status.success() && stderr.contains("--tokenizer"),
        "{stderr}"
    );
}

#[test]
fn a_training_killed_in_an_evaluation_makes_it_when_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let job = crate::jobs::write_small_job(dir.path())
        .display()
        .to_string();
    let texts = rows("lambada_openai", &json!("test")).unwrap();
    let tasks =
        format!("train.eval_tasks={{every = 6, tasks = [\"lambada_openai\"], data = [{texts:?}]}}");
    let sets = ["--set", &tasks, "--set", "train.checkpoint.keep=8"];
    let train = |out: &Path| -> Vec<String> {
        let out = format!("out={out:?}");
        let args = [&["train", &job][..], &sets, &["--set", &out]].concat();
        args.iter().map(|&arg| arg.to_owned()).collect()
    };
    let succeed = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        String::from_utf8(succeed(&args).stderr).unwrap()
    };
    let results = |out: &Path| {
        [6, 12].map(|step| {
            let file = out.join(format!("tasks/step-{step:08}.json"));
            let text = std::fs::read_to_string(file).unwrap();
            let all: Value = serde_json::from_str(&text).unwrap();
            all["results"].clone()
        })
    };
    let (out, killed) = (dir.path().join("out"), dir.path().join("killed"));
    for verb in ["curate", "dedup", "tokenize"] {
        crate::jobs::succeed(&[verb, &job]);
    }
    let copied = Command::new("cp").arg("-r").args([&out, &killed]).status();
    assert!(copied.unwrap().success());
    succeed(&train(&out));
    let wanted = results(&out);
    assert_ne!(wanted[0], wanted[1]);

    for step in [6, 12] {
        let checkpoint = killed.join(format!("checkpoints/step-{step:08}"));
        let args = train(&killed);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child = millrace(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !checkpoint.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    succeed(&train(&killed));
    assert_eq!(results(&killed), wanted);

    // as if killed after step 9, with the evaluation of step 6 under way
    let lose = |checkpoint: &str| {
        std::fs::remove_dir_all(out.join("tasks")).unwrap();
        std::fs::remove_dir_all(out.join("checkpoints").join(checkpoint)).unwrap();
    };
    lose("step-00000012");
    let said = succeed(&train(&out));
    assert!(said.contains("resuming after step 9"), "{said}");
    assert_eq!(results(&out), wanted);

    lose("step-00000006");
    std::fs::remove_dir_all(out.join("checkpoints/step-00000012")).unwrap();
    let said = succeed(&train(&out));
    assert!(said.contains("no task results of steps 6: "), "{said}");
    assert!(!out.join("tasks/step-00000006.json").exists());
    assert!(out.join("tasks/step-00000012.json").exists());
}

#[test]
fn tasks_of_one_name_and_examples_that_no_task_takes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| written(folder.path(), name, text);
    let model = data().join("model").display().to_string();
    let text = "name = \"own\"\nshape = \"continuation\"\ndata = \"rows\"\nprompt = \"{{ text }}\"\nanswer = \" lamp\"\nmetrics = [\"acc\"]\n";
    let [a, b] = ["a.toml", "b.toml"].map(|name| write(name, text));
    let row = "{\"text\": \"The boat\"}\n";
    let rows = write("rows.jsonl", &row.repeat(3));
    let eval = |args: &[&str]| {
        let out = output(&[&["eval", &model], args].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let twice = |first: &str, second: &str, name: &str| {
        let args = [
            "--task", first, "--data", &rows, "--task", second, "--data", &rows,
        ];
        let (code, stderr) = eval(&args);
        let wanted = format!(
            "error: tasks {first} and {second}: found the name {name:?} twice, want a name for each, under which its results are\n"
        );
        assert_eq!((code, stderr), (Some(2), wanted));
    };
    twice(&a, &a, "own");
    twice(&a, &b, "own");
    twice("piqa", "piqa", "piqa");
    let of_a = ["--task", &a, "--data", &rows];
    let (code, stderr) = eval(&[&of_a[..], &["--shots-data", &rows]].concat());
    assert_eq!(code, Some(2), "{stderr}");
    let wanted = format!("want --shots K beside --shots-data: {a} takes no examples by itself");
    assert!(stderr.contains(&wanted), "{stderr}");
    let (code, stderr) = eval(&[&of_a[..], &["--shots", "3"]].concat());
    assert_eq!(code, Some(1), "{stderr}");
    let wanted = "rows.jsonl: row 1, column `examples`: found 3 rows for 3 examples, want at least 4: one more is drawn, as the question may be among them";
    assert!(stderr.contains(wanted), "{stderr}");
}

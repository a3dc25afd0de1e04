//! Tests of `[[finetune.adapters]]`: adapters that are trained together have the files and bits of a training alone, in other layouts and
//! after kills; they become PEFT folders and answer by name; jobs that contradict themselves are named.

use serde_json::Value;
use std::path::{Path, PathBuf};

use crate::finetune_jobs::{PAIRS, found_steps, job, losses};
use crate::jobs::{killed_at, metrics, output, succeed};
use crate::run_plan::planned;

/// Rows that answer with the words of another pair, by `shift`.
fn rows(path: &Path, shift: usize) {
    let line = |row: usize| {
        let (asked, answer) = (PAIRS[row % 6][0], PAIRS[(row + shift) % 6][1]);
        serde_json::json!({"instruction": asked, "output": answer}).to_string()
    };
    let lines: Vec<String> = (0..120).map(line).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

/// A job of two adapters with different data, ranks, seeds and epochs.
fn adapters(folder: &Path) -> PathBuf {
    let path = job(folder);
    let (one, two) = (folder.join("one.jsonl"), folder.join("two.jsonl"));
    rows(&one, 1);
    rows(&two, 2);
    let text = std::fs::read_to_string(&path).unwrap();
    let valid = text.lines().find(|line| line.starts_with("valid")).unwrap();
    let train = text
        .lines()
        .find(|line| line.starts_with("train ="))
        .unwrap();
    let text = text.replace(train, "method = 'lora'\nlora = { rank = 16, alpha = 32.0 }");
    let more = format!(
        "[[finetune.adapters]]\nname = 'one'\ntrain = [{one:?}]\nvalid = [{one:?}]\n\
         [[finetune.adapters]]\nname = 'two'\ntrain = [{two:?}]\nseed = 7\nepochs = 5\nlora = {{ rank = 8, alpha = 16.0 }}\n\
         [train]\n"
    );
    let text = text
        .replace("[train]\n", &more)
        .replace("epochs = 12", "epochs = 8");
    assert!(
        text.contains(valid),
        "the validation of adapters without their own"
    );
    let path = folder.join("adapters.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn weights(out: &Path) -> Vec<u8> {
    let steps = found_steps(&metrics(out));
    std::fs::read(out.join(format!("checkpoints/step-{steps:08}/model.safetensors"))).unwrap()
}

fn assert_same(found: &Path, wanted: &Path, what: &str) {
    for name in ["one", "two"] {
        let (found, wanted) = (found.join(name), wanted.join(name));
        assert_eq!(metrics(&found), metrics(&wanted), "{name}: {what}");
        assert!(weights(&found) == weights(&wanted), "{name}: {what}");
    }
}

#[test]
fn adapters_of_one_job_are_as_if_each_was_trained_alone_and_answer_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = adapters(dir.path());
    let path = path.to_str().unwrap();
    let all = ["generate", "report", "train one", "train two"];
    assert_eq!(planned(path), all);
    let log = String::from_utf8(succeed(&["finetune", path]).stderr).unwrap();
    assert!(log.contains("train: 2 adapters of "), "{log}");
    assert_eq!(planned(path), ["report"]);
    let out = dir.path().join("tuned/adapters");
    // validated on what it learns, after each epoch; the other one on what the base has not seen either
    let found = losses(&metrics(&out.join("one")));
    assert!(found.len() == 8 && found[7] < found[0], "{found:?}");
    assert_eq!(losses(&metrics(&out.join("two"))).len(), 5);
    // each by its own job, alone
    let alone = dir.path().join("alone");
    for name in ["one", "two"] {
        let (own, folder) = (out.join(name).join("job.toml"), alone.join(name));
        let set = format!("out={folder:?}");
        succeed(&["train", own.to_str().unwrap(), "--set", &set]);
    }
    assert_same(&out, &alone, "alone");

    let other = dir.path().join("other");
    let set = format!("out={other:?}");
    let layout = [
        "--set",
        "parallel.dp=2",
        "--set",
        "parallel.pp=2",
        "--set",
        "parallel.zero=3",
        "--set",
        "train.micro_batch=1",
    ];
    succeed(&[&["train", path, "--set", &set][..], &layout].concat());
    assert_same(&other.join("adapters"), &out, "dp 2, pp 2, ZeRO 3");

    let killed = dir.path().join("killed");
    let set = format!("out={killed:?}");
    let of = ["train", path, "--set", &set];
    let args = [&of[..], &layout].concat();
    for lines in [8, 20] {
        killed_at(&args, &killed.join("adapters/one"), lines);
    }
    succeed(&args);
    assert_same(&killed.join("adapters"), &out, "after two kills");
    let again = String::from_utf8(succeed(&args).stderr).unwrap();
    assert!(again.contains("train two: done before"), "{again}");

    let report = std::fs::read_to_string(dir.path().join("tuned/report.html")).unwrap();
    for text in [
        "Adapters",
        "adapters/one/report.html",
        "adapters/two/report.html",
    ] {
        assert!(report.contains(text), "{text}");
    }
    let text = std::fs::read_to_string(out.join("two/generated.json")).unwrap();
    let generated: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(generated["samples"].as_array().unwrap().len(), 4);

    // all of them as PEFT's folders, with the bytes of one by one
    let (all, one) = (dir.path().join("peft"), dir.path().join("peft_one"));
    let convert = |from: &Path, to: &Path| {
        let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
        succeed(&["convert", "--checkpoint", from, "--to", "peft", to]);
    };
    convert(&out, &all);
    convert(&out.join("one/checkpoints"), &one);
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
        assert!(read(&all.join("one")) == read(&one), "{file}");
        assert!(read(&all.join("two")) != read(&one), "{file}");
    }
    let said = output(&["generate", path, "--prompt", "old"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.contains("found several adapters, want the job of one"),
        "{said}"
    );
}

#[test]
fn contradictions_of_adapters_are_named_with_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    let text = "name = 'wrong'\nout = 'out'\n[finetune]\nmethod = 'lora'\n\
        [[finetune.adapters]]\nname = 'a'\ntrain = ['x.jsonl']\n\
        [[finetune.adapters]]\nname = 'A'\ntrain = ['x.jsonl']\nlora = { rank = 0 }\n\
        [[finetune.adapters]]\nname = '../b'\nepochs = 0\nrang = 3\nlora = { targets = ['qkv'] }\n\
        [model]\nfamily = 'llama'\nlayers = 2\nd_model = 32\nheads = 4\n\
        [train]\nsteps = 2\ninit_from = 'x'\n";
    std::fs::write(&path, text).unwrap();
    let printed = output(&["train", path.to_str().unwrap(), "--check"]);
    assert_eq!(printed.status.code(), Some(2));
    let stderr = String::from_utf8(printed.stderr).unwrap();
    for (key, found) in [
        ("finetune.adapters[1].name", "\"A\""),
        ("finetune.adapters[1].lora.rank", "0"),
        ("finetune.adapters[2].name", "\"../b\""),
        ("finetune.adapters[2].train", "[]"),
        ("finetune.adapters[2].epochs", "0"),
        ("finetune.adapters[2].rang", "unknown key \"rang\""),
        ("finetune.adapters[2].lora.targets", "[\"qkv\"]"),
    ] {
        let told = format!("key    {key}\n  found  {found}");
        assert!(stderr.contains(&told), "{told} in {stderr}");
    }
}

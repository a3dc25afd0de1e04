//! Tests of the checkpoint that the verbs choose, and of the settings that may change between two runs of one
//! training.

use crate::jobs::{output, succeed, write_small_job};
use std::path::Path;

/// Runs the small job to its end; returns the job file and `out`.
fn trained(dir: &Path) -> (String, std::path::PathBuf) {
    let job = write_small_job(dir).display().to_string();
    succeed(&["run", &job]);
    (job, dir.join("out"))
}

fn stderr_of(args: &[&str]) -> String {
    String::from_utf8(succeed(args).stderr).unwrap()
}

#[test]
fn eval_and_generate_pass_over_a_damaged_checkpoint_as_training_does() {
    let dir = tempfile::tempdir().unwrap();
    let (job, out) = trained(dir.path());
    let last = out.join("checkpoints/step-00000012");
    let path = last.join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let wanted = "checkpoint of step 12 is not used: ";
    let evaluated = stderr_of(&["eval", &job]);
    assert!(
        evaluated.contains(&format!("eval: {wanted}")),
        "{evaluated}"
    );
    let loss = |out: &Path| -> f64 {
        let text = std::fs::read_to_string(out.join("eval.json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["valid_loss"].as_f64().unwrap()
    };
    let of_step_9 = loss(&out);
    let generated = stderr_of(&["generate", &job, "--prompt", "The"]);
    assert!(generated.contains(wanted), "{generated}");
    // so does `status`
    let status = |args: &[&str]| {
        String::from_utf8(succeed(&[&["status", job.as_str()], args].concat()).stdout).unwrap()
    };
    let named = "newest verified checkpoint: step 9, ";
    assert!(
        status(&[]).contains(named) && status(&[]).contains(wanted),
        "{}",
        status(&[])
    );
    let printed: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    let printed = &printed["checkpoint"];
    assert_eq!(printed["step"], 9, "{printed}");
    let named = printed["path"].as_str().unwrap();
    assert!(
        named.ends_with("out/checkpoints/step-00000009"),
        "{printed}"
    );
    let damaged = printed["damaged"][0].as_str().unwrap();
    assert!(damaged.starts_with(wanted), "{printed}");
    // the same answer as without that folder, a different one than with it intact
    std::fs::rename(&last, dir.path().join("aside")).unwrap();
    stderr_of(&["eval", &job]);
    assert_eq!(loss(&out), of_step_9);
    std::fs::rename(dir.path().join("aside"), &last).unwrap();
    std::fs::write(path, whole).unwrap();
    stderr_of(&["eval", &job]);
    assert_ne!(loss(&out), of_step_9);
    assert!(status(&[]).contains("newest verified checkpoint: step 12, "));
    // none is intact: an error with every reason, not weights initialised from the seed
    for step in ["step-00000009", "step-00000012"] {
        std::fs::write(out.join("checkpoints").join(step).join("state.json"), "{}").unwrap();
    }
    let printed: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert!(printed["checkpoint"]["step"].is_null(), "{printed}");
    assert!(status(&[]).contains("no checkpoint in "), "{}", status(&[]));
    let refused = output(&["eval", &job]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("no checkpoint in "), "{text}");
}

#[test]
fn the_path_that_convert_prints_starts_a_training() {
    let dir = tempfile::tempdir().unwrap();
    let (job, out) = trained(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let last = out.join("checkpoints/step-00000012").display().to_string();
    succeed(&["convert", "--checkpoint", &last, &path("hf")]);
    let hf = path("hf");
    let back = path("back");
    let mut sources = vec![back.clone(), out.join("checkpoints").display().to_string()];
    for (from, to) in [(&hf, &back), (&last, &path("weights"))] {
        let said = stderr_of(&["convert", "--checkpoint", from, "--to", "millrace", to]);
        let printed = said.lines().find_map(|line| line.strip_prefix("wrote "));
        sources.push(printed.unwrap_or_else(|| panic!("{said}")).to_owned());
    }
    let mut models = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let out = path(&format!("out{number}"));
        let sets = [
            format!("train.init_from={source:?}"),
            format!("out={out:?}"),
            "train.steps=3".into(),
            "train.warmup_steps=1".into(),
        ];
        let mut args = vec!["run", job.as_str()];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let said = stderr_of(&args);
        assert!(
            said.contains("train: starts from the weights of "),
            "{said}"
        );
        let model = Path::new(&out).join("checkpoints/step-00000003/model.safetensors");
        models.push(std::fs::read(model).unwrap());
    }
    assert!(models.iter().all(|model| *model == models[0]));
}

#[test]
fn a_longer_run_with_another_rate_goes_on_if_the_job_allows_it_and_says_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (job, out) = trained(dir.path());
    let changes = ["train.lr=0.005", "train.steps=14"];
    let mut args = vec!["run", job.as_str()];
    changes.iter().for_each(|set| args.extend(["--set", set]));
    let refused = String::from_utf8(output(&args).stderr).unwrap();
    for text in [
        "train.lr: 0.01 there, 0.005 here (train.resume.allow = [\"lr\"] allows it)",
        "train.steps: 12 there, 14 here (train.resume.allow = [\"steps\"] allows it)",
    ] {
        assert!(refused.contains(text), "{refused}");
    }
    // the existing files are untouched: the earlier job is still done
    assert!(stderr_of(&["run", &job]).contains("train: done before"));
    args.extend(["--set", "train.resume.allow=[\"lr\", \"steps\"]"]);
    let said = stderr_of(&args);
    for text in [
        "train: resuming after step 12",
        "train: train.lr was 0.01 so far, from here on 0.005",
        "train: train.steps was 12 so far, from here on 14",
    ] {
        assert!(said.contains(text), "{said}");
    }
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let changes = &manifest["train"]["counts"]["changes"];
    assert_eq!(changes[0]["key"], "train.steps", "{manifest}");
    assert_eq!(changes[1]["key"], "train.lr");
    assert!(read("metrics.jsonl").contains("{\"step\":13,\"changed\":["));
}

#[test]
fn samples_that_do_not_fit_in_memory_are_refused_before_they_are_made_and_epochs_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let args = ["run", job.as_str(), "--set", "train.steps=1000000000000"];
    let refused = output(&args);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the order of the samples takes ") && text.contains(" of memory here"),
        "{text}"
    );
    let said = stderr_of(&[
        "run",
        &job,
        "--set",
        "train.steps=20000",
        "--set",
        "train.time_budget=\"2s\"",
    ]);
    assert!(
        said.contains("train: more than one epoch of the data: "),
        "{said}"
    );
}

#[test]
fn the_tokenizer_of_checkpoints_is_never_replaced_and_another_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (job, out) = trained(dir.path());
    let checkpoints = out.join("checkpoints");
    let checkpoints = checkpoints.to_str().unwrap();
    let text = |args: &[&str]| String::from_utf8(succeed(args).stdout).unwrap();
    let asked = [
        "generate",
        checkpoints,
        "--prompt",
        "The",
        "--temperature",
        "0",
        "--max-tokens",
        "8",
    ];
    let before = text(&asked);
    let kept = std::fs::read(out.join("tokens/tokenizer.json")).unwrap();
    let failed = output(&["run", &job, "--set", "tokenize.tokenizer.train.vocab=300"]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(2), "{said}");
    for part in [
        "found checkpoints of a training with the tokenizer",
        "name the copy in tokenize.tokenizer.file",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(kept == std::fs::read(out.join("tokens/tokenizer.json")).unwrap());
    assert_eq!(text(&asked), before);
    // with the copy that the message asks for, the same job goes on
    let copy = dir.path().join("kept.json");
    std::fs::write(&copy, &kept).unwrap();
    let job_text = std::fs::read_to_string(&job).unwrap();
    let trained = "tokenizer = { train = { kind = \"bpe\", vocab = 512 } }";
    assert!(job_text.contains(trained));
    let named = job_text.replace(trained, &format!("tokenizer = {{ file = {copy:?} }}"));
    std::fs::write(&job, named).unwrap();
    succeed(&["run", &job]);
    assert_eq!(text(&asked), before);
    // a folder whose tokenizer was made after its training
    let manifest = out.join("manifest.json");
    let records = std::fs::read_to_string(&manifest).unwrap();
    let mut records: serde_json::Value = serde_json::from_str(&records).unwrap();
    records["tokenize/tokenizer"]["counts"]["xxh3"] = "0123".into();
    std::fs::write(&manifest, records.to_string()).unwrap();
    for path in [
        checkpoints,
        &format!("{checkpoints}/step-00000012"),
        out.to_str().unwrap(),
        &job,
    ] {
        let refused = output(&["generate", path, "--prompt", "The"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{path}: {said}");
        assert!(
            said.contains("found the tokenizer 0123") && said.contains("--tokenizer FILE"),
            "{path}: {said}"
        );
    }
    let copy = copy.to_str().unwrap();
    let given = [&asked[..], &["--tokenizer", copy]].concat();
    assert_eq!(text(&given), before);
}

#[test]
fn a_folder_is_a_model_for_every_verb_and_what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_, out) = trained(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (folder, checkpoints) = (path("out"), path("out/checkpoints"));
    let generated = |path: &str| {
        let asked = ["generate", path, "--prompt", "The", "--temperature", "0"];
        String::from_utf8(succeed(&asked).stdout).unwrap()
    };
    assert_eq!(generated(&folder), generated(&checkpoints));
    for (from, to) in [(&folder, "a"), (&checkpoints, "b")] {
        let args = ["convert", "--checkpoint", from, "--to", "millrace"];
        succeed(&[&args[..], &[&path(to)]].concat());
    }
    let weights = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let last = weights("out/checkpoints/step-00000012/model.safetensors");
    assert!(weights("a/model.safetensors") == last && weights("b/model.safetensors") == last);
    let refused = |from: &str, more: &[&str], wanted: &str| {
        let args = ["convert", "--checkpoint", from];
        let failed = output(&[&args, more, &[&path("c")]].concat());
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(!failed.status.success() && said.contains(wanted), "{said}");
    };
    refused(&checkpoints, &["--averages"], "found no running averages");
    refused(&path("nope"), &[], "nope: there is no such file or folder");
    // described by `inspect` in every form
    let hf = path("hf");
    succeed(&["convert", "--checkpoint", &folder, &hf]);
    let gguf = path("model.gguf");
    succeed(&["quantize", &hf, "--type", "q8_0", &gguf]);
    let about = |path: &str| -> serde_json::Value {
        serde_json::from_slice(&succeed(&["inspect", "--json", path]).stdout).unwrap()
    };
    assert_eq!(about(&checkpoints)["step"], 12);
    for (path, kind) in [(&hf, "Hugging Face model"), (&gguf, "GGUF model")] {
        let found = about(path);
        assert_eq!(found["kind"], kind);
        assert_eq!(
            found["model"]["d_model"],
            about(&checkpoints)["plan"]["model"]["d_model"]
        );
    }
    let tensors = about(&format!("{hf}/model.safetensors"));
    let shapes = tensors["tensors"].as_array().unwrap();
    assert!(
        shapes
            .iter()
            .any(|of| of["name"] == "model.norm.weight" && of["dtype"] == "F32")
    );
    let binary = dir.path().join("binary.dat");
    std::fs::write(&binary, [b"abc\0def".as_slice(), &[0; 60]].concat()).unwrap();
    let failed = output(&["inspect", binary.to_str().unwrap()]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(
        !failed.status.success() && said.contains("found binary data"),
        "{said}"
    );
    // a job's folder tells its state wherever its inputs are
    std::fs::rename(
        dir.path().join("pile.jsonl"),
        dir.path().join("moved.jsonl"),
    )
    .unwrap();
    let shown = succeed(&["status", out.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("newest verified checkpoint: step 12"),
        "{shown}"
    );
}

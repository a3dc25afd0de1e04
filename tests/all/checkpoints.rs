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

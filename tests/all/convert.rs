//! Checkpoints made into other things and back, and what a job keeps beside the last weights.

use crate::jobs::{metrics, succeed, write_small_job};

#[test]
fn averages_become_a_checkpoint_a_hugging_face_model_and_the_same_weights_again() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path());
    let mut text = std::fs::read_to_string(&job).unwrap();
    text.push_str("\n[[blend.validation]]\nname = \"pile\"\n");
    std::fs::write(&job, text).unwrap();
    let job = job.display().to_string();
    let sets = ["train.ema_decay=0.9", "eval.use_ema=true"];
    succeed(&["run", &job, "--set", sets[0], "--set", sets[1]]);
    let lines = metrics(&dir.path().join("out"));
    let of_set = |name| lines.iter().filter(move |line| line["set"] == name).count();
    assert_eq!(of_set("pile"), 3, "after steps 4, 8 and 12");
    let own = lines.iter().filter(|line| line.get("valid_loss").is_some());
    assert_eq!(own.count(), 6, "the blend's own set as well");

    let path = |name: &str| dir.path().join(name).display().to_string();
    let last = path("out/checkpoints/step-00000012");
    let averages = path("averages");
    let to = ["--averages", "--to", "millrace"];
    succeed(&[
        "convert",
        "--checkpoint",
        &last,
        to[0],
        to[1],
        to[2],
        &averages,
    ]);
    succeed(&["convert", "--checkpoint", &averages, &path("hf")]);
    let (hf, back) = (path("hf"), path("back"));
    succeed(&["convert", "--checkpoint", &hf, "--to", "millrace", &back]);
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let weights = read("averages/model.safetensors");
    assert!(weights == read("back/step-00000000/model.safetensors"));
    assert!(weights == read("out/checkpoints/step-00000012/ema.safetensors"));
    assert!(weights != read("out/checkpoints/step-00000012/model.safetensors"));
}

//! Tests of masked-language-model jobs: from texts to sentences, samples, a trained BERT or T5 and its loss.

use crate::jobs::{metrics, output, succeed};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Two files of small texts with a few words, a wordpiece tokenizer and a very small BERT.
fn job(folder: &Path) -> PathBuf {
    const WORDS: [&str; 8] = [
        "river", "stone", "light", "old", "walks", "under", "the", "seven",
    ];
    for (name, seed) in [("a", 3usize), ("b", 5)] {
        let mut lines = String::new();
        for document in 0..60 {
            let word = |at: usize| WORDS[(at * seed + document * document + at * at) % WORDS.len()];
            let sentence = |s: usize| {
                let words: Vec<&str> = (0..7).map(|at| word(at + 7 * s)).collect();
                format!("The {}.", words.join(" "))
            };
            let text: Vec<String> = (0..4).map(sentence).collect();
            writeln!(lines, "{{\"text\": {:?}}}", text.join(" ")).unwrap();
        }
        std::fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
    }
    let input = |name: &str| {
        let path = folder.join(format!("{name}.jsonl"));
        format!("{{ path = {path:?}, format = 'jsonl', source = '{name}' }}")
    };
    let text = format!(
        "name = 'm'\nout = {:?}\n[tokenize]\nsentences = {{}}\nappend_eod = false\n\
         tokenizer = {{ train = {{ kind = 'wordpiece', vocab = 120, lowercase = true }} }}\ninputs = [{}, {}]\n\
         [blend]\nsamples = 'bert'\nseq_length = 24\nsplit = '80,20,0'\n\
         [[blend.dataset]]\nname = 'a'\nweight = 3.0\n[[blend.dataset]]\nname = 'b'\n\
         [model]\nfamily = 'bert'\nlayers = 2\nd_model = 16\nheads = 2\n\
         [train]\nsteps = 4\nglobal_batch = 4\nmicro_batch = 2\nwarmup_steps = 1\neval_every = 2\neval_samples = 6\n\
         [eval]\nsamples = 6\n",
        folder.join("out"),
        input("a"),
        input("b"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Architectures of llama.cpp that are not written are refused by name before anything is measured.
fn refused_as_gguf(folder: &Path, family: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    let (model, tokenizer) = (path("out/checkpoints"), path("out/tokens/tokenizer.json"));
    let args = [
        "quantize",
        &model,
        "--type",
        "q8_0",
        "--tokenizer",
        &tokenizer,
    ];
    let (texts, file) = (path("a.jsonl"), path("model.gguf"));
    let found = output(&[&args[..], &["--evaluate", &texts, &file]].concat());
    let said = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(1), "{said}");
    let wanted = format!(
        "family = {family}, want one of the architectures of llama.cpp that are written (gpt2, llama, "
    );
    assert!(said.contains(&wanted), "{said}");
    assert!(!Path::new(&file).exists());
}

#[test]
fn a_bert_is_trained_from_texts_with_the_same_losses_on_other_layouts() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let path = path.to_str().unwrap();
    succeed(&["run", path]);
    let want = metrics(&dir.path().join("out"));
    assert_eq!(want.len(), 6, "4 steps, 2 validations");
    let eval = std::fs::read(dir.path().join("out/eval.json")).unwrap();
    let eval: Value = serde_json::from_slice(&eval).unwrap();
    assert!(eval["valid_loss"].as_f64().unwrap() > 0.0);
    assert!(eval["unigram_entropy"].as_f64().unwrap() < (120f64).ln());
    refused_as_gguf(dir.path(), "Bert");
    let other = dir.path().join("other");
    let out = format!("out={other:?}");
    let sets = [
        "--set",
        &out,
        "--set",
        "parallel.dp=2",
        "--set",
        "parallel.pp=2",
    ];
    succeed(&[["run", path].as_slice(), &sets].concat());
    assert_eq!(metrics(&other), want, "dp 2, pp 2");
    let dump = succeed(&["blend", path, "--dump", "2", "--json"]).stdout;
    let dump: Value = serde_json::from_slice(&dump).unwrap();
    let first = &dump["splits"]["train"]["samples"][0];
    for list in ["text", "types", "labels", "loss_mask", "padding_mask"] {
        assert_eq!(first[list].as_array().unwrap().len(), 24, "{list}");
    }
    let datasets = dump["parts"][0]["datasets"].as_array().unwrap();
    assert_eq!(datasets[0]["samples"], 12, "three of four samples are a's");
    // an epoch is one or two samples of each of the 48 documents, and the sample index has whole ones
    let epochs = |of: &Value| of["epochs"].as_f64().unwrap();
    assert!((0.12..=0.25).contains(&epochs(&datasets[0])), "{dump}");
    let more = ["blend", path, "--json", "--set", "train.steps=2000"];
    let dump: Value = serde_json::from_slice(&succeed(&more).stdout).unwrap();
    let many = &dump["parts"][0]["datasets"][0];
    assert_eq!(many["samples"], 6000);
    assert!(
        (6000.0 / 96.0..=6000.0 / 48.0).contains(&epochs(many)),
        "{dump}"
    );
    let text = String::from_utf8(succeed(&["blend", path]).stdout).unwrap();
    assert!(
        text.contains(" epochs)") && !text.contains("0.00 epochs"),
        "{text}"
    );
}

#[test]
fn a_t5_is_trained_from_texts_with_the_same_losses_on_other_layouts_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let sentinels: Vec<String> = (0..8).map(|n| format!("'<extra_id_{n}>'")).collect();
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text
        .replace("'bert'", "'t5'")
        .replace(
            "lowercase = true",
            &format!(
                "lowercase = true, special = ['</s>', {}]",
                sentinels.join(", ")
            ),
        )
        .replace("seq_length = 24", "seq_length = 24\ndecoder_length = 16")
        + "[generate]\nprompts = ['the river <extra_id_0> light .']\nmax_tokens = 5\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    succeed(&["run", path]);
    let want = metrics(&dir.path().join("out"));
    assert_eq!(want.len(), 6, "4 steps, 2 validations");
    let printed = std::fs::read(dir.path().join("out/generated.json")).unwrap();
    let printed: Value = serde_json::from_slice(&printed).unwrap();
    assert!(!printed["samples"][0]["text"].as_str().unwrap().is_empty());
    refused_as_gguf(dir.path(), "T5");
    let other = dir.path().join("other");
    let out = format!("out={other:?}");
    let sets = ["parallel.tp=2", "parallel.pp=2", "parallel.cp=2"];
    let sets = [out.as_str()].into_iter().chain(sets);
    let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
    succeed(&[["run", path].as_slice(), &sets].concat());
    assert_eq!(metrics(&other), want, "tp 2, pp 2, cp 2");
    let refused = output(&["run", path, "--check", "--set", "blend.decoder_length=12"]);
    assert_eq!(refused.status.code(), Some(2));
    let found = String::from_utf8(refused.stderr).unwrap();
    let printed = ["blend.decoder_length", "a multiple of 8 above 0"];
    assert!(
        printed.iter().all(|printed| found.contains(printed)),
        "{found}"
    );
    let refused = output(&["run", path, "--check", "--set", "blend.samples=text"]);
    let found = String::from_utf8(refused.stderr).unwrap();
    assert!(found.contains("t5 for family t5"), "{found}");
}

#[test]
fn samples_that_do_not_suit_the_model_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let refused = |sets: &[&str]| {
        let mut args = vec!["run", path.to_str().unwrap(), "--check"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let out = output(&args);
        assert_eq!(out.status.code(), Some(2), "{sets:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    for (set, wanted) in [
        ("blend.samples=text", "blend.samples"),
        (
            "model.family=gpt",
            "bert for family bert, t5 for family t5, text for decoders",
        ),
        ("blend.masking.probability=2.0", "blend.masking.probability"),
        ("blend.max_epochs=2.0", "only text has a limit"),
        ("blend.even_batches=true", "blend.even_batches"),
        ("blend.mixture=exhaustive", "blend.mixture"),
        (
            "generate.prompts=['a']",
            "a masked model does not continue text",
        ),
    ] {
        let found = refused(&[set]);
        assert!(found.contains(wanted), "{set}: {found}");
    }
}

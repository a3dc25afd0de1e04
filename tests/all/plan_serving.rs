//! `millrace plan --serve`: kinds of servers, the best of them, and what it refuses.

use crate::jobs::{output, root, succeed};
use crate::plan::{PARAMETERS, RECIPES};
use serde_json::Value;

/// The kinds of servers, with bytes of the cache that the papers and the sizes of the models give.
#[test]
fn servers_of_mixtures_latents_and_encoders_are_planned() {
    let served = |name: &str, cluster: &str, vocab: &str, flags: &[&str]| -> Value {
        let job = format!("pipelines/jobs/recipes/{name}.toml");
        let args = [
            "plan",
            &job,
            "--cluster",
            cluster,
            "--vocab",
            vocab,
            "--serve",
            "--json",
        ];
        let printed = succeed(&[&args[..], &["--input", "1000"], flags].concat()).stdout;
        serde_json::from_slice(&printed).unwrap()
    };
    let cache = |row: &Value| row["memory_gb"]["cache"].as_f64().unwrap();
    let of = |answer: &Value, tp: u64, ep: u64| -> Value {
        let rows = answer["all"].as_array().unwrap();
        let is = |row: &&Value| {
            row["tp"] == tp && row["ep"] == ep && row["requests"] == ep && row["weights"] == "q8_0"
        };
        rows.iter().find(is).cloned().unwrap_or_default()
    };
    let answers = ["--output", "24"];
    // 61 layers of a latent of 512 and 64 features of keys, 70,272 bytes a token (arXiv:2505.09343, table 1)
    let v3 = served("deepseek_v3", "h800", "129280", &answers);
    assert_eq!(v3["served"], "decoder");
    let row = of(&v3, 1, 64);
    assert!(
        (cache(&row) / (1024.0 * 70_272.0 / 1e9) - 1.0).abs() < 1e-9,
        "{row}"
    );
    assert!(v3["assumed"].to_string().contains("latents"));
    // 671B of 8 bits are on no node of 640 GB
    assert_eq!(of(&v3, 1, 8), Value::Null);
    let mixtral = served("mixtral_8x7b", "dgx-h100", "32000", &answers);
    let row = of(&mixtral, 1, 8);
    let wanted = 1024.0 * 32.0 * 2.0 * 8.0 * 128.0 * 2.0 / 1e9;
    assert!((cache(&row) / wanted - 1.0).abs() < 1e-9, "{row}");
    let bert = served("bert_4b", "dgx-a100", "30592", &[]);
    assert_eq!(bert["served"], "encoder");
    assert!(bert["output"].is_null());
    assert_eq!(cache(&bert["best"]), 0.0);
    assert_eq!(bert["best"]["tpot_s"], 0.0);
    let t5 = served("t5_3b", "dgx-a100", "29184", &answers);
    assert_eq!(t5["served"], "encoder_decoder");
    // 24 layers of the decoder, each with keys and values of its own tokens and of the prompt's
    let wanted = 24.0 * 1024.0 * 2.0 * 2048.0 * 2.0 / 1e9;
    assert!((cache(&of(&t5, 1, 1)) / wanted - 1.0).abs() < 1e-9, "{t5}");
}

/// Flags of servers alone, which would be read by nothing.
#[test]
fn flags_of_a_server_without_one_are_refused_by_name() {
    let job = "pipelines/jobs/recipes/gpt2_124m.toml";
    for flag in ["--input", "--output", "--max-ttft", "--max-tpot"] {
        for args in [
            &[job, "--cluster", "dgx-a100"][..],
            &["--size", "5B"],
            &["--check-tables"],
        ] {
            let found = output(&[&["plan"], args, &[flag, "8"]].concat());
            let text = String::from_utf8(found.stderr).unwrap();
            assert_eq!(found.status.code(), Some(2), "{args:?}: {text}");
            let wanted = format!("{flag} goes with --serve");
            assert!(text.contains(&wanted), "{args:?}: {text}");
        }
    }
}

/// Of each recipe: nothing is better than the best, so that it is on the front. The parameters are the published ones, with norms, biases and
/// positions, which a device holds in f32 beside its matrices.
#[test]
fn the_best_server_of_every_recipe_is_on_the_front() {
    for (name, cluster, _, vocab, _) in RECIPES {
        let job = format!("pipelines/jobs/recipes/{name}.toml");
        let vocab = vocab.to_string();
        let args = [
            "plan",
            &job,
            "--cluster",
            cluster,
            "--vocab",
            &vocab,
            "--serve",
            "--json",
        ];
        let found: Value = serde_json::from_slice(&output(&args).stdout).unwrap();
        if let Some((_, count)) = PARAMETERS.iter().find(|(of, _)| *of == name) {
            assert_eq!(found["parameters"].as_f64(), Some(*count), "{name}");
        }
        let front = found["front"].as_array().unwrap();
        if !front.is_empty() {
            assert!(front.contains(&found["best"]), "{name}: {}", found["best"]);
        }
    }
}

/// `plan --serve` of a recipe.
fn served(flags: &[&str]) -> (Option<i32>, Value) {
    let recipe = root().join("pipelines/jobs/recipes/llama3_70b.toml");
    let args = [
        "plan",
        recipe.to_str().unwrap(),
        "--cluster",
        "dgx-h100",
        "--vocab",
        "128256",
        "--serve",
        "--json",
    ];
    let found = output(&[&args[..], flags].concat());
    let value = serde_json::from_slice(&found.stdout).unwrap_or_default();
    (found.status.code(), value)
}

#[test]
fn a_server_is_planned_by_its_first_token_the_gap_between_tokens_and_tokens_per_device() {
    let (code, free) = served(&["--input", "2048", "--output", "128"]);
    assert_eq!(code, Some(0), "{free}");
    let rows = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let front = rows(&free, "front");
    assert!(front.len() > 3, "{front:?}");
    // a longer gap between tokens buys more tokens of a device, or an earlier first one
    for pair in front.windows(2) {
        let more = |key: &str| number(&pair[1], key) > number(&pair[0], key);
        let is_faster = number(&pair[1], "tpot_s") > number(&pair[0], "tpot_s");
        let is_bought = more("tokens_per_s_per_device") || !more("ttft_s");
        assert!(is_faster && is_bought, "{pair:?}");
    }
    // 70B in 16 bits are 141 GB: not on one card of 80, whatever the batch
    let unfit = rows(&free, "do_not_fit");
    assert!(
        unfit
            .iter()
            .any(|row| row["tp"] == 1 && row["weights"] == "bf16")
    );
    let all = rows(&free, "all");
    assert!(
        all.iter()
            .all(|row| number(&row["memory_gb"], "total") <= 72.0)
    );
    assert!(rows(&free, "assumed").len() == 2, "{free}");
    let best = &free["best"];
    for row in &all {
        let key = "tokens_per_s_per_device";
        assert!(number(row, key) <= number(best, key), "{row}");
    }
    let (code, bound) = served(&["--input", "2048", "--output", "128", "--max-tpot", "15"]);
    assert_eq!(code, Some(0), "{bound}");
    assert!(
        number(&bound["best"], "tpot_s") <= 0.015,
        "{}",
        bound["best"]
    );
    let (code, none) = served(&["--max-ttft", "0.001"]);
    assert_eq!((code, &none["best"]), (Some(1), &Value::Null));

    let recipe = root().join("pipelines/jobs/recipes/llama3_70b.toml");
    let recipe = recipe.to_str().unwrap();
    let plan = ["plan", recipe, "--cluster", "dgx-h100"];
    let refused = output(
        &[
            &plan[..],
            &["--serve", "--output", "0", "--max-tpot", "nan"],
        ]
        .concat(),
    );
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    for part in ["--output", "found  0", "--max-tpot", "found  NaN"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let text = succeed(&[&plan[..], &["--serve", "--vocab", "128256"]].concat()).stdout;
    let text = String::from_utf8(text).unwrap();
    // 70,553,706,496 parameters: those of 161 norms of 8,192 are of 4 bytes
    for part in [
        "70.55B parameters (141.11 GB in bf16), prompts of 1024 tokens",
        "TTFT ms",
        "tokens/s a device",
        "best: tp",
        "does not fit: tp 1 with bf16",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

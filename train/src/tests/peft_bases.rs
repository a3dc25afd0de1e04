//! The base models of adapters: of trainings that went on with earlier ones, of adapters over adapters, and of others; names of
//! DeepSeek's layers in PEFT's configuration.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::checkpoint::{
    adapter_bases, export_hf, export_peft, import_hf, initial_model, other_base,
};
use crate::config::{LoraConfig, LoraTarget, Plan};
use crate::eval::logits;
use crate::fixtures::{Chain, Log, tiny_deepseek, tiny_llama};
use crate::tests::prompt::{Prompted, prompted};
use crate::trainer::run;

/// Runs in a folder of their own.
struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Runs {
        Runs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Trains a model from the weights at `init` (none: from a seed), and returns its last checkpoint.
    fn train(&self, name: &str, init: Option<&Path>, change: impl FnOnce(&mut Plan)) -> PathBuf {
        self.train_of(tiny_llama(), name, init, change)
    }

    fn train_of(
        &self,
        mut plan: Plan,
        name: &str,
        init: Option<&Path>,
        change: impl FnOnce(&mut Plan),
    ) -> PathBuf {
        (plan.train.steps, plan.train.global_batch) = (2, 2);
        (plan.train.lr, plan.train.min_lr) = (0.05, 0.05);
        plan.train.init_from = init.map_or(String::new(), |init| init.display().to_string());
        change(&mut plan);
        let samples = Chain::of(&plan);
        let done = run(&plan, &samples, None, &self.path(name), &Log::default()).unwrap();
        done.checkpoint
    }
}

fn lora(rank: usize) -> impl FnOnce(&mut Plan) {
    move |plan| {
        plan.model.lora = Some(LoraConfig {
            rank,
            alpha: 7.0,
            ..LoraConfig::default()
        });
    }
}

fn config(adapter: &Path) -> Value {
    let text = std::fs::read(adapter.join("adapter_config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn named_base(adapter: &Path) -> PathBuf {
    PathBuf::from(config(adapter)["base_model_name_or_path"].as_str().unwrap())
}

fn set_base(adapter: &Path, base: &Path) {
    let mut config = config(adapter);
    config["base_model_name_or_path"] = json!(base);
    std::fs::write(adapter.join("adapter_config.json"), config.to_string()).unwrap();
}

/// Largest difference of the logits of two models.
fn apart(one: &Path, other: &Path) -> f32 {
    let tokens: Vec<u32> = (0..16).map(|at| (at * 7 + 3) % 200).collect();
    let [one, other] = [one, other].map(|path| logits(path, &tokens).unwrap().concat());
    let pairs = one.into_iter().zip(other);
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// The model that a folder of PEFT's is, as a checkpoint.
fn read(adapter: &Path, out: &Path) -> PathBuf {
    import_hf(adapter, out).unwrap().checkpoint
}

#[test]
fn adapters_that_a_training_went_on_with_are_written_over_the_first_base() {
    let runs = Runs::new();
    let base = runs.train("base", None, |_| {});
    export_hf(&base, &runs.path("hf")).unwrap();
    let first = runs.train("first", Some(&runs.path("hf")), lora(3));
    // of a folder of checkpoints the newest is taken
    let folder = first.parent().unwrap();
    let second = runs.train("second", Some(folder), lora(3));
    let third = runs.train("third", Some(&second), lora(3));
    for (number, checkpoint) in [&first, &second, &third].into_iter().enumerate() {
        let adapter = runs.path(&format!("peft{number}"));
        export_peft(checkpoint, &adapter).unwrap();
        assert_eq!(named_base(&adapter), runs.path("hf"));
        let whole = read(&adapter, &runs.path(&format!("read{number}")));
        let off = apart(checkpoint, &whole);
        assert!(off < 1e-5, "{number}: {off}");
        assert!(apart(&base, &whole) > 1e-3);
    }
    assert!(apart(&first, &third) > 1e-3);
    // over merged weights the base is those
    export_hf(&first, &runs.path("merged")).unwrap();
    let over = runs.train("over", Some(&runs.path("merged")), lora(3));
    let adapter = runs.path("peft_over");
    export_peft(&over, &adapter).unwrap();
    assert_eq!(named_base(&adapter), runs.path("merged"));
    assert!(apart(&over, &read(&adapter, &runs.path("read_over"))) < 1e-5);
}

#[test]
fn virtual_tokens_that_a_training_went_on_with_are_written_over_the_first_base() {
    let runs = Runs::new();
    let base = runs.train("base", None, |_| {});
    let train = |name: &str, init: &Path| {
        let mut plan = prompted(tiny_llama(), 3);
        plan.train.init_from = init.display().to_string();
        let samples = Prompted {
            of: Chain::of(&plan),
            count: 3,
            texts: 1,
        };
        let done = run(&plan, &samples, None, &runs.path(name), &Log::default());
        done.unwrap().checkpoint
    };
    let first = train("first", &base);
    let second = train("second", &first);
    export_peft(&second, &runs.path("peft")).unwrap();
    assert_eq!(named_base(&runs.path("peft")), base);
}

#[test]
fn adapters_of_a_model_with_merged_adapters_stand_on_both() {
    let runs = Runs::new();
    let base = runs.train("base", None, |_| {});
    export_hf(&base, &runs.path("hf")).unwrap();
    let first = runs.train("first", Some(&runs.path("hf")), lora(3));
    let [under, over] = ["under", "over"].map(|name| runs.path(name));
    export_peft(&first, &under).unwrap();
    let second = runs.train("second", Some(&under), lora(2));
    export_peft(&second, &over).unwrap();
    assert_eq!(
        adapter_bases(&over).unwrap(),
        [under.clone(), runs.path("hf")]
    );
    let whole = read(&over, &runs.path("read"));
    assert!(apart(&second, &whole) < 1e-5);
    assert!(apart(&first, &whole) > 1e-3 && apart(&base, &whole) > 1e-3);
    // in a circle
    set_base(&under, &over);
    let error = initial_model(&over).unwrap_err().with_causes();
    assert!(error.contains("want a whole model behind them"), "{error}");
}

#[test]
fn a_model_that_an_adapter_was_not_made_for_is_told_from_its_own() {
    let runs = Runs::new();
    let base = runs.train("base", None, |_| {});
    export_hf(&base, &runs.path("hf")).unwrap();
    export_hf(&base, &runs.path("other")).unwrap();
    let first = runs.train("first", Some(&runs.path("hf")), lora(3));
    let second = runs.train("second", Some(&first), lora(3));
    export_peft(&second, &runs.path("peft")).unwrap();
    let hf = runs.path("hf").display().to_string();
    for adapter in [
        &first,
        &second,
        &runs.path("second/checkpoints"),
        &runs.path("peft"),
    ] {
        assert_eq!(other_base(adapter, &runs.path("hf")).unwrap(), None);
        let other = other_base(adapter, &runs.path("other")).unwrap();
        assert_eq!(other.as_ref(), Some(&hf), "{adapter:?}");
    }
}

#[test]
fn dense_layers_and_shared_experts_of_deepseek_are_parameters_to_peft() {
    let runs = Runs::new();
    let base = runs.train_of(tiny_deepseek(), "base", None, |_| {});
    let tuned = runs.train_of(tiny_deepseek(), "tuned", Some(&base), |plan| {
        plan.model.lora = Some(LoraConfig {
            targets: [&LoraTarget::DENSE[..], &[LoraTarget::Experts]].concat(),
            ..LoraConfig::default()
        });
    });
    export_peft(&tuned, &runs.path("peft")).unwrap();
    let config = config(&runs.path("peft"));
    let mut parameters = Vec::new();
    for layer in ["mlp", "shared_experts"] {
        for module in ["down", "gate", "up"] {
            parameters.push(format!("{layer}.{module}_proj.weight"));
        }
    }
    assert_eq!(config["target_parameters"], json!(parameters));
    let modules = config["target_modules"].as_array().unwrap().iter();
    let modules: Vec<&str> = modules.map(|name| name.as_str().unwrap()).collect();
    // PEFT takes these for experts, which all of them are
    let renamed = modules
        .iter()
        .filter(|name| name.contains("_proj") && !name.starts_with("self_attn."));
    let mut renamed: Vec<&str> = renamed.copied().collect();
    renamed.retain(|name| !name.starts_with(|first: char| first.is_ascii_digit()));
    assert!(renamed.is_empty(), "{renamed:?}");
    assert!(modules.contains(&"0.gate_proj") && modules.contains(&"self_attn.o_proj"));
}

//! Preference optimisation step by step as torch with TRL's loss: `tests/oracles/dpo_goldens.py`. Tolerances as in `parity`.

use std::error::Error as StdError;
use std::fs;

use kernels::Device;

use crate::checkpoint::safetensors::{Entry, Writer};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, import_hf};
use crate::config::{Plan, PreferenceConfig, PreferenceLoss};
use crate::data::{Pair, Sample, Samples};
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::fixtures::nth_step;
use crate::model::param;
use crate::tests::hugging_face::{recipe, write_config};
use crate::tests::parity::{Formula, Golden, oracle};
use crate::trainer::reference::Referenced;
use crate::trainer::step::Trainer;

/// Pairs of the steps.
const PAIRS: u64 = 40;
/// Tokens of a prompt.
const PROMPT: usize = 3;

/// The script's pairs, one in each sample.
struct Pairs;

/// The chosen text and the rejected one.
fn texts(pair: u64) -> [Vec<u32>; 2] {
    let tokens = |of: u64, range: std::ops::Range<u64>| range.map(move |at| Formula::token(of, at));
    let with = |answer: &mut dyn Iterator<Item = u32>| tokens(pair, 0..3).chain(answer).collect();
    [
        with(&mut tokens(pair, 3..8)),
        with(&mut tokens(pair + 5, 20..24)),
    ]
}

impl Samples for Pairs {
    fn len(&self) -> u64 {
        PAIRS
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let to = sample.text()?;
        to.tokens.fill(0);
        to.counts.fill(false);
        let mut from = 0;
        for text in texts(index) {
            let end = from + text.len();
            to.tokens[from..end].copy_from_slice(&text);
            to.counts[from + PROMPT - 1..end - 1].fill(true);
            to.ends.push(end);
            from = end;
        }
        to.pairs.push(Pair::numbered(index));
        Ok(())
    }

    fn pairs(&self) -> Option<&dyn Samples> {
        Some(self)
    }
}

/// The golden's base model, and the plan of its steps.
fn base(golden: &Golden) -> (Plan, Model) {
    let mut of_base = Golden::open(golden.record["base"].as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("base");
    fs::create_dir(&source).unwrap();
    write_config(&source, &of_base.record["config"]);
    let entries = of_base.tensors.entries().filter_map(|entry| {
        let name = entry.name.strip_prefix("weight.")?.to_owned();
        let dims = entry.dims.clone();
        (!name.contains(".lora_")).then_some(Entry { name, dims })
    });
    let entries: Vec<Entry> = entries.collect();
    let mut writer = Writer::create(&source.join(MODEL), entries.clone(), None).unwrap();
    for entry in entries {
        let name = format!("weight.{}", entry.name);
        writer.write(&of_base.tensor(&name, &entry.dims)).unwrap();
    }
    writer.finish().unwrap();
    let imported = import_hf(&source, &folder.path().join("out")).unwrap();
    let model = Model::load(&imported.checkpoint, &Devices::Cpu).unwrap();
    let mut plan = model.plan.clone();
    recipe(&mut plan, &serde_json::json!(3));
    plan.train.eod_mask_loss = false;
    let record = &golden.record;
    plan.train.preference = Some(PreferenceConfig {
        loss: serde_json::from_value(record["loss"].clone()).unwrap(),
        beta: record["beta"].as_f64().unwrap(),
        label_smoothing: record["label_smoothing"].as_f64().unwrap(),
    });
    (plan, model)
}

fn follows_trl(name: &str) -> PreferenceLoss {
    let text = fs::read(oracle(&format!("{name}.json"))).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let golden = Golden {
        tensors: Golden::open(record["base"].as_str().unwrap()).tensors,
        record,
    };
    let (plan, model) = base(&golden);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    trainer.state.weights = model.weights;
    let references = trainer.log_probabilities(&Pairs, &[]).unwrap();
    for (pair, both) in references.iter().enumerate() {
        for (which, found) in both.iter().enumerate() {
            golden.scalar("reference", 2 * pair + which, *found);
        }
    }
    let samples = Referenced {
        samples: &Pairs,
        references: &references,
    };
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let found = trainer.step(&samples, &next, &[]).unwrap();
        golden.scalar("losses", step, found.loss);
        golden.scalar("grad_norms", step, found.grad_norm);
        let pairs = found.preference.unwrap();
        if step == 0 {
            // the model is its own reference
            assert_eq!((pairs.chosen_reward, pairs.rejected_reward), (0.0, 0.0));
            continue;
        }
        golden.scalar("chosen_reward", step, pairs.chosen_reward);
        golden.scalar("rejected_reward", step, pairs.rejected_reward);
    }
    plan.train.preference.unwrap().loss
}

#[test]
fn every_loss_follows_trl_through_ten_steps() {
    let found = ["dpo_sigmoid", "dpo_smoothed", "dpo_hinge", "dpo_ipo"].map(follows_trl);
    assert_eq!(
        found,
        [
            PreferenceLoss::Sigmoid,
            PreferenceLoss::Sigmoid,
            PreferenceLoss::Hinge,
            PreferenceLoss::Ipo
        ]
    );
}

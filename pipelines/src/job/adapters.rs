//! `[[finetune.adapters]]`: the jobs of adapters that are trained together over one base, and contradictions.

use std::path::PathBuf;

use super::adapter_table::AdapterTable;
use super::finetune::{FinetuneMethod, FinetuneTable};
use super::table::Job;

/// Folder of the adapters in that of their job.
pub(crate) const ADAPTERS: &str = "adapters";

impl Job {
    /// Whether the job trains several adapters.
    pub(crate) fn has_adapters(&self) -> bool {
        let finetune = self.finetune.as_ref();
        finetune.is_some_and(|finetune| !finetune.adapters.is_empty())
    }

    /// The jobs of `[[finetune.adapters]]`, each the training of one adapter alone.
    pub(crate) fn of_adapters(&self) -> Vec<Job> {
        let Some(finetune) = &self.finetune else {
            return Vec::new();
        };
        let own = self.tokenize.is_some() && finetune.tokenizer.as_os_str().is_empty();
        let tokenizer = match own {
            true => self.out.join("tokens/tokenizer.json"),
            false => finetune.tokenizer.clone(),
        };
        let of = |adapter: &AdapterTable| {
            let or = |own: &Vec<PathBuf>, all: &Vec<PathBuf>| match own.is_empty() {
                true => all.clone(),
                false => own.clone(),
            };
            Job {
                name: format!("{}: {}", self.name, adapter.name),
                out: self.out.join(ADAPTERS).join(&adapter.name),
                seed: adapter.seed.unwrap_or(self.seed),
                curate: None,
                decontaminate: None,
                dedup: None,
                tokenize: None,
                finetune: Some(FinetuneTable {
                    adapters: Vec::new(),
                    train: or(&adapter.train, &finetune.train),
                    valid: or(&adapter.valid, &finetune.valid),
                    lora: adapter.lora.clone().or_else(|| finetune.lora.clone()),
                    epochs: adapter.epochs.unwrap_or(finetune.epochs),
                    tokenizer: tokenizer.clone(),
                    ..finetune.clone()
                }),
                ..self.clone()
            }
        };
        finetune.adapters.iter().map(of).collect()
    }

    /// Reports contradictions of `[[finetune.adapters]]` with the rest of the job.
    pub(super) fn check_adapters(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let Some(finetune) = self.finetune.as_ref().filter(|_| self.has_adapters()) else {
            return;
        };
        finetune.check_adapters(add);
        if self.store.is_some() {
            let wanted = "none: adapters are in folders of their own";
            add("store", "[store] with finetune.adapters".into(), wanted);
        }
        let (Some(model), Some(train)) = (&self.model, &self.train) else {
            return;
        };
        let mut first = None;
        for (number, job) in self.of_adapters().iter().enumerate() {
            let (adapter, Some(own)) = (&finetune.adapters[number], &job.finetune) else {
                continue;
            };
            let train = own.schedule(train, train.steps.max(1));
            let ids = (job.vocab_hint(), None);
            let plan = job.plan(model, &train, own.seq_length, ids, String::new());
            if adapter.lora.is_some() {
                plan.check(&mut |key, found, wanted| {
                    if let Some(key) = key.strip_prefix("model.lora") {
                        add(
                            &format!("finetune.adapters[{number}].lora{key}"),
                            found,
                            wanted,
                        );
                    }
                });
            }
            let targets = plan.model.lora.map(|lora| lora.targets);
            let wanted = first.get_or_insert_with(|| targets.clone());
            if targets != *wanted {
                let found = serde_json::json!(targets).to_string();
                let wanted = format!("{}, as the first adapter", serde_json::json!(wanted));
                add(
                    &format!("finetune.adapters[{number}].lora.targets"),
                    found,
                    &wanted,
                );
            }
        }
    }
}

impl FinetuneTable {
    /// Reports contradictions of the adapters with each other and with the table.
    fn check_adapters(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let is_of_adapters = match self.method {
            FinetuneMethod::Lora => true,
            FinetuneMethod::Dpo => self.lora.is_some(),
            FinetuneMethod::Full | FinetuneMethod::Prompt | FinetuneMethod::PTuning => false,
        };
        if !is_of_adapters {
            let found = format!("adapters with finetune.method = {}", self.method.shown());
            let wanted = "none, or method = \"lora\", or \"dpo\" with [finetune.lora]";
            add("finetune.adapters", found, wanted);
        }
        for (number, adapter) in self.adapters.iter().enumerate() {
            let key = |name: &str| format!("finetune.adapters[{number}].{name}");
            let before = &self.adapters[..number];
            let name = format!("{:?}", adapter.name);
            if !adapter.is_named() {
                let wanted = "letters, digits, `-`, `_` and `.`, without a `.` in front";
                add(&key("name"), name, wanted);
            } else if before
                .iter()
                .any(|other| other.name.eq_ignore_ascii_case(&adapter.name))
            {
                let wanted = "a name that no other adapter has: it is that of a folder";
                add(&key("name"), name, wanted);
            }
            if adapter.train.is_empty() && self.train.is_empty() {
                let wanted = "at least one file, here or in finetune.train";
                add(&key("train"), "[]".into(), wanted);
            }
            if adapter.epochs == Some(0) {
                add(&key("epochs"), "0".into(), "at least 1");
            }
        }
    }
}

//! Checks of a resolved job: its inputs and datasets, the plan of its training, and every contradiction between
//! tables.

use super::blend::BlendTable;
use super::executors::Kubernetes;
use super::finetune::FinetuneMethod;
use super::nodes::Nodes;
use super::problem::Problem;
use super::prompt_method::AskedTexts;
use super::secrets;
use super::table::{Executor, Job, StoreTable};
use super::tokenize::TokenDataset;
use std::path::Path;
use train::config::{Bf16Sums, Determinism, ModelConfig, TrainConfig};
use train::dist::DeviceKind;

impl Job {
    /// The resolved job as TOML; loading it gives the same job. Secrets written into the job are replaced by
    /// [`curate::secrets::HIDDEN`]; loading that placeholder is a problem of its key.
    pub fn to_toml(&self) -> String {
        let shown = secrets::hidden(self);
        let shown: &dyn erased_serde::Serialize = &shown;
        toml::to_string(shown).expect("a job holds only tables, arrays, strings and numbers")
    }

    /// The store that the job's files are shared through, if it has one.
    pub(crate) fn store(&self) -> curate::Result<Option<curate::store::ObjectFolder>> {
        let open = |t: &StoreTable| curate::store::ObjectFolder::open(&t.url, &t.options);
        self.store.as_ref().map(open).transpose()
    }

    /// Whether the dedup stage runs, for duplicates or for evaluation texts to cut out. It writes keep-lists.
    pub(crate) fn has_keep_lists(&self) -> bool {
        self.dedup.is_some() || self.cutting().is_some()
    }

    /// `[decontaminate]` where it cuts documents after deduplication.
    pub(crate) fn cutting(&self) -> Option<&curate::decontaminate::DecontaminateConfig> {
        self.decontaminate.as_ref().filter(|d| d.cuts())
    }

    /// `[decontaminate]` where it drops documents in the curation pass.
    pub(crate) fn dropping(&self) -> Option<&curate::decontaminate::DecontaminateConfig> {
        self.decontaminate.as_ref().filter(|d| !d.cuts())
    }

    /// Inputs that documents come from: those of `[curate]`, else those of `[tokenize]`.
    pub(crate) fn inputs(&self) -> &[curate::read::Input] {
        match (&self.curate, &self.tokenize) {
            (Some(c), _) => &c.inputs,
            (None, Some(t)) => &t.inputs,
            (None, None) => &[],
        }
    }

    /// The model that training starts from, if there is one. Once training has begun, its own checkpoints are used
    /// as a fallback in case the source is gone.
    pub(crate) fn initial_model(&self) -> Option<train::Result<train::checkpoint::InitialModel>> {
        let train = self.train.as_ref().filter(|t| !t.init_from.is_empty())?;
        let source = Path::new(&train.init_from);
        let own = self.out.join("checkpoints");
        let is_gone = !source.exists() && own.exists();
        Some(train::checkpoint::initial_model(if is_gone {
            &own
        } else {
            source
        }))
    }

    /// Fills in `[model]` from `train.init_from` where the job has no such table.
    pub(super) fn take_initial_model(&mut self, problems: &mut Vec<Problem>) {
        if self.model.is_some() {
            return;
        }
        match self.initial_model() {
            None => {}
            Some(Ok(mut found)) => {
                if self.classify.is_some() {
                    // the task's head takes the place of the source's
                    (found.model.classify, found.model.next_sentence) = (None, false);
                }
                let has_own_head = match self.finetune.as_ref().map(|finetune| finetune.method) {
                    Some(FinetuneMethod::Full) | None => self.classify.is_some(),
                    Some(
                        FinetuneMethod::Lora
                        | FinetuneMethod::Dpo
                        | FinetuneMethod::Prompt
                        | FinetuneMethod::PTuning,
                    ) => true,
                };
                if has_own_head {
                    // multi-token prediction does not go with these
                    let default = ModelConfig::default();
                    found.model.mtp_num_layers = default.mtp_num_layers;
                    found.model.mtp_loss_scaling_factor = default.mtp_loss_scaling_factor;
                }
                self.model = Some(found.model);
            }
            Some(Err(error)) => problems.push(Problem {
                key: "model".into(),
                found: format!(
                    "no table, and none can be read from train.init_from: {}",
                    error.with_causes()
                ),
                wanted: "a table, or the model of train.init_from".into(),
            }),
        }
    }

    /// Problems where the weights of `train.init_from` do not fit the model, except for the vocabulary, whose size
    /// only the tokenizer knows.
    pub(crate) fn init_problems(&self) -> Vec<Problem> {
        let (Some(plan), Some(train)) = (self.rough_plan(), &self.train) else {
            return Vec::new();
        };
        if train.init_from.is_empty() {
            return Vec::new();
        }
        let lines = match train::checkpoint::check_init(Path::new(&train.init_from), &plan, false) {
            Ok(()) => Vec::new(),
            Err(train::Error::Foreign { problems, .. }) => problems,
            Err(error) => vec![format!("{:#}", anyhow::Error::from(error))],
        };
        let found = lines.into_iter().map(|line| Problem {
            key: "train.init_from".into(),
            found: format!("{}: {line}", train.init_from),
            wanted: "weights of this model".into(),
        });
        found.collect()
    }

    /// The plan of training as far as the job file gives it, for predictions; None without a model and a training.
    pub(crate) fn rough_plan(&self) -> Option<train::config::Plan> {
        let (model, train) = (self.model.as_ref()?, self.train.as_ref()?);
        let seq_length = match (&self.finetune, &self.classify, &self.blend) {
            (Some(finetune), _, _) => finetune.seq_length,
            (None, Some(classify), _) => classify.seq_length,
            (None, None, Some(blend)) => blend.seq_length,
            (None, None, None) => 0,
        };
        let ids = (self.vocab_hint(), None);
        Some(self.plan(model, train, seq_length, ids, String::new()))
    }

    /// The datasets that `[tokenize]` writes.
    pub(crate) fn datasets(&self) -> Vec<TokenDataset> {
        self.tokenize
            .as_ref()
            .map_or_else(Vec::new, |t| t.datasets(self.inputs()))
    }

    /// Every contradiction between tables and within them.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        if let Some(slurm) = &self.slurm {
            slurm.check(problems);
        }
        if let Some(ray) = &self.ray {
            ray.check(problems);
        }
        let kubernetes = match (&self.kubernetes, self.executor) {
            (None, Executor::Kubernetes) => Some(Kubernetes::default()),
            (table, _) => table.clone(),
        };
        if let Some(kubernetes) = kubernetes {
            kubernetes.check(self.store.is_some(), problems);
        }
        if let Some(nodes) = &self.nodes {
            nodes.check(problems);
        }
        let mut add = |key: &str, found: String, wanted: &str| {
            problems.push(Problem {
                key: key.into(),
                found,
                wanted: wanted.into(),
            });
        };
        if self.threads > MOST_THREADS {
            add(
                "threads",
                self.threads.to_string(),
                &format!("at most {MOST_THREADS}; 0 is one per core"),
            );
        }
        if self.executor != Executor::Local
            && self.out.to_string_lossy().chars().any(char::is_control)
        {
            let wanted = "a path without control characters, since cluster scripts contain it";
            add("out", format!("{:?}", self.out), wanted);
        }
        if self.out.as_os_str().is_empty() {
            add(
                "out",
                "\"\"".into(),
                "a folder for everything the job writes",
            );
        }
        if let Some(store) = &self.store
            && !curate::store::is_url(Path::new(&store.url))
        {
            let wanted = "a folder in a store: s3://bucket/folder, gs://... or az://...";
            let found = curate::secrets::without_passwords(&store.url);
            add("store.url", format!("{found:?}"), wanted);
        }
        if self.name.is_empty() {
            add("name", "\"\"".into(), "a name to show in reports");
        }
        if let Some(c) = &self.curate {
            c.check(&mut |k, f, w| add(&format!("curate.{k}"), f, w));
        }
        self.launch
            .check(&mut |k, f, w| add(&format!("launch.{k}"), f, w));
        if let Some(d) = &self.dedup {
            d.check(&mut |k, f, w| add(&format!("dedup.{k}"), f, w));
            self.check_priority(d, &mut add);
            if let (Some(key), Some(c)) = (d.language_key(), &self.curate)
                && !c.finds_languages()
            {
                add(
                    &format!("dedup.{key}"),
                    "\"document\" in a job without a step `language`".into(),
                    "a step `language` in curate.step, which finds the language of each document",
                );
            }
        }
        if let Some(d) = &self.decontaminate {
            d.check(&mut |k, f, w| add(&format!("decontaminate.{k}"), f, w));
        }
        let needs = [
            (
                "dedup",
                self.dedup.is_some(),
                "curate",
                self.curate.is_some(),
            ),
            (
                "decontaminate",
                self.decontaminate.is_some(),
                "curate",
                self.curate.is_some(),
            ),
            (
                "train",
                self.train.is_some(),
                "blend",
                self.blend.is_some() || self.classify.is_some() || self.finetune.is_some(),
            ),
            (
                "finetune",
                self.finetune.is_some(),
                "train",
                self.train.is_some(),
            ),
            (
                "classify",
                self.classify.is_some(),
                "train",
                self.train.is_some(),
            ),
            ("train", self.train.is_some(), "model", self.model.is_some()),
            ("eval", self.eval.is_some(), "train", self.train.is_some()),
            (
                "generate",
                self.generate.is_some(),
                "train",
                self.train.is_some(),
            ),
        ];
        for (table, has, needed, there) in needs {
            if has && !there {
                add(
                    table,
                    format!("[{table}] without [{needed}]"),
                    "both tables",
                );
            }
        }
        secrets::check(self, &mut add);
        self.check_datasets(&mut add);
        self.check_classified(&mut add);
        self.check_finetuned(&mut add);
        self.check_training(&mut add);
        self.check_epochs(&mut add);
        self.check_nodes(&mut add);
    }

    /// The nodes of a training that the job's executor starts; None if it starts none.
    pub(crate) fn training_nodes(&self) -> Option<Nodes> {
        let is_started = self.executor != Executor::Local && self.train.is_some();
        is_started.then(|| self.nodes.clone().unwrap_or_default())
    }

    /// `[nodes]` beside the other tables.
    fn check_nodes(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let Some(nodes) = self.training_nodes() else {
            return;
        };
        let processes = nodes.count.saturating_mul(nodes.processes);
        let ranks = self.parallel.world();
        if processes > 0 && !ranks.is_multiple_of(processes) {
            let found = format!("{ranks} ranks of [parallel] on {processes} processes");
            let wanted = "a divisor of tp * cp * pp * dp as nodes.count * nodes.processes";
            add("nodes.count", found, wanted);
        }
        if nodes.processes > 0 && !nodes.gpus.is_multiple_of(nodes.processes) {
            let found = format!("{} for {} processes of a node", nodes.gpus, nodes.processes);
            add("nodes.gpus", found, "a multiple of nodes.processes");
        }
        if self.device == DeviceKind::Cuda && nodes.gpus == 0 {
            let found = "0 with device = \"cuda\"".into();
            add(
                "nodes.gpus",
                found,
                "GPUs of a node: its ranks train on them",
            );
        }
        if nodes.processes > 1 && nodes.cpus == 0 && self.executor == Executor::Slurm {
            let found = format!("0 for {} processes of a node", nodes.processes);
            let wanted = "processors of a node: Slurm gives each process one of them otherwise";
            add("nodes.cpus", found, wanted);
        }
        let is_smaller = nodes.least() < nodes.count;
        if is_smaller && self.determinism != Determinism::Layout {
            let found = format!("{} with determinism = \"run\"", nodes.fewest);
            let wanted =
                "nodes.count, or determinism = \"layout\", whose bits a smaller layout keeps";
            add("nodes.fewest", found, wanted);
        }
        let own_means = "Kubernetes starts lost pods again on other nodes, and the layout stays";
        for (key, value, is_wrong) in [
            ("nodes.fewest", nodes.fewest, is_smaller),
            ("nodes.spare", nodes.spare, nodes.spare > 0),
        ] {
            if is_wrong && self.executor == Executor::Kubernetes {
                let found = format!("{value} with executor = \"kubernetes\"");
                add(key, found, &format!("0: {own_means}"));
            }
        }
        if nodes.count > 1 && self.store.is_some() {
            let found = format!("a table with nodes.count = {}", nodes.count);
            let wanted = "none: the nodes of a training share the folder out";
            add("store", found, wanted);
        }
    }

    /// Steps and warm-up of `[train]` where the epochs of `[classify]` or `[finetune]` make them. Every resolved job has the keys, so
    /// that their defaults are no contradiction.
    fn check_epochs(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let of_table = match (&self.finetune, &self.classify) {
            (Some(finetune), _) => [
                "finetune",
                &finetune.epochs.to_string(),
                &finetune.warmup.to_string(),
            ]
            .map(str::to_owned),
            (None, Some(classify)) => [
                "classify",
                &classify.epochs().to_string(),
                &classify.warmup().to_string(),
            ]
            .map(str::to_owned),
            (None, None) => return,
        };
        let ([table, epochs, warmup], Some(train)) = (of_table, &self.train) else {
            return;
        };
        let default = TrainConfig::default();
        for (key, value, usual, instead, of_epochs) in [
            ("steps", train.steps, default.steps, "epochs", epochs),
            (
                "warmup_steps",
                train.warmup_steps,
                default.warmup_steps,
                "warmup",
                warmup,
            ),
        ] {
            if value != usual {
                let found = format!("{value} beside {table}.{instead} = {of_epochs}");
                let wanted = format!("none: {table}.{instead} takes its place");
                add(&format!("train.{key}"), found, &wanted);
            }
        }
    }

    /// Tables that do not go with `[classify]`, and its own.
    fn check_classified(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let has_head = self.model.as_ref().is_some_and(|m| m.classify.is_some());
        if has_head {
            let wanted = "none: [classify] makes the head of its task";
            add("model.classify", "a table".into(), wanted);
        }
        let Some(classify) = &self.classify else {
            return;
        };
        classify.check(add);
        let has_tokenizer = (self.tokenize.as_ref())
            .is_some_and(|t| t.tokenizer.file.is_some() || t.tokenizer.train.is_some());
        if classify.tokenizer.as_os_str().is_empty() && !has_tokenizer {
            let wanted = "a tokenizer's file, or one of [tokenize]";
            add("classify.tokenizer", "\"\"".into(), wanted);
        }
        for (table, has, wanted) in [
            (
                "blend",
                self.blend.is_some(),
                "one of [blend] and [classify]",
            ),
            (
                "eval",
                self.eval.is_some(),
                "none: validation follows every epoch, and `millrace eval JOB --task` measures a file",
            ),
            (
                "generate",
                self.generate.is_some(),
                "none: a classification head writes no text",
            ),
        ] {
            if has {
                add(table, format!("[{table}] with [classify]"), wanted);
            }
        }
        let (Some(model), Some(train)) = (&self.model, &self.train) else {
            return;
        };
        // only the data says how many steps there are
        let train = classify.schedule(train, train.steps.max(1));
        let ids = (self.vocab_hint(), None);
        let plan = self.plan(model, &train, classify.seq_length, ids, String::new());
        plan.check(&mut |key, found, wanted| match key {
            "seq_length" => add("classify.seq_length", found, wanted),
            _ => add(key, found, wanted),
        });
    }

    /// Tables that do not go with `[finetune]`, and its own.
    fn check_finetuned(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let train = self.train.as_ref();
        if train.is_some_and(|train| train.preference.is_some()) {
            let wanted = "none: [finetune] with method = \"dpo\" makes it of [finetune.dpo]";
            add("train.preference", "a table".into(), wanted);
        }
        let Some(finetune) = &self.finetune else {
            return;
        };
        finetune.check(add);
        self.check_adapters(add);
        for (table, has) in [
            ("blend", self.blend.is_some()),
            ("classify", self.classify.is_some()),
        ] {
            if has {
                let wanted = "one of [blend], [classify] and [finetune]";
                add(table, format!("[{table}] with [finetune]"), wanted);
            }
        }
        if self.eval.is_some() {
            let wanted = "none: validation follows every epoch, and `millrace eval JOB --task` measures a task";
            add("eval", "[eval] with [finetune]".into(), wanted);
        }
        let (Some(model), Some(train)) = (&self.model, &self.train) else {
            return;
        };
        finetune.check_source(model, add);
        let generate = self.generate.as_ref();
        let asked = AskedTexts {
            prompts: generate.map_or(&[][..], |generate| &generate.prompts),
            tasks: &train.eval_tasks.tasks,
        };
        finetune.check_template(model, &asked, add);
        if train.init_from.is_empty() {
            add(
                "train.init_from",
                "\"\"".into(),
                "the model to fine-tune: a checkpoint, a Hugging Face folder or a GGUF file",
            );
        }
        // only the data says how many steps there are
        let train = finetune.schedule(train, train.steps.max(1));
        let ids = (self.vocab_hint(), None);
        let plan = self.plan(model, &train, finetune.seq_length, ids, String::new());
        plan.check(&mut |key, found, wanted| match key {
            "seq_length" => add("finetune.seq_length", found, wanted),
            // reported by the table's own key
            "model.prompt.splits" => {}
            key if key.starts_with("model.prompt.tasks") => {}
            key if key.starts_with("train.preference.") => {
                let key = key.replace("train.preference", "finetune.dpo");
                add(&key, found, wanted);
            }
            "predictions" | "decoder_length" => add(
                "finetune",
                format!("[finetune] with model.family = {:?}", model.family),
                "a decoder",
            ),
            _ => add(key, found, wanted),
        });
    }

    /// A problem for a source in the priority list that no input has.
    fn check_priority(
        &self,
        dedup: &curate::dedup::DedupConfig,
        add: &mut dyn FnMut(&str, String, &str),
    ) {
        let inputs = self.curate.iter().flat_map(|c| &c.inputs);
        let sources: Vec<&str> = inputs.map(|i| i.source.as_str()).collect();
        for (i, name) in dedup.priority.iter().enumerate() {
            let source = name.split('/').next().unwrap_or_default();
            if !name.is_empty() && !sources.contains(&source) {
                let wanted = format!("a source of [curate]: {}", sources.join(", "));
                add(
                    &format!("dedup.priority[{i}]"),
                    format!("{name:?}"),
                    &wanted,
                );
            }
        }
    }

    fn check_datasets(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if let Some(t) = &self.tokenize {
            t.check(self.curate.is_some(), self.inputs(), add);
        }
        let Some(b) = &self.blend else { return };
        let written: Vec<String> = self.datasets().into_iter().map(|d| d.name).collect();
        // with a model the plan says so
        if b.seq_length == 0 && (self.model.is_none() || self.train.is_none()) {
            add("blend.seq_length", "0".into(), "1 or more");
        }
        if let Err(e) = index::split::parse(&b.split) {
            add("blend.split", format!("{:?}", b.split), &e.to_string());
        }
        b.check(&written, add);
    }

    fn check_training(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if let (Some(model), Some(train), Some(blend)) = (&self.model, &self.train, &self.blend) {
            let plan = self.plan(
                model,
                train,
                blend.seq_length,
                // only the tokenizer knows whether there is an end-of-document token
                (self.vocab_hint(), Some(0)),
                String::new(),
            );
            if model.prompt.is_some() {
                let found = "a table without [finetune]".into();
                add(
                    "model.prompt",
                    found,
                    "[finetune], whose samples have virtual tokens",
                );
            }
            plan.check(&mut |k, f, w| match k {
                "seq_length" => add("blend.seq_length", f, w),
                "decoder_length"
                    if model.family == train::config::Family::T5 && plan.decoder_length > 0 =>
                {
                    add("blend.decoder_length", f, w);
                }
                "predictions" | "decoder_length" => {
                    let found =
                        format!("{:?} with model.family = {:?}", blend.samples, model.family);
                    let wanted = "bert for family bert, t5 for family t5, text for decoders";
                    add("blend.samples", found, wanted);
                }
                _ => add(k, f, w),
            });
        }
        let is_in_tiles = |t: &train::config::TrainConfig| t.bf16_sums == Bf16Sums::Tiles;
        if self.device == DeviceKind::Cuda && self.train.as_ref().is_some_and(is_in_tiles) {
            let found = "tiles with device = \"cuda\"".into();
            let wanted = "auto, pairs or mma: tiles are an order of sums of CPUs";
            add("train.bf16_sums", found, wanted);
        }
        let is_mma = |t: &train::config::TrainConfig| t.bf16_sums == Bf16Sums::Mma;
        if self.device == DeviceKind::Cpu && self.train.as_ref().is_some_and(is_mma) {
            let found = "mma with device = \"cpu\"".into();
            let wanted = "auto, pairs or tiles: mma is an order of sums of GPUs";
            add("train.bf16_sums", found, wanted);
        }
        let keeps = self.train.as_ref().is_some_and(|t| t.ema_decay > 0.0);
        if self.eval.as_ref().is_some_and(|e| e.use_ema) && !keeps {
            let found = "true with train.ema_decay = 0".into();
            add("eval.use_ema", found, "false, or train.ema_decay above 0");
        }
        if let (Some(model), Some(_)) = (&self.model, &self.generate)
            && model.family == train::config::Family::Bert
        {
            let found = "a table with model.family = bert".into();
            add(
                "generate",
                found,
                "none: a masked model does not continue text",
            );
        }
        if let Some(g) = &self.generate {
            if !(g.temperature >= 0.0 && g.temperature.is_finite()) {
                add(
                    "generate.temperature",
                    g.temperature.to_string(),
                    "0 or more",
                );
            }
            if !(g.top_p > 0.0 && g.top_p <= 1.0) {
                add("generate.top_p", g.top_p.to_string(), "above 0, at most 1");
            }
        }
    }

    /// Vocabulary size as far as the job file gives it; the tokenizer overrides it when there is one.
    pub(super) fn vocab_hint(&self) -> usize {
        let train = self
            .tokenize
            .as_ref()
            .and_then(|t| t.tokenizer.train.as_ref());
        train.map_or(50_257, |t| t.vocab.max(1))
    }

    /// The plan of training, given the numbers that only the data can provide.
    pub(crate) fn plan(
        &self,
        model: &train::config::ModelConfig,
        train: &train::config::TrainConfig,
        seq_length: usize,
        (vocab, eod): (usize, Option<u32>),
        fingerprint: String,
    ) -> train::config::Plan {
        let mut model = model.clone();
        if let Some(classify) = &self.classify {
            model.classify = Some(classify.head());
        }
        if let Some(finetune) = &self.finetune {
            finetune.adapt(&mut model);
        }
        train::config::Plan {
            model,
            parallel: self.parallel.clone(),
            train: train.clone(),
            vocab,
            seq_length,
            decoder_length: self.blend.as_ref().map_or(0, BlendTable::decoder_tokens),
            predictions: self.blend.as_ref().map_or(0, BlendTable::predictions),
            start: None,
            eod,
            seed: u64::from(self.seed),
            determinism: self.determinism,
            fingerprint,
        }
    }
}

/// No machine has more processors than this; a larger number is a typo.
const MOST_THREADS: usize = 4096;

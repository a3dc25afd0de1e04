//! The text of a new job: commented TOML, after a look at data and machine.

use super::sample::{Group, Sample};
use crate::machine::{grouped, megabytes, memory_bytes, processor};
use std::path::Path;

/// Part of the records that a language needs to be kept.
const LEAST_SHARE: f64 = 0.05;
/// Fields that are listed.
const MOST_FIELDS: usize = 12;

/// A new job.
pub(super) struct NewJob<'a> {
    pub name: &'a str,
    /// Its output folder.
    pub out: &'a Path,
    /// Name of the data in the job.
    pub source: &'a str,
    pub sample: &'a Sample,
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// A line of comments.
fn comment(text: &str) -> String {
    // a line feed in the name of a file would end the comment
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("# {line}\n")
}

impl NewJob<'_> {
    /// The first lines: data, machine, next commands.
    pub(super) fn head(&self, file: &Path, purpose: &str) -> String {
        let sample = self.sample;
        let mut text = comment(purpose);
        text += &comment(&format!(
            "Run:   millrace run {0}     Check: millrace run {0} --check",
            file.display()
        ));
        text +=
            "# `millrace explain KEY` describes any key, `millrace filters` lists the steps.\n#\n";
        text += &comment(&format!("Data:  {}", sample.path.display()));
        for (format, group) in &sample.groups {
            text += &comment(&format!(
                "       {} of format {format}, {}",
                count(group.files as u64, "file"),
                megabytes(group.bytes)
            ));
            if !group.fields.is_empty() {
                let shown: Vec<&str> = group.fields.iter().map(String::as_str).collect();
                let more = if shown.len() > MOST_FIELDS {
                    ", ..."
                } else {
                    ""
                };
                let shown = &shown[..shown.len().min(MOST_FIELDS)];
                text += &comment(&format!("       fields: {}{more}", shown.join(", ")));
            }
        }
        for (kind, files) in &sample.unknown {
            text += &comment(&format!(
                "       {} of a kind that is not read: {kind}",
                count(*files as u64, "file")
            ));
        }
        text += &comment(&format!(
            "       {} of the first {} became documents",
            grouped(sample.documents),
            count(sample.records, "record")
        ));
        let shares: Vec<String> = self
            .languages()
            .into_iter()
            .map(|(language, share)| format!("{language} {:.0}%", 100.0 * share))
            .collect();
        if !shares.is_empty() {
            text += &comment(&format!("       languages: {}", shares.join(", ")));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        text += &comment(&format!(
            "Machine: {}, {}, {:.0} GB memory",
            processor(),
            count(cores as u64, "core"),
            memory_bytes() as f64 / 1e9
        ));
        text += &format!(
            "\nname = {}\nout = {}\n",
            quoted(self.name),
            quoted(&self.out.to_string_lossy())
        );
        text
    }

    /// Languages of the sample with their shares, the most frequent first; rare ones left out.
    fn languages(&self) -> Vec<(&str, f64)> {
        let all: u64 = self.sample.languages.values().sum();
        let mut found: Vec<(&str, f64)> = self
            .sample
            .languages
            .iter()
            .map(|(language, count)| (language.as_str(), *count as f64 / all.max(1) as f64))
            .filter(|(language, share)| *share >= LEAST_SHARE && !language.is_empty())
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        found
    }

    /// The formats seen.
    fn formats(&self) -> Vec<&str> {
        self.sample.groups.keys().map(String::as_str).collect()
    }

    /// The only format, or `auto`.
    fn format(&self) -> &str {
        match self.formats().as_slice() {
            [one] => one,
            _ => "auto",
        }
    }

    fn text_key(&self) -> Option<&str> {
        let mut groups = self.sample.groups.values();
        groups.find_map(|group| group.text_key.as_deref())
    }

    fn is_web(&self) -> bool {
        let web = ["warc", "html", "wacz", "zim"];
        self.formats().iter().any(|format| web.contains(format))
    }

    /// Whether `[tokenize]` reads it without `[curate]`.
    pub(super) fn is_plain(&self) -> bool {
        let plain = ["jsonl", "parquet", "arrow", "text"];
        matches!(self.formats().as_slice(), [one] if plain.contains(one))
            && !self.text_key().is_some_and(|key| key.contains('.'))
    }

    /// Whether the data is a file of conversations, as `[finetune]` reads them.
    pub(super) fn is_chat(&self) -> bool {
        let has = |group: &Group, name: &str| group.fields.iter().any(|field| field == name);
        let is_chat = |group: &Group| {
            let lists = ["messages", "conversations", "conversation"];
            lists.into_iter().any(|name| has(group, name))
                || has(group, "prompt") && has(group, "completion")
                || has(group, "instruction") && (has(group, "output") || has(group, "response"))
        };
        let mut groups = self.sample.groups.values();
        self.sample.path.is_file() && groups.any(is_chat)
    }

    /// `[finetune]`, with the template of the tokenizer if it comes with one.
    pub(super) fn finetune(&self, tokenizer: &Path) -> String {
        let beside = tokenizer.parent().unwrap_or(Path::new(""));
        let config = std::fs::read_to_string(beside.join("tokenizer_config.json"));
        let has_template = beside.join("chat_template.jinja").is_file()
            || config.is_ok_and(|text| text.contains("\"chat_template\""));
        let template = match has_template {
            true => "# the chat template is the tokenizer's own\n",
            false => {
                "# the tokenizer has no chat template: `plain` writes `User:` and `Assistant:`; `chatml` or a Jinja file\nchat_template = \"plain\"\n"
            }
        };
        format!(
            "\n# Conversations; answers alone count in the loss. `millrace explain finetune`.\n[finetune]\ntrain = [{}]\n\
             # valid = [\"valid.jsonl\"]   # held-out conversations, measured after each epoch\ntokenizer = {}\n{template}\
             seq_length = 1024\nepochs = 3\n# method = \"lora\"           # adapters beside frozen weights\n",
            quoted(&self.sample.path.to_string_lossy()),
            quoted(&tokenizer.to_string_lossy())
        )
    }

    fn input(&self, with_key: bool) -> String {
        let mut text = format!(
            "{{ path = {}, format = \"{}\"",
            quoted(&self.sample.path.to_string_lossy()),
            self.format()
        );
        if self.sample.is_deep {
            text += ", recursive = true";
        }
        if let Some(key) = self.text_key().filter(|_| with_key) {
            text += &format!(", text_key = {}", quoted(key));
        }
        text + &format!(", source = \"{}\" }}", self.source)
    }

    /// `[curate]` and `[dedup]`.
    pub(super) fn curate(&self) -> String {
        let mut text = format!(
            "\n# Read, extract, filter: to clean/ and dropped/.\n[curate]\ninputs = [{}]\n",
            self.input(true)
        );
        text += "# limit = 1000        # only the first records, to try the job\n";
        if self.is_web() {
            text += "\n# The main text of pages.\n[[curate.step]]\nextract = {}\n";
        }
        let languages: Vec<String> = self
            .languages()
            .iter()
            .map(|(language, _)| quoted(language))
            .collect();
        text += "\n# Languages of at least a twentieth of the sample; an empty list keeps all and labels them.\n";
        text += &format!(
            "[[curate.step]]\nlanguage = {{ keep = [{}] }}\n",
            languages.join(", ")
        );
        if self.is_web() && languages == ["\"en\""] {
            text += "\n# The rules of Gopher for English web pages; `millrace explain gopher_quality`.\n\
                [[curate.step]]\ngopher_repetition = {}\n[[curate.step]]\ngopher_quality = {}\n";
        } else {
            text += "\n# Quality rules are left out: those of `millrace filters` fit a language or a kind of text.\n";
        }
        text + "\n# Exact and near duplicates are marked in keep/; `millrace export` writes what stays.\n[dedup]\nexact = {}\nminhash = {}\n"
    }

    /// `[tokenize]`, of the documents or of the files as they are.
    pub(super) fn tokenize(&self, is_curated: bool, file: Option<&Path>) -> String {
        let mut text =
            "\n# Texts to Megatron datasets: tokens/NAME.bin and .idx.\n[tokenize]\n".to_string();
        if !is_curated {
            text += &format!("inputs = [{}]\n", self.input(false));
            if let Some(key) = self.text_key() {
                text += &format!("json_keys = [{}]\n", quoted(key));
            }
        }
        text + &match file {
            Some(file) => format!(
                "tokenizer = {{ file = {} }}\n",
                quoted(&file.to_string_lossy())
            ),
            None => format!(
                "# or {{ file = \"tokenizer.json\" }}, as Hugging Face has them\ntokenizer = {{ train = {{ vocab = {} }} }}\n",
                self.vocab()
            ),
        }
    }

    /// Entries of a tokenizer that the data can fill.
    fn vocab(&self) -> usize {
        match self.sample.groups.values().map(|g| g.bytes).sum() {
            0..2_000_000 => 1024,
            2_000_000..50_000_000 => 4096,
            50_000_000..1_000_000_000 => 16_384,
            1_000_000_000.. => 32_768,
        }
    }

    pub(super) fn blend(&self) -> String {
        format!(
            "\n# Samples: 90% of the documents train, 10% validate.\n[blend]\nseq_length = 128\nsplit = \"90,10,0\"\n\
             dataset = [{{ name = \"{}\" }}]\n",
            self.source
        )
    }
}

/// `[model]` of a first training.
pub(super) const MODEL: &str = "\n# A small model that shows within minutes whether the data trains; `millrace explain model`.\n\
[model]\nfamily = \"llama\"\nlayers = 4\nd_model = 128\nheads = 4\n";

/// `[train]` and what follows it.
pub(super) fn train(init_from: Option<&Path>) -> String {
    let (from, lr) = match init_from {
        Some(path) => (
            format!(
                "# Weights to start from; the shape of the model is theirs.\ninit_from = {}\n",
                quoted(&path.to_string_lossy())
            ),
            "lr = 2e-5\nmin_lr = 2e-6",
        ),
        None => (String::new(), "lr = 1e-3\nmin_lr = 1e-4"),
    };
    format!(
        "\n# 100 steps to try; a longer run needs another `steps` and `warmup_steps`.\n[train]\n{from}steps = 100\nglobal_batch = 8\n\
         micro_batch = 4\n{lr}\nwarmup_steps = 10\neval_every = 50\neval_samples = 8\ncheckpoint = {{ every = 50, keep = 2 }}\n\n[report]\n"
    )
}

/// `[train]` of a fine-tuning on conversations, and what follows it.
pub(super) fn tune(init_from: &Path) -> String {
    format!(
        "\n# Weights to start from; steps follow from the epochs.\n[train]\ninit_from = {}\nglobal_batch = 4\nmicro_batch = 1\n\
         lr = 2e-5\nmin_lr = 0.0\ncheckpoint = {{ every = 50, keep = 2 }}\n\n[report]\n",
        quoted(&init_from.to_string_lossy())
    )
}

fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

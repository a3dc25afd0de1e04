//! The text of a new job: commented TOML, after a look at data and machine.

use super::inputs::{Place, places};
use super::names::{MOST_FIELDS, quoted};
use super::sample::{Group, Sample};
use crate::executor;
use crate::machine::{grouped, megabytes, memory_bytes, processor};
use std::path::Path;

/// Part of the records that a language needs to be kept.
const LEAST_SHARE: f64 = 0.05;
/// Records of known language below which their shares say little.
const LEAST_RECORDS: u64 = 30;
/// Documents below which none are held out.
const LEAST_DOCUMENTS: u64 = 20;
/// Files that are named of those that are left out or have something said about them.
const MOST_FILES: usize = 10;

/// A new job.
pub(super) struct NewJob<'a> {
    pub name: &'a str,
    /// Its output folder.
    pub out: &'a Path,
    /// Name of the data in the job.
    pub source: &'a str,
    pub sample: &'a Sample,
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
            executor::quoted(&file.to_string_lossy())
        ));
        text +=
            "# `millrace explain KEY` describes any key, `millrace filters` lists the steps.\n#\n";
        text += &comment(&format!("Data:  {}", sample.path.display()));
        for group in &sample.groups {
            let key = group.text_key.as_ref();
            let key = key.filter(|_| group.has_fields() && !group.is_chat);
            let mut key = key.map_or(String::new(), |key| format!(", text in {key}"));
            if let Some(delimiter) = group.delimiter {
                key += &format!(", fields separated by {delimiter}");
            }
            text += &comment(&format!(
                "       {} of format {}, {}{key}",
                count(group.files.len() as u64, "file"),
                group.format,
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
        if sample.empty > 0 {
            let empty = count(sample.empty as u64, "empty file");
            text += &comment(&format!("       {empty}"));
        }
        for (_, why) in sample.unreadable.iter().take(MOST_FILES) {
            text += &comment(&format!("       left out: {why}"));
        }
        if let Some(more) = sample.unreadable.len().checked_sub(MOST_FILES + 1) {
            let more = count(more as u64 + 1, "more file");
            text += &comment(&format!("       left out: {more}"));
        }
        for note in sample.notes.iter().take(MOST_FILES) {
            text += &comment(&format!("       {note}"));
        }
        if let Some(more) = sample.notes.len().checked_sub(MOST_FILES + 1) {
            let more = count(more as u64 + 1, "more file");
            text += &comment(&format!("       records that cannot be read are in {more}"));
        }
        if !self.is_chat() {
            text += &comment(&format!(
                "       {} of the first {} became documents",
                grouped(sample.documents),
                count(sample.records, "record")
            ));
        }
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

    /// Languages to keep; none if too few records were seen to tell.
    fn kept_languages(&self) -> Vec<String> {
        let known = self.sample.languages.iter();
        let known: u64 = known.filter(|(l, _)| !l.is_empty()).map(|(_, n)| n).sum();
        if known < LEAST_RECORDS {
            return Vec::new();
        }
        let languages = self.languages().into_iter();
        languages.map(|(language, _)| quoted(language)).collect()
    }

    fn is_web(&self) -> bool {
        self.sample.groups.iter().any(Group::is_web)
    }

    /// Whether `[tokenize]` reads it without `[curate]`.
    pub(super) fn is_plain(&self) -> bool {
        let plain = ["jsonl", "parquet", "arrow", "text"];
        let is_plain = |group: &Group| {
            let is_nested = group.text_key.as_ref().is_some_and(|key| key.contains('.'));
            plain.contains(&group.format.as_str()) && !is_nested
        };
        let one = matches!(self.sample.groups.as_slice(), [one] if is_plain(one));
        one && self.sample.unknown.is_empty()
    }

    /// Whether there are files of conversations, as `[finetune]` reads them.
    pub(super) fn is_chat(&self) -> bool {
        self.sample.groups.iter().any(|group| group.is_chat)
    }

    /// Bytes of the files of conversations.
    pub(super) fn chat_bytes(&self) -> u64 {
        let groups = self.sample.groups.iter().filter(|group| group.is_chat);
        groups.map(|group| group.bytes).sum()
    }

    /// Whether documents are held out for validation.
    pub(super) fn has_valid(&self) -> bool {
        self.sample.documents >= LEAST_DOCUMENTS
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
        let groups = self.sample.groups.iter();
        let (chats, others): (Vec<&Group>, Vec<&Group>) = groups.partition(|group| group.is_chat);
        let files = |groups: Vec<&Group>| -> Vec<String> {
            let files = groups.into_iter().flat_map(|group| &group.files);
            let mut files: Vec<String> = files.map(|f| quoted(&f.to_string_lossy())).collect();
            files.sort();
            files
        };
        let others: String = files(others)
            .iter()
            .map(|file| comment(&format!("left out, as these are no conversations: {file}")))
            .collect();
        format!(
            "\n# Conversations; answers alone count in the loss. `millrace explain finetune`.\n{others}[finetune]\ntrain = [{}]\n\
             # valid = [\"valid.jsonl\"]   # held-out conversations, measured after each epoch\ntokenizer = {}\n{template}\
             seq_length = {TUNED_LENGTH}\nepochs = 3\n# method = \"lora\"           # adapters beside frozen weights\n",
            files(chats).join(", "),
            quoted(&tokenizer.to_string_lossy())
        )
    }

    /// The list of inputs, with their keys for the text or without.
    fn inputs(&self, with_keys: bool) -> String {
        let input = |place: &Place| {
            let (path, format) = (quoted(&place.path), &place.format);
            let mut text = format!("{{ path = {path}, format = \"{format}\"");
            if place.is_recursive {
                text += ", recursive = true";
            }
            if let Some(key) = place.text_key.as_ref().filter(|_| with_keys) {
                text += &format!(", text_key = {}", quoted(key));
            }
            if let Some(delimiter) = place.delimiter {
                text += &format!(", delimiter = {}", quoted(&delimiter.to_string()));
            }
            text + &format!(", source = \"{}\" }}", self.source)
        };
        let inputs: Vec<String> = places(self.sample).iter().map(input).collect();
        match inputs.as_slice() {
            [one] => format!("[{one}]"),
            several => format!("[\n  {},\n]", several.join(",\n  ")),
        }
    }

    /// `[curate]` and `[dedup]`.
    pub(super) fn curate(&self) -> String {
        let mut text = format!(
            "\n# Read, extract, filter: to clean/ and dropped/.\n[curate]\ninputs = {}\n",
            self.inputs(true)
        );
        text += "# limit = 1000        # only the first records, to try the job\n";
        if self.is_web() {
            text += "\n# The main text of pages.\n[[curate.step]]\nextract = {}\n";
        }
        let languages = self.kept_languages();
        text += match languages.is_empty() {
            true => {
                "\n# Too few records to choose languages by; an empty list keeps all and labels them.\n"
            }
            false => {
                "\n# Languages of at least a twentieth of the sample; an empty list keeps all and labels them.\n"
            }
        };
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
            text += &format!("inputs = {}\n", self.inputs(false));
            let keys = self.sample.groups.iter().filter(|g| g.has_fields());
            for key in keys.filter_map(|g| g.text_key.as_ref()) {
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
        match self.sample.groups.iter().map(|g| g.bytes).sum() {
            0..2_000_000 => 1024,
            2_000_000..50_000_000 => 4096,
            50_000_000..1_000_000_000 => 16_384,
            1_000_000_000.. => 32_768,
        }
    }

    pub(super) fn blend(&self) -> String {
        let (why, split) = match self.has_valid() {
            true => ("90% of the documents train, 10% validate", "90,10,0"),
            false => ("all documents train, too few to hold some out", "100,0,0"),
        };
        format!(
            "\n# Samples: {why}.\n[blend]\nseq_length = 128\nsplit = \"{split}\"\n\
             dataset = [{{ name = \"{}\" }}]\n",
            self.source
        )
    }
}

/// `[model]` of a first training.
pub(super) const MODEL: &str = "\n# A small model that shows within minutes whether the data trains; `millrace explain model`.\n\
[model]\nfamily = \"llama\"\nlayers = 4\nd_model = 128\nheads = 4\n";

/// `[train]` and what follows it.
pub(super) fn train(init_from: Option<&Path>, has_valid: bool) -> String {
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
    let eval = match has_valid {
        true => "eval_every = 50\neval_samples = 8\n",
        false => "",
    };
    format!(
        "\n# 100 steps to try; a longer run needs another `steps` and `warmup_steps`.\n[train]\n{from}steps = 100\nglobal_batch = 8\n\
         micro_batch = 4\n{lr}\nwarmup_steps = 10\n{eval}checkpoint = {{ every = 50, keep = 2 }}\n\n[report]\n"
    )
}

/// Tokens of a sample of packed conversations.
const TUNED_LENGTH: u64 = 1024;

/// Bytes of a token, about, in files of conversations.
const TOKEN_BYTES: u64 = 4;

/// `[train]` of a fine-tuning on `bytes` of conversations, and what follows it.
pub(super) fn tune(init_from: &Path, bytes: u64) -> String {
    // a step takes whole samples, and few conversations are one sample
    let batch = (bytes / (TUNED_LENGTH * TOKEN_BYTES)).clamp(1, 4);
    format!(
        "\n# Weights to start from; steps follow from the epochs.\n[train]\ninit_from = {}\nglobal_batch = {batch}\nmicro_batch = 1\n\
         lr = 2e-5\nmin_lr = 0.0\ncheckpoint = {{ every = 50, keep = 2 }}\n\n[report]\n",
        quoted(&init_from.to_string_lossy())
    )
}

fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

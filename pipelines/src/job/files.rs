//! Files that a job reads and that must be there before it starts: inputs, tokenizer, models, lists, data of a training.

use super::problem::Problem;
use super::table::Job;
use std::path::{Component, Path, PathBuf};

/// Files that a verb reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// Inputs of `[curate]`, else of `[tokenize]`.
    Inputs,
    /// Models and lists of the curation's steps, and evaluation texts that drop documents.
    Curation,
    /// Evaluation texts that are cut out, the embedding model, indexes of earlier crawls.
    Dedup,
    /// Tokenizer and sentence splitter.
    Tokens,
    /// Datasets of others, rows, and models to start from.
    Training,
}

impl Files {
    /// Those of a whole job.
    pub(crate) const ALL: [Files; 5] = [
        Files::Inputs,
        Files::Curation,
        Files::Dedup,
        Files::Tokens,
        Files::Training,
    ];
}

impl Job {
    /// Inputs that are not there, each a problem of its key.
    pub(crate) fn missing_inputs(&self) -> Vec<Problem> {
        self.missing_among(self.inputs())
    }

    /// Inputs by another listing of the job's own; one with an empty path is left out.
    fn missing_among(&self, inputs: &[curate::read::Input]) -> Vec<Problem> {
        let table = if self.curate.is_some() {
            "curate"
        } else {
            "tokenize"
        };
        let missing = curate::read::missing_inputs(inputs);
        let found = missing.into_iter().map(|(i, why)| Problem {
            key: format!("{table}.inputs[{i}].path"),
            found: format!(
                "{:?}: {}",
                curate::secrets::without_passwords(&inputs[i].path),
                curate::secrets::without_passwords(&why)
            ),
            wanted: "a file, folder, pattern, list or URL that exists".into(),
        });
        found.collect()
    }

    /// All files but inputs that are not there or of another kind, each a problem of its key.
    pub(crate) fn missing_files(&self) -> Vec<Problem> {
        self.missing(&Files::ALL[1..])
    }

    /// Files of these uses that are not there or of another kind, each a problem of its key. Of public crawls only the run asks the
    /// servers, as it may have their lists.
    pub(crate) fn missing(&self, files: &[Files]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for files in files {
            match files {
                Files::Inputs => {
                    let mut inputs = self.inputs().to_vec();
                    let crawls = inputs.iter_mut().filter(|input| input.is_crawl());
                    crawls.for_each(|input| input.path.clear());
                    problems.extend(self.missing_among(&inputs));
                }
                Files::Curation => self.curation_files(&mut problems),
                Files::Dedup => self.dedup_files(&mut problems),
                Files::Tokens => self.token_files(&mut problems),
                Files::Training => self.training_files(&mut problems),
            }
        }
        problems
    }

    /// Models and lists of the curation's steps, and evaluation texts.
    fn curation_files(&self, problems: &mut Vec<Problem>) {
        if let Some(curate) = &self.curate {
            curate.check_files(&mut |key, what, wanted| {
                problems.push(Problem {
                    key: format!("curate.{key}"),
                    found: what,
                    wanted: wanted.into(),
                });
            });
        }
        self.evaluation_texts(self.dropping(), problems);
    }

    fn evaluation_texts(
        &self,
        table: Option<&curate::decontaminate::DecontaminateConfig>,
        problems: &mut Vec<Problem>,
    ) {
        for (i, file) in table.iter().flat_map(|table| &table.files).enumerate() {
            let key = format!("decontaminate.files[{i}]");
            self.expect(
                &key,
                Path::new(file),
                "a file of evaluation texts",
                problems,
            );
        }
    }

    fn dedup_files(&self, problems: &mut Vec<Problem>) {
        self.evaluation_texts(self.cutting(), problems);
        let Some(dedup) = &self.dedup else { return };
        if let Some(semantic) = &dedup.semantic {
            let wanted = "a Hugging Face folder: config.json, tokenizer and weights";
            self.expect(
                "dedup.semantic.model",
                Path::new(&semantic.model),
                wanted,
                problems,
            );
        }
        if let Some(folder) = &dedup.index {
            self.expect("dedup.index", folder, "a folder of *.index files", problems);
        }
    }

    fn token_files(&self, problems: &mut Vec<Problem>) {
        let Some(tokenize) = &self.tokenize else {
            return;
        };
        if let Some(file) = &tokenize.tokenizer.file {
            self.tokenizer_file("tokenize.tokenizer.file", file, problems);
        }
        let sentences = tokenize.sentences.as_ref();
        if let Some(sentences) = sentences.filter(|sentences| sentences.punkt != "english") {
            let (key, wanted) = (
                "tokenize.sentences.punkt",
                "`english`, or a folder of Punkt parameters",
            );
            self.expect(key, Path::new(&sentences.punkt), wanted, problems);
        }
    }

    fn tokenizer_file(&self, key: &str, file: &Path, problems: &mut Vec<Problem>) {
        // a vocabulary of numbers has no file
        if !file.to_string_lossy().starts_with("null:") {
            self.expect(
                key,
                file,
                "a tokenizer: a file, or a folder with one",
                problems,
            );
        }
    }

    fn training_files(&self, problems: &mut Vec<Problem>) {
        let mut lists: Vec<(String, &[PathBuf])> = Vec::new();
        if let Some(table) = &self.classify {
            lists.push(("classify.train".into(), &table.train));
            lists.push(("classify.valid".into(), &table.valid));
        }
        if let Some(table) = &self.finetune {
            lists.push(("finetune.train".into(), &table.train));
            lists.push(("finetune.valid".into(), &table.valid));
            for (i, adapter) in table.adapters.iter().enumerate() {
                lists.push((format!("finetune.adapters[{i}].train"), &adapter.train));
                lists.push((format!("finetune.adapters[{i}].valid"), &adapter.valid));
            }
        }
        for (key, paths) in lists {
            for (i, path) in paths.iter().enumerate() {
                self.expect(&format!("{key}[{i}]"), path, "a file of rows", problems);
            }
        }
        let classify = self.classify.as_ref();
        let finetune = self.finetune.as_ref();
        for (key, file) in [
            ("classify.tokenizer", classify.map(|table| &table.tokenizer)),
            ("finetune.tokenizer", finetune.map(|table| &table.tokenizer)),
        ] {
            if let Some(file) = file {
                self.tokenizer_file(key, file, problems);
            }
        }
        if let Some(blend) = &self.blend {
            let lists = [
                ("dataset", &blend.dataset),
                ("train", &blend.train),
                ("valid", &blend.valid),
                ("test", &blend.test),
                ("validation", &blend.validation),
            ];
            for (list, datasets) in lists {
                for (i, dataset) in datasets.iter().enumerate() {
                    let Some(prefix) = &dataset.prefix else {
                        continue;
                    };
                    let key = format!("blend.{list}[{i}].prefix");
                    let index = prefix.with_added_extension("idx");
                    self.expect(
                        &key,
                        &index,
                        "a dataset's path without .bin and .idx",
                        problems,
                    );
                }
            }
        }
        let Some(train) = &self.train else { return };
        // a training that has begun has its own checkpoints
        if !self.out.join("checkpoints").exists() {
            let wanted =
                "a checkpoint, a folder of checkpoints, a Hugging Face folder or a GGUF file";
            self.expect(
                "train.init_from",
                Path::new(&train.init_from),
                wanted,
                problems,
            );
            let wanted = "a checkpoint or a folder of checkpoints";
            let from = Path::new(&train.resume.from);
            self.expect("train.resume.from", from, wanted, problems);
        }
    }

    /// A problem for a path that is not there. An empty one is a problem of its own, and one in the job's own folder is made by an
    /// earlier stage.
    fn expect(&self, key: &str, path: &Path, wanted: &str, problems: &mut Vec<Problem>) {
        let is_empty = path.as_os_str().is_empty();
        if is_empty || curate::store::is_url(path) || self.is_own(path) || path.exists() {
            return;
        }
        problems.push(Problem {
            key: key.into(),
            found: format!("{:?}: no such file or folder", path.display().to_string()),
            wanted: wanted.into(),
        });
    }

    /// Whether a path is in the job's folder, by its text.
    fn is_own(&self, path: &Path) -> bool {
        let plain = |path: &Path| -> PathBuf {
            let parts = path.components().filter(|part| *part != Component::CurDir);
            parts.collect()
        };
        plain(path).starts_with(plain(&self.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::load::problems;

    #[test]
    fn every_file_that_is_not_there_is_a_problem_of_its_key() {
        let text = r#"
name = "a"
out = "out"
[curate]
inputs = [{ path = "absent-inputs", source = "a" }]
[decontaminate]
files = ["absent-evaluation.jsonl"]
[dedup]
exact = {}
index = "absent-indexes"
[tokenize]
tokenizer = { file = "absent-tokenizer.json" }
[blend]
seq_length = 8
dataset = [{ name = "a" }, { name = "b", prefix = "absent-tokens" }, { name = "c", prefix = "./out/tokens/c" }]
[model]
[train]
init_from = "absent-model"
"#;
        let table: toml::Table = text.parse().unwrap();
        let wrong = problems(&table);
        assert!(wrong.is_empty(), "{wrong:?}");
        let job: Job = table.try_into().unwrap();
        let keys = |files: &[Files]| -> Vec<String> {
            job.missing(files)
                .into_iter()
                .map(|problem| problem.key)
                .collect()
        };
        assert_eq!(keys(&[Files::Inputs]), ["curate.inputs[0].path"]);
        assert_eq!(keys(&[Files::Curation]), ["decontaminate.files[0]"]);
        assert_eq!(keys(&[Files::Dedup]), ["dedup.index"]);
        assert_eq!(keys(&[Files::Tokens]), ["tokenize.tokenizer.file"]);
        assert_eq!(
            keys(&[Files::Training]),
            ["blend.dataset[1].prefix", "train.init_from"]
        );
        assert_eq!(keys(&Files::ALL).len(), 6);
    }

    #[test]
    fn numbers_as_a_vocabulary_need_no_file() {
        let mut job = Job::default();
        let mut tokenize = crate::job::Tokenize::default();
        tokenize.tokenizer.file = Some("null:512".into());
        job.tokenize = Some(tokenize);
        assert!(job.missing(&Files::ALL).is_empty());
    }
}

//! Transformers of `[[curate.step]] classifier` and `[dedup.semantic]`: the model of `train` and the tokenizer of `index`
//! behind the interface that the curator has for models.
//!
//! Ids are those of transformers with `truncation=True`: names of special tokens in a text are these tokens, the
//! post-processor's tokens are added, and of a text that is too long the first tokens stay (the last ones if the
//! tokenizer's `truncation_side` is `left`).

use curate::classifier::{
    Answer, ClassifierDtype, ClassifierModel, Embedding, EmbeddingModel, Logits, Models, Pooling,
    TextClassifier, TextEmbedder,
};
use index::tokenizer::{SpecialTokens, Tokenizer};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;
use train::infer::classifier::{
    self, Arithmetic, Preparation, Problem, SequenceClassifier, SequenceEmbedder,
};

/// Opens classifiers and models of embeddings from Hugging Face folders, on the CPU.
pub(crate) struct Transformers;

impl Models for Transformers {
    fn classifier(&self, model: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String> {
        Ok(Box::new(Transformer::open(model)?))
    }

    fn embedder(&self, model: &EmbeddingModel) -> Result<Box<dyn TextEmbedder>, String> {
        Ok(Box::new(Embedder::open(model)?))
    }
}

/// Tokens of texts that run together where no job says otherwise.
const BATCH_TOKENS: usize = 2048;

/// Opens the model of a folder with the step's defaults.
pub(crate) fn open_classifier(folder: &Path) -> anyhow::Result<Box<dyn TextClassifier>> {
    let settings = ClassifierModel {
        folder: folder.to_owned(),
        dtype: ClassifierDtype::F32,
        max_tokens: 0,
        batch_tokens: BATCH_TOKENS,
    };
    Transformers
        .classifier(&settings)
        .map_err(anyhow::Error::msg)
}

/// A tokenizer and the ids of a text that its model reads.
struct Reading {
    tokenizer: Tokenizer,
    /// Ids around a text.
    before: Vec<u32>,
    after: Vec<u32>,
    /// Tokens of a text that are read, without those around it.
    room: usize,
    keeps_end: bool,
}

/// Sizes of a model that bound ids and texts.
#[derive(Clone, Copy)]
struct Sizes {
    vocab: usize,
    max_tokens: usize,
}

impl Reading {
    /// Reads at most `asked` tokens; 0: as many as the model and the tokenizer's limit allow.
    fn open(folder: &Path, model: Sizes, asked: usize) -> Result<Reading, String> {
        let file = folder.join("tokenizer.json");
        let tokenizer = Tokenizer::load(&file).map_err(|e| e.to_string())?;
        let at = |why: String| format!("{}: {why}", file.display());
        if tokenizer.vocab() > model.vocab {
            let (found, most) = (tokenizer.vocab(), model.vocab);
            return Err(at(format!(
                "found {found} ids, want at most the model's vocab_size of {most}"
            )));
        }
        let (before, after) = tokenizer.around().map_err(|e| e.to_string())?;
        let (before, after) = (before.to_vec(), after.to_vec());
        let config = TokenizerConfig::read(folder)?;
        let own = model.max_tokens.min(config.max_length);
        let most = match asked {
            0 => own,
            asked => own.min(asked),
        };
        let around = before.len() + after.len();
        if most <= around {
            return Err(at(format!(
                "found {around} tokens around a text, want fewer than the {most} that are read"
            )));
        }
        Ok(Reading {
            tokenizer,
            room: most - around,
            before,
            after,
            keeps_end: config.keeps_end,
        })
    }

    /// The ids that the model reads of a text's.
    fn cut(&self, text: &[u32]) -> Vec<u32> {
        let kept = self.room.min(text.len());
        let kept = match self.keeps_end {
            true => &text[text.len() - kept..],
            false => &text[..kept],
        };
        [&self.before, kept, &self.after].concat()
    }

    /// The results of `run` for the ids of each text; or why a text has none.
    fn of_texts<E: std::fmt::Display>(
        &self,
        texts: &[&str],
        run: impl FnOnce(&[&[u32]]) -> Result<Vec<Vec<f32>>, E>,
    ) -> Result<Vec<Result<Vec<f32>, String>>, String> {
        let names = SpecialTokens {
            add: false,
            parse: true,
        };
        // fails for all texts or for none
        let encoder = || self.tokenizer.encoder_with(names);
        drop(encoder().map_err(|e| e.to_string())?);
        let ids: Vec<Result<Vec<u32>, String>> = texts
            .par_iter()
            .map_init(encoder, |encoder, text| {
                let encoder = encoder.as_mut().map_err(|e| e.to_string())?;
                let ids = encoder.encode(text).map_err(|e| e.to_string())?;
                let ids = self.cut(ids);
                match ids.is_empty() {
                    true => Err("a text without a token".to_string()),
                    false => Ok(ids),
                }
            })
            .collect();
        let read: Vec<&[u32]> = ids.iter().flatten().map(Vec::as_slice).collect();
        let mut results = run(&read).map_err(|e| e.to_string())?.into_iter();
        let of = |ids: Result<Vec<u32>, String>| {
            ids.and_then(|_| results.next().ok_or_else(|| "no result".to_string()))
        };
        Ok(ids.into_iter().map(of).collect())
    }
}

fn arithmetic(dtype: ClassifierDtype) -> Arithmetic {
    match dtype {
        ClassifierDtype::F32 => Arithmetic::F32,
        ClassifierDtype::Bf16 => Arithmetic::Bf16,
        ClassifierDtype::Bf16Tiles => Arithmetic::Bf16Tiles,
        ClassifierDtype::Int8 => Arithmetic::Int8,
    }
}

/// A classifier with its tokenizer.
struct Transformer {
    model: SequenceClassifier,
    reading: Reading,
    batch_tokens: usize,
}

impl Transformer {
    fn open(settings: &ClassifierModel) -> Result<Transformer, String> {
        let folder = &settings.folder;
        let model = SequenceClassifier::open(folder, arithmetic(settings.dtype));
        let model = model.map_err(|e| e.with_causes())?;
        for note in model.notes() {
            log!("classifier {}: {note}", folder.display());
        }
        let sizes = Sizes {
            vocab: model.vocab(),
            max_tokens: model.max_tokens(),
        };
        Ok(Transformer {
            reading: Reading::open(folder, sizes, settings.max_tokens)?,
            model,
            batch_tokens: settings.batch_tokens,
        })
    }
}

/// A model of embeddings with its tokenizer.
struct Embedder {
    model: SequenceEmbedder,
    reading: Reading,
    batch_tokens: usize,
}

impl Embedder {
    fn open(settings: &EmbeddingModel) -> Result<Embedder, String> {
        let folder = &settings.folder;
        let pooling = settings.pooling.map(|pooling| match pooling {
            Pooling::Mean => classifier::Pooling::Mean,
            Pooling::Cls => classifier::Pooling::Cls,
        });
        let model = SequenceEmbedder::open(folder, arithmetic(settings.dtype), pooling);
        let model = model.map_err(|e| e.with_causes())?;
        for note in model.notes() {
            log!("embeddings {}: {note}", folder.display());
        }
        let sizes = Sizes {
            vocab: model.vocab(),
            max_tokens: model.max_tokens(),
        };
        Ok(Embedder {
            reading: Reading::open(folder, sizes, settings.max_tokens)?,
            model,
            batch_tokens: settings.batch_tokens,
        })
    }
}

fn prepared(text: &str, by: Preparation) -> Cow<'_, str> {
    let text = if by.strips { text.trim() } else { text };
    match by.lowers {
        true => text.to_lowercase().into(),
        false => text.into(),
    }
}

impl TextEmbedder for Embedder {
    fn width(&self) -> usize {
        self.model.width()
    }

    fn embeddings(&self, texts: &[&str]) -> Result<Vec<Embedding>, String> {
        let preparation = self.model.preparation();
        let prepared: Vec<Cow<'_, str>> = texts
            .iter()
            .map(|text| prepared(text, preparation))
            .collect();
        let texts: Vec<&str> = prepared.iter().map(AsRef::as_ref).collect();
        self.reading.of_texts(&texts, |ids| {
            let found = self.model.embeddings(ids, self.batch_tokens);
            found.map_err(|e| e.with_causes())
        })
    }
}

/// Fields of `tokenizer_config.json` that truncation depends on; the file may be missing.
struct TokenizerConfig {
    max_length: usize,
    keeps_end: bool,
}

impl TokenizerConfig {
    fn read(folder: &Path) -> Result<TokenizerConfig, String> {
        let path = folder.join("tokenizer_config.json");
        let mut config = TokenizerConfig {
            max_length: usize::MAX,
            keeps_end: false,
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(config),
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let wrong = |why: String| format!("{}: {why}", path.display());
        let value: Value = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        // a number of any size, or nothing, stands for no limit
        let limit = value["model_max_length"].as_u64();
        if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
            config.max_length = limit;
        }
        config.keeps_end = match value["truncation_side"].as_str() {
            None | Some("right") => false,
            Some("left") => true,
            Some(other) => {
                let found = format!("truncation_side: found {other:?}, want \"right\" or \"left\"");
                return Err(wrong(found));
            }
        };
        Ok(config)
    }
}

impl TextClassifier for Transformer {
    fn labels(&self) -> &[String] {
        self.model.labels()
    }

    fn answer(&self) -> Answer {
        match self.model.problem() {
            Problem::Regression => Answer::Regression,
            Problem::SingleLabel => Answer::OneLabel,
            Problem::MultiLabel => Answer::AnyLabels,
        }
    }

    fn logits(&self, texts: &[&str]) -> Result<Vec<Logits>, String> {
        self.reading.of_texts(texts, |ids| {
            let found = self.model.logits(ids, self.batch_tokens);
            found.map_err(|e| e.with_causes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

    fn data(name: &str) -> PathBuf {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/classifiers");
        Path::new(data).join(name)
    }

    fn settings(folder: PathBuf) -> ClassifierModel {
        ClassifierModel {
            folder,
            dtype: ClassifierDtype::F32,
            max_tokens: 0,
            batch_tokens: 200,
        }
    }

    fn goldens(name: &str) -> Vec<Value> {
        let text = std::fs::read(data(name).join("golden.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn texts_have_the_ids_and_logits_of_transformers() {
        for name in [
            "bert",
            "roberta",
            "xlm",
            "distilbert",
            "deberta_v3",
            "deberta_v2",
        ] {
            let model = Transformer::open(&settings(data(name))).unwrap();
            let goldens = goldens(name);
            let texts: Vec<&str> = goldens
                .iter()
                .map(|g| g["text"].as_str().unwrap())
                .collect();
            let names = SpecialTokens {
                add: false,
                parse: true,
            };
            let mut encoder = model.reading.tokenizer.encoder_with(names).unwrap();
            for (text, golden) in texts.iter().zip(&goldens) {
                let ids = model.reading.cut(encoder.encode(text).unwrap());
                assert_eq!(json!(ids), golden["ids"], "{name}: {text:?}");
            }
            let found = model.logits(&texts).unwrap();
            for (found, golden) in found.iter().zip(&goldens) {
                let found = found.as_ref().unwrap();
                let wanted = golden["f32"].as_array().unwrap();
                assert_eq!(found.len(), wanted.len());
                for (found, wanted) in found.iter().zip(wanted) {
                    let off = (f64::from(*found) - wanted.as_f64().unwrap()).abs();
                    assert!(off < 1e-5, "{name}: {off}");
                }
            }
        }
    }

    #[test]
    fn fewer_tokens_are_read_if_asked_for_and_the_end_stays_if_the_tokenizer_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(data("bert")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let open = |tokenizer: &Value, max_tokens| {
            let path = folder.path().join("tokenizer_config.json");
            std::fs::write(path, tokenizer.to_string()).unwrap();
            Transformer::open(&ClassifierModel {
                max_tokens,
                ..settings(folder.path().to_owned())
            })
        };
        let text: Vec<u32> = (10..100).collect();
        let cut = |tokenizer: Value, max_tokens| {
            let opened = open(&tokenizer, max_tokens).unwrap();
            opened.reading.cut(&text)
        };
        assert_eq!(cut(json!({}), 0).len(), 64);
        assert_eq!(cut(json!({"model_max_length": 1e30}), 0).len(), 64);
        assert_eq!(cut(json!({"model_max_length": 32}), 0).len(), 32);
        assert_eq!(cut(json!({"model_max_length": 32}), 100).len(), 32);
        assert_eq!(cut(json!({}), 5), [2, 10, 11, 12, 3]);
        assert_eq!(
            cut(json!({"truncation_side": "left"}), 5),
            [2, 97, 98, 99, 3]
        );
        let refused = |tokenizer: Value, max_tokens| open(&tokenizer, max_tokens).err().unwrap();
        assert!(
            refused(json!({}), 2).contains("found 2 tokens around a text, want fewer than the 2")
        );
        let side = refused(json!({"truncation_side": "middle"}), 0);
        assert!(
            side.contains("truncation_side: found \"middle\", want \"right\" or \"left\""),
            "{side}"
        );
        std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
        assert!(refused(json!({}), 0).contains("tokenizer.json"));
    }
}

//! Kinds of tokenizer files, and options for facts that the files do not contain.

use serde::{Deserialize, Serialize};

/// Kind of a tokenizer file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Hugging Face's `tokenizer.json`.
    #[serde(rename = "tokenizer_json")]
    TokenizerJson,
    /// GPT-2's `vocab.json` and `merges.txt`.
    Gpt2,
    /// BERT's `vocab.txt`.
    WordPiece,
    /// A SentencePiece `.model`.
    SentencePiece,
    /// OpenAI's rank file.
    Tiktoken,
    /// Mistral's `tekken.json`.
    Tekken,
    /// No file: texts are numbers.
    Null,
}

/// Pattern that cuts text into words before merges, for files that do not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// GPT-2, r50k, p50k, GPT-NeoX.
    Gpt2,
    /// GPT-4.
    Cl100k,
    /// GPT-4o.
    O200k,
    /// LLaMA 3.
    Llama3,
    /// Qwen.
    Qwen,
}

/// Options for facts that a tokenizer's files do not contain. All are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadOptions {
    /// Kind of the file. Default: detected from its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// WordPiece: fold case and strip accents first. Default: `do_lower_case` of the `tokenizer_config.json` beside the
    /// file, else yes if no token has an upper-case letter (names in brackets aside).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowercase: Option<bool>,
    /// tiktoken: the pattern. Default: by the file's name (cl100k, o200k, r50k, p50k, gpt2, neox, llama, qwen).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Special tokens that the file lacks, with their ids. Default: OpenAI's, for vocabularies known by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<(String, u32)>,
    /// The token that ends a document. Default: by kind, see the table of the tokenizer module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eod: Option<String>,
}

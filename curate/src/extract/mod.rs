//! HTML to main text.
//!
//! Decode (charset.rs), parse as browsers do (tree.rs), cut into blocks and choose (content.rs).

mod charset;
mod content;
mod tree;

use serde::{Deserialize, Serialize};

use crate::config::{Problem, range};

/// Settings of main-content extraction.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractConfig {
    /// A block with a greater share of its characters in links is navigation. Our measurement.
    pub max_link_density: f64,
    /// Paragraphs shorter than this (characters) do not speak for their container. Our measurement.
    pub min_paragraph_chars: usize,
}

impl Default for ExtractConfig {
    fn default() -> Self {
        ExtractConfig {
            max_link_density: 0.5,
            min_paragraph_chars: 40,
        }
    }
}

impl ExtractConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "max_link_density", self.max_link_density, 0.0, 1.0);
    }
}

/// What was found in a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extracted {
    /// Main text: a block a line, a blank line between paragraphs; empty if there is none.
    pub text: String,
    /// `<title>`.
    pub title: Option<String>,
    /// Name of the charset the bytes were decoded with.
    pub charset: &'static str,
    /// Language of `<html lang>`.
    pub lang: Option<String>,
}

/// Main text of a page given as bytes and the Content-Type it was served with.
pub fn extract_html(bytes: &[u8], content_type: Option<&str>) -> Extracted {
    extract_with(bytes, content_type, &ExtractConfig::default())
}

/// [`extract_html`] with settings.
pub fn extract_with(bytes: &[u8], content_type: Option<&str>, config: &ExtractConfig) -> Extracted {
    let (html, charset) = charset::decode(bytes, content_type);
    let tree = tree::parse(&html);
    let page = content::main_text(&tree, config);
    Extracted {
        text: page.text,
        title: page.title,
        charset,
        lang: page.lang,
    }
}

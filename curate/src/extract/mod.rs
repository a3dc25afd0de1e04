//! Main-content extraction: HTML to main text.
//!
//! Decode (charset.rs), parse (html/), read the page's metadata (meta/), cut into blocks
//! (blocks.rs, counts.rs, areas.rs, marks.rs), judge each block (features.rs, linear.rs, model.rs,
//! choose.rs), write (render.rs).
//! All of it is one pass per page with work bounded by the page's length.

mod areas;
mod blocks;
mod buckets;
mod charset;
mod choose;
mod columns;
mod config;
mod counts;
mod features;
mod html;
mod linear;
mod marks;
mod meta;
mod model;
mod render;

use areas::Areas;

pub use config::{ExtractConfig, Favour, TextForm};
pub use meta::PageMeta;

/// A page as it was fetched.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageSource<'a> {
    /// Body without transfer and content codings.
    pub bytes: &'a [u8],
    /// `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// `X-Robots-Tag` header.
    pub robots: Option<&'a str>,
    /// Address of the page.
    pub url: Option<&'a str>,
}

/// Content extracted from a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extracted {
    /// Main text; empty if there is none.
    pub text: String,
    /// The page's metadata.
    pub meta: PageMeta,
    /// Name of the charset the bytes were decoded with.
    pub charset: &'static str,
    /// The page was longer or more nested than it is read, and was cut off.
    pub is_cut: bool,
}

/// Main text of a page given as bytes and the Content-Type it was served with.
pub fn extract_html(bytes: &[u8], content_type: Option<&str>) -> Extracted {
    let source = PageSource {
        bytes,
        content_type,
        ..PageSource::default()
    };
    extract_page(&source, &ExtractConfig::default())
}

/// Main text and metadata of a page.
pub fn extract_page(source: &PageSource<'_>, config: &ExtractConfig) -> Extracted {
    let bytes = &source.bytes[..source.bytes.len().min(config.max_page_bytes)];
    let (html, charset) = charset::decode(bytes, source.content_type, source.url);
    let tree = html::parse(&html);
    let (meta, hints) = meta::read(&tree, source.url, source.robots);
    let page = blocks::cut(&tree);
    let areas = Areas::new(&page);
    let mut columns = features::first(&page, &areas, &meta, &hints);
    let scores = model::scores(&page, &areas, &mut columns);
    let chosen = choose::choose(&page, &scores, hints.is_article, config);
    Extracted {
        text: render::render(&page, &chosen, config),
        meta,
        charset,
        is_cut: tree.is_cut || bytes.len() < source.bytes.len(),
    }
}

/// The model's features of a page, for training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockFeatures {
    /// Text of each block.
    pub texts: Vec<String>,
    /// Feature columns one after another, one byte per block in each.
    pub columns: Vec<Vec<u8>>,
    /// Hashed words of each block: of its text, its classes, and the surrounding classes.
    pub words: Vec<[Vec<u16>; 3]>,
}

/// The features of a page's blocks: those of the first ensemble and, given its logits in 1/1024,
/// those of the second.
pub fn block_features(source: &PageSource<'_>, logits: Option<&[i32]>) -> BlockFeatures {
    let (html, _) = charset::decode(source.bytes, source.content_type, source.url);
    let tree = html::parse(&html);
    let (meta, hints) = meta::read(&tree, source.url, source.robots);
    let page = blocks::cut(&tree);
    let areas = Areas::new(&page);
    let mut columns = features::first(&page, &areas, &meta, &hints);
    if let Some(logits) = logits.filter(|l| l.len() == page.blocks.len()) {
        model::context(&mut columns, &page, &areas, logits);
    }
    let words = |i: usize| {
        let mut text = Vec::new();
        buckets::text_words(page.text_of(&page.blocks[i]), &mut text);
        let (own, around) = linear::class_words_around(&page, i);
        [text, own, around]
    };
    BlockFeatures {
        words: (0..page.blocks.len()).map(words).collect(),
        texts: page
            .blocks
            .iter()
            .map(|b| page.text_of(b).to_string())
            .collect(),
        columns: (0..columns.len())
            .map(|c| columns.column(c).to_vec())
            .collect(),
    }
}

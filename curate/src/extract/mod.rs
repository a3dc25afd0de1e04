//! Main-content extraction: HTML to main text.
//!
//! Decode (charset.rs), parse (html/), read the page's metadata (meta/), cut into blocks
//! (blocks.rs, counts.rs, areas.rs, marks.rs), judge each block (features.rs, linear.rs, model.rs,
//! choose.rs), write (render.rs; Markdown's marks inside of blocks: pieces.rs, inline.rs, rows.rs).
//! All of it is one pass per page with work bounded by the page's length.

mod areas;
mod blocks;
mod buckets;
mod charset;
mod choose;
mod code;
mod columns;
mod config;
mod counts;
mod features;
mod forum;
mod html;
mod inline;
mod linear;
mod marks;
mod math;
mod meta;
mod model;
mod notes;
mod patterns;
mod pieces;
mod render;
mod rows;
mod structure;
mod thread;
mod visible;

use areas::Areas;
use blocks::Page;
use notes::Notes;
use structure::Structures;

pub use config::{Copies, ExtractConfig, Favour, TextForm};
pub use meta::PageMeta;
pub(crate) use meta::robots_directives;
pub(crate) use visible::visible_chars;

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
    /// Paragraphs left out because they are a second copy of the text.
    pub copies: u32,
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
    judged(source, config, None)
}

/// As `extract_page`, with these logits of the page's blocks (in 1/1024, as many as `block_features` has blocks)
/// instead of the model's: to measure models by what their pages come out as. Logits of another length are ignored.
pub fn extract_judged(
    source: &PageSource<'_>,
    config: &ExtractConfig,
    logits: &[i32],
) -> Extracted {
    judged(source, config, Some(logits))
}

fn judged(source: &PageSource<'_>, config: &ExtractConfig, logits: Option<&[i32]>) -> Extracted {
    let bytes = &source.bytes[..source.bytes.len().min(config.max_page_bytes)];
    let (html, charset) = charset::decode(bytes, source.content_type, source.url);
    let (tree, page) = read(&html, config.format);
    let (meta, hints) = meta::read(&tree, source.url, source.robots);
    let structures = Structures::new(&page);
    let blocks = match thread::thread(&page, meta.title.as_deref(), config.comments) {
        Some(thread) => thread,
        None => {
            let scores = match logits.filter(|l| l.len() == page.blocks.len()) {
                Some(logits) => logits.to_vec(),
                None => {
                    let areas = Areas::new(&page);
                    let mut columns = features::first(&page, &areas, &meta, &hints);
                    model::scores(&page, &areas, &mut columns)
                }
            };
            let is_article = hints.is_article;
            choose::choose(&page, &structures, &scores, is_article, config)
        }
    };
    let (blocks, copies) = match config.copies {
        Copies::Drop => structures.without_copies(&page, blocks),
        Copies::Keep => (blocks, 0),
    };
    Extracted {
        text: render::render(&page, &blocks, config, 1).text,
        meta,
        charset,
        is_cut: tree.is_cut || bytes.len() < source.bytes.len(),
        copies,
    }
}

/// A text in HTML, rendered.
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// It was longer or more nested than it is read, and was cut off.
    pub(crate) is_cut: bool,
    /// Footnotes that it has in Markdown.
    pub(crate) notes: usize,
}

/// All text of a page that has nothing but text, such as a chapter of a book: no block is judged or left out. Markdown
/// numbers the footnotes from `first_note` on, as one label stands for one note of a document.
pub(crate) fn render_whole(html: &str, config: &ExtractConfig, first_note: usize) -> Rendered {
    let end = html.floor_char_boundary(config.max_page_bytes);
    let (tree, page) = read(&html[..end], config.format);
    let all: Vec<usize> = (0..page.blocks.len()).collect();
    let rendered = render::render(&page, &all, config, first_note);
    Rendered {
        text: rendered.text,
        notes: rendered.notes,
        is_cut: tree.is_cut || end < html.len(),
    }
}

/// The tree and the blocks of a page.
fn read(html: &str, form: TextForm) -> (html::Tree<'_>, Page) {
    let cut = |tree: &html::Tree<'_>| match form {
        TextForm::Text => blocks::cut(tree, None),
        TextForm::Markdown => blocks::cut(tree, Some(&Notes::find(tree))),
    };
    let tree = html::parse(html);
    let page = cut(&tree);
    if !is_for_browsers_without_scripts(&tree, &page) {
        return (tree, page);
    }
    let tree = html::parse_without_scripts(html);
    let page = cut(&tree);
    (tree, page)
}

/// Words that `noscript` elements must have to be the text of a page: more than a request to enable scripts.
const SCRIPTLESS_WORDS: usize = 40;

/// Whether the text of a page is in `noscript` elements: forums whose pages are made by scripts have it there.
fn is_for_browsers_without_scripts(tree: &html::Tree<'_>, page: &Page) -> bool {
    let words: usize = tree.noscripts().map(words_outside_tags).sum();
    if words < SCRIPTLESS_WORDS {
        return false;
    }
    let prose = page.blocks.iter().filter(|block| block.is_prose());
    let prose: usize = prose.map(|block| block.counts.words as usize).sum();
    words > 2 * prose
}

/// Words of some markup, about: runs without spaces outside of tags.
fn words_outside_tags(markup: &str) -> usize {
    let texts = markup.split('<').enumerate().map(|(i, part)| match i {
        0 => part,
        _ => part.split_once('>').map_or("", |(_, text)| text),
    });
    texts
        .map(|text| text.split_ascii_whitespace().count())
        .sum()
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
    let (tree, page) = read(&html, TextForm::Text);
    let (meta, hints) = meta::read(&tree, source.url, source.robots);
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

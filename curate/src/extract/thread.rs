//! The blocks of a forum's thread.
//!
//! A page with a post is its title and its posts in order. The answers on Reddit and Hacker News are posts; the
//! comments of Stack Exchange under its posts are comments, and written on demand behind the post they belong to.

use super::blocks::{Block, Page, Shape};
use super::forum::{COMMENT, OUT, POST, QUOTE, TITLE};
use super::marks::mark;

/// Whether a block is text of a post.
pub(super) fn is_post(block: &Block) -> bool {
    block.place & (POST | OUT) == POST
}

fn is_comment(block: &Block) -> bool {
    block.place & (COMMENT | POST | OUT) == COMMENT
}

/// Whether a block is quoted: inside a post by its engine's markup, elsewhere by any `blockquote`.
pub(super) fn is_quoted(block: &Block) -> bool {
    match block.place & POST {
        0 => block.near[mark::QUOTE] != 0,
        _ => block.place & QUOTE != 0,
    }
}

/// The blocks of a thread in order: title, posts and, if wanted, comments. None: the page is no thread.
///
/// `page_title` is the page's own; sites that head every page with their name have the thread's in there too.
pub(super) fn thread(
    page: &Page,
    page_title: Option<&str>,
    wants_comments: bool,
) -> Option<Vec<usize>> {
    let blocks = &page.blocks;
    let takes = |b: &Block| is_post(b) || wants_comments && is_comment(b);
    let first = blocks.iter().position(is_post)?;
    let before = || blocks[..first].iter().enumerate();
    let is_title = |b: &Block| b.place & TITLE != 0;
    let is_heading = |b: &Block| b.shape == Shape::Heading;
    let is_named = |b: &Block| {
        let text = page.text_of(b).trim();
        text.contains(' ') && page_title.is_some_and(|title| title.contains(text))
    };
    let title = before()
        .rfind(|(_, b)| is_title(b) && is_heading(b))
        .or_else(|| before().find(|(_, b)| is_title(b)))
        .or_else(|| before().rfind(|(_, b)| is_named(b)))
        .or_else(|| before().rfind(|(_, b)| is_heading(b) && b.level == 1))
        .map(|(i, _)| i);
    let texts = (first..blocks.len()).filter(|&i| takes(&blocks[i]));
    Some(title.into_iter().chain(texts).collect())
}

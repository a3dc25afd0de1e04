//! Threads of forums, read by their engine's own markup.
//!
//! A thread is many short texts of many writers between profiles, signatures and buttons, which a model of articles
//! takes for comments. The big engines mark the text of a post by fixed classes and ids, known from their public
//! templates: Discourse (rendered, and the copy for crawlers in `<noscript>`), phpBB 2 and 3, vBulletin 3 to 5,
//! XenForo 1 and 2, Stack Exchange, old Reddit, Hacker News, MyBB, SMF 2, Flarum, bbPress, FluxBB, WoltLab, issues of
//! GitHub. Others (Invision, Vanilla, NodeBB, Lemmy) mark posts like articles, and the model reads them. One word is
//! never enough: "content" or "post" are on any page, so most count only inside their engine's shell.

use super::html::Tag;

/// Words of classes and ids, one bit each.
mod word {
    pub(super) const PHPBB: u32 = 1;
    pub(super) const CONTENT: u32 = 1 << 1;
    pub(super) const DISCOURSE: u32 = 1 << 2;
    pub(super) const POST: u32 = 1 << 3;
    pub(super) const BLOCKQUOTE_POST: u32 = 1 << 4;
    pub(super) const VBULLETIN: u32 = 1 << 5;
    pub(super) const XENFORO: u32 = 1 << 6;
    pub(super) const XENFORO_TEXT: u32 = 1 << 7;
    pub(super) const STACK: u32 = 1 << 8;
    pub(super) const STACK_TEXT: u32 = 1 << 9;
    pub(super) const STACK_COMMENT: u32 = 1 << 10;
    pub(super) const THING: u32 = 1 << 11;
    pub(super) const LINK: u32 = 1 << 12;
    pub(super) const COMMENT: u32 = 1 << 13;
    pub(super) const USERTEXT: u32 = 1 << 14;
    pub(super) const MARKDOWN: u32 = 1 << 15;
    pub(super) const NEWS: u32 = 1 << 16;
    pub(super) const NEWS_TEXT: u32 = 1 << 17;
    pub(super) const NEWS_COMMENT: u32 = 1 << 18;
    pub(super) const TITLE: u32 = 1 << 19;
    pub(super) const OUT: u32 = 1 << 20;
    pub(super) const QUOTE: u32 = 1 << 21;
    pub(super) const SUBMISSION_TITLE: u32 = 1 << 22;
    pub(super) const SMF: u32 = 1 << 23;
    pub(super) const SMF_TEXT: u32 = 1 << 24;
    pub(super) const MYBB: u32 = 1 << 25;
    pub(super) const MYBB_TEXT: u32 = 1 << 26;
    /// Engines whose words no other program uses.
    pub(super) const NAMED: u32 = 1 << 27;
    pub(super) const NAMED_TEXT: u32 = 1 << 28;
}

/// The words of a class or id that engines use.
pub(super) fn words(value: &str) -> u32 {
    use word::*;
    let one = |token: &str| match token {
        "postbody" => PHPBB,
        "content" => CONTENT,
        "topic-body" | "crawler-post" => DISCOURSE,
        "post" | "cooked" => POST,
        "postcontent" => BLOCKQUOTE_POST,
        // XenForo 1 has it on a quote, WoltLab inside of its shell
        "messageText" => BLOCKQUOTE_POST | NAMED_TEXT,
        "js-post__content-text" => VBULLETIN,
        "message-body" => XENFORO,
        "bbWrapper" => XENFORO_TEXT,
        "postcell" | "answercell" => STACK,
        "js-post-body" | "post-text" => STACK_TEXT,
        "comment-copy" => STACK_COMMENT,
        "thing" => THING,
        "title" => SUBMISSION_TITLE,
        "link" => LINK,
        "comment" => COMMENT,
        "usertext-body" => USERTEXT,
        "md" => MARKDOWN,
        "fatitem" => NEWS,
        "toptext" => NEWS_TEXT,
        "commtext" => NEWS_COMMENT,
        "postarea" => SMF,
        "inner" => SMF_TEXT,
        "post_content" => MYBB,
        "scaleimages" => MYBB_TEXT,
        "CommentPost" | "type-reply" | "type-topic" | "blockpost" | "wbbPost"
        | "timeline-comment" => NAMED,
        "Post-body" | "bbp-reply-content" | "bbp-topic-content" | "postmsg" | "js-comment-body" => {
            NAMED_TEXT
        }
        "topic-title"
        | "p-title-value"
        | "threadtitle"
        | "question-hyperlink"
        | "titleline"
        | "DiscussionHero-title"
        | "js-issue-title" => TITLE,
        "bbcode_container" | "bbCodeQuote" | "bbCodeBlock--quote" | "bbc_standard_quote"
        | "mycode_quote" => QUOTE,
        "signature"
        | "bbCodeBlock-expandLink"
        | "quote-controls"
        | "crawler-post-meta"
        | "postsignature"
        | "messageSignature" => OUT,
        other => match other.strip_prefix("post_message_") {
            Some(number) if number.bytes().all(|b| b.is_ascii_digit()) => VBULLETIN,
            _ => 0,
        },
    };
    value
        .split_ascii_whitespace()
        .map(one)
        .fold(0, |a, b| a | b)
}

/// Place of a block in a thread: shells around it, and what it is.
pub(super) type Place = u16;

/// Shells.
const PHPBB: Place = 1;
const DISCOURSE: Place = 1 << 1;
const XENFORO: Place = 1 << 2;
const STACK: Place = 1 << 3;
const SUBMISSION: Place = 1 << 4;
const ANSWER: Place = 1 << 5;
const USERTEXT: Place = 1 << 6;
pub(super) const NEWS: Place = 1 << 7;
/// Text of a post.
pub(super) const POST: Place = 1 << 8;
/// Text of a comment.
pub(super) const COMMENT: Place = 1 << 9;
/// No text, though inside of one.
pub(super) const OUT: Place = 1 << 10;
/// Title of the thread.
pub(super) const TITLE: Place = 1 << 11;

/// Quotation inside of a post.
pub(super) const QUOTE: Place = 1 << 12;

/// Further shells.
const SMF: Place = 1 << 13;
const MYBB: Place = 1 << 14;
const NAMED: Place = 1 << 15;

/// The place inside an element with these words, from the place around it.
pub(super) fn enter(around: Place, words: u32, tag: Tag) -> Place {
    if words == 0 {
        let is_quote = tag == Tag::Blockquote && around & POST != 0;
        return if is_quote { around | QUOTE } else { around };
    }
    let has = |word: u32| words & word != 0;
    let within = |shell: Place| around & shell != 0;
    let shells = [
        (has(word::PHPBB), PHPBB),
        (has(word::DISCOURSE), DISCOURSE),
        (has(word::XENFORO), XENFORO),
        (has(word::STACK), STACK),
        (has(word::THING) && has(word::LINK), SUBMISSION),
        (has(word::THING) && has(word::COMMENT), ANSWER),
        (has(word::USERTEXT), USERTEXT),
        (has(word::NEWS), NEWS),
        (has(word::SMF), SMF),
        (has(word::MYBB), MYBB),
        (has(word::NAMED), NAMED),
        (has(word::TITLE), TITLE),
        (has(word::SUBMISSION_TITLE) && within(SUBMISSION), TITLE),
        (has(word::OUT), OUT),
        (has(word::QUOTE), QUOTE),
    ];
    let mut place = shells
        .iter()
        .filter(|s| s.0)
        .fold(around, |place, s| place | s.1);
    let is_post = has(word::VBULLETIN)
        || has(word::BLOCKQUOTE_POST) && tag == Tag::Blockquote
        // version 2 has it on the text itself
        || has(word::PHPBB) && tag != Tag::Div
        || has(word::CONTENT) && within(PHPBB)
        || has(word::POST) && within(DISCOURSE)
        || has(word::XENFORO_TEXT) && within(XENFORO)
        || has(word::STACK_TEXT) && within(STACK)
        || has(word::NEWS_TEXT) && within(NEWS)
        || has(word::NEWS_COMMENT)
        || has(word::SMF_TEXT) && within(SMF)
        // the signature has the same word
        || has(word::MYBB_TEXT) && !has(word::OUT) && within(MYBB)
        || has(word::NAMED_TEXT) && within(NAMED)
        || has(word::MARKDOWN) && within(USERTEXT) && within(SUBMISSION | ANSWER);
    let is_comment = has(word::STACK_COMMENT);
    if is_post {
        place |= POST;
    }
    if is_comment {
        place |= COMMENT;
    }
    place
}

/// Whether the text of a post or comment begins between two places.
pub(super) fn begins_text(around: Place, inside: Place) -> bool {
    inside & (POST | COMMENT) & !around != 0
}

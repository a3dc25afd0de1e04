//! Compares our tokens with html5ever's, on random markup.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token as Theirs, TokenSink, TokenSinkResult, Tokenizer as TheirTokenizer,
    TokenizerOpts,
};
use proptest::prelude::*;

use super::names::RAW;
use super::token::{Token, Tokenizer};
use crate::extract::html::Tag;
use crate::text::entity::push_decoded;

/// A token in words: text, start tag with attributes, end tag.
#[derive(Clone, PartialEq, Debug)]
enum Plain {
    Text(String),
    Start(String, Vec<(String, String)>),
    End(String),
}

fn push(tokens: &mut Vec<Plain>, token: Plain) {
    match (tokens.last_mut(), token) {
        (Some(Plain::Text(have)), Plain::Text(more)) => have.push_str(&more),
        (_, Plain::Text(text)) if text.is_empty() => {}
        (_, token) => tokens.push(token),
    }
}

#[derive(Default)]
struct Sink(RefCell<Vec<Plain>>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Theirs, _line: u64) -> TokenSinkResult<()> {
        let mut tokens = self.0.borrow_mut();
        match token {
            Theirs::CharacterTokens(text) => push(&mut tokens, Plain::Text(text.to_string())),
            Theirs::TagToken(tag) if tag.kind == TagKind::StartTag => {
                let attributes = tag.attrs.iter();
                let attributes = attributes
                    .map(|a| (a.name.local.to_string(), a.value.to_string()))
                    .collect();
                push(&mut tokens, Plain::Start(tag.name.to_string(), attributes));
                return match &*tag.name {
                    "script" => TokenSinkResult::RawData(RawKind::ScriptData),
                    "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
                    "plaintext" => TokenSinkResult::Plaintext,
                    name if Tag::of(name.as_bytes()).is(RAW) => {
                        TokenSinkResult::RawData(RawKind::Rawtext)
                    }
                    _ => TokenSinkResult::Continue,
                };
            }
            Theirs::TagToken(tag) => push(&mut tokens, Plain::End(tag.name.to_string())),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn theirs(html: &str) -> Vec<Plain> {
    let tokenizer = TheirTokenizer::new(Sink::default(), TokenizerOpts::default());
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from_slice(html));
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

fn ours(html: &str) -> Vec<Plain> {
    let slice = |s: super::token::Span| &html[s.start as usize..s.end as usize];
    let mut tokenizer = Tokenizer::new(html);
    let mut tokens = Vec::new();
    let mut raw = None;
    loop {
        let mut attributes: Vec<(String, String)> = Vec::new();
        let token = tokenizer.next(&mut |name, value| {
            let name = slice(name).to_ascii_lowercase();
            let mut decoded = String::new();
            push_decoded(&mut decoded, slice(value), true);
            if attributes.iter().all(|a| a.0 != name) {
                attributes.push((name, decoded));
            }
        });
        match token {
            None => return tokens,
            Some(Token::Text(span)) => {
                let mut text = String::new();
                match raw.take() {
                    Some(tag) if !matches!(tag, Tag::Title | Tag::Textarea) => {
                        text.push_str(slice(span));
                    }
                    _ => push_decoded(&mut text, slice(span), false),
                }
                push(&mut tokens, Plain::Text(text));
            }
            Some(Token::Start(name)) => {
                let name = slice(name).to_ascii_lowercase();
                let tag = Tag::of(name.as_bytes());
                push(&mut tokens, Plain::Start(name, attributes));
                raw = None;
                if tag.is(RAW) {
                    tokenizer.enter_raw(tag);
                    raw = Some(tag);
                }
            }
            Some(Token::End(name)) => {
                raw = None;
                push(&mut tokens, Plain::End(slice(name).to_ascii_lowercase()));
            }
        }
    }
}

#[test]
fn tokens_of_awkward_markup_are_html5evers() {
    for html in [
        "<p class=a id='b' title=\"c\">x</p>",
        "<a b=c/d>e<br/>f< g</ h></>i</",
        "<!-->a<!--->b<!-- x --!>c<!-- -- -->d<!--",
        "<!doctype html><?xml x?>y<![CDATA[ z ]]>w",
        "<script>a<!--<script>b</script>c--></script>d<script><!--x</script>y",
        "<script>'</scripty'</SCRIPT >z",
        "<title>a&amp;b<p>c</title><style>d&amp;</style><textarea><b></textarea>",
        "<a =x y==z w = 'v' v w=q>t<b a=\"1\" a=\"2\"",
        "<p a=&lt b='&notit; &ampx &amp=' c=&copy>&notit; &#x41 &#65;&bogus;",
        "<plaintext></plaintext><b>",
        "<x-y Z=1>\u{e9}</X-Y>",
    ] {
        assert_eq!(ours(html), theirs(html), "{html}");
    }
}

/// Pieces that matter to a tokenizer, in any order.
fn markup() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "<",
        ">",
        "/",
        "</",
        "<!",
        "<!--",
        "-->",
        "--",
        "-",
        "!",
        "?",
        "<?",
        "=",
        "\"",
        "'",
        " ",
        "\n",
        "&",
        "&amp",
        "&amp;",
        "&lt",
        "&#x41;",
        "&#65",
        "&not",
        "a",
        "b",
        "p",
        "script",
        "<script>",
        "</script>",
        "<script",
        "</script",
        "<!--<script>",
        "<title>",
        "</title>",
        "<style>",
        "</style",
        "<p ",
        "<a href=",
        "<br/>",
        "class",
        ">x<",
        "\u{e9}",
        "\u{4e2d}",
        ";",
        "1",
        "<textarea>",
        "</textarea>",
        "]]>",
        "<![CDATA[",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens_of_random_markup_are_html5evers(html in markup()) {
        prop_assert_eq!(ours(&html), theirs(&html));
    }
}

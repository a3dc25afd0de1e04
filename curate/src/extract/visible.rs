//! Length of a page's text without markup, scripts and styles.

use super::html::{Tag, Token, Tokenizer};
use crate::text::entity::push_decoded;

/// Characters of all text outside `script` and `style`, references resolved: as BeautifulSoup's `get_text` over
/// `html.parser`. A text that is nothing but white space is one character, except inside `pre`.
pub(crate) fn visible_chars(html: &str) -> usize {
    let mut tokens = Tokenizer::new(html);
    let (mut hidden, mut pre) = (false, 0u32);
    let (mut count, mut decoded) = (0, String::new());
    while let Some(token) = tokens.next(&mut |_, _| {}) {
        match token {
            Token::Text(span) if !hidden => {
                decoded.clear();
                let text = &html[span.start as usize..span.end as usize];
                push_decoded(&mut decoded, text, false);
                let is_blank = decoded.bytes().all(|b| b" \n\t\r\x0c".contains(&b));
                count += match is_blank && pre == 0 {
                    true => 1,
                    false => crate::text::chars(&decoded),
                };
            }
            Token::Text(_) => hidden = false,
            Token::End(name) => {
                hidden = false;
                let tag = Tag::of(&html.as_bytes()[name.start as usize..name.end as usize]);
                pre = pre.saturating_sub(u32::from(tag == Tag::Pre));
            }
            Token::Start(name) => {
                let tag = Tag::of(&html.as_bytes()[name.start as usize..name.end as usize]);
                pre += u32::from(tag == Tag::Pre);
                hidden = matches!(tag, Tag::Script | Tag::Style) && !tokens.is_self_closing;
                if hidden || matches!(tag, Tag::Textarea | Tag::Title) {
                    tokens.enter_raw(tag);
                }
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_styles_and_comments_are_not_seen() {
        let html = "<title>A &amp; B</title><style>p{}</style><script>1 < 2</script><!-- no --><p>x<b>y</b> z</p>\n";
        assert_eq!(visible_chars(html), "A & Bxy z\n".chars().count());
        assert_eq!(visible_chars(""), 0);
    }

    #[test]
    fn lengths_equal_beautiful_soups() {
        let packed = include_bytes!("../../tests/data/source.json.zst");
        let all = zstd::decode_all(&packed[..]).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&all).unwrap();
        for row in all["visible"].as_array().unwrap() {
            let html = row[0].as_str().unwrap();
            assert_eq!(Some(visible_chars(html) as u64), row[1].as_u64(), "{html}");
        }
    }
}

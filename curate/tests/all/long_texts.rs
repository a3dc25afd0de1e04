//! Extraction keeps long texts whole: books, speeches and articles as plain pages of any length, and texts that
//! repeat themselves. The texts are those of the tiny job (public domain, and Wikipedia under CC-BY-SA).

use std::io::BufRead;
use std::path::Path;

use curate::extract::{Copies, ExtractConfig, PageSource, extract_html, extract_page};

/// The paragraphs of the texts of a subset.
fn texts(subset: &str) -> Vec<Vec<String>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines/jobs/tiny/data");
    let mut found = Vec::new();
    for name in ["pile-00000.jsonl.zst", "pile-00001.jsonl.zst"] {
        let file = std::fs::File::open(data.join(name)).unwrap();
        let lines = std::io::BufReader::new(zstd::Decoder::new(file).unwrap()).lines();
        for line in lines {
            let value: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            if value["meta"]["pile_set_name"] == subset {
                let text = value["text"].as_str().unwrap();
                let squeezed = text
                    .lines()
                    .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
                found.push(squeezed.filter(|p| !p.is_empty()).collect());
            }
        }
    }
    found
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The first paragraphs with `most` words, from as many texts as it takes.
fn first_words(texts: &[Vec<String>], most: usize) -> Vec<String> {
    let mut left = most;
    let paragraphs = texts.iter().flatten().take_while(|p| {
        let goes_on = left > 0;
        left = left.saturating_sub(words(p));
        goes_on
    });
    paragraphs.cloned().collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const NAVIGATION: &str = "<nav><ul><li><a href=/>Home</a></li><li><a href=/books>Books</a></li>\
    <li><a href=/contact>Contact us</a></li></ul></nav>";
const FOOTER: &str = "<footer><p>Copyright 2020 Example. All rights reserved.</p><p><a href=/privacy>Privacy policy</a></p></footer>";

/// Plain pages of some paragraphs: an article alone, an article with furniture, chapters in sections, a bare body.
fn pages(paragraphs: &[String]) -> Vec<(&'static str, String)> {
    let plain: String = paragraphs
        .iter()
        .map(|p| format!("<p>{}</p>\n", escaped(p)))
        .collect();
    let chapters: String = paragraphs
        .chunks(60)
        .enumerate()
        .map(|(i, chapter)| {
            let plain: String = chapter
                .iter()
                .map(|p| format!("<p>{}</p>\n", escaped(p)))
                .collect();
            format!(
                "<section class=chapter><h2>Part {}</h2>{plain}</section>",
                i + 1
            )
        })
        .collect();
    let page = |head: &str, body: String| {
        format!(
            "<!doctype html><html lang=en><head><title>A text</title></head><body>{head}{body}</body></html>"
        )
    };
    vec![
        ("article", page("", format!("<article>{plain}</article>"))),
        (
            "furniture",
            page(
                NAVIGATION,
                format!("<main><article><h1>A text</h1>{plain}</article></main>{FOOTER}"),
            ),
        ),
        (
            "chapters",
            page(
                NAVIGATION,
                format!("<div class=book>{chapters}</div>{FOOTER}"),
            ),
        ),
        ("body", page("", plain)),
    ]
}

/// Words of the paragraphs that the text of a page has, in their order.
fn kept(paragraphs: &[String], text: &str) -> usize {
    let mut lines = text.lines();
    let mut kept = 0;
    for paragraph in paragraphs {
        let before = lines.clone();
        if lines.any(|line| line == paragraph) {
            kept += words(paragraph);
        } else {
            lines = before;
        }
    }
    kept
}

/// Every page keeps 99.9% of the words, and no furniture.
fn come_whole(name: &str, paragraphs: &[String]) {
    let all: usize = paragraphs.iter().map(|p| words(p)).sum();
    for (kind, page) in pages(paragraphs) {
        let text = extract_html(page.as_bytes(), None).text;
        let kept = kept(paragraphs, &text);
        assert!(
            kept * 1000 >= all * 999,
            "{name} as {kind}: {kept} of {all} words"
        );
        assert!(!text.contains("All rights reserved"), "{name} as {kind}");
        assert!(!text.contains("Contact us"), "{name} as {kind}");
    }
}

#[test]
fn books_come_whole_at_any_length() {
    let books = texts("Gutenberg (PG-19)");
    for (i, book) in books.iter().enumerate() {
        come_whole(
            &format!("book {i}"),
            &first_words(std::slice::from_ref(book), 20_000),
        );
    }
    for length in [2_000, 5_000, 50_000, 200_000] {
        come_whole(
            &format!("{length} words of books"),
            &first_words(&books, length),
        );
    }
}

#[test]
fn speeches_come_whole_at_any_length() {
    let speeches = texts("State of the Union");
    for (i, speech) in speeches.iter().enumerate() {
        come_whole(&format!("speech {i}"), speech);
    }
    for length in [20_000, 50_000, 200_000] {
        come_whole(
            &format!("{length} words of speeches"),
            &first_words(&speeches, length),
        );
    }
}

#[test]
fn long_articles_lose_no_paragraph() {
    for (i, article) in texts("Wikipedia (en)").iter().enumerate() {
        if article.iter().map(|p| words(p)).sum::<usize>() >= 1_000 {
            come_whole(&format!("article {i}"), article);
        }
    }
}

/// A clause of a contract, which differs from the next one in its number and its party only.
fn clause(i: usize) -> String {
    format!(
        "Party {i} shall indemnify and hold harmless the other parties, their officers, agents and employees, against \
         all claims, losses and damages, including reasonable costs of counsel, that arise out of any breach of this \
         agreement by the said party, except where such a breach was caused by circumstances outside its control."
    )
}

const CHORUS: &str = "Oh the river runs down to the sea, my love, and the wind blows over the hill, and the boats that \
    went out in the morning light will be home when the evening is still, my love, will be home when the evening is \
    still, and the lamps will be lit in the windows again as they were when we all were young.";

fn page_of(body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><head><title>A text</title></head><body>{NAVIGATION}{body}{FOOTER}</body></html>"
    )
}

#[test]
fn texts_that_repeat_themselves_are_not_rewritten() {
    let clauses: Vec<String> = (1..=40).map(clause).collect();
    let verse = |i: usize| {
        format!(
            "In the year of {i} the harvest was late, and the men of the village had gone to the war, and the women sat \
             long by the light of the fire and spoke of the year that had gone before, and of those who would not come \
             back to the door."
        )
    };
    let song: Vec<String> = (1..=12)
        .flat_map(|i| [verse(1800 + i), CHORUS.to_string()])
        .collect();
    let lines: Vec<String> = (1..=60)
        .map(|i| {
            format!(
                "On day {i} of the survey the station at the mouth of the river reported a water level of two metres \
                 and {i} centimetres above the mean, a temperature of eleven degrees, a light wind from the north \
                 west, no rain since the last report, and clear water as far down as the ground of the river bed."
            )
        })
        .collect();
    for (name, paragraphs) in [("contract", clauses), ("song", song), ("lines", lines)] {
        let plain: String = paragraphs.iter().map(|p| format!("<p>{p}</p>")).collect();
        let divided: String = paragraphs
            .iter()
            .enumerate()
            .map(|(i, p)| format!("<section class=part-{i}><p>{p}</p></section>"))
            .collect();
        for body in [plain, divided] {
            let page = page_of(&format!("<article><h1>A text</h1>{body}</article>"));
            let found = extract_html(page.as_bytes(), None);
            let all: usize = paragraphs.iter().map(|p| words(p)).sum();
            let kept = kept(&paragraphs, &found.text);
            assert_eq!((kept, found.copies), (all, 0), "{name}\n{}", found.text);
        }
    }
}

#[test]
fn a_second_copy_of_the_text_is_left_out_and_counted_or_kept_on_demand() {
    let article: String = texts("Wikipedia (en)")
        .iter()
        .find(|a| a.iter().filter(|p| words(p) >= 40).count() >= 6)
        .unwrap()
        .iter()
        .map(|p| format!("<p>{}</p>", escaped(p)))
        .collect();
    let long = article.split("</p>").filter(|p| words(p) >= 40).count();
    let body = format!(
        "<article class=desktop>{article}</article><div class='mobile content'>{article}</div>"
    );
    let page = page_of(&body);
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    let keep = ExtractConfig {
        copies: Copies::Keep,
        ..ExtractConfig::default()
    };
    let kept = extract_page(&source, &keep);
    let dropped = extract_page(&source, &ExtractConfig::default());
    assert_eq!((kept.copies, dropped.copies as usize), (0, long));
    let first = article.split("</p>").find(|p| words(p) >= 40).unwrap();
    let first = &first[first.find("<p>").unwrap() + 3..];
    assert_eq!(kept.text.matches(first).count(), 2);
    assert_eq!(dropped.text.matches(first).count(), 1);
}

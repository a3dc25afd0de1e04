//! Extraction of hostile and broken pages: no panic, no hang, and readable text is extracted.

use curate::extract::{ExtractConfig, PageSource, TextForm, extract_html, extract_page};
use proptest::prelude::*;

/// An article that every extractor should find.
fn article(words: &str) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=en><head><title>On rivers</title></head><body><nav><a href=/>Home</a> \
         <a href=/news>News</a></nav><article><h1>On rivers</h1>",
    );
    for i in 0..8 {
        page += &format!(
            "<p>Paragraph {i} says, at some length and with commas, that the river rose in spring, and that {words} \
             the people who lived beside it moved their houses up the hill before it was too late.</p>"
        );
    }
    page + "</article><footer>Copyright 2020 Example. All rights reserved.</footer></body></html>"
}

#[test]
fn bombs_end_soon_and_leave_the_text_that_is_there() {
    // Each grows with `n`; quadratic work would take minutes at this size.
    let n = 60_000;
    let bombs = [
        "<div>".repeat(n),
        "<div>x".repeat(n),
        "<span class=a>x".repeat(n),
        "<a href=x>y<div>".repeat(n),
        "<table><tr><td>".repeat(n),
        "<ul><li>x".repeat(n),
        "<p>x<b><i>".repeat(n),
        "<svg><g>".repeat(n),
        "<select><option>x".repeat(n),
        "<my-tag>x</other-tag>".repeat(n),
        "</div></p></a>".repeat(n),
        "&amp;&#x41;&bogus".repeat(n),
        "&".repeat(n),
        "<".repeat(n),
        "<!--".repeat(n),
        "<!-- -- ".repeat(n),
        "<script><!--<script>".repeat(n),
        "<![CDATA[".repeat(n),
        format!("<p {}>", "a=b ".repeat(n)),
        format!("<p class='{}'>x", "nav menu ".repeat(n)),
        format!("<p title=\"{}", "x".repeat(n)),
        format!("<meta name=robots content='{}'>", "noindex,".repeat(n)),
        format!(
            "<script type='application/ld+json'>{}</script>",
            "[".repeat(n)
        ),
        format!(
            "<script type='application/ld+json'>\"author\"{}</script>",
            "{\"author\":".repeat(n)
        ),
        "<br>x".repeat(n),
        "\0".repeat(n),
        "<h1>a</h1>".repeat(n),
        "<pre>\n".repeat(n),
        "<b>x<i>y</b>z</i>".repeat(n),
        "<b>x".repeat(n),
        "<a href=x>y</a>".repeat(n),
        format!("<table><tr>{}", "<td colspan=1000>x<tr>".repeat(n)),
    ];
    for bomb in &bombs {
        let page = article("") + bomb;
        let found = extract_html(page.as_bytes(), None);
        assert!(
            found.is_cut || found.text.contains("moved their houses") || found.text.is_empty(),
            "{}",
            &bomb[..bomb.len().min(40)]
        );
        let _ = extract_html(bomb.as_bytes(), None);
        let markdown = ExtractConfig {
            format: TextForm::Markdown,
            ..ExtractConfig::default()
        };
        let source = PageSource {
            bytes: page.as_bytes(),
            ..PageSource::default()
        };
        let _ = extract_page(&source, &markdown);
    }
}

#[test]
fn a_page_past_the_limit_is_cut_and_says_so() {
    let config = ExtractConfig {
        max_page_bytes: 4096,
        ..ExtractConfig::default()
    };
    let page = article("") + &"<p>more".repeat(10_000);
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    let found = extract_page(&source, &config);
    assert!(found.is_cut);
    assert!(found.text.contains("Paragraph 0"));
    assert!(!extract_page(&source, &ExtractConfig::default()).is_cut);
}

#[test]
fn broken_markup_and_bytes_do_not_hide_the_text() {
    let page = article("caf\u{e9}s and");
    let broken = [
        page.replace("</p>", ""),
        page.replace("<p>", "<p class=x style='")
            .replace("Paragraph", "'>Paragraph"),
        page.replace("</article>", "</div></span></article>"),
        page.replace("</nav>", ""),
        page.replace("<body>", ""),
        page.replace("paragraph", "para\0graph"),
        page.replace("</body></html>", "</body></html></body>"),
    ];
    for html in &broken {
        let text = extract_html(html.as_bytes(), None).text;
        assert!(text.contains("Paragraph 7 says"), "{html}\n{text}");
        assert!(text.contains("caf\u{e9}s"), "{text}");
        assert!(!text.contains("All rights reserved"), "{text}");
    }
    let latin: Vec<u8> = page
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    let found = extract_html(&latin, Some("text/html; charset=utf-8"));
    assert!(found.text.contains("caf\u{e9}s"), "{}", found.charset);
}

#[test]
fn markdown_keeps_headings_lists_tables_code_and_quotes() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let page = format!(
        "<html><body><article><h1>Pumps</h1><p>{filler} {filler}</p><h2>Parts</h2><p>{filler}</p>\
         <ul><li>A valve that opens, and closes again, when the pressure falls.</li>\
         <li>A pipe of copper, which leads the water from the well to the house.</li></ul>\
         <p>{filler} {filler}</p><ol><li>Close the valve, and wait until the water stands still.</li>\
         <li>Open the pipe, and let the water that is left run out.</li></ol><p>{filler}</p>\
         <pre><code>let x = 1;\n  let y = 2;</code></pre><p>{filler} {filler}</p>\
         <table><tr><th>Part</th><th>Weight</th></tr><tr><td>Valve</td><td>2 kg</td></tr>\
         <tr><td>Pipe</td><td>5 kg</td></tr></table><p>{filler} {filler}</p>\
         <blockquote><p>{filler}</p></blockquote><p>{filler}</p></article></body></html>"
    );
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    let text = |format, favour| {
        let config = ExtractConfig {
            format,
            favour,
            ..ExtractConfig::default()
        };
        extract_page(&source, &config).text
    };
    let markdown = text(TextForm::Markdown, curate::extract::Favour::Recall);
    for part in [
        "# Pumps\n\n",
        "\n\n## Parts\n\n",
        "\n\n- A valve that opens, and closes again, when the pressure falls.\n- A pipe of copper",
        "\n\n1. Close the valve, and wait until the water stands still.\n2. Open the pipe",
        "\n\n```\nlet x = 1;\n  let y = 2;\n```\n\n",
        "\n\n| Part | Weight |\n| --- | --- |\n| Valve | 2 kg |\n| Pipe | 5 kg |\n\n",
        "\n\n> This sentence",
    ] {
        assert!(markdown.contains(part), "{part:?} is not in\n{markdown}");
    }
    let plain = text(TextForm::Text, curate::extract::Favour::Recall);
    for part in [
        "Pumps\n\n",
        "\n\n- A valve that opens, and closes again, when the pressure falls.\n- A pipe",
        "\n\nlet x = 1;\n  let y = 2;\n\n",
        "\n\nPart | Weight\nValve | 2 kg\nPipe | 5 kg\n\n",
    ] {
        assert!(plain.contains(part), "{part:?} is not in\n{plain}");
    }
}

/// A page's text in both forms.
fn in_both_forms(body: &str) -> [String; 2] {
    let page = format!("<html><body><article><h1>Pumps</h1>{body}</article></body></html>");
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    [TextForm::Text, TextForm::Markdown].map(|format| {
        let config = ExtractConfig {
            format,
            favour: curate::extract::Favour::Recall,
            ..ExtractConfig::default()
        };
        extract_page(&source, &config).text
    })
}

#[test]
fn code_inside_of_text_is_between_backticks_in_markdown() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let [plain, markdown] = in_both_forms(&format!(
        "<h2>The <code>run</code> verb</h2><p>{filler} Call <code>pump.open()</code>, or <code>stop</code>; see \
         <a href=/x><code>close</code></a>. {filler}</p><p>Type <code> a `b` c </code> or <code>`</code> or <code></code>nothing. {filler} \
         {filler}</p><ul><li>The option <code>-v</code> opens the valve, and closes it again when the pressure falls.</li></ul>\
         <p>{filler} <code>x<br>y</code> {filler}</p><pre><code>let x = `1`;</code></pre><p>{filler} <code>last</code></p><p>{filler}</p>"
    ));
    for part in [
        "## The `run` verb\n\n",
        "Call `pump.open()`, or `stop`; see [`close`](/x). This",
        "Type ``a `b` c`` or `` ` `` or nothing. This",
        "- The option `-v` opens",
        "do. `x`\n`y` This",
        "\n\n```\nlet x = `1`;\n```\n\n",
        "do. `last`\n\nThis",
    ] {
        assert!(markdown.contains(part), "{part:?} is not in\n{markdown}");
    }
    assert!(
        plain.contains("Call pump.open(), or stop; see close. This"),
        "{plain}"
    );
}

#[test]
fn footnotes_follow_the_text_in_markdown() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    // after Pandoc, python-markdown, GitHub, MediaWiki, and by hand
    for (reference, notes) in [
        (
            "<a href=\"#fnN\" class=\"footnote-ref\" id=\"fnrefN\" role=\"doc-noteref\"><sup>N</sup></a>",
            "<section class=footnotes><hr><ol><li id=\"fn1\"><p>The first note, of 1950.<a href=\"#fnref1\" class=\"footnote-back\">\u{21a9}\u{fe0e}</a></p></li>\
             <li id=\"fn2\"><p>The second <em>note</em>.<a href=\"#fnref2\">\u{21a9}\u{fe0e}</a></p></li></ol></section>",
        ),
        (
            "<sup id=\"fnref:N\"><a class=\"footnote-ref\" href=\"#fn:N\">N</a></sup>",
            "<div class=footnote><hr><ol><li id=\"fn:1\"><p>The first note, of 1950. <a href=\"#fnref:1\">\u{21a9}</a></p></li>\
             <li id=\"fn:2\"><p>The second note. <a href=\"#fnref:2\">\u{21a9}</a></p></li></ol></div>",
        ),
        (
            "<sup class=reference id=cite_ref-N><a href=\"#cite_note-N\"><span>[</span>N<span>]</span></a></sup>",
            "<ol class=references><li id=cite_note-1><span class=mw-cite-backlink><b><a href=\"#cite_ref-1\">^</a></b></span> \
             <span class=reference-text>The first note, of 1950.</span></li><li id=cite_note-2><span class=mw-cite-backlink>^ \
             <a href=\"#cite_ref-2\"><sup>a</sup></a></span> <span class=reference-text>The second note.</span></li></ol>",
        ),
        (
            "<sup><a name=rN href=\"#nN\">N</a></sup>",
            "<p><a name=n1 href=\"#r1\">1</a> The first note, of 1950.</p><p><a name=n2 href=\"#r2\">2</a> The second note.</p>",
        ),
    ] {
        let [first, second] = ["1", "2"].map(|n| reference.replace('N', n));
        let [plain, markdown] = in_both_forms(&format!(
            "<p>{filler} A pump{first} lifts water{second}, and again{first}. {filler}</p><p>{filler} {filler}</p>{notes}"
        ));
        assert!(
            markdown.contains("A pump[^1] lifts water[^2], and again[^1]. This"),
            "{reference}\n{markdown}"
        );
        let second = match notes.contains("<em>") {
            true => "The second *note*.",
            false => "The second note.",
        };
        let end = format!("as sections do.\n\n[^1]: The first note, of 1950.\n[^2]: {second}");
        assert!(markdown.ends_with(&end), "{reference}\n{markdown}");
        assert!(!plain.contains("[^"), "{plain}");
    }
}

#[test]
fn links_that_lead_to_no_note_stay_text() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let long = format!("<p>{filler} {filler} {filler}</p>").repeat(20);
    let [_, markdown] = in_both_forms(&format!(
        "<p id=a>{filler} See <sup><a href=\"#a\">1</a></sup> and <sup><a href=\"#none\">2</a></sup> and <a href=\"#b\">3</a> and \
         <sup><a href=\"#c\">4</a></sup>. {filler}</p><p id=b>{filler}</p><div id=c>{long}</div>"
    ));
    assert!(!markdown.contains("[^"), "{markdown}");
    assert!(
        markdown.contains("See 1 and 2 and 3 and 4. This"),
        "{markdown}"
    );
}

#[test]
fn links_bold_and_italic_type_are_marked_in_markdown() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    for (html, want) in [
        ("Turn <b>left</b> here", "Turn **left** here"),
        (
            "Turn <strong>left</strong> <em>here</em> and <i>now</i>",
            "Turn **left** *here* and *now*",
        ),
        // white space goes outside
        ("Turn<b> left </b>here", "Turn **left** here"),
        ("Turn <b> <i> left</i></b> here", "Turn ***left*** here"),
        // the same type inside itself or where it has just ended is one piece
        (
            "Turn <b>le<strong>ft</strong> soon</b> here",
            "Turn **left soon** here",
        ),
        (
            "Turn <b>le</b><b>ft</b><span> </span>here",
            "Turn **left** here",
        ),
        (
            "Turn <b>le</b><span><b>ft</b></span> here",
            "Turn **left** here",
        ),
        // type that overlaps is cut
        (
            "Turn <b>left <i>or</b> right</i> here",
            "Turn **left *or*** *right* here",
        ),
        // where CommonMark would see no mark there is none
        (
            "Turn (<b>left</b>) un<i>believ</i>able",
            "Turn (**left**) un*believ*able",
        ),
        ("<b>Note:</b>turn <b>(left)</b>here", "Note:turn (left)here"),
        (
            "<b>Note:</b> turn <b>*left*</b> here",
            "**Note:** turn *left* here",
        ),
        // asterisks of the text would join the marks
        ("Turn *<i>left</i> <b>here</b>* now", "Turn *left here* now"),
        ("Turn <b>left</b><i>here</i>", "Turn **left***here*"),
        ("Turn <b></b><i> </i>left", "Turn left"),
        (
            "Turn <b>to <code>left</code></b> here",
            "Turn **to `left`** here",
        ),
        (
            "Turn <code>to <b>left</b></code> here",
            "Turn `to left` here",
        ),
        (
            "Turn <a href='/left?a=1&amp;b=2'>left</a> here",
            "Turn [left](/left?a=1&b=2) here",
        ),
        (
            "Turn <b><a href=\"http://a.b/x_(y) z<\"> left [1] <i>now</i> </a></b>here",
            "Turn [**left \\[1\\] *now***](http://a.b/x_\\(y\\)%20z%3C) here",
        ),
        (
            "Turn<a href=//a.b> <code>left[]</code> </a>here",
            "Turn [`left[]`](//a.b) here",
        ),
        (
            "Write <a href='mailto:a@b.c'>us</a> and <a href=HTTPS://a.b>them</a>",
            "Write [us](mailto:a@b.c) and [them](HTTPS://a.b)",
        ),
        // no text, no document
        (
            "Turn <a href=/x></a><a href=/x><img src=a></a>left",
            "Turn left",
        ),
        (
            "Turn <a href='#left'>left</a> <a href='javascript:go()'>he</a>re <a>and</a> <a href='data:x'>now</a>",
            "Turn left here and now",
        ),
        ("Turn!<a href=/x>left</a> [here]", "Turn!left [here]"),
    ] {
        let [plain, markdown] =
            in_both_forms(&format!("<p>{filler} {html}. {filler}</p><p>{filler}</p>"));
        assert!(
            markdown.contains(&format!("do. {want}. This")),
            "{html}\n{want}\n{markdown}"
        );
        assert!(!plain.contains("**") && !plain.contains("]("), "{plain}");
    }
}

#[test]
fn marks_end_with_their_block_and_their_element() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let [_, markdown] = in_both_forms(&format!(
        "<h2><b>The</b> <i>section</i></h2><h2><b>All of it</b></h2><h2><a href=/x>Linked</a></h2>\
         <div><b><p>{filler} One.</p><p>Two. {filler}</p></b></div><p>{filler} <b>Not closed.</p><p>{filler}</p>\
         <ul><li><i>An item of the list, which is there to be read.</i></li><li>A line<br><b>and one<br>more</b></li></ul>\
         <blockquote><p>{filler} <b>A word<br>or two</b> that were said.</p></blockquote>\
         <pre>let <b>x</b> = 1;</pre><table><tr><th><b>A</b></th><th>B</th></tr><tr><td><a href=/x>a</a></td><td><i>b</i></td></tr></table>"
    ));
    for part in [
        "## **The** *section*\n\n",
        "## All of it\n\n",
        "## [Linked](/x)\n\n",
        &format!(
            "\n\n**{filler} One.**\n\n**Two. {filler}**\n\n{filler} **Not closed.**\n\n{filler}\n\n"
        ),
        "- *An item of the list, which is there to be read.*\n- A line\n  **and one\n  more**",
        "> This sentence stands here so that the section has running text, as sections do. **A word\n> or two** that",
        "```\nlet x = 1;\n```",
        "| **A** | B |\n| --- | --- |\n| [a](/x) | *b* |",
    ] {
        assert!(markdown.contains(part), "{part:?} is not in\n{markdown}");
    }
}

#[test]
fn plain_text_is_the_same_without_tags_of_type_and_targets_of_links() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let marked = format!(
        "<p>{filler} <b>Bold<i> both</b>, italic</i> and <a href=/x>linked</a>[<em>]</em>. {filler}</p><p><b>{filler}</p><p>{filler}</b></p>\
         <table><tr><td></td><th><b>A</b> | B</th><td></td></tr><tr><td colspan=2>c</td><td>d</td></tr></table>"
    );
    let mut bare = marked.clone();
    for tag in ["<b>", "</b>", "<i>", "</i>", "<em>", "</em>"] {
        bare = bare.replace(tag, "");
    }
    bare = bare.replace("href=/x", "href=/y");
    let [plain, markdown] = in_both_forms(&marked);
    assert_eq!(plain, in_both_forms(&bare)[0]);
    assert_ne!(markdown, in_both_forms(&bare)[1]);
    assert!(plain.ends_with("| A | B\nc |  | d"), "{plain}");
}

#[test]
fn cells_of_tables_stay_in_their_columns() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    for (rows, lines, want) in [
        (
            "<tr><th></th><th>Ajax</th><th>Celtic</th></tr><tr><th>Ajax</th><td></td><td>0-0</td></tr>\
             <tr><th>Celtic</th><td>3-1</td><td> </td></tr><tr><td>&nbsp;</td><td>note</td><td></td></tr>",
            "| Ajax | Celtic\nAjax |  | 0-0\nCeltic | 3-1\n| note",
            "|  | Ajax | Celtic |\n| --- | --- | --- |\n| Ajax |  | 0-0 |\n| Celtic | 3-1 |  |\n|  | note |  |",
        ),
        (
            "<tr><th colspan=2>Both</th><th>One</th></tr><tr><td>a|b</td><td><code>c|d</code></td><td>e</td></tr>\
             <tr><td>f</td><td colspan=2>g</td></tr><tr><td colspan=1000>h</td></tr>",
            "Both |  | One\na|b | c|d | e\nf | g\nh",
            "| Both |  | One |\n| --- | --- | --- |\n| a\\|b | `c\\|d` | e |\n| f | g |  |\n| h |  |  |",
        ),
        // a head of two rows, cells of several rows in the first, a middle and the last column; groups end them
        (
            "<thead><tr><th rowspan=2>Region</th><th colspan=2>Sales</th></tr><tr><th>2023</th><th>2024</th></tr></thead>\
             <tbody><tr><td rowspan=2>North</td><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr>\
             <tr><td>South</td><td rowspan=2>5</td><td>6</td></tr><tr><td>East</td><td rowspan=0>7</td></tr>\
             <tr><td>West</td><td>8</td></tr></tbody><tfoot><tr><td>All</td><td rowspan=9>9</td><td>10</td></tr></tfoot>",
            "Region | Sales\n| 2023 | 2024\nNorth | 1 | 2\n| 3 | 4\nSouth | 5 | 6\nEast |  | 7\nWest | 8\nAll | 9 | 10",
            "| Region | Sales |  |\n| --- | --- | --- |\n|  | 2023 | 2024 |\n| North | 1 | 2 |\n|  | 3 | 4 |\n\
             | South | 5 | 6 |\n| East |  | 7 |\n| West | 8 |  |\n| All | 9 | 10 |",
        ),
    ] {
        let [plain, markdown] = in_both_forms(&format!(
            "<p>{filler}</p><table>{rows}</table><p>{filler}</p>"
        ));
        for (found, want) in [(plain, lines), (markdown, want)] {
            assert!(
                found.contains(&format!("\n\n{want}\n\n")),
                "{want}\n{found}"
            );
        }
    }
    // spans add no more cells than a page may have
    let page = format!(
        "<table><tr>{}</tr>{}</table>",
        "<td>a".repeat(1000),
        "<tr><td colspan=1000>b".repeat(20_000)
    );
    let [_, markdown] = in_both_forms(&page);
    assert!(markdown.len() < 2_000_000, "{}", markdown.len());
}

#[test]
fn captions_of_tables_are_kept_in_front_of_them() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let rows = "<tr><th>Year</th><th>Pumps</th></tr><tr><td>2023</td><td>7</td></tr>";
    for caption in [
        "<caption>Pumps | by year</caption>",
        "<caption>Pumps<br>| <p>by <span>year</span></p></caption>\n ",
    ] {
        let table = format!("<table>{caption}{rows}</table>");
        let [plain, markdown] =
            in_both_forms(&format!("<p>{filler}</p>{table}{table}<p>{filler}</p>"));
        let lines = "\n\nPumps | by year\nYear | Pumps\n2023 | 7";
        assert!(plain.contains(&format!("{lines}{lines}\n\n")), "{plain}");
        let lines = "\n\nPumps | by year\n\n| Year | Pumps |\n| --- | --- |\n| 2023 | 7 |";
        assert!(
            markdown.contains(&format!("{lines}{lines}\n\n")),
            "{markdown}"
        );
    }
}

#[test]
fn ordered_lists_keep_the_numbers_that_pages_give() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    let items = |of: [&str; 3]| {
        let item = |(attribute, name): (&str, &str)| {
            format!(
                "<li{attribute}>Then close the {name} and wait until the water stands still.</li>"
            )
        };
        let names = ["valve", "pipe", "tap"];
        of.into_iter().zip(names).map(item).collect::<String>()
    };
    let page = |start: &str, of: [&str; 3]| {
        format!(
            "<p>{filler} {filler}</p><ol{start}>{}</ol><p>{filler} {filler}</p>",
            items(of)
        )
    };
    for (start, of, want) in [
        ("", [""; 3], [1, 2, 3]),
        (" start=4", [""; 3], [4, 5, 6]),
        (" start=' 12 '", ["", " value=20", ""], [12, 20, 21]),
        (" start=-3", ["", " value=many", ""], [1, 2, 3]),
        (" start=99999999999", [""; 3], [1, 2, 3]),
    ] {
        let [plain, markdown] = in_both_forms(&page(start, of));
        for (number, name) in want.into_iter().zip(["valve", "pipe", "tap"]) {
            let item = format!("\n{number}. Then close the {name} and wait");
            assert!(markdown.contains(&item), "{item:?} is not in\n{markdown}");
        }
        assert!(!plain.contains(". Then close"), "{plain}");
    }
}

#[test]
fn numbers_of_lines_beside_code_are_left_out() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    // as Pygments writes it (linenos = "table")
    for text in in_both_forms(&format!(
        "<p>{filler} {filler}</p><div class=highlight><table class=highlighttable><tr><td class=linenos><div class=linenodiv><pre>\
         <span class=normal>1</span>\n<span class=normal>2</span></pre></div></td><td class=code><div><pre><span></span>a = 1\nb = 2\n\
         </pre></div></td></tr></table></div><p>{filler}</p>"
    )) {
        assert!(text.contains("a = 1\nb = 2"), "{text}");
        assert!(!text.contains("1\n2"), "{text}");
    }
}

#[test]
fn formulas_come_as_tex_and_code_with_its_language() {
    let filler = "This sentence stands here so that the section has running text, as sections do.";
    // after the output of KaTeX, MediaWiki, LaTeXML, MathJax 2 and of highlighters
    let katex = "<span class=katex><span class=katex-mathml><math><semantics><mrow><mi>x</mi></mrow>\
        <annotation encoding='application/x-tex'>x^2 + \\alpha</annotation></semantics></math></span>\
        <span class=katex-html aria-hidden=true><span class=mord>x2+a</span></span></span>";
    let wiki = "<span class=mwe-math-element><span class='mwe-math-mathml-inline mwe-math-mathml-a11y' style='display: none;'>\
        <math alttext='{\\displaystyle E=mc^{2}}'><semantics><mi>E</mi><annotation encoding='application/x-tex'>{\\displaystyle E=mc^{2}}\
        </annotation></semantics></math></span><img class=mwe-math-fallback-image-inline src=x></span>";
    let latexml = "<math class=ltx_Math alttext='\\sum_{i} a_i' display=block><mi>a</mi></math>";
    let page = format!(
        "<html><body><article><h1>Sums</h1><p>{filler} So {katex} is even. {filler}</p><p>{filler} Then {wiki} holds. {filler}</p>\
         <p>{filler} {latexml} {filler}</p><p>{filler} Also <script type='math/tex'>a < b</script> holds. {filler}</p>\
         <pre><code class=language-python>print(1)\n```\n</code></pre><p>{filler} {filler}</p></article></body></html>"
    );
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    for format in [TextForm::Text, TextForm::Markdown] {
        let config = ExtractConfig {
            format,
            favour: curate::extract::Favour::Recall,
            ..ExtractConfig::default()
        };
        let text = extract_page(&source, &config).text;
        for part in [
            "So $x^2 + \\alpha$ is even.",
            "Then $E=mc^{2}$ holds.",
            "do. $$\\sum_{i} a_i$$ This",
            "Also $a < b$ holds.",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("x2+a"), "{text}");
        let code = match format {
            TextForm::Text => "\n\nprint(1)\n```\n\n",
            TextForm::Markdown => "\n\n````python\nprint(1)\n```\n````\n\n",
        };
        assert!(text.contains(code), "{code:?} is not in\n{text}");
    }
}

#[test]
fn comments_come_only_when_they_are_wanted_and_last() {
    let page = article("").replace(
        "</article>",
        "</article><div id=comments class=comments-area><ol class=comment-list><li class=comment>\
         <p>I lived there and I remember that year well.</p></li></ol></div>",
    );
    let source = PageSource {
        bytes: page.as_bytes(),
        ..PageSource::default()
    };
    let without = extract_page(&source, &ExtractConfig::default()).text;
    assert!(!without.contains("I lived there"), "{without}");
    let config = ExtractConfig {
        comments: true,
        ..ExtractConfig::default()
    };
    let with = extract_page(&source, &config).text;
    assert!(with.starts_with(&without), "{with}");
    assert!(with.ends_with("I remember that year well."), "{with}");
}

/// Pieces of pages, in any order.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "<html>",
        "<head>",
        "<body class=home>",
        "<div class='main content'>",
        "</div>",
        "<p>",
        "</p>",
        "<p",
        "<a href=x>",
        "</a>",
        "<ul>",
        "<li>",
        "</ul>",
        "<ol>",
        "<table>",
        "<tr>",
        "<td>",
        "</table>",
        "<pre>",
        "</pre>",
        "<br>",
        "<br><br>",
        "<svg>",
        "</svg>",
        "<math>",
        "<select>",
        "<option>",
        "<script>",
        "</script>",
        "<!--",
        "-->",
        "<style>",
        "</style>",
        "<title>",
        "</title>",
        "<meta charset=gbk>",
        "<meta property=og:title content=x>",
        "<script type=application/ld+json>{\"@type\":\"Article\",\"author\":[[{\"name\":[]}]]}</script>",
        "<time>2020-13-01</time>",
        "<button>",
        "<form>",
        "<input>",
        "<h1>",
        "</h1>",
        "<h2>",
        "<blockquote>",
        "<dl><dt>",
        "<dd>",
        "\0",
        "\u{a0}",
        "\u{ad}",
        "The river rose, and the people moved their houses up the hill.",
        "&amp;",
        "&#0;",
        "&#x110000;",
        "\u{4e2d}\u{6587}\u{3002}",
        "\r\n",
        "\t",
        "<template>",
        "<iframe>",
        "</",
        "<",
        "&",
        "\"",
        "'>",
        "<noscript>",
        "<textarea>",
        "<plaintext>",
        "<frameset>",
        "<sup class=reference>",
        "<span hidden>",
        "<div style='display: none'>",
        "<section role=main>",
        "<article>",
        "<aside>",
    ]);
    let bytes = prop::collection::vec(any::<u8>(), 0..6);
    let piece = prop_oneof![20 => pieces.prop_map(|p| p.as_bytes().to_vec()), 1 => bytes];
    prop::collection::vec(piece, 0..120).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_page(page in pages(), markdown in any::<bool>(), comments in any::<bool>()) {
        let config = ExtractConfig {
            format: if markdown { TextForm::Markdown } else { TextForm::Text },
            comments,
            ..ExtractConfig::default()
        };
        let source = PageSource { bytes: &page, url: Some("http://example.org/a"), robots: Some("noindex"), ..PageSource::default() };
        let found = extract_page(&source, &config);
        prop_assert_eq!(&found, &extract_page(&source, &config));
        prop_assert!(found.text.len() <= 4 * page.len() + 64);
        prop_assert!(found.meta.robots.contains(&"noindex".to_string()));
    }
}

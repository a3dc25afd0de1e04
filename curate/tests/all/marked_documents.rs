//! Marks of Markdown in office documents and books: headings, lists, tables, links, type and footnotes.
//!
//! Files are hand-made XML in the forms that Word and LibreOffice write; what is wanted of each is written by hand.

use std::path::Path;

use curate::extract::{ExtractConfig, TextForm};
use curate::pipeline::{CurateConfig, Step};
use curate::read::Format;

use crate::documents::{archive, book, config, run};

/// Text of a file as Markdown, and as plain text.
fn in_both_forms(bytes: &[u8], format: Format) -> [String; 2] {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    [TextForm::Markdown, TextForm::Text].map(|form| text_of(&path, format, form))
}

fn text_of(path: &Path, format: Format, form: TextForm) -> String {
    let extract = ExtractConfig {
        format: form,
        ..ExtractConfig::default()
    };
    let config = CurateConfig {
        step: vec![Step::Extract(extract)],
        max_record_bytes: 8 << 20,
        ..config(path, format)
    };
    let out = tempfile::tempdir().unwrap();
    let (mut found, report, bad) = run(&config, out.path());
    assert_eq!((report.records, report.kept), (1, 1), "{bad:?}");
    found.remove(0).text
}

const MARKDOWN: &str = "\
# Report

## Part one

Some **bold** and *italic* and ***both***, and a [page](https://example.org/?a=1&b=2).[^1]

1. first
2. second
  - inner
3. third
- bullet

| Region | Sales |  |
| --- | --- | --- |
| North | 1 | 2 |
|  | 3 | **4** |

The end.[^2]

[^1]: A note with *type* and a [link](https://example.org/note).
[^2]: The last note.";

const PLAIN: &str = "\
Report

Part one

Some bold and italic and both, and a page.[1]

- first
- second
- inner
- third
- bullet

Region | Sales
North | 1 | 2
| 3 | 4

The end.[2]

[1] A note with type and a link.

[2] The last note.";

/// A run of text with these properties.
fn r(properties: &str, text: &str) -> String {
    format!("<w:r><w:rPr>{properties}</w:rPr><w:t xml:space=\"preserve\">{text}</w:t></w:r>")
}

fn p(properties: &str, runs: &str) -> String {
    format!("<w:p><w:pPr>{properties}</w:pPr>{runs}</w:p>")
}

fn docx(body: &str) -> Vec<u8> {
    let document = format!("<w:document><w:body>{body}</w:body></w:document>");
    let note = |id: usize, runs: &str| {
        format!(
            "<w:footnote w:id=\"{id}\"><w:p><w:r><w:footnoteRef/></w:r>{runs}</w:p></w:footnote>"
        )
    };
    let link = format!("<w:hyperlink r:id=\"rId1\">{}</w:hyperlink>", r("", "link"));
    let first = [
        r("", "A note with "),
        r("<w:i/>", "type"),
        r("", " and a "),
        link,
        r("", "."),
    ];
    let notes = format!(
        "<w:footnotes>{}{}</w:footnotes>",
        note(1, &first.concat()),
        note(2, &r("", "The last note."))
    );
    let relation = |target: &str| {
        format!(
            "<Relationships><Relationship Id=\"rId1\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink\" \
             Target=\"{target}\" TargetMode=\"External\"/></Relationships>"
        )
    };
    let styles = "<w:styles><w:style w:type=\"paragraph\" w:styleId=\"T\"><w:name w:val=\"Title\"/></w:style>\
        <w:style w:type=\"paragraph\" w:styleId=\"H2\"><w:name w:val=\"heading 2\"/><w:rPr><w:b/></w:rPr></w:style>\
        <w:style w:type=\"character\" w:styleId=\"Em\"><w:name w:val=\"Emphasis\"/><w:rPr><w:i/></w:rPr></w:style></w:styles>";
    let numbering = "<w:numbering><w:abstractNum w:abstractNumId=\"1\"><w:lvl w:ilvl=\"0\"><w:numFmt w:val=\"decimal\"/></w:lvl>\
        <w:lvl w:ilvl=\"1\"><w:numFmt w:val=\"bullet\"/></w:lvl></w:abstractNum><w:abstractNum w:abstractNumId=\"2\">\
        <w:lvl w:ilvl=\"0\"><w:numFmt w:val=\"bullet\"/></w:lvl></w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"1\"/></w:num>\
        <w:num w:numId=\"2\"><w:abstractNumId w:val=\"2\"/></w:num></w:numbering>";
    archive(&[
        ("word/document.xml", document.as_bytes()),
        ("word/styles.xml", styles.as_bytes()),
        ("word/numbering.xml", numbering.as_bytes()),
        ("word/footnotes.xml", notes.as_bytes()),
        (
            "word/_rels/document.xml.rels",
            relation("https://example.org/?a=1&amp;b=2").as_bytes(),
        ),
        (
            "word/_rels/footnotes.xml.rels",
            relation("https://example.org/note").as_bytes(),
        ),
    ])
}

fn reference(id: usize) -> String {
    format!(
        "<w:r><w:rPr><w:vertAlign w:val=\"superscript\"/></w:rPr><w:footnoteReference w:id=\"{id}\"/></w:r>"
    )
}

#[test]
fn ordered_lists_of_word_behind_each_other_stay_apart() {
    let item = |list: usize, text: &str| {
        let of = format!("<w:numPr><w:ilvl w:val=\"0\"/><w:numId w:val=\"{list}\"/></w:numPr>");
        p(&of, &r("", text))
    };
    let body = [
        item(1, "mix"),
        item(1, "bake"),
        item(2, "wash"),
        item(2, "dry"),
        item(3, "cut"),
        p("", &r("", "Then rest.")),
        item(3, "serve"),
    ];
    let numbering = "<w:numbering><w:abstractNum w:abstractNumId=\"1\"><w:lvl w:ilvl=\"0\"><w:start w:val=\"1\"/>\
        <w:numFmt w:val=\"decimal\"/></w:lvl></w:abstractNum><w:abstractNum w:abstractNumId=\"2\"><w:lvl w:ilvl=\"0\">\
        <w:start w:val=\"5\"/><w:numFmt w:val=\"decimal\"/></w:lvl></w:abstractNum>\
        <w:num w:numId=\"1\"><w:abstractNumId w:val=\"1\"/></w:num><w:num w:numId=\"2\"><w:abstractNumId w:val=\"1\"/>\
        <w:lvlOverride w:ilvl=\"0\"><w:startOverride w:val=\"1\"/></w:lvlOverride></w:num>\
        <w:num w:numId=\"3\"><w:abstractNumId w:val=\"2\"/></w:num></w:numbering>";
    let document = format!(
        "<w:document><w:body>{}</w:body></w:document>",
        body.concat()
    );
    let bytes = archive(&[
        ("word/document.xml", document.as_bytes()),
        ("word/numbering.xml", numbering.as_bytes()),
    ]);
    let want = [
        "1. mix\n2. bake\n\n1) wash\n2) dry\n\n5. cut\n\nThen rest.\n\n6. serve",
        "- mix\n- bake\n\n- wash\n- dry\n\n- cut\n\nThen rest.\n\n- serve",
    ];
    assert_eq!(in_both_forms(&bytes, Format::Docx), want);
}

#[test]
fn marks_of_word_documents_are_markdown() {
    let style = |id: &str| format!("<w:pStyle w:val=\"{id}\"/>");
    let item = |list: usize, level: usize, text: &str| {
        let properties =
            format!("<w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"{list}\"/></w:numPr>");
        p(&properties, &r("", text))
    };
    let cell = |properties: &str, run: &str| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr>{}</w:tc>", p("", run))
    };
    let row = |cells: &[String]| format!("<w:tr>{}</w:tr>", cells.concat());
    let table = [
        row(&[
            cell("", &r("", "Region")),
            cell("<w:gridSpan w:val=\"2\"/>", &r("", "Sales")),
        ]),
        row(&[
            cell("<w:vMerge w:val=\"restart\"/>", &r("", "North")),
            cell("", &r("", "1")),
            cell("", &r("", "2")),
        ]),
        row(&[
            cell("<w:vMerge/>", ""),
            cell("", &r("", "3")),
            cell("", &r("<w:b/>", "4")),
        ]),
    ];
    let link = format!(
        "<w:hyperlink r:id=\"rId1\" w:history=\"1\">{}{}</w:hyperlink>",
        r("<w:rStyle w:val=\"Hyperlink\"/>", "pa"),
        r("<w:rStyle w:val=\"Hyperlink\"/>", "ge")
    );
    let sentence = [
        r("", "Some "),
        // a word that Word cut in two
        r("<w:b/>", "bo"),
        r("<w:b/>", "ld "),
        r("", "and "),
        r("<w:rStyle w:val=\"Em\"/>", "italic"),
        r("<w:b w:val=\"0\"/>", " and "),
        r("<w:b/><w:i/>", "both"),
        r("", ", and a "),
        link,
        r("", "."),
        reference(1),
    ];
    let body = [
        p(&style("T"), &r("", "Report")),
        p(&style("H2"), &r("<w:b/>", "Part one")),
        p("", &sentence.concat()),
        item(1, 0, "first"),
        item(1, 0, "second"),
        item(1, 1, "inner"),
        item(1, 0, "third"),
        p("", ""),
        item(2, 0, "bullet"),
        format!("<w:tbl>{}</w:tbl>", table.concat()),
        p("", &[r("", "The end."), reference(2)].concat()),
    ];
    let [markdown, plain] = in_both_forms(&docx(&body.concat()), Format::Docx);
    assert_eq!(markdown, MARKDOWN);
    assert_eq!(plain, PLAIN);
}

/// Documents that are rendered in several parts keep the marks that they have in plain text, as a part has not the others' notes.
#[test]
fn notes_of_long_documents_lose_nothing() {
    let long = p("", &r("", &"words ".repeat(60_000)));
    let body = [
        p("", &[r("", "One."), reference(1)].concat()),
        long,
        p("", &[r("", "Two."), reference(2)].concat()),
    ];
    let [markdown, plain] = in_both_forms(&docx(&body.concat()), Format::Docx);
    assert!(
        markdown.starts_with("One.[1]\n\nwords "),
        "{}",
        &markdown[..40]
    );
    let end = "Two.[2]\n\n[1] A note with *type* and a [link](https://example.org/note).\n\n[2] The last note.";
    assert!(
        markdown.ends_with(end),
        "{}",
        &markdown[markdown.len() - 200..]
    );
    assert!(plain.ends_with("Two.[2]\n\n[1] A note with type and a link.\n\n[2] The last note."));
}

#[test]
fn marks_of_open_documents_are_markdown() {
    let span = |style: &str, text: &str| {
        format!("<text:span text:style-name=\"{style}\">{text}</text:span>")
    };
    let note = |body: &str| {
        format!(
            "<text:note text:note-class=\"footnote\"><text:note-citation>1</text:note-citation><text:note-body>\
             <text:p>{body}</text:p></text:note-body></text:note>"
        )
    };
    let item = |text: &str| format!("<text:list-item><text:p>{text}</text:p></text:list-item>");
    let cell = |properties: &str, text: &str| {
        format!("<table:table-cell {properties}><text:p>{text}</text:p></table:table-cell>")
    };
    let sentence = [
        "Some ".to_string(),
        span("T1", "bo"),
        span("T1", "ld "),
        "and ".to_string(),
        span("Emphasis", "italic"),
        " and ".to_string(),
        span("T1", &span("Emphasis", "both")),
        ", and a <text:a xlink:type=\"simple\" xlink:href=\"https://example.org/?a=1&amp;b=2\">page</text:a>.".to_string(),
        note("A note with <text:span text:style-name=\"Emphasis\">type</text:span> and a \
              <text:a xlink:href=\"https://example.org/note\">link</text:a>."),
    ];
    let inner = format!(
        "<text:list-item><text:p>second</text:p><text:list text:style-name=\"L2\">{}</text:list></text:list-item>",
        item("inner")
    );
    let body = [
        "<text:p text:style-name=\"Title\">Report</text:p>".to_string(),
        "<text:h text:outline-level=\"2\"><text:span text:style-name=\"T1\">Part one</text:span></text:h>".to_string(),
        format!("<text:p>{}</text:p>", sentence.concat()),
        format!("<text:list text:style-name=\"L1\">{}{inner}{}</text:list><text:p/>", item("first"), item("third")),
        format!("<text:list text:style-name=\"L2\">{}</text:list>", item("bullet")),
        "<table:table><table:table-row>".to_string(),
        cell("", "Region"),
        cell("table:number-columns-spanned=\"2\"", "Sales"),
        "<table:covered-table-cell/></table:table-row><table:table-row>".to_string(),
        cell("table:number-rows-spanned=\"2\"", "North"),
        cell("", "1"),
        cell("", "2"),
        "</table:table-row><table:table-row><table:covered-table-cell/>".to_string(),
        cell("", "3"),
        cell("", "<text:span text:style-name=\"T1\">4</text:span>"),
        "</table:table-row></table:table>".to_string(),
        format!("<text:p>The end.{}</text:p>", note("The last note.")),
    ];
    let content = format!(
        "<office:document-content><office:automatic-styles>\
         <style:style style:name=\"T1\" style:family=\"text\"><style:text-properties fo:font-weight=\"bold\"/></style:style>\
         <text:list-style style:name=\"L1\"><text:list-level-style-number text:level=\"1\" style:num-format=\"1\"/></text:list-style>\
         <text:list-style style:name=\"L2\"><text:list-level-style-bullet text:level=\"1\"/></text:list-style>\
         </office:automatic-styles><office:body><office:text>{}</office:text></office:body></office:document-content>",
        body.concat()
    );
    let styles = "<office:document-styles><office:styles><style:style style:name=\"Emphasis\" style:family=\"text\">\
        <style:text-properties fo:font-style=\"italic\"/></style:style></office:styles></office:document-styles>";
    let file = archive(&[
        ("mimetype", b"application/vnd.oasis.opendocument.text"),
        ("content.xml", content.as_bytes()),
        ("styles.xml", styles.as_bytes()),
    ]);
    let [markdown, plain] = in_both_forms(&file, Format::Odt);
    assert_eq!(markdown, MARKDOWN);
    assert_eq!(plain, PLAIN);
}

#[test]
fn notes_of_chapters_have_numbers_of_their_own() {
    let chapter = |name: &str| {
        format!(
            "<html><body><h1>{name}</h1><p>Text<sup><a href='#n'>1</a></sup> of {name}.</p><p id='n'><a href='#x'>1</a> Note of {name}.</p></body></html>"
        )
    };
    let (one, two) = (chapter("one"), chapter("two"));
    let file = book(&[("a", Some(one.as_bytes())), ("b", Some(two.as_bytes()))]);
    let [markdown, plain] = in_both_forms(&file, Format::Epub);
    let of = |name: &str, n: usize| {
        format!("# {name}\n\nText[^{n}] of {name}.\n\n[^{n}]: Note of {name}.")
    };
    assert_eq!(markdown, format!("{}\n\n{}", of("one", 1), of("two", 2)));
    assert!(
        plain.starts_with("one\n\nText1 of one.\n\n1 Note of one."),
        "{plain}"
    );
}

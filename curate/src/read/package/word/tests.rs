//! Paragraphs of Word documents by hand-made XML.

use super::*;

/// Styles and lists as Word writes them.
fn layout() -> Layout {
    let mut layout = Layout::default();
    read_styles(
        "<w:styles><w:style w:styleId='U1'><w:name w:val='Heading 1'/></w:style>\
         <w:style w:styleId='Own'><w:name w:val='own'/><w:basedOn w:val='U1'/></w:style>\
         <w:style w:styleId='V1'><w:name w:val='toc 1'/></w:style>\
         <w:style w:styleId='L'><w:name w:val='list'/><w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr></w:style>\
         <w:style w:styleId='N2'><w:name w:val='List Number 2'/><w:pPr><w:numPr><w:numId w:val='3'/></w:numPr></w:pPr></w:style>\
         <w:style w:styleId='Deep'><w:name w:val='deep'/><w:pPr><w:numPr><w:ilvl w:val='1'/><w:numId w:val='2'/></w:numPr></w:pPr></w:style>\
         <w:style w:type='character' w:styleId='S'><w:name w:val='strong'/><w:rPr><w:b/></w:rPr></w:style>\
         <w:style w:type='character' w:styleId='SE'><w:basedOn w:val='S'/><w:rPr><w:i/></w:rPr></w:style>\
         <w:style w:type='paragraph' w:styleId='Fat'><w:rPr><w:b/></w:rPr></w:style>\
         <w:style w:styleId='Loop'><w:basedOn w:val='Loop'/></w:style></w:styles>",
        &mut layout,
    )
    .unwrap();
    read_numbering(
        "<w:numbering><w:abstractNum w:abstractNumId='7'><w:lvl w:ilvl='0'><w:numFmt w:val='bullet'/></w:lvl>\
         <w:lvl w:ilvl='1'><w:numFmt w:val='decimal'/></w:lvl></w:abstractNum>\
         <w:abstractNum w:abstractNumId='8'><w:lvl w:ilvl='0'><w:numFmt w:val='lowerRoman'/></w:lvl></w:abstractNum>\
         <w:num w:numId='2'><w:abstractNumId w:val='7'/></w:num><w:num w:numId='3'><w:abstractNumId w:val='8'/></w:num></w:numbering>",
        &mut layout,
    )
    .unwrap();
    layout
}

fn html(body: &str) -> String {
    html_of(&layout(), body)
}

fn html_of(layout: &Layout, body: &str) -> String {
    let mut links = Links::default();
    links_of(
        "<Relationships><Relationship Id='r1' Type='http://x/hyperlink' Target='https://example.org/?a=1&amp;b'/>\
         <Relationship Id='r2' Type='http://x/image' Target='media/1.png'/></Relationships>",
        &mut links,
    )
    .unwrap();
    let mut pass = Pass::new(layout, &links, None);
    pass.run(&format!("<w:document>{body}</w:document>"))
        .unwrap();
    pass.flow.end(&[]).concat().replace('\n', "")
}

fn paragraph(properties: &str, text: &str) -> String {
    format!("<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
}

#[test]
fn headings_and_lists_follow_styles_and_numbering() {
    let style = |id: &str| format!("<w:pStyle w:val='{id}'/>");
    let list =
        |level: usize| format!("<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='2'/></w:numPr>");
    let body = [
        paragraph(&style("U1"), "a"),
        paragraph(&style("Own"), "b"),
        paragraph(&style("V1"), "contents 3"),
        paragraph(&style("Loop"), "c"),
        paragraph(&list(0), "d"),
        paragraph(&list(1), "e"),
        paragraph(&style("L"), "f"),
        paragraph("<w:numPr><w:numId w:val='0'/></w:numPr>", "g"),
        paragraph("<w:outlineLvl w:val='2'/>", "h"),
    ];
    let want = "<h1>a</h1><h1>b</h1><p>c</p><ul><li>d</li><ol><li>e</li></ol><li>f</li></ul><p>g</p><h3>h</h3>";
    assert_eq!(html(&body.concat()), want);
}

#[test]
fn levels_of_items_are_those_of_styles_too() {
    let style = |id: &str, text: &str| paragraph(&format!("<w:pStyle w:val='{id}'/>"), text);
    let body = [style("L", "a"), style("N2", "b"), style("Deep", "c")].concat();
    let want = "<ul><li>a</li><ol><li>b</li></ol><ol><li>c</li></ol></ul>";
    assert_eq!(html(&body), want);
}

/// Lists of two abstract lists, one of them by three instances: two that go on counting, and one that starts anew at 7.
fn counted(body: &str) -> String {
    let mut layout = layout();
    let level = |level: usize, more: &str| {
        format!("<w:lvl w:ilvl='{level}'>{more}<w:numFmt w:val='decimal'/></w:lvl>")
    };
    let lists = [
        "<w:numbering><w:abstractNum w:abstractNumId='1'>".to_string(),
        level(0, "<w:start w:val='1'/>"),
        level(1, "<w:start w:val='3'/>"),
        level(2, "<w:start w:val='1'/><w:lvlRestart w:val='0'/>"),
        "</w:abstractNum><w:abstractNum w:abstractNumId='2'>".to_string(),
        level(0, "<w:start w:val='4'/>"),
        "</w:abstractNum>".to_string(),
        "<w:num w:numId='11'><w:abstractNumId w:val='1'/></w:num>".to_string(),
        "<w:num w:numId='12'><w:abstractNumId w:val='1'/></w:num>".to_string(),
        "<w:num w:numId='13'><w:abstractNumId w:val='1'/><w:lvlOverride w:ilvl='0'><w:startOverride w:val='7'/>\
            <w:lvl w:ilvl='0'><w:start w:val='2'/><w:numFmt w:val='lowerRoman'/></w:lvl></w:lvlOverride></w:num>"
            .to_string(),
        "<w:num w:numId='14'><w:abstractNumId w:val='2'/><w:lvlOverride w:ilvl='0'>\
            <w:lvl w:ilvl='0'><w:numFmt w:val='bullet'/></w:lvl></w:lvlOverride></w:num>"
            .to_string(),
        "<w:num w:numId='21'><w:abstractNumId w:val='2'/></w:num></w:numbering>".to_string(),
    ];
    read_numbering(&lists.concat(), &mut layout).unwrap();
    html_of(&layout, body)
}

fn item(list: usize, level: usize, text: &str) -> String {
    let of = format!("<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='{list}'/></w:numPr>");
    paragraph(&of, text)
}

#[test]
fn lists_behind_each_other_start_at_their_own_numbers() {
    let plain = || paragraph("", "-");
    for (body, want) in [
        // another list, with its own first number
        (
            vec![item(11, 0, "a"), item(11, 0, "b"), item(21, 0, "c")],
            "<ol><li>a</li><li>b</li></ol><ol start=\"4\"><li>c</li></ol>",
        ),
        // an instance that starts anew where it is used first, and only there
        (
            vec![
                item(11, 0, "a"),
                item(13, 0, "b"),
                item(13, 0, "c"),
                item(11, 0, "d"),
            ],
            "<ol><li>a</li></ol><ol start=\"7\"><li>b</li><li>c</li><li>d</li></ol>",
        ),
        // instances of one abstract list go on counting, also behind a paragraph
        (
            vec![
                item(11, 0, "a"),
                item(12, 0, "b"),
                plain(),
                item(12, 0, "c"),
            ],
            "<ol><li>a</li><li>b</li></ol><p>-</p><ol start=\"3\"><li>c</li></ol>",
        ),
        // levels start anew below each item, unless they say otherwise
        (
            vec![
                item(11, 0, "a"),
                item(11, 1, "b"),
                item(11, 2, "c"),
                item(11, 0, "d"),
                item(11, 1, "e"),
                item(11, 2, "f"),
            ],
            "<ol><li>a</li><ol start=\"3\"><li>b</li><ol><li>c</li></ol></ol><li>d</li>\
                <ol start=\"3\"><li>e</li><ol start=\"2\"><li>f</li></ol></ol></ol>",
        ),
        // a number without text counts
        (
            vec![item(11, 0, "a"), item(11, 0, " "), item(11, 0, "b")],
            "<ol><li>a</li><li value=\"3\">b</li></ol>",
        ),
        // an instance has a format of its own
        (
            vec![item(14, 0, "a"), item(21, 0, "b")],
            "<ul><li>a</li></ul><ol start=\"5\"><li>b</li></ol>",
        ),
    ] {
        assert_eq!(counted(&body.concat()), want);
    }
}

#[test]
fn type_is_that_of_runs_and_of_their_own_styles() {
    let run = |properties: &str, text: &str| {
        format!("<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>")
    };
    let body = [
        "<w:p><w:pPr><w:pStyle w:val='Fat'/><w:rPr><w:b/></w:rPr></w:pPr>".to_string(),
        run("<w:b/>", "a &amp; b"),
        run("<w:b w:val='0'/><w:i/>", "c"),
        run("<w:rStyle w:val='S'/>", "d"),
        run("<w:rStyle w:val='SE'/>", "e"),
        run("<w:rStyle w:val='SE'/><w:b w:val='false'/>", "f"),
        run("<w:rPrChange><w:rPr><w:b/></w:rPr></w:rPrChange>", "g"),
        "<w:r><w:t>h</w:t></w:r><m:oMath><m:r><w:rPr><w:i/></w:rPr><m:t>x</m:t></m:r></m:oMath></w:p>".to_string(),
    ];
    let want = "<p><b>a </b><b>&amp;</b><b> b</b><i>c</i><b>d</b><b><i>e</i></b><i>f</i>ghx</p>";
    assert_eq!(html(&body.concat()), want);
}

#[test]
fn links_are_those_of_relationships_and_of_fields() {
    let run = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
    let field = |kind: &str| format!("<w:r><w:fldChar w:fldCharType='{kind}'/></w:r>");
    let code = |text: &str| format!("<w:r><w:instrText>{text}</w:instrText></w:r>");
    let link = |id: &str| format!("<w:hyperlink r:id='{id}'>{}</w:hyperlink>", run("b"));
    let to = |target: &str, text: &str| format!("<a href=\"{target}\">{text}</a>");
    let own = "https://example.org/?a=1&amp;b";
    for (body, want) in [
        (link("r1"), to(own, "b")),
        // a picture, nothing, a place of the document
        (link("r2"), "b".to_string()),
        (link("r3"), "b".to_string()),
        (link("").replace("r:id=''", "w:anchor='x'"), "b".to_string()),
        (
            link("r1").replace("'>", "' w:anchor='x'>"),
            to(&format!("{own}#x"), "b"),
        ),
        (
            [
                field("begin"),
                code(" HYPERLINK \"https://"),
                code("x.org\" \\o \"tip\" "),
                field("separate"),
                run("b"),
                field("end"),
            ]
            .concat(),
            to("https://x.org", "b"),
        ),
        (
            [
                field("begin"),
                code("PAGEREF x"),
                field("separate"),
                run("7"),
                field("end"),
            ]
            .concat(),
            "7".to_string(),
        ),
        (
            format!(
                "<w:fldSimple w:instr='HYPERLINK https://x.org'>{}</w:fldSimple>",
                run("b")
            ),
            to("https://x.org", "b"),
        ),
    ] {
        assert_eq!(
            html(&format!("<w:p>{}{body}{}</w:p>", run("a"), run("c"))),
            format!("<p>a{want}c</p>")
        );
    }
    // a field that goes on in the next paragraph
    let body = [
        "<w:p>".to_string(),
        field("begin"),
        code("HYPERLINK \"https://x.org\""),
        field("separate"),
        run("b"),
        "</w:p><w:p>".to_string(),
        run("c"),
        field("end"),
        "</w:p>".to_string(),
    ];
    let want = format!("<p>{}</p><p>c</p>", to("https://x.org", "b"));
    assert_eq!(html(&body.concat()), want);
}

#[test]
fn deleted_text_marks_and_rows_are_gone_and_inserted_text_stays() {
    let run = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
    let body = format!(
        "<w:p>{}<w:del>{}<w:r><w:delText>x</w:delText></w:r></w:del><w:ins>{}</w:ins></w:p>\
         <w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{}</w:p><w:p>{}</w:p>\
         <w:p><w:moveFrom>{}</w:moveFrom></w:p><w:p><w:moveTo>{}</w:moveTo></w:p>\
         <w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc><w:p>{}</w:p></w:tc></w:tr>\
         <w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
        run("a"),
        run("x"),
        run("b"),
        run("c"),
        run("d"),
        run("x"),
        run("e"),
        run("x"),
        run("f"),
    );
    let want = "<p>ab</p><p>cd</p><p>e</p><table><tr><td colspan=\"2\"><p>f</p></td></tr></table>";
    assert_eq!(html(&body), want);
}

#[test]
fn hidden_text_field_codes_and_second_forms_are_left_out() {
    let body = "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>x</w:t></w:r><w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>a</w:t></w:r>\
        <w:r><w:instrText>PAGEREF</w:instrText></w:r><w:r><w:t>&lt;b</w:t><w:tab/><w:t>c</w:t><w:br/></w:r>\
        <mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Choice>\
        <mc:Fallback><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Fallback></mc:AlternateContent>\
        <m:oMath><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath></w:p>";
    assert_eq!(html(body), "<p>box</p><p>a&lt;b c<br>1/2</p>");
}

#[test]
fn notes_are_read_by_id_without_their_separators() {
    let (layout, links) = (Layout::default(), Links::default());
    let mut pass = Pass::new(&layout, &links, Some("footnote"));
    pass.run(
        "<w:footnotes><w:footnote w:type='separator' w:id='0'><w:p><w:r><w:t>-</w:t></w:r></w:p></w:footnote>\
         <w:footnote w:id='2'><w:p><w:r><w:t>a</w:t></w:r></w:p><w:p><w:r><w:t>b</w:t></w:r></w:p></w:footnote></w:footnotes>",
    )
    .unwrap();
    let want = BTreeMap::from([("2".to_string(), "a b".to_string())]);
    assert_eq!(pass.notes, want);
    let mut pass = Pass::new(&layout, &links, None);
    pass.run("<d><p><r><t>x</t><footnoteReference w:id='2'/></r></p></d>")
        .unwrap();
    let number = BTreeMap::from([(("footnote", "2".to_string()), 1)]);
    assert_eq!(pass.references, number);
    let want = "<p>x<sup><a href=\"#note-1\">[1]</a></sup></p>\n";
    assert_eq!(pass.flow.end(&[]), [want]);
}

#[test]
fn a_note_that_two_places_refer_to_has_one_number() {
    let (layout, links) = (Layout::default(), Links::default());
    let mut pass = Pass::new(&layout, &links, None);
    pass.run(
        "<d><p><r><t>x</t><footnoteReference w:id='2'/><t>y</t><endnoteReference w:id='2'/></r>\
         <r><t>z</t><footnoteReference w:id='2'/></r></p></d>",
    )
    .unwrap();
    let two = "2".to_string();
    let numbers = [(("footnote", two.clone()), 1), (("endnote", two), 2)];
    assert_eq!(pass.references, BTreeMap::from(numbers));
    let reference = |n: u32| format!("<sup><a href=\"#note-{n}\">[{n}]</a></sup>");
    let (first, second) = (reference(1), reference(2));
    let want = format!("<p>x{first}y{second}z{first}</p>\n");
    assert_eq!(pass.flow.end(&[]), [want]);
}

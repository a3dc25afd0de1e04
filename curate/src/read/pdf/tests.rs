//! Tests on small files that are written here.

use super::*;

/// With headers and footers.
const RUNNING: How = How {
    keeps_running: true,
    by_page: false,
};

/// A PDF of objects, numbered from 1, with its table.
pub(super) fn file(objects: &[String]) -> Vec<u8> {
    let mut bytes = b"%PDF-1.4\n".to_vec();
    let mut offsets = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        offsets.push(bytes.len());
        bytes.extend(format!("{} 0 obj\n{object}\nendobj\n", i + 1).into_bytes());
    }
    let start = bytes.len();
    bytes.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).into_bytes());
    for offset in &offsets {
        bytes.extend(format!("{offset:010} 00000 n \n").into_bytes());
    }
    let size = objects.len() + 1;
    bytes.extend(
        format!("trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n").into_bytes(),
    );
    bytes
}

/// A document whose pages have these contents, and fonts F1 and, without characters, F2.
pub(super) fn document(contents: &[&str]) -> Vec<u8> {
    let kids: Vec<String> = (0..contents.len())
        .map(|i| format!("{} 0 R", 5 + 2 * i))
        .collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_string(),
        format!(
            "<</Type/Pages/Count {}/Kids[{}]>>",
            kids.len(),
            kids.join(" ")
        ),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_string(),
        "<</Type/Font/Subtype/Type0/BaseFont/X/Encoding/Identity-H/DescendantFonts[<</DW 500>>]>>"
            .to_string(),
    ];
    for (i, content) in contents.iter().enumerate() {
        objects.push(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R/F2 4 0 R>>>>/Contents {} 0 R>>",
            6 + 2 * i
        ));
        objects.push(format!(
            "<</Length {}>>\nstream\n{content}\nendstream",
            content.len()
        ));
    }
    file(&objects)
}

fn text(reading: &Reading<'_>) -> String {
    reading
        .document
        .as_ref()
        .map_or(String::new(), |d| d.text.to_string())
}

fn reasons<'a>(reading: &'a Reading<'_>) -> Vec<&'a str> {
    reading.bad.iter().map(|part| part.why.as_str()).collect()
}

#[test]
fn strings_are_placed_by_every_operator() {
    let content = "BT /F1 12 Tf 14 TL 72 700 Td (one ) Tj [(t)20(w)-400(o)] TJ T* (three) Tj (four) ' 1 0 (five) \" ET \
        q 1 0 0 1 72 500 cm BT /F1 12 Tf 1 0 0 1 0 0 Tm <736978> Tj ET Q";
    let reading = read(document(&[content]), How::default());
    assert_eq!(text(&reading), "one tw o three four five\n\nsix");
    assert!(reading.bad.is_empty());
}

#[test]
fn a_broken_page_is_quarantined_with_its_number() {
    let sound = "BT /F1 12 Tf 72 700 Td (sound) Tj ET";
    let unknown = "BT /F2 12 Tf 72 700 Td <000100020003> Tj ET";
    let mut bytes = document(&[sound, unknown, sound, sound]);
    // the last page's content becomes an object of another kind
    let at = memmem::rfind(&bytes, b"<</Length").unwrap();
    bytes[at..at + 9].copy_from_slice(b"[0 /Lengt");
    let reading = read(bytes, How::default());
    assert_eq!(text(&reading), "sound\n\nsound");
    let bad = reasons(&reading);
    assert_eq!(bad.len(), 2, "{bad:?}");
    assert_eq!(
        bad[0],
        "page 2: 3 of 3 glyphs have no characters: the fonts do not say which"
    );
    assert!(bad[1].starts_with("page 4: "), "{bad:?}");
}

#[test]
fn files_of_pictures_and_encrypted_ones_lack_text() {
    let lack = |bytes| read(bytes, How::default()).document.unwrap().lacks;
    assert_eq!(lack(document(&["0 0 m 10 10 l S"])), Some(Lack::Text));
    for key in ["/Encrypt 9 0 R", "/Encrypt<</V 1>>", "/#45ncr#79pt 9 0 R"] {
        let mut bytes = document(&["BT /F1 12 Tf 72 700 Td (a) Tj ET"]);
        let at = memmem::rfind(&bytes, b"/Root").unwrap();
        bytes.splice(at..at, key.bytes());
        assert_eq!(lack(bytes), Some(Lack::Encrypted), "{key}");
    }
    let shown = document(&["BT /F1 12 Tf 72 700 Td (/Encrypt is a key) Tj ET"]);
    assert_eq!(lack(shown), None);
}

#[test]
fn artifacts_headers_and_page_numbers_are_left_out_and_counted() {
    let pages: Vec<String> = (1..=4)
        .map(|i| {
            let word = ["alpha", "beta", "gamma", "delta"][i - 1];
            format!(
                "BT /F1 12 Tf 72 760 Td (Running head) Tj 0 -60 Td (Text {word}.) Tj 0 -660 Td ({i}) Tj ET \
                 /Artifact BMC BT /F1 12 Tf 72 20 Td (mark) Tj ET EMC"
            )
        })
        .collect();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let reading = read(document(&pages), How::default());
    assert_eq!(
        text(&reading),
        "Text alpha.\n\nText beta.\n\nText gamma.\n\nText delta."
    );
    let own = &reading.document.as_ref().unwrap().meta["pdf"];
    assert_eq!(
        (&own["pages"], &own["running_lines"]),
        (&4.into(), &8.into())
    );
    assert_eq!(own["artifact_chars"], 16);
    assert!(text(&read(document(&pages), RUNNING)).contains("Running head"));
}

#[test]
fn text_goes_on_over_the_end_of_a_page() {
    let a = "BT /F1 12 Tf 72 100 Td (The sentence is divi-) Tj ET";
    let b = "BT /F1 12 Tf 72 700 Td (ded by a page.) Tj ET";
    assert_eq!(
        text(&read(document(&[a, b]), How::default())),
        "The sentence is divided by a page."
    );
}

#[test]
fn forms_that_contain_themselves_end() {
    let mut objects: Vec<String> = Vec::new();
    objects.push("<</Type/Catalog/Pages 2 0 R>>".to_string());
    objects.push("<</Type/Pages/Count 1/Kids[3 0 R 2 0 R 3 0 R]>>".to_string());
    objects.push(
        "<</Type/Page/Parent 2 0 R/Resources<</XObject<</X 4 0 R>>>>/Contents 5 0 R>>".to_string(),
    );
    let form = "/X Do /X Do /X Do";
    objects.push(format!(
        "<</Subtype/Form/Resources<</XObject<</X 4 0 R>>>>/Length {}>>\nstream\n{form}\nendstream",
        form.len()
    ));
    objects.push("<</Length 5>>\nstream\n/X Do\nendstream".to_string());
    // the library does not resolve an object inside itself
    let reading = read(file(&objects), How::default());
    assert_eq!(reading.document.unwrap().lacks, Some(Lack::Text));
}

#[test]
fn nested_arrays_of_a_million_levels_do_not_overflow_the_stack() {
    let content = format!("BT /F1 12 Tf 72 700 Td (a) Tj {} ET", "[".repeat(1_000_000));
    drop(read(document(&[&content]), How::default()));
    let mut bytes = document(&["BT /F1 12 Tf 72 700 Td (a) Tj ET"]);
    bytes.extend(b"9 0 obj\n");
    bytes.extend(b"<</A".repeat(300_000));
    drop(read(bytes, How::default()));
}

#[test]
fn pages_are_documents_of_their_own_with_numbers_in_their_names() {
    let sound = |word: &str| format!("BT /F1 12 Tf 72 700 Td ({word}) Tj ET");
    let unknown = "BT /F2 12 Tf 72 700 Td <000100020003> Tj ET".to_string();
    let pages = [
        sound("one"),
        sound("two-"),
        unknown,
        "0 0 m 10 10 l S".to_string(),
        sound("five"),
    ];
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let how = How {
        by_page: true,
        ..How::default()
    };
    let reading = read(document(&pages), how);
    assert_eq!(reading.document, None);
    let parts: Vec<(&str, &str)> = reading.parts.iter().map(|p| (&*p.part, &*p.text)).collect();
    let want = [
        ("page-1", "one"),
        ("page-2", "two-"),
        ("page-4", ""),
        ("page-5", "five"),
    ];
    assert_eq!(parts, want);
    assert_eq!(reading.parts[2].lacks, Some(Lack::Text));
    let own = &reading.parts[3].meta["pdf"];
    assert_eq!((&own["pages"], &own["page"]), (&5.into(), &5.into()));
    assert_eq!(reasons(&reading).len(), 1);
    assert!(reasons(&reading)[0].starts_with("page 3: "));
}

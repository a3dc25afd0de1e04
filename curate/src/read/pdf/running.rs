//! Headers and footers: lines at the edge of pages that repeat on others, and numbers of pages.
//!
//! The two outermost lines at the top and at the bottom of a page are looked at. With its digits replaced, such a line
//! is a running one if lines like it are at the same height of at least three pages, each no more than two pages from
//! the one before, so that heads which change by chapter or by side are found too. The numbers of a long line must be the
//! same on the pages or count them: the first lines of columns may differ in a number alone.

use std::collections::BTreeMap;

use super::layout::Line;

/// Lines that are looked at on either edge.
const OUTER: usize = 2;
/// Pages that a line must be on.
const PAGES: usize = 3;
/// Pages between two with the same line.
const STRIDE: usize = 2;
/// Characters of a line whose numbers may change as they like: dates, sections, numbers that begin anew.
const SHORT: usize = 30;
/// Characters of a line that are compared.
const MAX_CHARS: usize = 200;
/// Lines are at the same height within this share of the page.
const BAND: f32 = 0.01;

/// A page's lines, with the bottom and the height of the page.
pub(super) struct Sheet<'a> {
    pub(super) number: usize,
    pub(super) lines: &'a [Line],
    pub(super) bottom: f32,
    pub(super) height: f32,
}

/// Numbers of the running lines of each page, in order.
pub(super) fn running(sheets: &[Sheet<'_>]) -> Vec<Vec<usize>> {
    let mut seen: BTreeMap<(String, i32), Vec<(usize, usize)>> = BTreeMap::new();
    for (i, sheet) in sheets.iter().enumerate() {
        for line in outer(sheet.lines) {
            let text = &sheet.lines[line];
            let band = band(text.y - sheet.bottom, sheet.height);
            let key = (key(&text.text), band);
            seen.entry(key).or_default().push((i, line));
        }
    }
    let mut found: Vec<Vec<usize>> = sheets.iter().map(|_| Vec::new()).collect();
    for ((text, band), mut places) in seen.clone() {
        // the border of two bands may be between them
        places.extend(seen.get(&(text, band + 1)).into_iter().flatten());
        places.sort_unstable();
        let mut run: Vec<(usize, usize)> = Vec::new();
        for place in places.into_iter().chain([(usize::MAX, 0)]) {
            let number = |i: usize| sheets.get(i).map_or(usize::MAX, |sheet| sheet.number);
            let is_next = run.last().is_none_or(|last| {
                number(place.0) != usize::MAX
                    && number(place.0) - number(last.0) <= STRIDE
                    && counts_pages(
                        text_at(sheets, last.0, last.1),
                        text_at(sheets, place.0, place.1),
                        number(place.0) - number(last.0),
                    )
            });
            if !is_next {
                let mut pages: Vec<usize> = run.iter().map(|place| place.0).collect();
                pages.dedup();
                if pages.len() >= PAGES {
                    for (page, line) in &run {
                        found[*page].push(*line);
                    }
                }
                run.clear();
            }
            run.push(place);
        }
    }
    for lines in &mut found {
        lines.sort_unstable();
        lines.dedup();
    }
    found
}

/// Text of a line of a page.
fn text_at<'a>(sheets: &[Sheet<'a>], page: usize, line: usize) -> &'a str {
    let line = sheets.get(page).and_then(|sheet| sheet.lines.get(line));
    line.map_or("", |line| &line.text)
}

/// Whether a line may be the running line `pages` after another, which is like it but for its numbers: it is short, or
/// each number is the same or grows with the pages.
fn counts_pages(before: &str, after: &str, pages: usize) -> bool {
    if key(after).chars().count() <= SHORT {
        return true;
    }
    let grown = |(a, b): (u64, u64)| a == b || a.checked_add(pages as u64) == Some(b);
    numbers(before).zip(numbers(after)).all(grown)
}

/// The numbers in a text; one in other digits than ASCII's, or too long for this, counts as 0.
fn numbers(text: &str) -> impl Iterator<Item = u64> + '_ {
    let runs = text.split(|c: char| !c.is_numeric() && !c.is_whitespace());
    let runs = runs.map(|run| run.split_whitespace().collect::<String>());
    runs.filter(|run| !run.is_empty())
        .map(|run| run.parse().unwrap_or(0))
}

fn band(y: f32, height: f32) -> i32 {
    let share = y / height.max(1.0) / BAND;
    #[expect(clippy::cast_possible_truncation, reason = "limited")]
    let band = share.clamp(-1e6, 1e6).floor() as i32;
    band
}

/// The outermost lines of text that runs along the page.
fn outer(lines: &[Line]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].turn == 0).collect();
    order.sort_by(|a, b| lines[*b].y.total_cmp(&lines[*a].y).then(a.cmp(b)));
    let mut found: Vec<usize> = order.iter().take(OUTER).copied().collect();
    found.extend(order.iter().rev().take(OUTER));
    found.sort_unstable();
    found.dedup();
    found
}

/// A line with its digits replaced; numbers in Roman digits too if they are all of it.
fn key(text: &str) -> String {
    let is_roman = text.len() <= 8 && text.bytes().all(|b| b"ivxlcdmIVXLCDM".contains(&b));
    if is_roman {
        return "#".to_string();
    }
    let mut out = String::new();
    for c in text.chars().take(MAX_CHARS) {
        match c {
            c if c.is_numeric() && out.ends_with('#') => {}
            c if c.is_numeric() => out.push('#'),
            c if c.is_whitespace() => {}
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(y: f32, text: &str) -> Line {
        Line {
            text: text.to_string(),
            y,
            size: 10.0,
            ..Line::default()
        }
    }

    fn found(pages: &[Vec<Line>]) -> Vec<Vec<usize>> {
        let sheets: Vec<Sheet<'_>> = pages
            .iter()
            .enumerate()
            .map(|(number, lines)| Sheet {
                number,
                lines,
                bottom: 0.0,
                height: 800.0,
            })
            .collect();
        running(&sheets)
    }

    #[test]
    fn heads_of_every_other_page_and_page_numbers_are_found() {
        let pages: Vec<Vec<Line>> = (0..6)
            .map(|i| {
                let head = if i % 2 == 0 { "Title" } else { "Author" };
                vec![
                    line(780.0, head),
                    line(
                        700.0,
                        &format!("Unique {}", "abcdef".chars().nth(i).unwrap()),
                    ),
                    line(600.0, "The same in the middle"),
                    line(100.0, &format!("text {}", "abcdef".chars().nth(i).unwrap())),
                    line(20.0, &format!("{} of 6", i + 1)),
                ]
            })
            .collect();
        assert_eq!(found(&pages), vec![vec![0, 4]; 6]);
    }

    #[test]
    fn lines_on_two_pages_or_far_apart_stay() {
        let mut pages: Vec<Vec<Line>> = (0..10)
            .map(|i| vec![line(500.0, &"y".repeat(i + 1))])
            .collect();
        for page in [0, 4, 8] {
            pages[page].push(line(780.0, "Chapter"));
        }
        for page in [1, 2] {
            pages[page].push(line(780.0, "Part"));
        }
        assert_eq!(found(&pages), vec![Vec::<usize>::new(); 10]);
    }

    #[test]
    fn long_lines_must_be_the_same_or_count_the_pages() {
        let at_top = |text: &dyn Fn(usize) -> String| {
            let pages: Vec<Vec<Line>> = (0..6).map(|i| vec![line(780.0, &text(i))]).collect();
            found(&pages)
        };
        let runs = vec![vec![0]; 6];
        let stays = vec![Vec::<usize>::new(); 6];
        let body = |i: usize| format!("Para {} starts. The quick brown fox jumps over it.", 4 * i);
        assert_eq!(at_top(&body), stays);
        let table = |i: usize| {
            format!(
                "{} {} {} {} of all the measurements in the field",
                i,
                7 * i,
                i * i,
                3 * i
            )
        };
        assert_eq!(at_top(&table), stays);
        let journal = |i: usize| {
            format!(
                "A. Author et al. / Journal of Rivers 12 (2020) 123-145 {}",
                123 + i
            )
        };
        assert_eq!(at_top(&journal), runs);
        let same =
            |_: usize| "Proceedings of the 12th Conference on Rivers, 2020, Lyon".to_string();
        assert_eq!(at_top(&same), runs);
        let short = |i: usize| format!("Chapter {} p. {}", i / 2, 10 * i);
        assert_eq!(at_top(&short), runs);
    }

    #[test]
    fn roman_page_numbers_are_numbers() {
        assert_eq!(
            (key("xiv"), key("12"), key("Page  12")),
            ("#".into(), "#".into(), "page#".into())
        );
    }
}

//! Markers of virtual tokens in a text: `<|VIRTUAL_PROMPT_0|>`, `<|VIRTUAL_PROMPT_1|>`, ..., NeMo's, and `<|VIRTUAL_PROMPT_0:name|>` with
//! the name of a task, where several have markers of one number.

use std::ops::Range;
use train::config::{TaskMarkers, is_of_name};

const BEGIN: &str = "<|VIRTUAL_PROMPT_";
const END: &str = "|>";

/// A marker of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker<'a> {
    pub(crate) number: usize,
    /// Name of the task; empty: none.
    pub(crate) task: &'a str,
}

/// A part of a text with markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked<'a> {
    /// Not empty.
    Text(&'a str),
    Marker(Marker<'a>),
}

/// The marker of a number without a task.
pub(super) fn marker(number: usize) -> String {
    shown(Marker { number, task: "" })
}

fn shown(Marker { number, task }: Marker<'_>) -> String {
    match task {
        "" => format!("{BEGIN}{number}{END}"),
        _ => format!("{BEGIN}{number}:{task}{END}"),
    }
}

/// The first marker of a text, and its bytes.
fn first_marker(text: &str) -> Option<(Range<usize>, Marker<'_>)> {
    let mut from = 0;
    while let Some(found) = text[from..].find(BEGIN) {
        let at = from + found;
        let digits = at + BEGIN.len();
        let rest = &text[digits..];
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(count);
        let named = rest.strip_prefix(':').map(|rest| {
            let end = rest.find(|c| !is_of_name(c));
            rest.split_at(end.unwrap_or(rest.len()))
        });
        let (task, rest) = named
            .filter(|(task, _)| !task.is_empty())
            .unwrap_or(("", rest));
        if let (Ok(number), true) = (number.parse(), rest.starts_with(END)) {
            let end = text.len() - rest.len() + END.len();
            return Some((at..end, Marker { number, task }));
        }
        from = digits;
    }
    None
}

/// The parts of a text with markers.
pub(crate) fn at_markers(mut text: &str) -> Vec<Marked<'_>> {
    let mut parts = Vec::new();
    while let Some((bytes, marker)) = first_marker(text) {
        if bytes.start > 0 {
            parts.push(Marked::Text(&text[..bytes.start]));
        }
        parts.push(Marked::Marker(marker));
        text = &text[bytes.end..];
    }
    if !text.is_empty() {
        parts.push(Marked::Text(text));
    }
    parts
}

/// Whether a text has a marker.
pub(crate) fn has_marker(text: &str) -> bool {
    first_marker(text).is_some()
}

/// The text up to the end of its last marker, and the rest; the first is empty without markers.
pub(crate) fn at_last_marker(text: &str) -> (&str, &str) {
    let mut end = 0;
    while let Some((bytes, _)) = first_marker(&text[end..]) {
        end += bytes.end;
    }
    text.split_at(end)
}

/// Markers of a text.
fn markers(text: &str) -> Vec<Marker<'_>> {
    let mut all = Vec::new();
    for part in at_markers(text) {
        match part {
            Marked::Text(_) => {}
            Marked::Marker(marker) => all.push(marker),
        }
    }
    all
}

/// Numbers of the markers of a text.
pub(super) fn numbers(text: &str) -> Vec<usize> {
    markers(text).into_iter().map(|own| own.number).collect()
}

/// Whether a marker of a text names a task.
pub(super) fn has_named(text: &str) -> bool {
    markers(text).iter().any(|own| !own.task.is_empty())
}

/// The text with the name of a task in each of its markers; an empty name: as it is.
pub(super) fn with_task(text: &str, task: &str) -> String {
    if task.is_empty() {
        return text.to_owned();
    }
    let part = |part: Marked<'_>| match part {
        Marked::Text(text) => text.to_owned(),
        Marked::Marker(own) => shown(Marker { task, ..own }),
    };
    at_markers(text).into_iter().map(part).collect()
}

/// Markers as a message lists them.
fn all_shown(markers: &[Marker<'_>]) -> String {
    let names: Vec<String> = markers.iter().copied().map(shown).collect();
    match names.is_empty() {
        true => "no marker".into(),
        false => names.join(", "),
    }
}

/// The markers of a text as a message lists them.
pub(super) fn listed(text: &str) -> String {
    all_shown(&markers(text))
}

/// The markers of so many numbers, in a message.
pub(super) fn wanted(count: usize) -> String {
    wanted_of(count, "")
}

fn wanted_of(count: usize, task: &str) -> String {
    let marker = |number| shown(Marker { number, task });
    match count {
        0 | 1 => format!("{} once", marker(0)),
        2 => format!("{} and {}, each once and in order", marker(0), marker(1)),
        _ => format!(
            "{} to {}, each once and in order",
            marker(0),
            marker(count - 1)
        ),
    }
}

/// The task whose markers a text has, each once and in order: the one that they name, or else the only one with as many.
///
/// # Errors
/// The markers that were found, and those that are wanted.
pub(crate) fn task_of<'a>(text: &str, all: &'a [TaskMarkers]) -> Result<&'a TaskMarkers, String> {
    let found = markers(text);
    let is_whole = |count: usize| found.iter().map(|own| own.number).eq(0..count);
    let refused = |wanted: String| Err(format!("found {}, want {wanted}", all_shown(&found)));
    if let [only] = all
        && only.task.is_empty()
    {
        let count = only.counts.len();
        return match is_whole(count) && found.iter().all(|own| own.task.is_empty()) {
            true => Ok(only),
            false => refused(wanted(count)),
        };
    }
    let named = found.first().map_or("", |own| own.task);
    let is_alike = found.iter().all(|own| own.task == named);
    let fits = |own: &&TaskMarkers| is_alike && is_whole(own.counts.len());
    let of_each = || {
        let each = all.iter().map(|own| wanted_of(own.counts.len(), &own.task));
        each.collect::<Vec<_>>().join(", or ")
    };
    if !named.is_empty() {
        let own = all.iter().find(|own| own.task == named);
        return match (own, own.filter(fits)) {
            (_, Some(own)) => Ok(own),
            (Some(own), None) => refused(wanted_of(own.counts.len(), &own.task)),
            (None, None) => refused(of_each()),
        };
    }
    let fitting: Vec<&TaskMarkers> = all.iter().filter(fits).collect();
    match fitting[..] {
        [only] => Ok(only),
        [] => refused(of_each()),
        [first, ..] => {
            let names: Vec<&str> = fitting.iter().map(|own| own.task.as_str()).collect();
            refused(format!(
                "the name of one of the tasks {} in them, such as {}",
                names.join(", "),
                shown(Marker {
                    number: 0,
                    task: &first.task
                })
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(number: usize, task: &str) -> Marked<'_> {
        Marked::Marker(Marker { number, task })
    }

    #[test]
    fn a_text_is_cut_at_its_markers() {
        let prompt = "<|VIRTUAL_PROMPT_0|> a \u{fc}ber <|VIRTUAL_PROMPT_1:a-b/c|>";
        let text = format!("{prompt} positive");
        let (head, tail) = at_last_marker(&text);
        assert_eq!([head, tail], [prompt, " positive"]);
        let wanted = [
            marked(0, ""),
            Marked::Text(" a \u{fc}ber "),
            marked(1, "a-b/c"),
            Marked::Text(" positive"),
        ];
        assert_eq!(at_markers(&text), wanted);
        assert_eq!(numbers(&text), [0, 1]);
        let named = "<|VIRTUAL_PROMPT_0:new|> a \u{fc}ber <|VIRTUAL_PROMPT_1:new|> positive";
        assert_eq!(with_task(&text, "new"), named);
        assert_eq!(with_task(&text, ""), text);
    }

    #[test]
    fn what_only_looks_like_a_marker_is_text() {
        for text in [
            "<|VIRTUAL_PROMPT_|>",
            "<|VIRTUAL_PROMPT_x|>",
            "<|VIRTUAL_PROMPT_1 |>",
            "<|VIRTUAL_PROMPT_99999999999999999999999|>",
            "a <|VIRTUAL",
        ] {
            assert_eq!(at_markers(text), [Marked::Text(text)], "{text}");
        }
        for text in [
            "<|VIRTUAL_PROMPT_0:|>",
            "<|VIRTUAL_PROMPT_0:a b|>",
            "<|VIRTUAL_PROMPT_0:a",
            "<|VIRTUAL_PROMPT_:a|>",
        ] {
            assert_eq!(at_markers(text), [Marked::Text(text)], "{text}");
        }
        let nested = "<|VIRTUAL_PROMPT_<|VIRTUAL_PROMPT_7|>";
        let wanted = [Marked::Text("<|VIRTUAL_PROMPT_"), marked(7, "")];
        assert_eq!(at_markers(nested), wanted);
        assert_eq!(at_markers(""), []);
    }

    #[test]
    fn markers_name_their_task_or_fit_only_one() {
        let of = |task: &str, first: usize, counts: &[usize]| TaskMarkers {
            task: task.into(),
            first,
            counts: counts.to_vec(),
        };
        let all = [of("a", 0, &[2, 1]), of("b", 3, &[4]), of("c", 7, &[1])];
        let [zero, one] = [0, 1].map(|number| move |task| shown(Marker { number, task }));
        for (text, wanted) in [
            (format!("{} x {}", zero(""), one("")), "a"),
            (format!("{} x {}", zero("a"), one("a")), "a"),
            (zero("b"), "b"),
            (zero("c"), "c"),
        ] {
            assert_eq!(task_of(&text, &all).unwrap().task, wanted, "{text}");
        }
        for (text, wanted) in [
            (
                zero(""),
                "found <|VIRTUAL_PROMPT_0|>, want the name of one of the tasks b, c in them, such as <|VIRTUAL_PROMPT_0:b|>",
            ),
            (
                zero("d"),
                "found <|VIRTUAL_PROMPT_0:d|>, want <|VIRTUAL_PROMPT_0:a|> and <|VIRTUAL_PROMPT_1:a|>, each once and in order, or <|VIRTUAL_PROMPT_0:b|> once, or",
            ),
            (
                format!("{}{}", zero("a"), one("b")),
                "found <|VIRTUAL_PROMPT_0:a|>, <|VIRTUAL_PROMPT_1:b|>, want <|VIRTUAL_PROMPT_0:a|> and",
            ),
            (
                format!("{}{}", zero(""), one("a")),
                "<|VIRTUAL_PROMPT_1:a|>, want <|VIRTUAL_PROMPT_0:a|> and",
            ),
            (
                format!("{}{}", one(""), zero("")),
                "found <|VIRTUAL_PROMPT_1|>, <|VIRTUAL_PROMPT_0|>, want",
            ),
            (
                one("b"),
                "found <|VIRTUAL_PROMPT_1:b|>, want <|VIRTUAL_PROMPT_0:b|> once",
            ),
            ("x".into(), "found no marker, want"),
        ] {
            let why = task_of(&text, &all).unwrap_err();
            assert!(why.contains(wanted), "{why} wants {wanted}");
        }
        // a model without tasks has no names
        let only = [of("", 0, &[2, 1])];
        let text = format!("{} x {}", zero(""), one(""));
        assert_eq!(task_of(&text, &only).unwrap(), &only[0]);
        let why = task_of(&with_task(&text, "a"), &only).unwrap_err();
        let wanted = "want <|VIRTUAL_PROMPT_0|> and <|VIRTUAL_PROMPT_1|>, each once and in order";
        assert!(why.ends_with(wanted), "{why}");
        // and of a list of one task, a name is not needed
        let named = [of("a", 0, &[2, 1])];
        task_of(&text, &named).unwrap();
        task_of(&with_task(&text, "a"), &named).unwrap();
    }
}

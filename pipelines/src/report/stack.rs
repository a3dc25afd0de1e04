//! Stacked bars beside a limit, as HTML like `svg::bars`.

use super::html::escape;
use std::fmt::Write;

/// A colour and its meaning.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub name: &'static str,
    /// CSS variable.
    pub colour: &'static str,
}

/// A part of a bar.
pub(super) struct Part {
    pub value: f64,
    pub colour: &'static str,
}

/// A bar of several parts.
pub(super) struct Stack {
    pub name: String,
    pub parts: Vec<Part>,
    /// Shown at the end of the bar.
    pub label: String,
}

/// Bars on one scale that reaches beyond `limit`, at which each has a line.
pub(super) fn stacks(rows: &[Stack], keys: &[Key], limit: f64) -> String {
    let whole = |row: &Stack| row.parts.iter().map(|part| part.value).sum::<f64>();
    let most = rows.iter().map(whole).fold(limit, f64::max) * 1.04;
    let percent = |value: f64| (100.0 * value / most).clamp(0.0, 100.0);
    let mut s = String::from("<div class=bars>");
    for row in rows {
        let _ = write!(
            s,
            "<div class=bar><span class=name>{}</span><span class=\"track stack\">",
            escape(&row.name)
        );
        for part in &row.parts {
            let _ = write!(
                s,
                "<i style=\"width:{:.2}%;background:var({})\"></i>",
                percent(part.value),
                part.colour
            );
        }
        let _ = write!(
            s,
            "<u style=\"left:{:.2}%\"></u></span><span class=value>{}</span></div>",
            percent(limit),
            escape(&row.label)
        );
    }
    s + "</div>" + &legend(keys)
}

/// Colours and their meanings.
pub(super) fn legend(keys: &[Key]) -> String {
    let mut s = String::from("<p class=legend>");
    for Key { name, colour } in keys {
        let _ = write!(
            s,
            "<span><i style=\"background:var({colour})\"></i>{}</span>",
            escape(name)
        );
    }
    s + "</p>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_share_of_the_scale() {
        let row = Stack {
            name: "<stage>".into(),
            parts: [25.0, 15.0]
                .map(|value| Part {
                    value,
                    colour: "--a",
                })
                .into(),
            label: "40 & more".into(),
        };
        // the scale ends at 104
        let html = stacks(&[row], &[], 100.0);
        for part in [
            "width:24.04%",
            "width:14.42%",
            "left:96.15%",
            "&lt;stage&gt;",
            "40 &amp; more",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}

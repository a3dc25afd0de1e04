//! Targets of a Word document's links.
//!
//! Facts: ECMA-376 part 2, section 9.3 (relationships of a part), part 1, sections 17.16.22 (`hyperlink`) and 17.16.5.25 (the field
//! HYPERLINK). A link to a place of the document itself has no target.

use std::collections::BTreeMap;

use crate::read::package::xml::{Element, Event, walk};

/// Targets by the id of their relationship.
#[derive(Default)]
pub(super) struct Links(BTreeMap<String, String>);

impl Links {
    /// Where an element `hyperlink` leads.
    pub(super) fn target(&self, element: &Element<'_>) -> Option<String> {
        let target = self.0.get(&element.value("id")?)?;
        Some(match element.value("anchor") {
            Some(place) if !target.contains('#') => format!("{target}#{place}"),
            Some(_) | None => target.clone(),
        })
    }
}

/// Reads the relationships of a part that are links.
///
/// # Errors
/// XML that breaks off; what was read so far is in `links`.
pub(super) fn links_of(xml: &str, links: &mut Links) -> Result<(), String> {
    walk(xml, |event| match event {
        Event::Open("Relationship", element) => {
            let is_link = element
                .value("Type")
                .is_some_and(|kind| kind.ends_with("/hyperlink"));
            if let (true, Some(id), Some(target)) =
                (is_link, element.value("Id"), element.value("Target"))
            {
                links.0.insert(id, target);
            }
        }
        Event::Open(..) | Event::Close(_) | Event::Text(_) => {}
    })
}

/// Where a field with this instruction leads: `HYPERLINK "https://example.org" \o "tip"`; None of other fields.
pub(super) fn field_target(instruction: &str) -> Option<String> {
    let (name, rest) = instruction.trim_start().split_once(char::is_whitespace)?;
    if !name.eq_ignore_ascii_case("HYPERLINK") {
        return None;
    }
    let rest = rest.trim_start();
    let target = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        // a switch: a place of the document
        None if rest.starts_with('\\') => None,
        None => rest.split_whitespace().next(),
    };
    target
        .filter(|target| !target.is_empty())
        .map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_links_have_targets_and_others_none() {
        for (instruction, want) in [
            (
                r#" HYPERLINK "https://x.org/a b" \o "tip" "#,
                Some("https://x.org/a b"),
            ),
            ("hyperlink https://x.org", Some("https://x.org")),
            (r#"HYPERLINK \l "place""#, None),
            (r#"HYPERLINK """#, None),
            ("HYPERLINK", None),
            ("PAGEREF x", None),
            ("", None),
        ] {
            let found = field_target(instruction);
            assert_eq!(found.as_deref(), want, "{instruction}");
        }
    }
}

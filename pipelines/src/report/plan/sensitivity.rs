//! Sensitivity of the best layout's step to the cluster's rates and to its own settings.

use super::texts::{change, items, layout_line, short};
use crate::report::html::{section, table};
use crate::report::svg::{Bar, bars};
use crate::report::values::text_value;
use serde_json::Value;

/// Rates, and settings changed by one step.
pub(super) fn sensitivity(of: &Value) -> String {
    let of = &of["sensitivity"];
    if !of.is_object() {
        return String::new();
    }
    let rates = items(&of["rates"]);
    let is_slower = |of: &&Value| of["factor"].as_f64().is_some_and(|factor| factor < 1.0);
    let bar = |of: &Value| Bar {
        name: text_value(&of["rate"]),
        value: of["change"].as_f64().unwrap_or(0.0),
        label: change(&of["change"]),
        colour: "--b",
    };
    let slower: Vec<Bar> = rates.iter().filter(is_slower).map(bar).collect();
    let row = |of: &Value| {
        let factor = of["factor"].as_f64().unwrap_or(f64::NAN);
        vec![
            text_value(&of["rate"]),
            format!("{:+.0}%", 100.0 * (factor - 1.0)),
            short(&of["step_s"]),
            change(&of["change"]),
        ]
    };
    let mut body = String::from("<h3>Time of a step with a rate 20% lower</h3>");
    body += &bars(&slower);
    body += &table(
        &["rate", "its change", "step s", "change"],
        &rates.iter().map(row).collect::<Vec<_>>(),
    );
    body += "<h3>Settings changed by one step</h3>";
    let time = |of: &Value| match of["step_s"].is_null() {
        true => "-".into(),
        false => format!("{} s, {}", short(&of["step_s"]), change(&of["change"])),
    };
    let row = |of: &Value| {
        let (only, fastest) = (&of["only_change"], &of["fastest"]);
        vec![
            format!(
                "{} = {}",
                text_value(&of["setting"]),
                text_value(&of["value"])
            ),
            match only["refused"].as_str() {
                Some(reason) => reason.to_owned(),
                None => time(only),
            },
            time(fastest),
            match (fastest.is_object(), of["searched"].as_bool()) {
                (true, _) => layout_line(&fastest["layout"]),
                (false, Some(false)) => "not searched (--search-precision)".into(),
                (false, Some(true) | None) => "none fits".into(),
            },
        ]
    };
    body += &table(
        &[
            "setting",
            "nothing else changed",
            "fastest with it",
            "its layout",
        ],
        &items(&of["settings"]).iter().map(row).collect::<Vec<_>>(),
    );
    section(
        "sensitivity",
        "Sensitivity",
        "The best layout's step on a cluster with another rate; and layouts of the search with the next value of a setting: the one that differs in nothing else (data parallelism takes the devices that are left), and the fastest of all with that value.",
        &body,
    )
}

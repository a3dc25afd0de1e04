//! Classification heads in the layout of transformers: `...ForSequenceClassification`, and `...ForMultipleChoice` of
//! encoders. Its classes know no number of choices, which is a field of our own.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::fields::Fields;
use crate::config::ClassifyConfig;

const CLASSES: &str = "ForSequenceClassification";
const CHOICES: &str = "ForMultipleChoice";

/// Number of choices where the file has none: RACE's and SWAG's.
const MOST_USUAL: usize = 4;

/// End of the class's name.
pub(crate) fn ending(classify: &ClassifyConfig) -> &'static str {
    if classify.choices > 1 {
        CHOICES
    } else {
        CLASSES
    }
}

/// Adds the fields of a head.
pub(crate) fn describe(classify: &ClassifyConfig, config: &mut Value) {
    if classify.choices > 1 {
        config["num_choices"] = json!(classify.choices);
        return;
    }
    let names = (0..classify.classes).map(|class| (class.to_string(), format!("LABEL_{class}")));
    let names: Vec<(String, String)> = names.collect();
    for (class, name) in &names {
        config["id2label"][class] = json!(name);
        config["label2id"][name] = json!(class.parse::<usize>().unwrap_or(0));
    }
}

/// The head that a `config.json` describes, if its class has one.
pub(crate) fn read(fields: &Fields<'_>) -> Option<ClassifyConfig> {
    let names = fields.texts("architectures").unwrap_or_default();
    let is = |ending: &str| names.iter().any(|name| name.ends_with(ending));
    if is(CHOICES) {
        return Some(ClassifyConfig {
            classes: 1,
            choices: fields.count_or("num_choices", MOST_USUAL),
        });
    }
    is(CLASSES).then(|| ClassifyConfig {
        // transformers has two labels where none are named
        classes: fields.table("id2label").map_or(2, |names| names.len()),
        choices: 1,
    })
}

//! Classification heads in the layout of transformers: `...ForSequenceClassification`, and `...ForMultipleChoice` of
//! encoders. Its classes know no number of choices, which is a field of our own.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::fields::Fields;
use crate::config::ClassifyConfig;

const CLASSES: &str = "ForSequenceClassification";
const CHOICES: &str = "ForMultipleChoice";

/// Number of choices where the file has none: RACE's and SWAG's.
const MOST_USUAL: usize = 4;

/// Name of a class without one, as transformers gives it.
fn unnamed(class: usize) -> String {
    format!("LABEL_{class}")
}

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
    for class in 0..classify.classes {
        let name = classify.names.get(class).cloned();
        let name = name.unwrap_or_else(|| unnamed(class));
        config["id2label"][class.to_string()] = json!(name);
        config["label2id"][name] = json!(class);
    }
    if classify.is_regression() {
        config["problem_type"] = json!("regression");
    } else if !classify.names.is_empty() {
        config["problem_type"] = json!("single_label_classification");
    }
}

/// The head that a `config.json` describes, if its class has one.
pub(crate) fn read(fields: &Fields<'_>) -> Option<ClassifyConfig> {
    let names = fields.texts("architectures").unwrap_or_default();
    let is = |ending: &str| names.iter().any(|name| name.ends_with(ending));
    if is(CHOICES) {
        let choices = fields.count_or("num_choices", MOST_USUAL);
        return Some(ClassifyConfig::choosing(choices));
    }
    is(CLASSES).then(|| {
        // transformers has two labels where none are named
        let Some(table) = fields.table("id2label") else {
            return ClassifyConfig::of(2);
        };
        let name = |class: usize| table.get(&class.to_string()).and_then(Value::as_str);
        let names = (0..table.len()).map(|class| name(class).map(str::to_owned));
        let names: Vec<String> = names.collect::<Option<_>>().unwrap_or_default();
        let mut numbered = names.iter().enumerate();
        let are_numbers = numbered.all(|(class, name)| *name == unnamed(class));
        let wanted = match table.len() {
            1 => "regression",
            _ => "single_label_classification",
        };
        let problem = fields.text_or("problem_type", wanted);
        if problem != wanted {
            fields.wrong(
                "problem_type",
                &problem,
                &format!("{wanted}, of {} labels", table.len()),
            );
        }
        ClassifyConfig {
            names: if are_numbers { Vec::new() } else { names },
            ..ClassifyConfig::of(table.len())
        }
    })
}

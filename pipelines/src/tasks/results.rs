//! Results of tasks in lm-evaluation-harness's JSON form, and as a table.

use super::definition::Definition;
use super::documents::Table;
use super::metrics::{Item, Metric};
use super::rows::Row;
use super::score::Answered;
use super::shape::Shape;
use super::standard_error::{pooled, standard_error};
use serde_json::{Map, Value, json};

/// Results of a run. Keys of `results` are `metric,filter` and `metric_stderr,filter`.
#[derive(Default)]
pub(crate) struct Results {
    results: Map<String, Value>,
    groups: Map<String, Value>,
    group_subtasks: Map<String, Value>,
    configs: Map<String, Value>,
    versions: Map<String, Value>,
    shots: Map<String, Value>,
    higher_is_better: Map<String, Value>,
    samples: Map<String, Value>,
}

/// A metric of a task.
#[derive(Clone, Debug)]
pub(crate) struct Score {
    pub(crate) task: String,
    pub(crate) filter: String,
    pub(crate) metric: String,
    /// None if it is not defined for these documents.
    pub(crate) value: Option<f64>,
    /// Standard error.
    pub(crate) error: Option<f64>,
}

/// Numbers of documents of a task.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub original: usize,
    pub effective: usize,
}

/// Resamples of bootstrap errors, examples in front of each question.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub resamples: usize,
    pub shots: usize,
}

/// Values of a table's rows by which they have results of their own.
struct Cut<'a> {
    values: Vec<String>,
    /// Beginning of their names.
    prefix: &'a str,
    /// They are named by their value alone.
    is_group: bool,
}

/// Names of a task: its key, and the one that is shown.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    alias: &'a str,
}

fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::from)
}

/// A part's value of a row, in names: `-` and blanks become `_`.
fn in_names(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    text.replace(['-', ' '], "_")
}

impl Results {
    /// Adds a task, its parts, and its `cuts`: a value for each row of the table.
    pub(super) fn add(
        &mut self,
        (table, cuts): (&Table<'_>, &[Vec<String>]),
        answered: &[Answered],
        original: usize,
        settings: Settings,
    ) {
        let definition = table.definition;
        let name = &definition.name;
        let all: Vec<&Answered> = answered.iter().collect();
        let counts = Counts {
            original,
            effective: all.len(),
        };
        let is_group = definition.parts.as_ref().is_some_and(|p| p.is_group);
        if !is_group {
            self.add_one(
                definition,
                Named { name, alias: name },
                &all,
                counts,
                settings,
            );
            if definition.metrics.contains(&Metric::AmbBiasScore) {
                self.add_categories(table, answered);
            }
        }
        for values in cuts {
            let cut = Cut {
                values: values.iter().map(|value| in_names(&json!(value))).collect(),
                prefix: name,
                is_group: false,
            };
            self.add_parts(definition, &all, &cut, settings);
        }
        let Some(parts) = &definition.parts else {
            return;
        };
        let rows = table.rows.iter();
        let value = |row: &Row| in_names(row.get(&parts.by).unwrap_or(&Value::Null));
        let prefix = parts.prefix.as_ref().unwrap_or(name);
        let cut = Cut {
            values: rows.map(|(_, row)| value(row)).collect(),
            prefix,
            is_group,
        };
        let members = self.add_parts(definition, &all, &cut, settings);
        if !is_group {
            return;
        }
        let mut groups = Vec::new();
        for (group, of) in &parts.groups {
            let own: Vec<String> = of.iter().map(|part| format!("{prefix}_{part}")).collect();
            let own: Vec<String> = own.into_iter().filter(|m| members.contains(m)).collect();
            if !own.is_empty() {
                let full = format!("{name}_{group}");
                let named = Named {
                    name: &full,
                    alias: &group.replace('_', " "),
                };
                self.add_group(definition, named, &own);
                groups.push(full);
            }
        }
        self.add_group(definition, Named { name, alias: name }, &members);
        if !groups.is_empty() {
            self.group_subtasks.insert(name.clone(), json!(groups));
        }
    }

    /// Adds the results of the rows that share a value; returns their names.
    fn add_parts(
        &mut self,
        definition: &Definition,
        all: &[&Answered],
        cut: &Cut<'_>,
        settings: Settings,
    ) -> Vec<String> {
        let value = |answered: &Answered| cut.values[answered.document.number].as_str();
        let mut values: Vec<&str> = all.iter().map(|answered| value(answered)).collect();
        values.sort_unstable();
        values.dedup();
        let mut members = Vec::new();
        for part in values {
            let all = all.iter().copied();
            let of_part: Vec<&Answered> = all.filter(|answered| value(answered) == part).collect();
            let original = cut.values.iter().filter(|value| *value == part).count();
            let counts = Counts {
                original,
                effective: of_part.len(),
            };
            let full = format!("{}_{part}", cut.prefix);
            let named = Named {
                name: &full,
                alias: if cut.is_group { part } else { &full },
            };
            self.add_one(definition, named, &of_part, counts, settings);
            members.push(full);
        }
        members
    }

    fn add_one(
        &mut self,
        definition: &Definition,
        named: Named<'_>,
        answered: &[&Answered],
        counts: Counts,
        settings: Settings,
    ) {
        let Named { name, alias } = named;
        let mut result = json!({"name": name, "alias": alias, "sample_len": answered.len()});
        let mut keys: Vec<(Metric, &str)> = Vec::new();
        for score in answered.iter().flat_map(|a| &a.scores) {
            let key = (score.metric, score.filter.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for (metric, filter) in keys {
            let items: Vec<Item> = answered
                .iter()
                .flat_map(|a| &a.scores)
                .filter(|s| s.metric == metric && s.filter == filter)
                .map(|s| s.item.clone())
                .collect();
            let error = standard_error(metric, &items, settings.resamples);
            let metric_name = metric.name();
            result[format!("{metric_name},{filter}")] = number(metric.aggregate(&items));
            result[format!("{metric_name}_stderr,{filter}")] =
                error.map_or(json!("N/A"), Value::from);
        }
        self.results.insert(name.into(), result);
        self.versions.insert(name.into(), json!(definition.version));
        self.shots.insert(name.into(), json!(settings.shots));
        self.group_subtasks.insert(name.into(), json!([]));
        let better = definition.metrics.iter();
        let better: Map<String, Value> = better
            .map(|m| (m.name().to_owned(), json!(m.is_higher_better())))
            .collect();
        self.higher_is_better.insert(name.into(), json!(better));
        let counts = json!({"original": counts.original, "effective": counts.effective});
        self.samples.insert(name.into(), counts);
        self.configs
            .insert(name.into(), definition.config(name, settings.shots));
    }

    /// Adds the mean of tasks by size; its error is the pooled one.
    fn add_group(&mut self, definition: &Definition, named: Named<'_>, members: &[String]) {
        let Named { name, alias } = named;
        let mut result = json!({"name": name, "alias": alias});
        let of = |member: &String, key: &str| {
            let value = self.results.get(member).and_then(|result| result.get(key));
            value.and_then(Value::as_f64)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let sizes: Vec<usize> = members
            .iter()
            .map(|member| of(member, "sample_len").unwrap_or(0.0) as usize)
            .collect();
        let total: usize = sizes.iter().sum();
        result["sample_len"] = json!(total);
        for metric in &definition.metrics {
            let keys = ["", "_stderr"].map(|kind| format!("{}{kind},none", metric.name()));
            let values = |key: &String| -> Option<Vec<f64>> {
                members.iter().map(|member| of(member, key)).collect()
            };
            let mean = values(&keys[0]).map(|values| {
                let weighted = values.iter().zip(&sizes);
                weighted.fold(0.0, |sum, (x, &n)| sum + x * n as f64) / total as f64
            });
            let error = values(&keys[1]).map(|errors| pooled(&errors, &sizes));
            result[&keys[0]] = number(mean);
            result[&keys[1]] = error.map_or(json!("N/A"), Value::from);
        }
        self.groups.insert(name.into(), result.clone());
        self.results.insert(name.into(), result);
        self.versions.insert(name.into(), json!(definition.version));
        self.group_subtasks.insert(name.into(), json!(members));
        let shots = members.first().and_then(|member| self.shots.get(member));
        if let Some(shots) = shots.cloned() {
            self.shots.insert(name.into(), shots);
        }
    }

    /// Bias scores of each category of BBQ, as keys of the task itself.
    fn add_categories(&mut self, table: &Table<'_>, answered: &[Answered]) {
        const CATEGORIES: [&str; 11] = [
            "Age",
            "Disability_status",
            "Gender_identity",
            "Nationality",
            "Physical_appearance",
            "Race_ethnicity",
            "Race_x_gender",
            "Race_x_SES",
            "Religion",
            "SES",
            "Sexual_orientation",
        ];
        let Some(result) = self.results.get_mut(&table.definition.name) else {
            return;
        };
        for metric in [Metric::AmbBiasScore, Metric::DisambBiasScore] {
            for category in CATEGORIES {
                let is_of = |a: &&Answered| {
                    table.rows[a.document.number].1.get("category") == Some(&json!(category))
                };
                let own = answered.iter().filter(is_of).flat_map(|a| &a.scores);
                let own = own.filter(|score| score.metric == metric);
                let items: Vec<Item> = own.map(|score| score.item.clone()).collect();
                let name = format!("{}_{category}", metric.name());
                result[format!("{name},none")] = number(metric.aggregate(&items));
                result[format!("{name}_stderr,none")] = json!("N/A");
                if let Some(better) = self.higher_is_better.get_mut(&table.definition.name) {
                    better[name] = json!(false);
                }
            }
        }
    }

    /// Adds a result that no metrics of documents make: an object of values by `metric,filter`.
    pub(crate) fn insert(&mut self, name: &str, mut result: Value) {
        result["name"] = json!(name);
        result["alias"] = json!(name);
        self.samples.insert(
            name.into(),
            json!({"original": result["sample_len"], "effective": result["sample_len"]}),
        );
        self.results.insert(name.into(), result);
        self.group_subtasks.insert(name.into(), json!([]));
    }

    /// The whole in lm-evaluation-harness's form; `config` describes model and run.
    pub(crate) fn to_json(&self, config: Value) -> Value {
        let mut all = json!({"results": self.results});
        if !self.groups.is_empty() {
            all["groups"] = json!(self.groups);
        }
        for (key, map) in [
            ("group_subtasks", &self.group_subtasks),
            ("configs", &self.configs),
            ("versions", &self.versions),
            ("n-shot", &self.shots),
            ("higher_is_better", &self.higher_is_better),
            ("n-samples", &self.samples),
        ] {
            all[key] = json!(map);
        }
        all["config"] = config;
        all
    }

    /// All scores, in the order of the table.
    pub(crate) fn scores(&self) -> Vec<Score> {
        let mut scores = Vec::new();
        for (task, result) in &self.results {
            for (key, value) in result.as_object().into_iter().flatten() {
                let Some((metric, filter)) = key.split_once(',') else {
                    continue;
                };
                if metric.ends_with("_stderr") {
                    continue;
                }
                scores.push(Score {
                    task: task.clone(),
                    filter: filter.to_owned(),
                    metric: metric.to_owned(),
                    value: value.as_f64(),
                    error: result[format!("{metric}_stderr,{filter}")].as_f64(),
                });
            }
        }
        scores
    }

    /// A table: task, version, shots, filter, metric, value, standard error.
    pub(crate) fn to_table(&self) -> String {
        let header = [
            "task", "version", "shots", "filter", "metric", "value", "stderr",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        for score in self.scores() {
            let shown =
                |value: Option<f64>| value.map_or("-".to_owned(), |number| format!("{number:.4}"));
            let of = |map: &Map<String, Value>| {
                map.get(&score.task)
                    .map_or("-".to_owned(), Value::to_string)
            };
            lines.push([
                score.task.clone(),
                of(&self.versions),
                of(&self.shots),
                score.filter.clone(),
                score.metric.clone(),
                shown(score.value),
                shown(score.error),
            ]);
        }
        let mut widths = [0; 7];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for line in &lines {
            let cells = line.iter().zip(widths).enumerate();
            let cells: Vec<String> = cells
                .map(|(column, (cell, width))| match column {
                    0 | 3 | 4 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

impl Definition {
    /// The task's settings under the harness's keys.
    fn config(&self, name: &str, shots: usize) -> Value {
        let output = match self.shape {
            Shape::MultipleChoice => "multiple_choice",
            Shape::Continuation => "loglikelihood",
            Shape::Rolling => "loglikelihood_rolling",
            Shape::Generation => "generate_until",
        };
        let metrics: Vec<Value> = self
            .metrics
            .iter()
            .map(|m| json!({"metric": m.name(), "higher_is_better": m.is_higher_better()}))
            .collect();
        let mut config = json!({
            "task": name, "dataset": self.data, "output_type": output, "description": self.description,
            "doc_to_text": self.contexts.as_ref().unwrap_or(&self.prompt), "doc_to_choice": self.choices,
            "doc_to_target": self.answer.as_ref().or(self.target.as_ref()), "target_delimiter": self.delimiter,
            "fewshot_delimiter": self.shot_delimiter, "num_fewshot": shots, "metric_list": metrics,
            "metadata": {"version": self.version},
        });
        if self.shape == Shape::Generation {
            config["generation_kwargs"] =
                json!({"until": self.until, "max_gen_toks": self.max_tokens, "do_sample": false});
        }
        config
    }
}

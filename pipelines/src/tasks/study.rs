//! In-context learning by number, labels and order of the examples (MT-NLG: Smith et al. 2022, arXiv:2201.11990, section
//! 7): one task with two answers is evaluated under each design, with results of its own under the design's name.
//!
//! Designs: no example; k examples of the first label alone, of the second alone, and (for even k) half of each, shuffled,
//! those of the first label first, or last. Examples are drawn anew for each question by CPython's `random.Random(1234)`,
//! one generator for each design. The paper gives no prompt and no draw; both are our own.

use super::definition::Definition;
use super::documents::{Document, Table, Target};
use super::error::{Result, TaskError};
use super::fewshot::SEED;
use super::rows::Row;
use index::numpy_random::PythonRandom;

/// Labels and order of the examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    None,
    First,
    Second,
    Shuffled,
    FirstThenSecond,
    SecondThenFirst,
}

/// How the examples of a prompt are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) shots: usize,
    labels: Labels,
}

impl Design {
    /// All designs with these numbers of examples.
    pub(super) fn all(shots: &[usize]) -> Vec<Design> {
        let mut all = Vec::new();
        for &shots in shots {
            let mut add = |labels| all.push(Design { shots, labels });
            if shots == 0 {
                add(Labels::None);
                continue;
            }
            add(Labels::First);
            add(Labels::Second);
            if shots.is_multiple_of(2) {
                add(Labels::Shuffled);
                add(Labels::FirstThenSecond);
                add(Labels::SecondThenFirst);
            }
        }
        all
    }

    /// Name of the design's results.
    pub(super) fn name(self, task: &str) -> String {
        let labels = match self.labels {
            Labels::None => return format!("{task}_0"),
            Labels::First => "first",
            Labels::Second => "second",
            Labels::Shuffled => "half_shuffled",
            Labels::FirstThenSecond => "half_first_then_second",
            Labels::SecondThenFirst => "half_second_then_first",
        };
        format!("{task}_{}_{labels}", self.shots)
    }

    /// Numbers of each label's examples.
    fn counts(self) -> [usize; 2] {
        match self.labels {
            Labels::None => [0, 0],
            Labels::First => [self.shots, 0],
            Labels::Second => [0, self.shots],
            _ => [self.shots / 2; 2],
        }
    }
}

/// Examples to draw from, by label.
pub(super) struct Pool<'a> {
    table: &'a Table<'a>,
    by_label: [Vec<usize>; 2],
}

impl<'a> Pool<'a> {
    /// # Errors
    /// `Template` of a row.
    pub(super) fn of(table: &'a Table<'a>) -> Result<Pool<'a>> {
        let mut by_label = [Vec::new(), Vec::new()];
        for at in 0..table.rows.len() {
            if let Target::Choices(labels) = table.parts(at)?.target
                && let Some(list) = labels.first().and_then(|&label| by_label.get_mut(label))
            {
                list.push(at);
            }
        }
        Ok(Pool { table, by_label })
    }

    /// Numbers of examples for a question, in order.
    fn draw(
        &self,
        design: Design,
        question: &Row,
        random: &mut PythonRandom,
    ) -> Result<Vec<usize>, String> {
        let mut drawn = [Vec::new(), Vec::new()];
        for (label, count) in design.counts().into_iter().enumerate() {
            if count == 0 {
                continue;
            }
            let all = &self.by_label[label];
            // one more, if the question is among them
            let numbers = random.sample(all.len(), count + 1);
            let numbers = numbers.ok_or_else(|| format!("{} rows of label {label}", all.len()))?;
            let rows = numbers.into_iter().map(|number| all[number]);
            let others = rows.filter(|&at| self.table.rows[at].1 != *question);
            drawn[label] = others.take(count).collect();
        }
        let [first, second] = drawn;
        Ok(match design.labels {
            Labels::SecondThenFirst => [second, first].concat(),
            Labels::Shuffled => {
                let both = [first, second].concat();
                let order = random.sample(both.len(), both.len()).unwrap_or_default();
                order.into_iter().map(|at| both[at]).collect()
            }
            _ => [first, second].concat(),
        })
    }
}

/// The documents of a design: the first `limit` questions.
///
/// # Errors
/// `Template` of a row; too few rows to draw from.
pub(super) fn documents(
    table: &Table<'_>,
    pool: &Pool<'_>,
    design: Design,
    limit: Option<usize>,
) -> Result<Vec<Document>> {
    let definition: &Definition = table.definition;
    let mut random = PythonRandom::new(SEED);
    let mut documents = Vec::new();
    let count = limit.unwrap_or(usize::MAX).min(table.rows.len());
    for (at, (number, row)) in table.rows.iter().enumerate().take(count) {
        let drawn = pool.draw(design, row, &mut random);
        let drawn = drawn.map_err(|found| TaskError::Column {
            path: pool.table.path.to_path_buf(),
            row: number + 1,
            column: "examples".into(),
            found,
            wanted: format!("more rows for {} examples", design.shots),
        })?;
        let mut text = table.description(at)?;
        for example in drawn {
            text.push_str(&definition.example(&pool.table.parts(example)?));
        }
        documents.push(table.document(at, &text, table.parts(at)?));
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_have_each_number_with_its_labels_and_orders_once() {
        let all = Design::all(&[0, 1, 4]);
        let names: Vec<String> = all.iter().map(|design| design.name("t")).collect();
        assert_eq!(
            names,
            [
                "t_0",
                "t_1_first",
                "t_1_second",
                "t_4_first",
                "t_4_second",
                "t_4_half_shuffled",
                "t_4_half_first_then_second",
                "t_4_half_second_then_first",
            ]
        );
        for design in &all {
            assert_eq!(design.counts().iter().sum::<usize>(), design.shots);
        }
        assert_eq!(all[5].counts(), [2, 2]);
    }
}

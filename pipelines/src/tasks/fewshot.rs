//! Examples in front of a question, as lm-evaluation-harness 0.4.13 draws them on one rank: one generator per task,
//! seeded with 1234 and advanced question by question.
//!
//! If the question may be among the examples (`leaves_out_the_question`), one more is drawn, rows equal to the question are
//! left out and the first ones stay; should too few be left, as many are drawn again from all other rows. Source:
//! `api/samplers.py`, `api/task.py`.

use super::definition::Sampler;
use super::rows::Row;
use index::numpy_random::PythonRandom;

/// The harness's seed.
pub(super) const SEED: u64 = 1234;

/// Fewer rows than a question needs examples.
#[derive(Debug)]
pub(super) struct TooFew {
    pub found: String,
    pub wanted: String,
}

/// Draws examples for one question after another.
pub(super) struct Shots {
    random: PythonRandom,
    sampler: Sampler,
    count: usize,
    leaves_out_the_question: bool,
}

impl Shots {
    pub(super) fn new(sampler: Sampler, count: usize, leaves_out_the_question: bool) -> Shots {
        Shots {
            random: PythonRandom::new(SEED),
            sampler,
            count,
            leaves_out_the_question,
        }
    }

    /// Numbers of the examples for a question among `rows`.
    ///
    /// # Errors
    /// Too few rows.
    pub(super) fn draw(
        &mut self,
        question: &Row,
        rows: &[(usize, &Row)],
    ) -> Result<Vec<usize>, TooFew> {
        let count = self.count;
        let others = |found: usize| TooFew {
            found: format!("{found} rows other than the question for {count} examples"),
            wanted: format!("at least {count}"),
        };
        if count == 0 {
            return Ok(Vec::new());
        }
        let is_other =
            |number: &usize| !self.leaves_out_the_question || rows[*number].1 != question;
        if self.sampler == Sampler::FirstN {
            let first: Vec<usize> = (0..rows.len()).filter(is_other).take(count).collect();
            return match first.len() == count {
                true => Ok(first.iter().map(|&number| rows[number].0).collect()),
                false => Err(others(first.len())),
            };
        }
        let more = usize::from(self.leaves_out_the_question);
        let drawn = self.random.sample(rows.len(), count + more);
        let mut drawn = drawn.ok_or_else(|| TooFew {
            found: format!("{} rows for {count} examples", rows.len()),
            wanted: match more {
                0 => format!("at least {count}"),
                more => format!(
                    "at least {}: one more is drawn, as the question may be among them",
                    count + more
                ),
            },
        })?;
        drawn.retain(is_other);
        drawn.truncate(count);
        if drawn.len() < count {
            let pool: Vec<usize> = (0..rows.len()).filter(is_other).collect();
            let again = self.random.sample(pool.len(), count);
            drawn = again
                .ok_or_else(|| others(pool.len()))?
                .into_iter()
                .map(|at| pool[at])
                .collect();
        }
        Ok(drawn.into_iter().map(|number| rows[number].0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(names: &[&str]) -> Vec<Row> {
        let row = |name: &&str| json!({"name": name}).as_object().unwrap().clone();
        names.iter().map(row).collect()
    }

    // random.Random(1234).sample(range(10), 4) of CPython is [7, 1, 0, 9]
    #[test]
    fn the_question_is_left_out_of_one_draw_more() {
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let rows = rows(&names);
        let pool: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
        let mut plain = Shots::new(Sampler::Random, 4, false);
        let mut other = Shots::new(Sampler::Random, 3, true);
        let all = plain.draw(&rows[1], &pool).unwrap();
        assert_eq!(all, [7, 1, 0, 9]);
        let wanted: Vec<usize> = all.iter().copied().filter(|&n| n != 1).take(3).collect();
        assert_eq!(other.draw(&rows[1], &pool).unwrap(), wanted);
        assert_ne!(
            plain.draw(&rows[1], &pool).unwrap(),
            all,
            "the generator goes on"
        );
        let mut first = Shots::new(Sampler::FirstN, 2, true);
        assert_eq!(first.draw(&rows[0], &pool).unwrap(), [1, 2]);
        let mut many = Shots::new(Sampler::Random, 10, true);
        let TooFew { found, wanted } = many.draw(&rows[0], &pool).unwrap_err();
        assert_eq!(found, "10 rows for 10 examples");
        assert!(wanted.starts_with("at least 11: "), "{wanted}");
        let mut first = Shots::new(Sampler::FirstN, 10, true);
        let found = first.draw(&rows[0], &pool).unwrap_err().found;
        assert_eq!(found, "9 rows other than the question for 10 examples");
    }

    #[test]
    fn equal_rows_are_drawn_around() {
        let rows = rows(&["a", "a", "a", "b"]);
        let pool: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
        for _ in 0..5 {
            let mut shots = Shots::new(Sampler::Random, 1, true);
            assert_eq!(shots.draw(&rows[0], &pool).unwrap(), [3]);
        }
    }
}

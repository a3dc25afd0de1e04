//! Vocabulary: tokens to ids and back, for every kind of file.

use rustc_hash::FxHashMap;

/// Largest id: datasets store ids as signed 32-bit numbers at most.
const LARGEST: u32 = i32::MAX as u32;

/// Ids that any vocabulary may have, and more for each of its entries: tables are as long as the largest id.
const IDS_OF_ANY: u64 = 1 << 20;
const IDS_OF_AN_ENTRY: u64 = 16;

/// Refuses a vocabulary whose largest id is out of all proportion to its entries, before anything is as long as that id:
/// a file of four kilobytes could otherwise ask for all memory.
pub(super) fn refuse_sparse(entries: usize, largest: u32) -> Result<(), String> {
    let most = IDS_OF_ANY + IDS_OF_AN_ENTRY * entries as u64;
    match u64::from(largest) < most {
        true => Ok(()),
        false => Err(format!(
            "vocabulary: found id {largest} among {entries} entries, wanted ids below {most}"
        )),
    }
}

/// Every token with its id.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    ids: FxHashMap<String, u32>,
    /// Sorted by id; of tokens with the same id the first is used.
    tokens: Vec<(u32, String)>,
    size: usize,
}

impl Vocabulary {
    /// From (token, id). A token may come twice with the same id (an added token that the model has as well).
    pub(super) fn new(
        entries: impl IntoIterator<Item = (String, u32)>,
    ) -> Result<Vocabulary, String> {
        let mut v = Vocabulary::default();
        for (token, id) in entries {
            if id > LARGEST {
                return Err(format!(
                    "id of {token:?}: found {id}, wanted at most {LARGEST}"
                ));
            }
            match v.ids.insert(token.clone(), id) {
                Some(first) if first != id => {
                    return Err(format!(
                        "token {token:?}: found ids {first} and {id}, wanted one"
                    ));
                }
                Some(_) => {}
                None => v.tokens.push((id, token)),
            }
            v.size = v.size.max(id as usize + 1);
        }
        if v.tokens.is_empty() {
            return Err("vocabulary: found no token, wanted at least one".into());
        }
        refuse_sparse(
            v.tokens.len(),
            u32::try_from(v.size - 1).unwrap_or(u32::MAX),
        )?;
        v.tokens.sort_by_key(|(id, _)| *id); // stable: the first of equals stays first
        if let Some(pair) = v.tokens.windows(2).find(|p| p[0].0 == p[1].0) {
            return Err(format!(
                "id {}: found tokens {:?} and {:?}, wanted one",
                pair[0].0, pair[0].1, pair[1].1
            ));
        }
        Ok(v)
    }

    /// Ids 0 to `size` without texts.
    pub(super) fn numbers(size: usize) -> Vocabulary {
        Vocabulary {
            size,
            ..Vocabulary::default()
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn id_of(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(super) fn token(&self, id: u32) -> Option<&str> {
        let place = self.tokens.binary_search_by_key(&id, |(i, _)| *i).ok()?;
        Some(&self.tokens[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, u32)]) -> Result<Vocabulary, String> {
        Vocabulary::new(entries.iter().map(|(t, i)| (t.to_string(), *i)))
    }

    #[test]
    fn holes_are_kept_and_named_by_nothing() {
        let v = of(&[("b", 7), ("a", 0), ("a", 0)]).unwrap();
        assert_eq!((v.size(), v.token(7), v.token(3)), (8, Some("b"), None));
        assert_eq!((v.id_of("a"), v.id_of("x")), (Some(0), None));
    }

    #[test]
    fn one_id_for_two_tokens_or_two_for_one_are_refused_by_name() {
        assert!(
            of(&[("a", 1), ("b", 1)])
                .unwrap_err()
                .contains("\"a\" and \"b\"")
        );
        assert!(of(&[("a", 1), ("a", 2)]).unwrap_err().contains("1 and 2"));
        assert!(of(&[("a", u32::MAX)]).unwrap_err().contains("4294967295"));
        assert!(of(&[]).is_err());
    }
}

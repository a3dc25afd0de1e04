//! Tokens by the row of the table that they ask for.

/// A token whose row of the table is here; in order of rows, then of tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token {
    pub(super) row: usize,
    /// Its number among the tokens.
    pub(super) at: usize,
}

/// Sorts the tokens whose ids are in `first .. first + rows`.
pub(super) fn grouped(ids: &[u32], first: usize, rows: usize) -> Vec<Token> {
    let here = |id: u32| (id as usize).checked_sub(first).filter(|&row| row < rows);
    let tokens = ids.iter().enumerate();
    let mut tokens: Vec<Token> = tokens
        .filter_map(|(at, &id)| Some(Token { row: here(id)?, at }))
        .collect();
    tokens.sort_unstable();
    tokens
}

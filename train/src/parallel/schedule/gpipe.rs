//! GPipe schedule: all forwards, then all backwards.
//! Paper: Huang et al. 2019 (GPipe), arXiv:1811.06965, sec. 2.3. Every stage holds all micro-batches.
//! We differ: backwards run in order of micro-batches, not reversed, as sums of gradients do.

use super::action::{Action, backward, forward};

/// Actions of every stage for `microbatches` micro-batches.
pub(super) fn gpipe(microbatches: usize) -> Vec<Action> {
    let forwards = (0..microbatches).map(forward);
    forwards.chain((0..microbatches).map(backward)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_come_before_backwards() {
        let want = [forward(0), forward(1), backward(0), backward(1)];
        assert_eq!(gpipe(2), want);
    }
}

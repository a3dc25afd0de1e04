//! Disjoint sets of document numbers.

use crate::config::KeepPolicy;

/// Disjoint sets with path halving.
pub(crate) struct UnionFind {
    parent: Vec<u64>,
    /// Set sizes at roots; only kept for [`KeepPolicy::Datatrove`].
    size: Vec<u64>,
    policy: KeepPolicy,
}

fn index(node: u64) -> usize {
    // Nodes index vectors that were allocated, so they fit.
    usize::try_from(node).unwrap_or(usize::MAX)
}

impl UnionFind {
    /// `count` singletons.
    pub(crate) fn new(count: u64, policy: KeepPolicy) -> UnionFind {
        let size = match policy {
            KeepPolicy::First => Vec::new(),
            KeepPolicy::Datatrove => vec![1; index(count)],
        };
        UnionFind {
            parent: (0..count).collect(),
            size,
            policy,
        }
    }

    /// The root of `node`'s set: the document that is kept.
    pub(crate) fn root(&mut self, mut node: u64) -> u64 {
        loop {
            let parent = self.parent[index(node)];
            if parent == node {
                return node;
            }
            let above = self.parent[index(parent)];
            self.parent[index(node)] = above;
            node = above;
        }
    }

    /// Joins the sets of `a` and `b`. The smaller number becomes the root, or, as in datatrove, the
    /// root of the larger set, `a`'s among equals.
    pub(crate) fn join(&mut self, a: u64, b: u64) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        let (root, child) = match self.policy {
            KeepPolicy::First => (a.min(b), a.max(b)),
            KeepPolicy::Datatrove => {
                let swap = self.size[index(a)] < self.size[index(b)];
                let (root, child) = if swap { (b, a) } else { (a, b) };
                self.size[index(root)] += self.size[index(child)];
                (root, child)
            }
        };
        self.parent[index(child)] = root;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_policy_keeps_the_smallest_member_whatever_the_order() {
        let edges = [(5, 3), (9, 5), (2, 9), (7, 8)];
        let mut forward = UnionFind::new(10, KeepPolicy::First);
        edges.iter().for_each(|&(a, b)| forward.join(a, b));
        let mut back = UnionFind::new(10, KeepPolicy::First);
        edges.iter().rev().for_each(|&(a, b)| back.join(b, a));
        for node in 0..10 {
            assert_eq!(forward.root(node), back.root(node));
        }
        assert_eq!(forward.root(9), 2);
        assert_eq!(forward.root(8), 7);
    }

    #[test]
    fn datatrove_policy_keeps_the_root_of_the_larger_set() {
        let mut sets = UnionFind::new(4, KeepPolicy::Datatrove);
        sets.join(2, 3);
        sets.join(0, 2);
        assert_eq!(sets.root(0), 2);
        assert_eq!(sets.root(1), 1);
    }
}

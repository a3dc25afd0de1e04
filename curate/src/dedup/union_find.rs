//! Union-find over document numbers, in memory: four bytes per document below 2^32 documents, five above.

use std::sync::Arc;

/// Disjoint sets with path halving.
#[derive(Clone)]
pub(crate) struct UnionFind {
    parents: Parents,
    order: Order,
}

/// Rule for the root of a union.
#[derive(Clone)]
pub(crate) enum Order {
    /// The smaller number.
    Number,
    /// The one with the lower rank; of equal ranks the smaller number.
    Rank(Arc<Vec<u64>>),
    /// The root of the larger set, of equal ones the first named, as in datatrove: sizes at roots.
    Size(Vec<u64>),
}

impl Order {
    /// Sizes of `count` singletons.
    pub(crate) fn sizes(count: u64) -> Order {
        Order::Size(vec![1; index(count)])
    }
}

/// The parent of each number.
#[derive(Clone)]
enum Parents {
    Four(Vec<u32>),
    /// Little-endian numbers of 40 bits.
    Five(Vec<[u8; 5]>),
}

/// The most documents that five bytes number.
pub(crate) const MOST: u64 = 1 << 40;

fn index(node: u64) -> usize {
    // Nodes index vectors that were allocated, so they fit.
    usize::try_from(node).unwrap_or(usize::MAX)
}

fn pack(node: u64) -> [u8; 5] {
    let [a, b, c, d, e, ..] = node.to_le_bytes();
    [a, b, c, d, e]
}

impl Parents {
    #[inline]
    fn get(&self, node: u64) -> u64 {
        match self {
            Parents::Four(of) => u64::from(of[index(node)]),
            Parents::Five(of) => {
                let [a, b, c, d, e] = of[index(node)];
                u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
            }
        }
    }

    #[inline]
    fn set(&mut self, node: u64, parent: u64) {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "there are fewer than 2^32")]
            Parents::Four(of) => of[index(node)] = parent as u32,
            Parents::Five(of) => of[index(node)] = pack(parent),
        }
    }
}

impl UnionFind {
    /// `count` singletons, fewer than [`MOST`].
    pub(crate) fn new(count: u64, order: Order) -> UnionFind {
        UnionFind::of_width(count, order, count > 1 << 32)
    }

    /// The same with five bytes a number, or with four, for tests of both.
    fn of_width(count: u64, order: Order, five: bool) -> UnionFind {
        #[expect(clippy::cast_possible_truncation, reason = "there are fewer than 2^32")]
        let parents = if five {
            Parents::Five((0..count).map(pack).collect())
        } else {
            Parents::Four((0..count).map(|node| node as u32).collect())
        };
        UnionFind { parents, order }
    }

    /// The root of `node`'s set: the document that is kept.
    pub(crate) fn root(&mut self, mut node: u64) -> u64 {
        loop {
            let parent = self.parents.get(node);
            if parent == node {
                return node;
            }
            let above = self.parents.get(parent);
            self.parents.set(node, above);
            node = above;
        }
    }

    /// Joins the sets of `a` and `b`.
    pub(crate) fn join(&mut self, a: u64, b: u64) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        let (root, child) = match &mut self.order {
            Order::Number => (a.min(b), a.max(b)),
            Order::Rank(ranks) => {
                let rank = |node| (ranks[index(node)], node);
                if rank(a) < rank(b) { (a, b) } else { (b, a) }
            }
            Order::Size(sizes) => {
                let swap = sizes[index(a)] < sizes[index(b)];
                let (root, child) = if swap { (b, a) } else { (a, b) };
                sizes[index(root)] += sizes[index(child)];
                (root, child)
            }
        };
        self.parents.set(child, root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_policy_keeps_the_smallest_member_whatever_the_order() {
        let edges = [(5, 3), (9, 5), (2, 9), (7, 8)];
        let mut forward = UnionFind::new(10, Order::Number);
        edges.iter().for_each(|&(a, b)| forward.join(a, b));
        let mut back = UnionFind::new(10, Order::Number);
        edges.iter().rev().for_each(|&(a, b)| back.join(b, a));
        for node in 0..10 {
            assert_eq!(forward.root(node), back.root(node));
        }
        assert_eq!(forward.root(9), 2);
        assert_eq!(forward.root(8), 7);
    }

    #[test]
    fn datatrove_policy_keeps_the_root_of_the_larger_set() {
        let mut sets = UnionFind::new(4, Order::sizes(4));
        sets.join(2, 3);
        sets.join(0, 2);
        assert_eq!(sets.root(0), 2);
        assert_eq!(sets.root(1), 1);
    }

    #[test]
    fn ranks_decide_before_numbers_whatever_the_order() {
        let ranks = Arc::new(vec![3, 1, 2, 1, 0]);
        let edges = [(0, 2), (2, 3), (1, 0)];
        let mut forward = UnionFind::new(5, Order::Rank(ranks.clone()));
        edges.iter().for_each(|&(a, b)| forward.join(a, b));
        let mut back = UnionFind::new(5, Order::Rank(ranks));
        edges.iter().rev().for_each(|&(a, b)| back.join(b, a));
        for node in 0..4 {
            assert_eq!((forward.root(node), back.root(node)), (1, 1));
        }
        assert_eq!(forward.root(4), 4);
    }

    #[test]
    fn four_and_five_bytes_a_number_give_the_sets_of_naive_connectivity() {
        const NODES: u64 = 300;
        // Weyl's sequence: edges without a pattern
        let edges: Vec<(u64, u64)> = (1..220u64)
            .map(|i| {
                let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((x >> 40) % NODES, (x >> 20) % NODES)
            })
            .collect();
        let mut naive: Vec<u64> = (0..NODES).collect();
        loop {
            let before = naive.clone();
            for &(a, b) in &edges {
                let least = naive[index(a)].min(naive[index(b)]);
                (naive[index(a)], naive[index(b)]) = (least, least);
            }
            if naive == before {
                break;
            }
        }
        for five in [false, true] {
            let mut sets = UnionFind::of_width(NODES, Order::Number, five);
            edges.iter().for_each(|&(a, b)| sets.join(a, b));
            let roots: Vec<u64> = (0..NODES).map(|node| sets.root(node)).collect();
            assert_eq!(roots, naive, "five bytes: {five}");
        }
        assert!(naive.iter().any(|&root| root > 0 && root < 20));
    }

    #[test]
    fn forty_bits_hold_numbers_beyond_32() {
        let mut parents = Parents::Five(vec![[0; 5]; 1]);
        for number in [0, u64::from(u32::MAX) + 1, MOST - 1] {
            parents.set(0, number);
            assert_eq!(parents.get(0), number);
        }
    }
}

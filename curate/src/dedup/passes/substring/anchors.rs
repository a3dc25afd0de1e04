//! Anchors of windows: winnowing.
//!
//! Paper: Schleimer, Wilkerson and Aiken 2003, "Winnowing", sec. 3. A window of n units has n - k + 1 parts of k =
//! n / 2 units; its anchor is the part with the least hash, of equals the last. The choice depends on the window's
//! units alone, so equal windows have equal anchors at the same place in them. Consecutive windows mostly share
//! one: an anchor covers 1 + n / 4 windows on average.

use std::collections::VecDeque;

/// Windows that follow each other and have the same anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// Hash of the anchor's units.
    pub(super) key: u64,
    /// First unit of the first window.
    pub(super) first: u32,
    /// First unit of the last window.
    pub(super) last: u32,
}

const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Calls `each` for the anchors of all windows of `n` of `count` units, in order; `unit` has the number of each.
pub(super) fn each_anchor(
    count: usize,
    unit: impl Fn(usize) -> u64,
    n: usize,
    each: &mut dyn FnMut(Anchor),
) {
    if count < n {
        return;
    }
    let k = n / 2;
    let out = (0..k).fold(1u64, |p, _| p.wrapping_mul(BASE));
    let mut rolling = 0u64;
    // parts of the window by place, with hashes that grow
    let mut least: VecDeque<(usize, u64)> = VecDeque::new();
    let mut open: Option<(usize, Anchor)> = None;
    for i in 0..count {
        rolling = rolling.wrapping_mul(BASE).wrapping_add(unit(i));
        if i >= k {
            rolling = rolling.wrapping_sub(unit(i - k).wrapping_mul(out));
        }
        if i + 1 < k {
            continue;
        }
        let hash = mixed(rolling);
        while least.back().is_some_and(|(_, h)| *h >= hash) {
            least.pop_back();
        }
        least.push_back((i + 1 - k, hash));
        if i + 1 < n {
            continue;
        }
        let window = i + 1 - n;
        while least.front().is_some_and(|(at, _)| *at < window) {
            least.pop_front();
        }
        let Some((at, key)) = least.front().copied() else {
            continue;
        };
        let window = crate::text::narrow(window);
        match &mut open {
            Some((part, anchor)) if *part == at => anchor.last = window,
            _ => {
                let anchor = Anchor {
                    key,
                    first: window,
                    last: window,
                };
                if let Some((_, done)) = open.replace((at, anchor)) {
                    each(done);
                }
            }
        }
    }
    if let Some((_, done)) = open {
        each(done);
    }
}

/// Spreads the bits: a polynomial alone prefers parts with small bytes.
fn mixed(mut h: u64) -> u64 {
    h ^= h >> 32;
    h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^= h >> 32;
    h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchors(text: &[u8], n: usize) -> Vec<Anchor> {
        let mut found = Vec::new();
        let unit = |i: usize| u64::from(text[i]) + 1;
        each_anchor(text.len(), unit, n, &mut |a| found.push(a));
        found
    }

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let next = |x: &mut u64| {
            *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(*x)
        };
        let mut state = seed;
        let bytes = std::iter::from_fn(|| next(&mut state)).map(|x| x.to_be_bytes()[0]);
        bytes.take(length).collect()
    }

    #[test]
    fn every_window_has_one_anchor_and_about_a_quarter_of_n_windows_share_it() {
        let (text, n) = (noise(20_000, 1), 100);
        let found = anchors(&text, n);
        let mut next = 0;
        for anchor in &found {
            assert_eq!(anchor.first, next);
            next = anchor.last + 1;
        }
        assert_eq!(next as usize, text.len() - n + 1);
        let share = text.len() / found.len();
        assert!((22..32).contains(&share), "{share} windows an anchor");
        assert!(anchors(&text[..n - 1], n).is_empty());
        assert_eq!(anchors(&text[..n], n).len(), 1);
    }

    #[test]
    fn equal_windows_have_equal_anchors_whatever_stands_around() {
        let n = 64;
        let middle = noise(n, 2);
        let mut keys = Vec::new();
        for seed in 3..20 {
            let before = noise(100 + usize::try_from(seed).unwrap(), seed);
            let text = [&before[..], &middle, &noise(90, seed + 50)].concat();
            let at = crate::text::narrow(before.len());
            let holds = |a: &&Anchor| a.first <= at && at <= a.last;
            let found = anchors(&text, n);
            keys.push(found.iter().find(holds).map(|a| a.key));
        }
        assert!(keys.iter().all(|k| k.is_some() && *k == keys[0]));
    }
}

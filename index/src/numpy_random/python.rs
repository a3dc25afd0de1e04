//! CPython's `random.Random`, bit-equal: the same generator, seeded with an array, and the draws of `sample` and
//! `choices`.
//!
//! Source: Matsumoto & Nishimura 2002 (`init_by_array`); CPython 3.8 to 3.14 `Modules/_randommodule.c` and
//! `Lib/random.py` (facts). A draw below n takes the highest bits of a word, as many as n has, until it is below n.

use super::{N, RandomState};
use std::collections::HashSet;

/// `random.Random(seed)` for a seed that is not negative.
#[derive(Clone)]
pub struct PythonRandom(RandomState);

impl PythonRandom {
    /// Seeds as `random.seed` does with an integer: its 32-bit words, the lowest first.
    pub fn new(seed: u64) -> PythonRandom {
        let (low, high) = (seed & 0xffff_ffff, seed >> 32);
        let word = |half: u64| u32::try_from(half).unwrap_or(0);
        let words = [word(low), word(high)];
        let words = if high == 0 { &words[..1] } else { &words[..] };
        let mut state = RandomState::new(19_650_218);
        let key = &mut state.key;
        let mixed = |last: u32| last ^ (last >> 30);
        let (mut i, mut j) = (1, 0u32);
        for _ in 0..N {
            let word = words[j as usize].wrapping_add(j);
            let change = mixed(key[i - 1]).wrapping_mul(1_664_525);
            key[i] = (key[i] ^ change).wrapping_add(word);
            (i, j) = (i + 1, j + 1);
            if i == N {
                (key[0], i) = (key[N - 1], 1);
            }
            if j as usize == words.len() {
                j = 0;
            }
        }
        for _ in 1..N {
            let change = mixed(key[i - 1]).wrapping_mul(1_566_083_941);
            let number = u32::try_from(i).unwrap_or(0);
            key[i] = (key[i] ^ change).wrapping_sub(number);
            i += 1;
            if i == N {
                (key[0], i) = (key[N - 1], 1);
            }
        }
        key[0] = 0x8000_0000;
        PythonRandom(state)
    }

    /// Uniform below `n`; 0 if n is 0. Populations have fewer than 2^32 members.
    fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        if bits == 0 || bits > 32 {
            return 0;
        }
        loop {
            let draw = (self.0.next_u32() >> (32 - bits)) as usize;
            if draw < n {
                return draw;
            }
        }
    }

    /// Indices that `sample(range(n), k)` returns; None if k is above n.
    pub fn sample(&mut self, n: usize, k: usize) -> Option<Vec<usize>> {
        if k > n {
            return None;
        }
        // above this size a set of k indices is smaller than a list of n
        let mut pool_size = 21usize;
        if k > 5 {
            let mut power = 1usize;
            while power < k.saturating_mul(3) {
                power = power.saturating_mul(4);
            }
            pool_size = pool_size.saturating_add(power);
        }
        let mut found = Vec::with_capacity(k);
        if n <= pool_size {
            let mut pool: Vec<usize> = (0..n).collect();
            for i in 0..k {
                let at = self.below(n - i);
                found.push(pool[at]);
                pool[at] = pool[n - i - 1];
            }
            return Some(found);
        }
        let mut chosen = HashSet::with_capacity(k);
        while found.len() < k {
            let draw = self.below(n);
            if chosen.insert(draw) {
                found.push(draw);
            }
        }
        Some(found)
    }

    /// An index that `choices(range(n))` returns; n below 2^53.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of n, rounded down"
    )]
    pub fn choice(&mut self, n: usize) -> usize {
        (self.0.random() * n as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `tests/oracles/python_random.py`.
    const GOLDEN: &str = include_str!("../../tests/data/python_random.json");

    #[test]
    fn samples_and_choices_are_cpythons() {
        let golden: Value = serde_json::from_str(GOLDEN).unwrap();
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let list = |value: &Value| -> Vec<usize> {
            value.as_array().unwrap().iter().map(number).collect()
        };
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() > 5);
        for case in cases {
            let mut random = PythonRandom::new(case["seed"].as_u64().unwrap());
            for draw in case["draws"].as_array().unwrap() {
                let (n, k) = (number(&draw["n"]), number(&draw["k"]));
                let found = match draw["kind"].as_str().unwrap() {
                    "sample" => random.sample(n, k).unwrap(),
                    _ => (0..k).map(|_| random.choice(n)).collect(),
                };
                assert_eq!(found, list(&draw["found"]), "{} {draw}", case["seed"]);
            }
        }
        assert_eq!(PythonRandom::new(1).sample(3, 4), None);
    }
}

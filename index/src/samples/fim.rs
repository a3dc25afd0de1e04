//! Fill in the middle: a document's middle is moved behind its end, so that a model learns to write between two texts.
//!
//! Every stretch between ends of documents is, with probability `rate`, decoded to text, cut at two random
//! character boundaries, each piece encoded again, and written as prefix-suffix-middle (PRE p SUF s MID m) or, with
//! probability `spm_rate`, suffix first (PRE SUF s MID p m). With a split token one draw decides for the stretch as
//! a whole, then one per fragment with `fragment_rate`. The result is cut or padded to the original length. Paper:
//! Bavarian et al. 2022, arXiv:2207.14255. Source: Megatron-LM `fim_dataset.py` (facts), whose treatment of empty
//! stretches is kept: one before an end of document vanishes with it, one at the end may become three bare tokens.
//! We differ: draws come from a counter-based generator keyed by (seed, sample). Megatron has one stream that every
//! read advances, so that a sample depends on the samples that its worker has read before; here resuming is exact.

use super::gpt::GptSamples;
use crate::error::Result;

/// Rates and tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fim {
    /// Probability that a stretch is rearranged.
    pub rate: f64,
    /// Probability that the suffix comes first.
    pub spm_rate: f64,
    /// Probability for each fragment, where `split` cuts a stretch.
    pub fragment_rate: f64,
    /// Token that cuts a stretch into fragments (files of a repository).
    pub split: Option<u32>,
    /// Text that starts like this stays as it is.
    pub no_prefix: Option<String>,
    /// Before the prefix.
    pub prefix: u32,
    /// Before the middle.
    pub middle: u32,
    /// Before the suffix.
    pub suffix: u32,
    /// Token that pads a sample which became shorter.
    pub pad: u32,
    /// Ends documents.
    pub eod: u32,
}

/// Tokens to text and back.
pub struct FimText<'a> {
    /// Text of tokens, special ones left out.
    pub decode: &'a dyn Fn(&[u32]) -> Result<String>,
    /// Tokens of a text.
    pub encode: &'a dyn Fn(&str) -> Result<Vec<u32>>,
}

/// Source of draws: a counter-based generator, or in tests the draws of another program.
trait Draws {
    /// True with probability `p`.
    fn chance(&mut self, p: f64) -> bool;
    /// Uniform in 0..=`most`.
    fn place(&mut self, most: usize) -> usize;
}

/// Draw number n of sample k is a hash of (seed, k, n).
struct Counter {
    key: u64,
    n: u64,
}

/// The finaliser of SplitMix64 (Steele et al. 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Counter {
    fn new(seed: u32, sample: u64) -> Counter {
        let key = mix(u64::from(seed).wrapping_add(STEP)) ^ mix(sample.wrapping_mul(STEP));
        Counter {
            key: mix(key),
            n: 0,
        }
    }
    fn next(&mut self) -> u64 {
        self.n += 1;
        mix(self.key.wrapping_add(self.n.wrapping_mul(STEP)))
    }
}

impl Draws for Counter {
    fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * 2f64.powi(53)
    }
    fn place(&mut self, most: usize) -> usize {
        let wide = u128::from(self.next()) * (most as u128 + 1);
        usize::try_from(wide >> 64).unwrap_or(most)
    }
}

impl GptSamples {
    /// Like [`GptSamples::read`], with fill-in-the-middle applied.
    ///
    /// # Errors
    /// `Range`; errors of decoding or encoding.
    pub fn read_fim(&self, k: u64, fim: &Fim, text: &FimText, out: &mut [u32]) -> Result<()> {
        self.read(k, out)?;
        let draws = &mut Counter::new(self.request().seed, k);
        let made = rearrange(out, fim, text, draws)?;
        out.copy_from_slice(&made);
        Ok(())
    }
}

/// A sample of the same length.
fn rearrange(sample: &[u32], f: &Fim, text: &FimText, draws: &mut dyn Draws) -> Result<Vec<u32>> {
    let mut out = Vec::with_capacity(sample.len() + 64);
    let mut rest = sample;
    while let Some(end) = rest.iter().position(|t| *t == f.eod) {
        if end > 0 {
            stretch(&rest[..end], f, text, draws, &mut out)?;
            out.push(f.eod);
        }
        rest = &rest[end + 1..];
    }
    stretch(rest, f, text, draws, &mut out)?;
    out.resize(sample.len(), f.pad);
    Ok(out)
}

fn stretch(
    tokens: &[u32],
    f: &Fim,
    text: &FimText,
    draws: &mut dyn Draws,
    out: &mut Vec<u32>,
) -> Result<()> {
    let Some(split) = f.split.filter(|s| tokens.contains(s)) else {
        return permute(tokens, f.rate, f, text, draws, out);
    };
    if !draws.chance(f.rate) {
        out.extend_from_slice(tokens);
        return Ok(());
    }
    let mut rest = tokens;
    while let Some(end) = rest.iter().position(|t| *t == split) {
        if end > 0 {
            permute(&rest[..end], f.fragment_rate, f, text, draws, out)?;
            out.push(split);
        }
        rest = &rest[end + 1..];
    }
    permute(rest, f.fragment_rate, f, text, draws, out)
}

fn permute(
    tokens: &[u32],
    rate: f64,
    f: &Fim,
    text: &FimText,
    draws: &mut dyn Draws,
    out: &mut Vec<u32>,
) -> Result<()> {
    if !draws.chance(rate) {
        out.extend_from_slice(tokens);
        return Ok(());
    }
    let whole = (text.decode)(tokens)?;
    if f.no_prefix
        .as_ref()
        .is_some_and(|p| whole.starts_with(p.as_str()))
    {
        out.extend_from_slice(tokens);
        return Ok(());
    }
    let chars = whole.chars().count();
    let (a, b) = (draws.place(chars), draws.place(chars));
    let at = |n: usize| whole.char_indices().nth(n).map_or(whole.len(), |(i, _)| i);
    let (a, b) = (at(a.min(b)), at(a.max(b)));
    let prefix = (text.encode)(&whole[..a])?;
    let middle = (text.encode)(&whole[a..b])?;
    let suffix = (text.encode)(&whole[b..])?;
    if draws.chance(f.spm_rate) {
        out.extend([f.prefix, f.suffix]);
        out.extend(suffix);
        out.push(f.middle);
        out.extend(prefix);
    } else {
        out.push(f.prefix);
        out.extend(prefix);
        out.push(f.suffix);
        out.extend(suffix);
        out.push(f.middle);
    }
    out.extend(middle);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A tokenizer of equal letters: a token is one to three of them, and a single letter is one token.
    fn decode(tokens: &[u32]) -> Result<String> {
        let letter = |t: &u32| char::from(b'a' + u8::try_from(t % 26).unwrap()).to_string();
        let times = |t: &u32| {
            if (30..56).contains(t) {
                1
            } else {
                1 + (t % 3) as usize
            }
        };
        let special = |t: &&u32| **t >= 10;
        Ok(tokens
            .iter()
            .filter(special)
            .map(|t| letter(t).repeat(times(t)))
            .collect())
    }
    #[expect(clippy::unnecessary_wraps, reason = "the signature of an encoder")]
    fn encode(text: &str) -> Result<Vec<u32>> {
        Ok(text
            .bytes()
            .map(|b| 30 + (u32::from(b - b'a') + 26 - 4) % 26)
            .collect())
    }

    struct Recorded(std::vec::IntoIter<u64>);
    impl Draws for Recorded {
        fn chance(&mut self, _: f64) -> bool {
            self.0.next() == Some(1)
        }
        fn place(&mut self, _: usize) -> usize {
            usize::try_from(self.0.next().unwrap()).unwrap()
        }
    }

    fn numbers(v: &Value) -> Vec<u64> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap())
            .collect()
    }

    #[test]
    fn with_the_same_draws_every_sample_is_megatrons() {
        let golden: Value =
            serde_json::from_str(include_str!("../../tests/data/fim.json")).unwrap();
        let text = FimText {
            decode: &decode,
            encode: &encode,
        };
        let cases = golden["cases"].as_array().unwrap();
        for (i, case) in cases.iter().enumerate() {
            let ids = |key: &str| -> Vec<u32> {
                numbers(&case[key])
                    .into_iter()
                    .map(|n| u32::try_from(n).unwrap())
                    .collect()
            };
            let fim = Fim {
                split: case["split"].as_u64().map(|s| u32::try_from(s).unwrap()),
                no_prefix: case["no_prefix"].as_str().map(String::from),
                prefix: 1,
                middle: 2,
                suffix: 3,
                pad: 4,
                eod: 0,
                ..Fim::default()
            };
            let mut draws = Recorded(numbers(&case["draws"]).into_iter());
            let got = rearrange(&ids("sample"), &fim, &text, &mut draws).unwrap();
            assert_eq!(got, ids("out"), "case {i}");
            assert_eq!(draws.0.len(), 0, "case {i}: draws left");
        }
        assert!(cases.len() >= 40, "{} cases", cases.len());
    }

    #[test]
    fn draws_depend_on_seed_and_sample_alone_and_have_the_rate() {
        let draws = |seed, k| {
            let mut c = Counter::new(seed, k);
            (0..4).map(|_| c.place(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, 5), draws(1, 5));
        assert_ne!(draws(1, 5), draws(1, 6));
        assert_ne!(draws(1, 5), draws(2, 5));
        let hits = (0..20_000)
            .filter(|k| Counter::new(7, *k).chance(0.3))
            .count();
        // five standard deviations of a binomial
        assert!(
            (hits as f64 - 6000.0).abs() < 5.0 * (20_000.0f64 * 0.3 * 0.7).sqrt(),
            "{hits}"
        );
        assert!((0..1000).all(|k| Counter::new(7, k).place(3) <= 3));
    }
}

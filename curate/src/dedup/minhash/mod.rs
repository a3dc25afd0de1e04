//! MinHash signatures (Broder 1997): datatrove's, bit for bit, and those of our own family.
//!
//! datatrove's: words of the simplified text, shingles of `n` words joined by one space, XXH64 of each, minima
//! under permutations of 64 bits; a text with fewer words than a shingle has no signature and is never a near
//! duplicate. Ours: `native.rs`, permutations of 32 bits. The signature is one number per band, XXH3-64 of the
//! band's minima (little-endian): deduplication only needs to know whether bands are equal. Two different bands
//! share a number with probability 2^-64. For `keep = "datatrove"`, whose result depends on the order of bands, it
//! is the minima themselves.

mod config;
mod kernel;
mod native;
mod permutation;

pub use config::{MinhashConfig, MinhashPreset, Shingle, ShingleKind};
pub(crate) use native::words_digest;

use xxhash_rust::xxh3::xxh3_64;
use xxhash_rust::xxh64::xxh64;

use super::signature::{NO_SIGNATURE, SignatureShape};
use crate::dedup::DedupConfig;
use crate::text::languages::WordLanguage;
use crate::text::simplify::simplify;
use crate::text::words::{Splitter, Word, WordRules};
use kernel::{Prime, Shift};
use native::NativeScratch;
use permutation::{permutations, shifts};

/// Permutations of one configuration, shared by all threads.
pub struct Minhasher {
    shingle: Shingle,
    rows: usize,
    /// Numbers per band in a `.sig` file: one, or as many as rows.
    width: usize,
    family: Permutations,
    words: WordLanguage,
}

/// Multipliers and addends.
enum Permutations {
    Datatrove(Vec<u64>, Vec<u64>),
    Native(Vec<u32>, Vec<u32>),
}

/// Buffers of one thread.
#[derive(Default)]
pub struct MinhashScratch {
    simple: String,
    joined: String,
    words: Vec<Word>,
    ends: Vec<usize>,
    shingles: Vec<u64>,
    native: NativeScratch,
    narrow: Vec<u32>,
    minima: Vec<u64>,
    bytes: Vec<u8>,
}

impl Minhasher {
    /// Draws the permutations.
    pub fn new(config: &MinhashConfig) -> Minhasher {
        let count = config.bands * config.rows;
        let family = if config.preset == MinhashPreset::Fineweb {
            let (a, b) = permutations(config.seed, count);
            Permutations::Datatrove(a, b)
        } else {
            let (a, b) = shifts(config.seed, count);
            Permutations::Native(a, b)
        };
        Minhasher {
            shingle: config.shingle,
            rows: config.rows,
            width: 1,
            family,
            // a name that is not known was reported by the check of the settings
            words: WordLanguage::of(&config.language)
                .unwrap_or(WordLanguage::One(WordRules::English)),
        }
    }

    /// How the words of a document in this language are split; its splitter goes to the other functions.
    pub(crate) fn word_rules(&self, language: &str) -> WordRules {
        self.words.rules(language)
    }

    /// The same for a job's signature files; None without MinHash.
    pub(crate) fn of(dedup: &DedupConfig) -> Option<Minhasher> {
        let mut hasher = Minhasher::new(dedup.minhash.as_ref()?);
        hasher.width = SignatureShape::of(Some(dedup)).width as usize;
        Some(hasher)
    }

    /// Number of permutations.
    pub fn len(&self) -> usize {
        match &self.family {
            Permutations::Datatrove(a, _) => a.len(),
            Permutations::Native(a, _) => a.len(),
        }
    }

    /// True if there is no permutation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shingle hashes of a text, in order, duplicates included; 32 bits each in our own family.
    pub fn shingles(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &mut MinhashScratch,
    ) -> Vec<u64> {
        match self.family {
            Permutations::Datatrove(..) => {
                joined_shingles(text, self.shingle.n, splitter, scratch);
                scratch.shingles.clone()
            }
            Permutations::Native(..) => {
                scratch.native.fill(text, self.shingle);
                let hashes = scratch.native.shingles.iter();
                hashes.map(|&x| u64::from(x)).collect()
            }
        }
    }

    /// The shingle hashes of a text at 64 bits, in order, duplicates included.
    pub(crate) fn wide_shingles(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &mut MinhashScratch,
    ) -> Vec<u64> {
        match self.family {
            Permutations::Datatrove(..) => self.shingles(text, splitter, scratch),
            Permutations::Native(..) => scratch.native.wide(text, self.shingle),
        }
    }

    /// Fills `signature` with all minima and returns true, or returns false if the text has too few words.
    pub fn signature(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &mut MinhashScratch,
        signature: &mut Vec<u64>,
    ) -> bool {
        signature.clear();
        match &self.family {
            Permutations::Datatrove(a, b) => {
                joined_shingles(text, self.shingle.n, splitter, scratch);
                signature.resize(a.len(), u64::MAX);
                kernel::minima::<Prime, 56, 28>(a, b, &scratch.shingles, signature);
                !scratch.shingles.is_empty()
            }
            Permutations::Native(a, b) => {
                scratch.native.fill(text, self.shingle);
                let (shingles, minima) = (&scratch.native.shingles, &mut scratch.narrow);
                minima.clear();
                minima.resize(a.len(), u32::MAX);
                kernel::minima::<Shift, 112, 56>(a, b, shingles, minima);
                signature.extend(minima.iter().map(|&m| u64::from(m)));
                !shingles.is_empty()
            }
        }
    }

    /// Fills `keys` with a `.sig` file's numbers of each band; empty if the text has too few words.
    pub(crate) fn keys(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &mut MinhashScratch,
        keys: &mut Vec<u64>,
    ) {
        let mut minima = std::mem::take(&mut scratch.minima);
        keys.clear();
        if self.signature(text, splitter, scratch, &mut minima) {
            if self.width == 1 {
                let bytes = &mut scratch.bytes;
                let bands = minima.chunks_exact(self.rows);
                keys.extend(bands.map(|band| key(band, bytes)));
            } else {
                keys.extend_from_slice(&minima);
            }
        }
        scratch.minima = minima;
    }
}

/// Number of a band, never the reserved value for none.
fn key(band: &[u64], bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    band.iter()
        .for_each(|m| bytes.extend_from_slice(&m.to_le_bytes()));
    xxh3_64(bytes).min(NO_SIGNATURE - 1)
}

/// datatrove's shingles.
fn joined_shingles(text: &str, n: usize, splitter: &mut Splitter, scratch: &mut MinhashScratch) {
    let MinhashScratch {
        simple,
        joined,
        words,
        ends,
        shingles,
        ..
    } = scratch;
    simplify(text, simple);
    splitter.split(simple, words);
    joined.clear();
    ends.clear();
    shingles.clear();
    ends.push(0);
    // Words that one space parts already are copied together.
    let (mut stretch, mut end) = (0, 0);
    for word in words.iter() {
        let (from, to) = (word.start as usize, word.end as usize);
        let goes_on = from == end + 1 && simple.as_bytes()[end] == b' ';
        if !goes_on {
            if end > 0 {
                joined.push_str(&simple[stretch..end]);
                joined.push(' ');
            }
            stretch = from;
        }
        end = to;
        ends.push(joined.len() + (end - stretch) + 1);
    }
    joined.push_str(&simple[stretch..end]);
    joined.push(' ');
    let bytes = joined.as_bytes();
    for window in ends.windows(n + 1) {
        // Without the space after the last word.
        shingles.push(xxh64(&bytes[window[0]..window[n] - 1], 0));
    }
}

#[cfg(test)]
mod tests {
    use super::config::ShingleKind;
    use super::*;

    fn signed(hasher: &Minhasher, text: &str) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        let (splitter, scratch) = (&mut Splitter::new(), &mut MinhashScratch::default());
        hasher
            .signature(text, splitter, scratch, &mut out)
            .then_some(out)
    }

    #[test]
    fn golden_sentence_gives_datatroves_first_bucket() {
        let hasher = Minhasher::new(&MinhashConfig::default());
        let text = "The quick brown fox jumps over the lazy dog, 3.14 times on Monday! Caf\u{e9}";
        let mut scratch = MinhashScratch::default();
        let shingles = hasher.shingles(text, &mut Splitter::new(), &mut scratch);
        assert_eq!(shingles.len(), 10);
        assert_eq!(shingles[0], 7797000677988824208);
        assert_eq!(
            signed(&hasher, text).unwrap()[..8],
            [
                48476309300070401,
                184339147761722157,
                299029816776204348,
                34440879854629237,
                58950450898398279,
                117899488208280896,
                6902592715498867,
                171478015495401766
            ]
        );
    }

    #[test]
    fn four_words_have_no_signature_in_datatrove_and_one_shingle_in_ours() {
        let four = "one two three four";
        let datatrove = Minhasher::new(&MinhashConfig::default());
        assert_eq!(signed(&datatrove, four), None);
        let native = Minhasher::new(&MinhashConfig::of(MinhashPreset::Native));
        assert_eq!(
            signed(&native, "One, two; THREE four!"),
            signed(&native, four)
        );
        assert!(signed(&native, four).is_some());
        assert_eq!(signed(&native, " -- !"), None);
    }

    #[test]
    fn a_band_has_one_number_that_its_minima_alone_decide() {
        for preset in [MinhashPreset::Fineweb, MinhashPreset::Native] {
            let config = MinhashConfig::of(preset);
            let mut dedup = DedupConfig {
                minhash: Some(config.clone()),
                ..DedupConfig::default()
            };
            let narrow = Minhasher::of(&dedup).unwrap();
            dedup.keep = crate::dedup::KeepPolicy::Datatrove;
            let wide = Minhasher::of(&dedup).unwrap();
            let text = "one two three four five six seven eight nine ten";
            let mut keys = Vec::new();
            let (splitter, scratch) = (&mut Splitter::new(), &mut MinhashScratch::default());
            wide.keys(text, splitter, scratch, &mut keys);
            assert_eq!(Some(&keys), signed(&wide, text).as_ref());
            let hashed: Vec<u64> = keys
                .chunks(config.rows)
                .map(|band| key(band, &mut Vec::new()))
                .collect();
            narrow.keys(text, splitter, scratch, &mut keys);
            assert_eq!((keys.len(), &keys), (config.bands, &hashed));
            narrow.keys("", splitter, scratch, &mut keys);
            assert!(keys.is_empty());
        }
    }

    /// A word of letters for a number; digits would all become "0" in datatrove's words.
    fn word(mut number: usize) -> String {
        let mut word = "zq".to_string();
        while number > 0 {
            word.push(char::from(b"bcdfghjklm"[number % 10]));
            number /= 10;
        }
        word + " "
    }

    /// Two texts of `n` words with `shared` words in common.
    fn pair(trial: usize, n: usize, shared: usize) -> [String; 2] {
        [0, 1].map(|side| {
            (0..n)
                .map(|i| {
                    let side = if i < shared { 2 } else { side };
                    word((trial * 3 + side) * 2000 + i)
                })
                .collect()
        })
    }

    /// Mean and mean square of the errors of 400 estimates from `used` hashes, in units of the standard deviation
    /// sqrt(J (1 - J) / 112) of estimates from 112, and the share of pairs that become candidates.
    fn errors(config: &MinhashConfig, used: usize, n: usize, shared: usize) -> (f64, f64, f64) {
        let hasher = Minhasher::new(config);
        let similarity = shared as f64 / (2 * n - shared) as f64;
        let deviation = (similarity * (1.0 - similarity) / hasher.len() as f64).sqrt();
        let (mut sum, mut squares, mut candidates) = (0.0, 0.0, 0.0);
        for trial in 0..400 {
            let [a, b] = pair(trial, n, shared).map(|t| signed(&hasher, &t).unwrap());
            let same = a.iter().zip(&b).take(used).filter(|(a, b)| a == b).count();
            let error = (same as f64 / used as f64 - similarity) / deviation;
            sum += error;
            squares += error * error;
            let bands = a.chunks(config.rows).zip(b.chunks(config.rows));
            candidates += f64::from(u8::from(bands.into_iter().any(|(a, b)| a == b)));
        }
        (sum / 400.0, squares / 400.0, candidates / 400.0)
    }

    #[test]
    fn estimates_of_similarity_err_as_theory_says_in_both_families() {
        let words = Shingle {
            kind: ShingleKind::Words,
            n: 1,
        };
        for preset in [MinhashPreset::Fineweb, MinhashPreset::Native] {
            let config = MinhashConfig {
                shingle: words,
                ..MinhashConfig::of(preset)
            };
            for (n, shared) in [(40, 8), (200, 100), (200, 160), (1000, 900)] {
                let (mean, square, candidates) = errors(&config, 112, n, shared);
                // 400 draws: the mean of a normal variable strays by 0.05, of its square by 0.07; five times that
                assert!(mean.abs() < 0.25, "{preset:?} {n} {shared}: mean {mean}");
                assert!(
                    (square - 1.0).abs() < 0.35,
                    "{preset:?} {n} {shared}: {square}"
                );
                let s = shared as f64 / (2 * n - shared) as f64;
                let expected = 1.0 - (1.0 - s.powi(8)).powi(14);
                let stray = (expected * (1.0 - expected) / 400.0).sqrt().max(0.0025);
                assert!(
                    (candidates - expected).abs() < 5.0 * stray,
                    "{preset:?} {n} {shared}: {candidates} candidates, theory {expected}"
                );
            }
        }
        // The test can fail: estimates from half of the hashes err twice as much, squared.
        let native = MinhashConfig {
            shingle: words,
            ..MinhashConfig::of(MinhashPreset::Native)
        };
        assert!(errors(&native, 56, 200, 100).1 > 1.35);
    }
}

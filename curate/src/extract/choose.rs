//! Selection of the blocks to write, from the model's logits.
//!
//! The best set of blocks depends on the whole page: to maximise the expected F1 of a set, take the items likelier
//! than half the achievable F1 (Lipton et al. 2014, arXiv:1402.1892). So on a page of clear cases a block needs a
//! probability of about one half, and on a page of doubtful ones less is enough. Pages that declare themselves
//! articles contain much that only resembles their text, so they need a higher probability. Both constants were
//! measured on the pages the model was trained on (BENCHMARKS.md). Integers throughout.

use super::blocks::{Block, Page};
use super::config::{ExtractConfig, Favour};
use super::marks::mark;
use super::structure::Structures;

/// The model is surer than it should be: logits are divided by 1.5.
const CALM: (i32, i32) = (2, 3);
/// Logits in 1/1024 that blocks of an article need more, and blocks of other pages less.
const ARTICLE: i32 = 1024;
const OTHER: i32 = -205;
/// Added to the bar for precision, subtracted for recall.
const FAVOUR: i32 = 1024;
/// Chances are in 1/1024.
const CERTAIN: u64 = 1024;
/// Minimum chance of a chosen block before the offsets above.
const LEAST: u64 = 51;
const ROUNDS: usize = 6;

/// 1024 / (1 + exp(-x)) at x = 0, 0.25, .. 8.
const CHANCES: [u16; 33] = [
    512, 576, 637, 695, 749, 796, 837, 872, 902, 926, 946, 962, 975, 986, 994, 1000, 1006, 1010,
    1013, 1015, 1017, 1019, 1020, 1021, 1021, 1022, 1022, 1023, 1023, 1023, 1023, 1024, 1024,
];

/// Chance in 1/1024 of a logit in 1/1024.
fn chance(logit: i32) -> u64 {
    let size = logit.unsigned_abs().min(8 * 1024 - 1);
    let (step, rest) = ((size / 256) as usize, u64::from(size % 256));
    let (low, high) = (u64::from(CHANCES[step]), u64::from(CHANCES[step + 1]));
    let above = low + (high - low) * rest / 256;
    if logit < 0 { CERTAIN - above } else { above }
}

fn calm(logit: i32) -> i32 {
    logit / CALM.1 * CALM.0
}

/// Half the best expected F1, in 1/1024: fixed point of choosing by it.
fn bar(page: &Page, logits: &[i32]) -> u64 {
    let weighed: Vec<(u64, u64)> = page
        .blocks
        .iter()
        .zip(logits)
        .map(|(b, &l)| (u64::from(b.counts.words), chance(calm(l))))
        .collect();
    let total: u64 = weighed.iter().map(|(w, p)| w * p).sum();
    let mut bar = CERTAIN / 2;
    for _ in 0..ROUNDS {
        let chosen = weighed.iter().filter(|(_, p)| *p > bar);
        let (hits, words) = chosen.fold((0, 0), |(h, n), (w, p)| (h + w * p, n + w));
        // F1 = 2 hits / (words + total); half of it in 1/1024.
        bar = (hits * CERTAIN / (words * CERTAIN + total).max(1)).max(LEAST);
    }
    bar
}

/// Numbers of the blocks to write, in order; comments, if wanted, come last.
pub(super) fn choose(
    page: &Page,
    structures: &Structures,
    logits: &[i32],
    is_article: bool,
    config: &ExtractConfig,
) -> Vec<usize> {
    let bar = bar(page, logits);
    let kind = if is_article { ARTICLE } else { OTHER };
    let offset = kind
        + match config.favour {
            Favour::Precision => FAVOUR,
            Favour::Balance => 0,
            Favour::Recall => -FAVOUR,
        };
    let is_text = |l: &i32| chance(calm(*l - offset)) > bar;
    let mut accepted: Vec<bool> = logits.iter().map(is_text).collect();
    structures.fill(page, &mut accepted);
    let mut chosen: Vec<usize> = (0..logits.len()).filter(|&i| accepted[i]).collect();
    if config.comments {
        let rest = (0..logits.len()).filter(|&i| !accepted[i]);
        chosen.extend(rest.filter(|&i| is_comment(&page.blocks[i])));
    }
    chosen
}

/// Index of the class category of comments among the categories.
const COMMENT: usize = 5;

/// Whether a block is a reader's comment, judging by class names.
fn is_comment(block: &Block) -> bool {
    let marked = block.near[mark::CLASSES + COMMENT] != 0 || block.near[mark::COMMENT_TYPE] != 0;
    marked && block.counts.words >= 4 && block.linked * 2 < block.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::{blocks, html};

    #[test]
    fn chances_are_those_of_the_logistic_function() {
        for logit in (-9000..9000).step_by(37) {
            let exact = 1024.0 / (1.0 + (-f64::from(logit) / 1024.0).exp());
            let got = f64::from(u32::try_from(chance(logit)).unwrap());
            assert!((got - exact).abs() < 3.0, "{logit}: {got} {exact}");
        }
    }

    #[test]
    fn the_bar_is_half_the_f1_that_can_be_had() {
        let tree = html::parse("<p>a b c d e f g h</p><p>a b c d e f g h</p>");
        let page = blocks::cut(&tree, None);
        // Sure text and sure furniture: F1 is near 1, the bar near a half.
        let sure = bar(&page, &[12_000, -12_000]);
        assert!((500..=512).contains(&sure), "{sure}");
        // Two blocks at 0.5: taking both gives F1 = 2 (0.5 + 0.5) / (2 + 1) = 2/3.
        let even = bar(&page, &[1, 1]);
        assert!((335..=345).contains(&even), "{even}");
    }

    #[test]
    fn what_is_favoured_moves_the_choice() {
        let tree = html::parse("<p>a b c d e f g h</p><p>a b c d e f g h</p>");
        let page = blocks::cut(&tree, None);
        let count = |favour| {
            let config = ExtractConfig {
                favour,
                ..ExtractConfig::default()
            };
            choose(
                &page,
                &Structures::new(&page),
                &[9000, -800],
                false,
                &config,
            )
            .len()
        };
        assert_eq!(count(Favour::Precision), 1);
        assert_eq!(count(Favour::Balance), 1);
        assert_eq!(count(Favour::Recall), 2);
    }
}

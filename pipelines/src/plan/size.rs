//! Shapes of models from a parameter count: the tables of NeMo's auto-configurator (`autoconfig/utils.py` and `base_config.py` of
//! NeMo-Framework-Launcher, and `auto_configurator/core/utils.py` of NeMo 2), and tokens by Hoffmann et al. 2022 (arXiv:2203.15556) of GPT, by
//! the papers of the other kinds. The tables' first rows are the published sizes: T5 1.1 small, base, large, 3B and 11B (Raffel et al. 2020, JMLR 21, of the
//! paper arXiv:1910.10683), mT5 small, base and large (arXiv:2010.11934), BERT base and large (arXiv:1810.04805).

use crate::plan::shape::{Decoder, Shape};
use clap::ValueEnum;

/// Kind of a model that is made of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SizedKind {
    /// A decoder.
    Gpt,
    /// An encoder with a decoder, 29,000 ids.
    T5,
    /// The same with 250,000 ids.
    Mt5,
    /// A masked encoder.
    Bert,
}

/// A size with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sized {
    /// The shape.
    pub shape: Shape,
    /// Learning rate.
    pub lr: f64,
    /// Standard deviation of initial weights; of T5 that of the paper, which jobs do not choose.
    pub init_std: Option<f64>,
    /// Share of the steps that warm up the learning rate.
    pub warmup: f64,
    /// Parameters by NeMo's formula.
    pub parameters: usize,
    /// Sequences per step.
    pub global_batch: usize,
}

/// Widths of the sizes below, or up to, so many billions.
struct Widths {
    below: f64,
    width: usize,
    heads: usize,
    /// Of the feed-forward layers; 0: four times the width.
    ffn: usize,
    lr: f64,
}

/// A row of models whose feed-forward layers are four times as wide.
const fn plain(below: f64, width: usize, heads: usize, lr: f64) -> Widths {
    gated(below, width, heads, 0, lr)
}

const fn gated(below: f64, width: usize, heads: usize, ffn: usize, lr: f64) -> Widths {
    Widths {
        below,
        width,
        heads,
        ffn,
        lr,
    }
}

const GPT: [Widths; 15] = [
    plain(0.25, 768, 12, 6e-4),
    plain(0.5, 1024, 16, 3e-4),
    plain(1.0, 1536, 16, 2.5e-4),
    plain(2.0, 2048, 16, 2e-4),
    plain(3.0, 2560, 32, 1.6e-4),
    plain(4.5, 3072, 32, 1.4e-4),
    plain(8.0, 4096, 32, 1.2e-4),
    plain(15.0, 5120, 40, 1e-4),
    plain(25.0, 6144, 48, 1e-4),
    plain(52.0, 8192, 64, 0.8e-4),
    plain(105.0, 10_240, 80, 0.7e-4),
    plain(205.0, 12_288, 96, 0.6e-4),
    plain(405.0, 20_480, 128, 0.5e-4),
    plain(805.0, 20_480, 128, 0.4e-4),
    plain(1105.0, 25_600, 160, 0.3e-4),
];

/// Sizes up to 43 billion: the launcher has batches of no larger ones.
const T5: [Widths; 7] = [
    gated(0.1, 512, 6, 1024, 1e-4),
    gated(0.4, 768, 12, 2048, 1e-4),
    gated(1.0, 1024, 16, 2816, 1e-4),
    gated(5.0, 2048, 32, 5120, 1e-4),
    gated(15.0, 4096, 64, 10_240, 1e-4),
    gated(25.9, 5120, 80, 10_880, 1e-4),
    gated(43.0, 6144, 96, 10_880, 1e-4),
];

/// Those of T5, whose small ones reach further for the rows of the vocabulary.
const MT5: [Widths; 7] = {
    let mut sizes = T5;
    sizes[0].below = 0.25;
    sizes[1].below = 0.5;
    sizes[2].below = 1.2;
    sizes
};

/// From 25 billion on the table's bounds belong to their rows.
const BERT: [Widths; 11] = [
    plain(0.25, 768, 12, 2e-4),
    plain(0.5, 1024, 16, 2e-4),
    plain(1.0, 1536, 16, 1e-4),
    plain(2.0, 2048, 16, 1e-4),
    plain(4.5, 2560, 32, 1e-4),
    plain(8.0, 4096, 32, 1e-4),
    plain(15.0, 5120, 40, 1e-4),
    plain(25.0_f64.next_up(), 6144, 48, 1e-4),
    plain(46.5_f64.next_up(), 7680, 48, 1e-4),
    plain(165.5_f64.next_up(), 9216, 96, 1e-4),
    plain(250.5_f64.next_up(), 12_288, 96, 1e-4),
];

/// Features of a head of T5.
const T5_HEAD: usize = 64;
/// Tokens of T5's decoder.
const T5_TARGETS: usize = 128;

impl SizedKind {
    /// As a job spells the family.
    pub(crate) fn family(self) -> &'static str {
        match self {
            SizedKind::Gpt => "gpt",
            SizedKind::T5 | SizedKind::Mt5 => "t5",
            SizedKind::Bert => "bert",
        }
    }

    fn table(self) -> &'static [Widths] {
        match self {
            SizedKind::Gpt => &GPT,
            SizedKind::T5 => &T5,
            SizedKind::Mt5 => &MT5,
            SizedKind::Bert => &BERT,
        }
    }

    /// Billions of parameters at which the table ends.
    pub(crate) fn most_billions(self) -> f64 {
        self.table().last().map_or(0.0, |row| row.below)
    }

    /// The smallest width of the table.
    pub(crate) fn least_width(self) -> usize {
        self.table().first().map_or(0, |row| row.width)
    }

    /// A model of as many layers; of T5 in each of encoder and decoder.
    fn shape(self, row: &Widths, layers: usize) -> Shape {
        let gpt = Shape::gpt(layers, row.width, row.heads);
        let t5 = |vocab| Shape {
            head_dim: T5_HEAD,
            value_dim: T5_HEAD,
            ffn: row.ffn,
            is_gated: true,
            vocab,
            decoder: Some(Decoder {
                layers,
                length: T5_TARGETS,
            }),
            seq_length: 512,
            ..gpt
        };
        match self {
            SizedKind::Gpt => gpt,
            SizedKind::T5 => t5(29_000),
            SizedKind::Mt5 => t5(250_000),
            SizedKind::Bert => Shape {
                vocab: 30_522,
                seq_length: 512,
                ..gpt
            },
        }
    }

    /// Parameters by NeMo's formulas, multiplied out: every term is a whole number. Of GPT 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)); of T5 with
    /// P features of all heads and three matrices of F 2 L F' + 3 L P + h (2 + 4 L F' + L (21 + 12 P) + s + V), F' = 3 F / 2; of BERT with a heads
    /// L (F + h (4 h + 3 a + 2 F + 6)) + h (V + s + h + 5).
    fn parameters(self, shape: &Shape) -> usize {
        let (layers, width, heads, ffn) = (shape.layers, shape.width, shape.heads, shape.ffn);
        let tables = shape.vocab + shape.seq_length;
        match self {
            SizedKind::Gpt => width * (layers * (12 * width + 13) + tables),
            SizedKind::T5 | SizedKind::Mt5 => {
                let (inner, features) = (3 * ffn / 2, heads * shape.head_dim);
                let of_width = 2 + 4 * layers * inner + layers * (21 + 12 * features) + tables;
                2 * layers * inner + 3 * layers * features + width * of_width
            }
            SizedKind::Bert => {
                let of_layer = ffn + width * (4 * width + 3 * heads + 2 * ffn + 6);
                layers * of_layer + width * (tables + width + 5)
            }
        }
    }

    /// Sequences of a step, by the table of devices of 80 GB.
    fn global_batch(self, billions: f64) -> usize {
        match self {
            SizedKind::Gpt => match billions {
                ..=1.0 => 256,
                ..=4.0 => 1024,
                _ => 2048,
            },
            SizedKind::T5 | SizedKind::Mt5 => match billions {
                ..=1.0 => 2048,
                _ => 1920,
            },
            SizedKind::Bert => match billions {
                ..=1.0 => 256,
                ..=3.2 => 1024,
                ..=87.5 => 2048,
                ..=165.5 => 4096,
                _ => 2048,
            },
        }
    }

    fn init_std(self, width: usize) -> Option<f64> {
        match self {
            SizedKind::Gpt | SizedKind::Bert => Some(0.64 / (width as f64).sqrt()),
            SizedKind::T5 | SizedKind::Mt5 => None,
        }
    }

    fn warmup(self) -> f64 {
        match self {
            SizedKind::Gpt | SizedKind::Bert => 0.0015,
            SizedKind::T5 | SizedKind::Mt5 => 0.01,
        }
    }

    /// Tokens of a training: of GPT those that use a budget of computation best; of the others those of their papers: 1 million steps of 2^20
    /// tokens (T5's appendix and mT5's section 3.2), and of 256 sequences of 512 (BERT's appendix A.2).
    pub(crate) fn tokens(self, parameters: f64) -> f64 {
        match self {
            SizedKind::Gpt => chinchilla_tokens(parameters),
            SizedKind::T5 | SizedKind::Mt5 => 1e6 * f64::from(1 << 20),
            SizedKind::Bert => 1e6 * 256.0 * 512.0,
        }
    }
}

/// Counts of layers that are tried together, and the largest margin of the size in percent at which they are.
struct LayerFamily {
    first: usize,
    next: fn(usize) -> usize,
    most: usize,
    percents: u8,
}

impl LayerFamily {
    fn counts(&self) -> impl Iterator<Item = usize> + use<> {
        let (next, most) = (self.next, self.most);
        std::iter::successors(Some(self.first), move |count| Some(next(*count)))
            .take_while(move |count| *count <= most)
    }
}

/// NeMo's families in its order: each is tried at all of its margins before the next one.
const LAYERS: [LayerFamily; 5] = [
    LayerFamily {
        first: 2,
        next: |count| 2 * count,
        most: 512,
        percents: 10,
    },
    LayerFamily {
        first: 16,
        next: |count| count + 16,
        most: 200,
        percents: 6,
    },
    LayerFamily {
        first: 2,
        next: |count| count + 2,
        most: 200,
        percents: 6,
    },
    LayerFamily {
        first: 5,
        next: |count| count + 5,
        most: 200,
        percents: 6,
    },
    LayerFamily {
        first: 1,
        next: |count| count + 1,
        most: 199,
        percents: 10,
    },
];

/// The model of a size, or None beyond the tables or where no count of layers comes within a tenth.
pub(crate) fn model_of(kind: SizedKind, size: f64) -> Option<Sized> {
    let billions = size / 1e9;
    let mut rows = kind.table().iter();
    let row = rows.find(|row| billions < row.below && billions > 0.0)?;
    let shape = |layers| kind.shape(row, layers);
    let layers = LAYERS.iter().find_map(|family| {
        // percents of the size, the smallest margin first
        (1..=family.percents).find_map(|percent| {
            let margin = 0.01 * f64::from(percent);
            let is_near = |layers: &usize| {
                (kind.parameters(&shape(*layers)) as f64 / size - 1.0).abs() < margin
            };
            family.counts().find(is_near)
        })
    })?;
    let shape = shape(layers);
    Some(Sized {
        lr: row.lr,
        init_std: kind.init_std(row.width),
        warmup: kind.warmup(),
        parameters: kind.parameters(&shape),
        shape,
        global_batch: kind.global_batch(billions),
    })
}

/// Tokens that use a budget of computation best: 20 per parameter.
fn chinchilla_tokens(parameters: f64) -> f64 {
    20.0 * parameters
}

/// `5B`, `350M`, `1.3e9`.
pub(crate) fn parse_count(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.chars().last() {
        Some('T' | 't') => (&text[..text.len() - 1], 1e12),
        Some('B' | 'b') => (&text[..text.len() - 1], 1e9),
        Some('M' | 'm') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no count such as 5B or 350M"))?;
    match number.is_finite() && number > 0.0 {
        true => Ok(number * unit),
        false => Err(format!("{text:?} is no positive count")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_shapes_of_the_launcher_s_recipes() {
        // its own, and by its auto-configurator's rule 6.7B (32 layers of 4096 are 6.66e9), 8B (24 layers of 5120, which no power of two and
        // no multiple of 16 is as near as) and 43B (52 layers of 8192, a multiple of 2 in 2%, before the 50 that are one of 5)
        let rows = [
            (126e6, 12, 768, 12),
            (5e9, 24, 4096, 32),
            (6.7e9, 32, 4096, 32),
            (8e9, 24, 5120, 40),
            (20e9, 44, 6144, 48),
            (40e9, 48, 8192, 64),
            (43e9, 52, 8192, 64),
            (175e9, 96, 12_288, 96),
        ];
        for (size, layers, hidden, heads) in rows {
            let found = model_of(SizedKind::Gpt, size).unwrap().shape;
            assert_eq!(
                (found.layers, found.width, found.heads),
                (layers, hidden, heads),
                "{size}"
            );
        }
        assert_eq!(model_of(SizedKind::Gpt, 2e12), None);
    }

    /// NeMo's formula as its program writes it, in floating point.
    #[test]
    fn parameters_are_those_of_the_formula() {
        for size in [126e6, 5e9, 20e9, 175e9, 1e12] {
            let of = model_of(SizedKind::Gpt, size).unwrap();
            let (l, h) = (of.shape.layers as f64, of.shape.width as f64);
            let tables = (51_200.0 + 2048.0) / (12.0 * l * h);
            let wanted = 12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + tables);
            assert!(
                (of.parameters as f64 / wanted - 1.0).abs() < 1e-12,
                "{size}"
            );
        }
    }

    /// T5 1.1 small, base, large and XXL, mT5 small and base, and BERT base and large as their papers have them; 3B of T5 and 4B of BERT as the
    /// launcher's recipes do.
    #[test]
    fn other_kinds_have_the_published_shapes() {
        use SizedKind::{Bert, Mt5, T5};
        let rows = [
            (T5, 60e6, 8, 512, 6, 1024, 2048),
            (T5, 220e6, 12, 768, 12, 2048, 2048),
            (T5, 770e6, 24, 1024, 16, 2816, 2048),
            (T5, 2.8e9, 24, 2048, 32, 5120, 1920),
            (T5, 11e9, 24, 4096, 64, 10_240, 1920),
            (Mt5, 170e6, 8, 512, 6, 1024, 2048),
            (Mt5, 390e6, 12, 768, 12, 2048, 2048),
            (Bert, 110e6, 12, 768, 12, 3072, 256),
            (Bert, 340e6, 24, 1024, 16, 4096, 256),
            (Bert, 4e9, 48, 2560, 32, 10_240, 2048),
        ];
        for (kind, size, layers, width, heads, ffn, batch) in rows {
            let of = model_of(kind, size).unwrap();
            let shape = &of.shape;
            assert_eq!(
                [
                    shape.layers,
                    shape.width,
                    shape.heads,
                    shape.ffn,
                    of.global_batch
                ],
                [layers, width, heads, ffn, batch],
                "{kind:?} {size}"
            );
            let decoder = shape.decoder.map(|decoder| decoder.layers);
            assert_eq!(decoder, (kind != Bert).then_some(layers));
            assert!((of.parameters as f64 / size - 1.0).abs() < 0.1);
        }
        // the bound of a row is its own or the next one's
        assert_eq!(model_of(Bert, 25e9).map(|of| of.shape.width), Some(6144));
        assert_eq!(model_of(T5, 15e9).map(|of| of.shape.width), Some(5120));
        assert_eq!(model_of(T5, 44e9), None);
        assert_eq!(model_of(Bert, 300e9), None);
    }

    /// The formulas as NeMo writes them, in floating point.
    #[test]
    fn parameters_of_other_kinds_are_those_of_the_formulas() {
        for (kind, vocab) in [(SizedKind::T5, 29_000.0), (SizedKind::Mt5, 250_000.0)] {
            let of = model_of(kind, 3e9).unwrap();
            let (l, h, f) = (of.shape.layers as f64, 2048.0, 1.5 * 5120.0);
            let p = 32.0 * 64.0;
            let inner = 2.0 + 4.0 * l * f + l * (21.0 + 12.0 * p) + 512.0 + vocab;
            assert_eq!(of.parameters as f64, 2.0 * l * f + 3.0 * l * p + h * inner);
        }
        let of = model_of(SizedKind::Bert, 110e6).unwrap();
        let (l, h, f) = (12.0, 768.0, 3072.0);
        let of_layer = f + h * (4.0 * h + 36.0 + 2.0 * f + 6.0);
        let wanted = l * of_layer + h * (30_522.0 + 512.0 + h + 5.0);
        assert_eq!(of.parameters as f64, wanted);
    }

    #[test]
    fn counts_have_units() {
        assert_eq!(parse_count("5B"), Ok(5e9));
        assert_eq!(parse_count("350M"), Ok(350e6));
        assert!(
            parse_count("NaN").is_err()
                && parse_count("-1B").is_err()
                && parse_count("B").is_err()
                && parse_count("é").is_err()
        );
    }

    #[test]
    fn tokens_of_chinchilla() {
        // the 70B model of arXiv:2203.15556 saw 1.4 T tokens
        assert!((chinchilla_tokens(70e9) - 1.4e12).abs() < 1.0);
    }
}

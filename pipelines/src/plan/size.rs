//! Shapes of models from a parameter count: the tables of NeMo's auto-configurator (`autoconfig/utils.py`), and tokens by
//! Hoffmann et al. 2022 (arXiv:2203.15556).

use crate::plan::shape::Shape;

/// A size with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sized {
    /// The shape.
    pub shape: Shape,
    /// Learning rate.
    pub lr: f64,
    /// Standard deviation of initial weights.
    pub init_std: f64,
    /// Parameters by NeMo's formula.
    pub parameters: usize,
    /// Sequences per step.
    pub global_batch: usize,
}

/// Billions below a bound: hidden width, heads, learning rate.
const WIDTHS: [(f64, usize, usize, f64); 15] = [
    (0.25, 768, 12, 6e-4),
    (0.5, 1024, 16, 3e-4),
    (1.0, 1536, 16, 2.5e-4),
    (2.0, 2048, 16, 2e-4),
    (3.0, 2560, 32, 1.6e-4),
    (4.5, 3072, 32, 1.4e-4),
    (8.0, 4096, 32, 1.2e-4),
    (15.0, 5120, 40, 1e-4),
    (25.0, 6144, 48, 1e-4),
    (52.0, 8192, 64, 0.8e-4),
    (105.0, 10_240, 80, 0.7e-4),
    (205.0, 12_288, 96, 0.6e-4),
    (405.0, 20_480, 128, 0.5e-4),
    (805.0, 20_480, 128, 0.4e-4),
    (1105.0, 25_600, 160, 0.3e-4),
];

/// 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)), multiplied out: every term is a whole number.
fn parameters(shape: &Shape) -> usize {
    let (layers, width) = (shape.layers, shape.width);
    let tables = shape.vocab + shape.seq_length;
    width * (layers * (12 * width + 13) + tables)
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

/// The model of a size, or None beyond the tables (1,105 billion) or where no count of layers comes within a tenth.
pub(crate) fn model_of(size: f64) -> Option<Sized> {
    let billions = size / 1e9;
    let row = WIDTHS
        .iter()
        .find(|row| billions < row.0 && billions > 0.0)?;
    let &(_, hidden, heads, lr) = row;
    let shape = |layers| Shape::gpt(layers, hidden, heads);
    let layers = LAYERS.iter().find_map(|family| {
        // percents of the size, the smallest margin first
        (1..=family.percents).find_map(|percent| {
            let margin = 0.01 * f64::from(percent);
            let is_near =
                |layers: &usize| (parameters(&shape(*layers)) as f64 / size - 1.0).abs() < margin;
            family.counts().find(is_near)
        })
    })?;
    let shape = shape(layers);
    let global_batch = match billions {
        ..=1.0 => 256,
        ..=4.0 => 1024,
        _ => 2048,
    };
    Some(Sized {
        lr,
        init_std: 0.64 / (hidden as f64).sqrt(),
        parameters: parameters(&shape),
        shape,
        global_batch,
    })
}

/// Tokens that use a budget of computation best: 20 per parameter.
pub(crate) fn chinchilla_tokens(parameters: f64) -> f64 {
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
            let found = model_of(size).unwrap().shape;
            assert_eq!(
                (found.layers, found.width, found.heads),
                (layers, hidden, heads),
                "{size}"
            );
        }
        assert_eq!(model_of(2e12), None);
    }

    /// NeMo's formula as its program writes it, in floating point.
    #[test]
    fn parameters_are_those_of_the_formula() {
        for size in [126e6, 5e9, 20e9, 175e9, 1e12] {
            let of = model_of(size).unwrap();
            let (l, h) = (of.shape.layers as f64, of.shape.width as f64);
            let tables = (51_200.0 + 2048.0) / (12.0 * l * h);
            let wanted = 12.0 * l * h * h * (1.0 + 13.0 / (12.0 * h) + tables);
            assert!(
                (of.parameters as f64 / wanted - 1.0).abs() < 1e-12,
                "{size}"
            );
        }
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

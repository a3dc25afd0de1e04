//! The built-in model: rows of the hashed table, and for each script a linear layer over its languages.
//!
//! h = sum of the rows of a script's features / (their number + 1); p = softmax(W h + b) over the
//! languages written in that script. Rows are signed bytes with one scale, so sums are exact integers
//! and do not depend on the order. Scripts of one language need no layer.
//!
//! File, little-endian: `MLRLANG1`, bits (u32), classes (u32), scale (f32), then per class script (u32)
//! and code (8 bytes, zero-padded), all W (f32, classes x 32), all b (f32), rows (i8, 2^bits x 32).

use std::path::Path;

use super::features::{MOST_FEATURES, Sink, walk};
use super::languages::known;
use super::script::{COUNT, Script};
use crate::error::{Result, damaged};

/// Width of a row of the table.
pub(super) const DIM: usize = 32;
const MAGIC: &[u8] = b"MLRLANG1";
/// Smallest and largest table.
const BITS: std::ops::RangeInclusive<u32> = 8..=20;

// sums of a word are kept in 16 bits
const _: () = assert!(MOST_FEATURES as i32 * 128 <= i16::MAX as i32);

/// Languages of one script.
pub(super) struct Layer {
    pub(super) script: Script,
    pub(super) codes: Vec<&'static str>,
    pub(super) weights: Vec<[f32; DIM]>,
    pub(super) bias: Vec<f32>,
}

pub(super) struct Model {
    pub(super) bits: u32,
    pub(super) scale: f32,
    pub(super) layers: Vec<Layer>,
    pub(super) rows: Vec<[i8; DIM]>,
    /// Layer of each script.
    by_script: [Option<usize>; COUNT],
}

/// Sums of one text.
#[derive(Default)]
pub(super) struct Sums {
    /// Letters by script.
    pub(super) letters: Vec<u32>,
    features: Vec<u32>,
    hidden: Vec<[i32; DIM]>,
}

/// Reads fixed-size pieces off the front.
struct Front<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Front<'a> {
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        let Some((piece, rest)) = self.bytes.split_at_checked(n) else {
            let found = format!("{} bytes left", self.bytes.len());
            return Err(damaged(self.path, self.offset, found, what));
        };
        self.bytes = rest;
        self.offset += n as u64;
        Ok(piece)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        let b = self.take(4, what)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn f32(&mut self, what: &str) -> Result<f32> {
        let x = f32::from_bits(self.u32(what)?);
        if x.is_finite() {
            return Ok(x);
        }
        let found = x.to_string();
        Err(damaged(
            self.path,
            self.offset - 4,
            found,
            "a finite number",
        ))
    }

    fn wrong<T>(&self, found: impl Into<String>, wanted: &str) -> Result<T> {
        Err(damaged(self.path, self.offset, found, wanted))
    }
}

impl Model {
    pub(super) fn new(bits: u32, scale: f32, layers: Vec<Layer>, rows: Vec<[i8; DIM]>) -> Model {
        let mut by_script = [None; COUNT];
        for (i, layer) in layers.iter().enumerate() {
            by_script[layer.script as usize] = Some(i);
        }
        Model {
            bits,
            scale,
            layers,
            rows,
            by_script,
        }
    }

    /// Reads a model; `path` is for messages.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Model> {
        let mut front = Front {
            path,
            bytes,
            offset: 0,
        };
        if front.take(8, "magic number")? != MAGIC {
            return front.wrong("another magic number", "MLRLANG1");
        }
        let bits = front.u32("bits")?;
        if !BITS.contains(&bits) {
            return front.wrong(bits.to_string(), "8 to 20 bits");
        }
        let classes = front.u32("classes")?;
        let scale = front.f32("scale")?;
        let mut layers: Vec<Layer> = Vec::new();
        let mut of_class = Vec::new();
        for _ in 0..classes {
            let number = front.u32("script of a class")?;
            let Some(&script) = Script::ALL.get(number as usize) else {
                return front.wrong(number.to_string(), "the number of a script");
            };
            let code = front.take(8, "code of a class")?;
            let code = String::from_utf8_lossy(code);
            let Some(code) = known(code.trim_end_matches('\0')) else {
                return front.wrong(code, "the code of a known language");
            };
            if layers.last().is_none_or(|l| l.script != script) {
                if layers.iter().any(|l| l.script == script) {
                    return front.wrong(script.code(), "classes of one script together");
                }
                layers.push(Layer {
                    script,
                    codes: Vec::new(),
                    weights: Vec::new(),
                    bias: Vec::new(),
                });
            }
            of_class.push(layers.len() - 1);
            if let Some(layer) = layers.last_mut() {
                layer.codes.push(code);
            }
        }
        for &layer in &of_class {
            let mut row = [0.0; DIM];
            for x in &mut row {
                *x = front.f32("a weight")?;
            }
            layers[layer].weights.push(row);
        }
        for &layer in &of_class {
            let bias = front.f32("a bias")?;
            layers[layer].bias.push(bias);
        }
        let packed = front.take(DIM << bits, "rows of the table")?;
        if !front.bytes.is_empty() {
            return front.wrong(format!("{} more bytes", front.bytes.len()), "the end");
        }
        let row = |bytes: &[u8]| std::array::from_fn(|i| bytes[i].cast_signed());
        let rows = packed.chunks_exact(DIM).map(row).collect();
        Ok(Model::new(bits, scale, layers, rows))
    }

    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let classes: usize = self.layers.iter().map(|l| l.codes.len()).sum();
        out.extend(self.bits.to_le_bytes());
        out.extend(u32::try_from(classes).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.scale.to_le_bytes());
        for layer in &self.layers {
            for code in &layer.codes {
                out.extend((layer.script as u32).to_le_bytes());
                let mut name = [0; 8];
                for (to, from) in name.iter_mut().zip(code.bytes()) {
                    *to = from;
                }
                out.extend(name);
            }
        }
        for layer in &self.layers {
            for x in layer.weights.iter().flatten() {
                out.extend(x.to_le_bytes());
            }
        }
        for layer in &self.layers {
            for x in &layer.bias {
                out.extend(x.to_le_bytes());
            }
        }
        for row in &self.rows {
            out.extend(row.map(i8::cast_unsigned));
        }
        out
    }

    /// Makes `sums` those of an empty text.
    pub(super) fn reset(&self, sums: &mut Sums) {
        sums.letters.clear();
        sums.letters.resize(COUNT, 0);
        sums.features.clear();
        sums.features.resize(self.layers.len(), 0);
        sums.hidden.clear();
        sums.hidden.resize(self.layers.len(), [0; DIM]);
    }

    /// Adds a text to `sums`.
    pub(super) fn add(&self, text: &str, sums: &mut Sums) {
        let mut adder = Adder {
            model: self,
            sums,
            rows: [0; MOST_FEATURES as usize],
            features: 0,
        };
        walk(text, self.bits, &mut adder);
    }

    /// The most probable language of `script` and its probability; `p` is a buffer.
    pub(super) fn best(
        &self,
        sums: &Sums,
        script: Script,
        p: &mut Vec<f32>,
    ) -> Option<(&'static str, f32)> {
        let at = self.by_script[script as usize]?;
        let layer = &self.layers[at];
        let scale = self.scale / (sums.features[at] as f32 + 1.0);
        let hidden = sums.hidden[at].map(|x| x as f32 * scale);
        softmax(&hidden, &layer.weights, &layer.bias, p);
        let best = (0..p.len()).max_by(|&a, &b| p[a].total_cmp(&p[b]))?;
        Some((layer.codes[best], p[best]))
    }
}

/// softmax(W h + b).
pub(super) fn softmax(h: &[f32; DIM], w: &[[f32; DIM]], b: &[f32], into: &mut Vec<f32>) {
    into.clear();
    into.extend(w.iter().zip(b).map(|(row, bias)| {
        // eight partial sums: a fixed order that compiles to vector products
        let mut parts = [0.0f32; 8];
        for (a, x) in row.chunks_exact(8).zip(h.chunks_exact(8)) {
            for i in 0..8 {
                parts[i] += a[i] * x[i];
            }
        }
        bias + parts.iter().sum::<f32>()
    }));
    let max = into.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0.0;
    for x in into.iter_mut() {
        // terms below 1e-7 of the largest are ignored
        *x = if *x - max > -16.0 {
            (*x - max).exp()
        } else {
            0.0
        };
        sum += *x;
    }
    into.iter_mut().for_each(|x| *x /= sum);
}

struct Adder<'a> {
    model: &'a Model,
    sums: &'a mut Sums,
    /// Row numbers of the current word. They are summed at its end, in registers.
    rows: [u32; MOST_FEATURES as usize],
    features: usize,
}

impl Sink for Adder<'_> {
    #[inline]
    fn feature(&mut self, row: u32) {
        self.rows[self.features] = row;
        self.features += 1;
    }

    #[inline]
    fn word(&mut self, script: Script, letters: u32) {
        self.sums.letters[script as usize] += letters;
        let features = std::mem::take(&mut self.features);
        let Some(at) = self.model.by_script[script as usize] else {
            return;
        };
        let mut word = [0i16; DIM];
        for &row in &self.rows[..features] {
            let row: [i8; DIM] = self.model.rows[row as usize];
            for i in 0..DIM {
                word[i] += i16::from(row[i]);
            }
        }
        self.sums.features[at] += u32::try_from(features).unwrap_or(0);
        for (sum, x) in self.sums.hidden[at].iter_mut().zip(word) {
            *sum += i32::from(x);
        }
    }
}

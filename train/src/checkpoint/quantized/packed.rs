//! Linear layers whose weights are whole numbers of 4 or 8 bits in 32-bit words, with scales and zero points by groups of inputs:
//! w = (q - z) s.
//!
//! Layouts from compressed-tensors 0.20 (`compressors/pack_quantized`), AutoGPTQ 0.7.1 (`nn_modules/qlinear/qlinear_cuda.py`) and
//! AutoAWQ 0.2.9 (`awq/modules/linear/gemm.py`). We differ: products are in f32, where these programs round them to the
//! format of the scales.

use crate::checkpoint::quantized::scheme::{Layout, Packing};
use crate::checkpoint::safetensors::{Format, Reader};
use crate::error::Result;

/// Columns of eight numbers of AWQ in the order in which a word holds them.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Purpose of a tensor of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Words,
    Scales,
    Zeros,
    /// Group of each input.
    Order,
    /// `[out, in]`
    Shape,
}

/// A tensor of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    role: Role,
    pub name: String,
    pub dims: Vec<usize>,
    /// A layer may lack it.
    pub is_optional: bool,
}

/// A linear layer as it is stored.
#[derive(Debug, Default)]
pub(crate) struct PackedLayer {
    words: Vec<u32>,
    scales: Vec<f32>,
    zeros: Option<Vec<u32>>,
    order: Option<Vec<u32>>,
    shape: Option<Vec<i64>>,
}

impl PackedLayer {
    /// Reads one of its tensors, which is named `stored` in its file.
    pub(crate) fn read(&mut self, part: &Part, stored: &str, reader: &mut Reader) -> Result<()> {
        let mut words = || -> Result<Vec<u32>> {
            let bytes = reader.read_stored(stored, &part.dims, Format::I32)?;
            let words = bytes.as_chunks::<4>().0.iter();
            Ok(words.map(|word| u32::from_le_bytes(*word)).collect())
        };
        match part.role {
            Role::Words => self.words = words()?,
            Role::Zeros => self.zeros = Some(words()?),
            Role::Order => self.order = Some(words()?),
            Role::Scales => {
                self.scales = vec![0.0; part.dims.iter().product()];
                reader.read_part(stored, &part.dims, 0, &mut self.scales)?;
            }
            Role::Shape => {
                let bytes = reader.read_stored(stored, &part.dims, Format::I64)?;
                let numbers = bytes.as_chunks::<8>().0.iter();
                self.shape = Some(numbers.map(|number| i64::from_le_bytes(*number)).collect());
            }
        }
        Ok(())
    }
}

impl Packing {
    /// Name of the tensor with a layer's words.
    pub(crate) fn words(&self, base: &str) -> String {
        match self.layout {
            Layout::CompressedTensors => format!("{base}.weight_packed"),
            Layout::Gptq { .. } | Layout::Awq => format!("{base}.qweight"),
        }
    }

    /// Tensors of a layer of these dims, `[out, in]`; `base` is its name.
    ///
    /// # Errors
    /// Dims that no words or groups fit.
    pub(crate) fn parts(&self, base: &str, dims: [usize; 2]) -> Result<Vec<Part>, String> {
        let [out, inputs] = dims;
        let per_word = 32 / self.bits;
        let group = self.group.unwrap_or(inputs).max(1);
        let (groups, words) = (inputs.div_ceil(group), |count: usize| {
            count.div_ceil(per_word)
        });
        let part = |role, name: &str, dims: &[usize]| Part {
            role,
            name: format!("{base}.{name}"),
            dims: dims.to_vec(),
            is_optional: false,
        };
        let whole = |what: &str, found: usize, unit: usize| match found.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(format!(
                "{base}: found {found} {what}, want a multiple of {unit}"
            )),
        };
        Ok(match self.layout {
            Layout::CompressedTensors => {
                whole("inputs", inputs, group)?;
                let mut parts = vec![
                    part(Role::Words, "weight_packed", &[out, words(inputs)]),
                    part(Role::Scales, "weight_scale", &[out, groups]),
                    part(Role::Shape, "weight_shape", &[2]),
                ];
                if self.has_zeros {
                    let dims = [words(out), groups];
                    parts.push(part(Role::Zeros, "weight_zero_point", &dims));
                }
                if self.has_order {
                    parts.push(part(Role::Order, "weight_g_idx", &[inputs]));
                }
                parts
            }
            Layout::Gptq { .. } => {
                whole("inputs", inputs, per_word)?;
                whole("outputs", out, per_word)?;
                let mut order = part(Role::Order, "g_idx", &[inputs]);
                order.is_optional = !self.has_order;
                vec![
                    part(Role::Words, "qweight", &[words(inputs), out]),
                    part(Role::Scales, "scales", &[groups, out]),
                    part(Role::Zeros, "qzeros", &[groups, words(out)]),
                    order,
                ]
            }
            Layout::Awq => {
                whole("inputs", inputs, group)?;
                whole("outputs", out, per_word)?;
                vec![
                    part(Role::Words, "qweight", &[inputs, words(out)]),
                    part(Role::Scales, "scales", &[groups, out]),
                    part(Role::Zeros, "qzeros", &[groups, words(out)]),
                ]
            }
        })
    }

    /// The weights `[out, in]` of a layer whose parts were read with the dims that `parts` told.
    ///
    /// # Errors
    /// A shape that is not these dims; a group that is not there.
    pub(crate) fn weights(
        &self,
        layer: &PackedLayer,
        dims: [usize; 2],
    ) -> Result<Vec<f32>, String> {
        let [out, inputs] = dims;
        if let Some(shape) = &layer.shape
            && *shape != dims.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX))
        {
            return Err(format!("weight_shape: found {shape:?}, want {dims:?}"));
        }
        let group = self.group.unwrap_or(inputs).max(1);
        let groups = inputs.div_ceil(group);
        let wrong = |at: usize, found: u32| {
            format!("group of input {at}: found {found}, want less than {groups}")
        };
        let group_of: Vec<usize> = match &layer.order {
            None => (0..inputs).map(|input| input / group).collect(),
            Some(order) => {
                let numbers = order.iter().enumerate().map(|(at, &number)| {
                    let found = usize::try_from(number).ok().filter(|found| *found < groups);
                    found.ok_or_else(|| wrong(at, number))
                });
                numbers.collect::<Result<_, String>>()?
            }
        };
        let per_word = 32 / self.bits;
        let mask = u32::MAX >> (32 - self.bits);
        let field = |word: u32, at: usize| word >> (self.bits * at) & mask;
        let zeros = layer.zeros.as_deref().unwrap_or_default();
        let mut weights = Vec::with_capacity(out * inputs);
        let words_of = |count: usize| count.div_ceil(per_word);
        for output in 0..out {
            let (word, at) = (output / per_word, output % per_word);
            // where AWQ holds this output
            let slot = AWQ_ORDER
                .iter()
                .position(|&column| column == at)
                .unwrap_or(at);
            for (input, &group) in group_of.iter().enumerate() {
                let (code, zero, scale) = match self.layout {
                    Layout::CompressedTensors => {
                        let own = layer.words[output * words_of(inputs) + input / per_word];
                        let middle = 1 << (self.bits - 1);
                        let zero = match self.has_zeros {
                            true => field(zeros[word * groups + group], at),
                            false => middle,
                        };
                        (
                            field(own, input % per_word),
                            zero,
                            layer.scales[output * groups + group],
                        )
                    }
                    Layout::Gptq { zero_less } => {
                        let own = layer.words[input / per_word * out + output];
                        let zero =
                            (field(zeros[group * words_of(out) + word], at) + zero_less) & mask;
                        (
                            field(own, input % per_word),
                            zero,
                            layer.scales[group * out + output],
                        )
                    }
                    Layout::Awq => {
                        let own = layer.words[input * words_of(out) + word];
                        let zero = field(zeros[group * words_of(out) + word], slot);
                        (field(own, slot), zero, layer.scales[group * out + output])
                    }
                };
                // both are at most 8 bits
                #[expect(clippy::cast_precision_loss, reason = "at most 255")]
                weights.push((code.cast_signed() - zero.cast_signed()) as f32 * scale);
            }
        }
        Ok(weights)
    }
}

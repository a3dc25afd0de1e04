//! `quantization_config` of a `config.json` (or GPTQ's `quantize_config.json` beside it): how stored weights become numbers.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// How the weights of linear layers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `weight` times `weight_scale`: one for each row, or one.
    Rows,
    /// `weight` times the scales of its blocks, of this height and width.
    Blocks {
        block: [usize; 2],
        /// The scales' name follows the weight's.
        suffix: &'static str,
    },
    /// Whole numbers of a few bits in words.
    Packed(Packing),
    /// Blocks of four-bit numbers with a scale each, of stacked experts alone (gpt-oss).
    Mxfp4,
}

/// How whole numbers are packed into words, and which tensors are beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub layout: Layout,
    /// 4 or 8.
    pub bits: usize,
    /// Inputs of a scale; `None`: all.
    pub group: Option<usize>,
    /// compressed-tensors: whether there are zero points.
    pub has_zeros: bool,
    /// Whether a tensor says which group an input belongs to.
    pub has_order: bool,
}

/// Order of numbers in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// compressed-tensors: along the inputs.
    CompressedTensors,
    /// AutoGPTQ: along the inputs, words `[in / n, out]`. Files of its first form store zero points less 1.
    Gptq { zero_less: u32 },
    /// AWQ for its product `gemm`: along the outputs, eight in the order 0 2 4 6 1 3 5 7.
    Awq,
}

impl Scheme {
    /// Formats of numbers that such files have.
    pub(crate) fn formats(self) -> &'static [&'static str] {
        match self {
            Scheme::Rows | Scheme::Blocks { .. } => &["F32", "F16", "BF16", "F8_E4M3", "I8"],
            Scheme::Packed(_) => &["F32", "F16", "BF16", "I32", "I64"],
            Scheme::Mxfp4 => &["F32", "F16", "BF16", "U8"],
        }
    }

    /// Most weights that an element of a file can hold.
    pub(crate) fn weights_per_element(self) -> usize {
        match self {
            Scheme::Rows | Scheme::Blocks { .. } => 1,
            Scheme::Packed(packing) => 32 / packing.bits,
            Scheme::Mxfp4 => 2,
        }
    }
}

/// Collects settings that are not read.
struct Expect<'a> {
    table: &'a Value,
    problems: Vec<String>,
}

impl Expect<'_> {
    fn at(&self, pointer: &str) -> &Value {
        self.table.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn expect(&mut self, pointer: &str, wanted: &[Value]) {
        let value = self.at(pointer);
        if !wanted.contains(value) {
            let wanted: Vec<String> = wanted.iter().map(Value::to_string).collect();
            let wanted = wanted.join(" or ");
            self.refuse(pointer, &wanted);
        }
    }

    fn refuse(&mut self, pointer: &str, wanted: &str) {
        let (key, value) = (
            pointer.trim_start_matches('/').replace('/', "."),
            self.at(pointer),
        );
        let line = format!("quantization_config.{key}: found {value}, want {wanted}");
        self.problems.push(line);
    }

    fn count(&mut self, pointer: &str, wanted: &str) -> usize {
        let found = self.at(pointer).as_u64().filter(|count| *count > 0);
        match found.and_then(|count| usize::try_from(count).ok()) {
            Some(count) => count,
            None => {
                self.refuse(pointer, wanted);
                1
            }
        }
    }

    /// A group's size; -1 or, with compressed-tensors, nothing: the whole row.
    fn group(&mut self, pointer: &str) -> Option<usize> {
        match self.at(pointer) {
            Value::Null => None,
            value if value.as_i64() == Some(-1) => None,
            _ => Some(self.count(pointer, "a count or -1")),
        }
    }

    /// 4 or 8 bits.
    fn bits(&mut self, pointer: &str) -> usize {
        self.expect(pointer, &[json!(4), json!(8)]);
        match self.at(pointer).as_u64() {
            Some(8) => 8,
            _ => 4,
        }
    }

    fn block(&mut self, pointer: &str) -> [usize; 2] {
        let sides = [format!("{pointer}/0"), format!("{pointer}/1")];
        sides.map(|side| self.count(&side, "a count: [rows, columns]"))
    }

    fn compressed_tensors(&mut self) -> Scheme {
        let formats = [
            "float-quantized",
            "int-quantized",
            "naive-quantized",
            "pack-quantized",
        ];
        self.expect("/format", &formats.map(|name| json!(name)));
        let is_packed = self.at("/format") == "pack-quantized";
        let groups = self.table["config_groups"].as_object();
        let names: Vec<&String> = groups
            .into_iter()
            .flat_map(|groups| groups.keys())
            .collect();
        let mut schemes = Vec::new();
        for name in names {
            let at = format!("/config_groups/{name}/weights");
            let of = |key: &str| format!("{at}/{key}");
            if is_packed {
                self.expect(&of("type"), &[json!("int")]);
                self.expect(&of("strategy"), &[json!("group"), json!("channel")]);
                self.expect(&of("symmetric"), &[json!(true), json!(false)]);
                // `weight`: scales of the inputs as they are stored; `group`: a tensor says which
                let orders = ["weight", "static", "group", "dynamic"].map(|order| json!(order));
                self.expect(
                    &of("actorder"),
                    &[&[Value::Null, json!(false)], &orders[..]].concat(),
                );
                schemes.push(Scheme::Packed(Packing {
                    layout: Layout::CompressedTensors,
                    bits: self.bits(&of("num_bits")),
                    group: match self.at(&of("strategy")).as_str() {
                        Some("group") => self.group(&of("group_size")),
                        _ => None,
                    },
                    has_zeros: self.at(&of("symmetric")) == false,
                    has_order: ["group", "dynamic"]
                        .contains(&self.at(&of("actorder")).as_str().unwrap_or("")),
                }));
                continue;
            }
            self.expect(&of("num_bits"), &[json!(8)]);
            self.expect(&of("type"), &[json!("float"), json!("int")]);
            self.expect(&of("symmetric"), &[json!(true)]);
            let strategies = ["channel", "tensor", "block"].map(|name| json!(name));
            self.expect(&of("strategy"), &strategies);
            schemes.push(match self.at(&of("strategy")) == "block" {
                false => Scheme::Rows,
                true => Scheme::Blocks {
                    block: self.block(&of("block_structure")),
                    suffix: "_scale",
                },
            });
        }
        let first = schemes.first().copied();
        if schemes.iter().any(|scheme| Some(*scheme) != first) {
            self.refuse("/config_groups", "one kind of weights");
        }
        match first {
            Some(scheme) => scheme,
            None => {
                self.refuse("/config_groups", "a table with a group");
                Scheme::Rows
            }
        }
    }

    fn fp8(&mut self) -> Scheme {
        if self.at("/weight_block_size").is_null() {
            return Scheme::Rows;
        }
        Scheme::Blocks {
            block: self.block("/weight_block_size"),
            suffix: "_scale_inv",
        }
    }

    fn gptq(&mut self) -> Scheme {
        let forms = ["gptq", "gptq_v2"].map(|name| json!(name));
        self.expect("/checkpoint_format", &[&[Value::Null], &forms[..]].concat());
        self.expect("/pack_dtype", &[Value::Null, json!("int32")]);
        let zero_less = u32::from(self.at("/checkpoint_format") != "gptq_v2");
        Scheme::Packed(Packing {
            layout: Layout::Gptq { zero_less },
            bits: self.bits("/bits"),
            group: self.group("/group_size"),
            has_zeros: true,
            has_order: self.at("/desc_act") == true,
        })
    }

    fn awq(&mut self) -> Scheme {
        // AutoAWQ's own file has other names
        let [bits, group] = [("/bits", "/w_bit"), ("/group_size", "/q_group_size")]
            .map(|(name, other)| if self.at(name).is_null() { other } else { name });
        self.expect("/version", &[json!("gemm"), json!("GEMM")]);
        self.expect("/zero_point", &[json!(true)]);
        self.expect(bits, &[json!(4)]);
        Scheme::Packed(Packing {
            layout: Layout::Awq,
            bits: 4,
            group: self.group(group),
            has_zeros: true,
            has_order: false,
        })
    }
}

/// Takes `quantization_config` out of the `config.json` of a folder; `None` if neither is there nor a `quantize_config.json`.
///
/// # Errors
/// A line for every setting that is not read.
pub(crate) fn take(config: &mut Value, folder: &Path) -> Result<Option<Scheme>, Vec<String>> {
    let found = config
        .as_object_mut()
        .and_then(|table| table.shift_remove("quantization_config"));
    let found = match found {
        Some(found) => found,
        None => match beside(folder)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let mut expect = Expect {
        table: &found,
        problems: Vec::new(),
    };
    let scheme = match found["quant_method"].as_str() {
        Some("compressed-tensors") => expect.compressed_tensors(),
        Some("fp8") => expect.fp8(),
        Some("gptq") => expect.gptq(),
        Some("awq") => expect.awq(),
        Some("mxfp4") => Scheme::Mxfp4,
        _ => {
            let names =
                ["compressed-tensors", "fp8", "gptq", "awq", "mxfp4"].map(|name| json!(name));
            expect.expect("/quant_method", &names);
            Scheme::Rows
        }
    };
    match expect.problems {
        problems if problems.is_empty() => Ok(Some(scheme)),
        problems => Err(problems),
    }
}

/// The settings of files that were made before they were put into `config.json`: GPTQ's, which may not name itself.
fn beside(folder: &Path) -> Result<Option<Value>, Vec<String>> {
    let Ok(text) = fs::read(folder.join("quantize_config.json")) else {
        return Ok(None);
    };
    let wrong = |found: String| vec![format!("quantize_config.json: {found}")];
    let mut found: Value =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let table = found.as_object_mut();
    let table = table.ok_or_else(|| wrong("found no table of settings, want one".into()))?;
    table.entry("quant_method").or_insert_with(|| json!("gptq"));
    Ok(Some(found))
}

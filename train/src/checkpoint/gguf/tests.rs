//! Round trips through a file of every type, and damaged files.

use std::fs;
use std::path::Path;

use crate::checkpoint::gguf::file::{Entry, Reader, Writer};
use crate::checkpoint::gguf::kind::Kind;
use crate::checkpoint::gguf::mix::{self, FileType};
use crate::checkpoint::gguf::value::{List, Metadata, Value};
use crate::error::Error;
use kernels::quant::BlockType;

fn sample(path: &Path) {
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", "llama");
    metadata.set("a.number", 7_usize);
    metadata.set("a.real", 0.5_f32);
    metadata.set("a.flag", Value::Bool(true));
    let texts = ["one".to_owned(), "zwei".to_owned()];
    metadata.set("a.texts", Value::List(List::Texts(texts.into())));
    metadata.set("numbers", Value::List(List::Whole(vec![1, -2, 3])));
    metadata.set("reals", Value::List(List::Reals(vec![0.25, -1.0])));
    let entries = [
        Entry {
            name: "first".into(),
            dims: vec![2, 3],
            kind: Kind::F32,
        },
        Entry {
            name: "second".into(),
            dims: vec![2, 32],
            kind: Kind::Block(BlockType::Q8_0),
        },
    ];
    let mut writer = Writer::create(path, &metadata, &entries).unwrap();
    writer
        .write(&Kind::F32.encode(&[1.0, 2.0, 3.0], 3))
        .unwrap();
    writer
        .write(&Kind::F32.encode(&[4.0, 5.0, 6.0], 3))
        .unwrap();
    let second = Kind::Block(BlockType::Q8_0).encode(&[0.5; 64], 32);
    writer.write(&second).unwrap();
    writer.finish().unwrap();
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    sample(&path);
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.metadata.whole("a.number"), Some(7));
    assert_eq!(reader.metadata.real("a.real"), Some(0.5));
    assert_eq!(reader.metadata.text("general.architecture"), Some("llama"));
    let numbers = Value::List(List::Whole(vec![1, -2, 3]));
    assert_eq!(reader.metadata.get("numbers"), Some(&numbers));
    assert_eq!(
        reader.read("first").unwrap(),
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    let second = reader.read("second").unwrap();
    assert!(second.iter().all(|x| (x - 0.5).abs() < 1e-3), "{second:?}");
}

/// Cut anywhere, or with any byte of the head changed, a file is refused or read; nothing panics or takes memory.
#[test]
fn damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    sample(&path);
    let whole = fs::read(&path).unwrap();
    // the padding after the last tensor's 68 bytes may be missing
    let data = whole.len() - (128 - 100);
    for length in (0..data).step_by(3) {
        fs::write(&path, &whole[..length]).unwrap();
        let found = Reader::open(&path).map(|_| ());
        assert!(matches!(found, Err(Error::Damaged { .. })), "{length}");
    }
    let mut refused = 0;
    for at in 0..whole.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            fs::write(&path, &bytes).unwrap();
            match Reader::open(&path) {
                Err(Error::Damaged { .. }) => refused += 1,
                Err(error) => panic!("{at} {byte}: {error}"),
                Ok(mut reader) => {
                    let names: Vec<String> =
                        reader.entries().map(|entry| entry.name.clone()).collect();
                    for name in names {
                        reader.read(&name).unwrap();
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn tensors_that_overlap_or_leave_a_gap_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    sample(&path);
    let mut bytes = fs::read(&path).unwrap();
    let name = bytes.windows(6).position(|window| window == b"second");
    // behind the name: a count of two dims, these, and the type
    let at = name.unwrap() + 6 + 4 + 2 * 8 + 4;
    assert_eq!(bytes[at..at + 8], 32u64.to_le_bytes());
    for offset in [0u64, 64] {
        bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let error = Reader::open(&path).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("at offset {offset}")), "{error}");
        assert!(
            error.contains("at offset 32, behind the tensor before"),
            "{error}"
        );
    }
}

/// `Q4_K_M` of llama.cpp for a model of 16 layers: which layers get more bits.
#[test]
fn values_and_down_projections_of_some_layers_have_more_bits() {
    let model = mix::Model {
        layers: 16,
        experts: 0,
        has_output: true,
    };
    let has_more = |layer: usize, name: &str| {
        let name = format!("blk.{layer}.{name}.weight");
        mix::choice(FileType::Q4_K_M, &name, &[512, 512], model).kind
            == Kind::Block(BlockType::Q6_K)
    };
    let found: Vec<usize> = (0..16).filter(|&layer| has_more(layer, "attn_v")).collect();
    assert_eq!(found, [0, 1, 4, 7, 10, 13, 14, 15]);
    assert!(has_more(0, "ffn_down") && !has_more(0, "ffn_up") && !has_more(2, "ffn_down"));
    let kind = |name: &str, cols| mix::choice(FileType::Q4_K_M, name, &[512, cols], model).kind;
    assert_eq!(kind("output.weight", 512), Kind::Block(BlockType::Q6_K));
    assert_eq!(kind("output.weight", 96), Kind::Block(BlockType::Q8_0));
    assert_eq!(
        kind("blk.2.ffn_up.weight", 96),
        Kind::Block(BlockType::Q5_0)
    );
    assert_eq!(kind("blk.2.ffn_up.weight", 100), Kind::F16);
    assert_eq!(kind("blk.2.ffn_norm.weight", 512), Kind::F32);
    let of_eight = |name: &str, dims: &[usize]| {
        let model = mix::Model {
            experts: 8,
            ..model
        };
        mix::choice(FileType::Q4_K_M, name, dims, model).kind
    };
    let [more, four, short] = [BlockType::Q5_K, BlockType::Q4_K, BlockType::Q5_0].map(Kind::Block);
    assert_eq!(of_eight("blk.2.attn_output.weight", &[512, 512]), more);
    // the rules for keys and values do not know those of latents
    assert_eq!(of_eight("blk.2.attn_v_b.weight", &[4, 64, 512]), four);
    assert_eq!(of_eight("blk.2.attn_k_b.weight", &[4, 512, 64]), short);
    assert_eq!(of_eight("blk.2.exp_probs_b.bias", &[8]), Kind::F32);
}

//! T5 parity with transformers, imported from a folder that transformers wrote: as first published (ReLU, tied and
//! scaled head) and as T5 1.1 and mT5 (gates, an untied head). The goldens are described in
//! tests/oracles/t5_goldens.py. Tolerances as in `parity`.

use std::error::Error as StdError;
use std::path::Path;

use kernels::{Device, Tensor};
use serde_json::{Value, json};

use crate::Error;
use crate::checkpoint::huggingface::outs::{Source, tensors};
use crate::checkpoint::import_hf;
use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::whole_model::Model;
use crate::config::{Activation, Determinism};
use crate::data::{Sample, Samples, SpanSample};
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::decoder_logits;
use crate::fixtures::nth_step;
use crate::model::param;
use crate::tests::hugging_face::{recipe, saved, write_config};
use crate::tests::parity::{Golden, by_tensor};
use crate::trainer::step::Trainer;

/// The samples of t5_goldens.py.
struct Formula;

fn token(sample: u64, at: u64) -> u32 {
    u32::try_from((sample * 7919 + at * at * 31 + at * 17) % 61).unwrap()
}

impl Formula {
    /// Fills a sample of any lengths.
    fn fill(index: u64, spans: &mut SpanSample) {
        let short = |length: usize, by: u64| length - usize::try_from(index % by).unwrap();
        spans.length = short(spans.tokens.len(), 5);
        for (at, id) in (0..).zip(&mut spans.tokens) {
            *id = token(index, at);
        }
        let counted = short(spans.targets.len(), 3);
        for at in 0..spans.targets.len() {
            spans.counts[at] = at < counted;
            spans.targets[at] = token(index + 500, at as u64);
            let shown = at > 0 && at <= counted;
            spans.decoder_tokens[at] = if shown { spans.targets[at - 1] } else { 0 };
        }
    }
}

impl Samples for Formula {
    fn len(&self) -> u64 {
        1000
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Formula::fill(index, sample.spans()?);
        Ok(())
    }
}

fn lengths(golden: &Golden) -> [usize; 2] {
    [0, 1].map(|at| usize::try_from(golden.record["lengths"][at].as_u64().unwrap()).unwrap())
}

/// Logits of the first batch, in tolerances.
fn logits_off(golden: &mut Golden, checkpoint: &Path) -> f64 {
    let [length, to] = lengths(golden);
    let mut found = Vec::new();
    for index in 0..4 {
        let mut spans = SpanSample {
            tokens: vec![0; length],
            length,
            decoder_tokens: vec![0; to],
            targets: vec![0; to],
            counts: vec![true; to],
        };
        Formula::fill(index, &mut spans);
        let tokens = &spans.tokens[..spans.length];
        let rows = decoder_logits(checkpoint, tokens, &spans.decoder_tokens).unwrap();
        for (row, counts) in rows.into_iter().zip(spans.counts) {
            found.extend(row.into_iter().map(|x| if counts { x } else { 0.0 }));
        }
    }
    golden.difference("logits", &[4, to, 61], &found)
}

fn follows_transformers(name: &str, determinism: Determinism) {
    let mut golden = Golden::open(name);
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    saved(&mut golden, folder.path());
    let checkpoint = import_hf(folder.path(), out.path()).unwrap().checkpoint;
    let Model {
        mut plan, weights, ..
    } = Model::load(&checkpoint, &Devices::Cpu).unwrap();
    let specs = param::specs(&plan);
    recipe(&mut plan, &Value::Null);
    plan.determinism = determinism;
    [plan.seq_length, plan.decoder_length] = lengths(&golden);

    let off = logits_off(&mut golden, &checkpoint);
    assert!(off <= 1.0, "logits are {off} tolerances off");

    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    trainer.state.weights = weights;
    let named = |tensors_of: &[Tensor]| {
        tensors(&Source {
            plan: &plan,
            specs: &specs,
            tensors: tensors_of,
        })
    };
    let mut worst = [off, 0.0, 0.0];
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            worst[1] = golden.assert_close("grad", &named(&by_tensor(&trainer, &gradients)));
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    worst[2] = golden.assert_close("final", &named(&trainer.state.weights));
    println!("{name} {determinism:?}: logits, gradients, weights in tolerances: {worst:.3?}");
}

#[test]
fn t5_as_first_published_follows_transformers_through_ten_steps() {
    follows_transformers("t5", Determinism::Layout);
    follows_transformers("t5", Determinism::Off);
}

#[test]
fn t5_with_gates_and_a_head_of_its_own_follows_transformers_through_ten_steps() {
    follows_transformers("t5_gated", Determinism::Layout);
    follows_transformers("t5_gated", Determinism::Off);
}

#[test]
#[should_panic(expected = "logits are")]
fn scores_with_another_bias_are_noticed() {
    let mut golden = Golden::open("t5");
    golden.record["config"]["relative_attention_max_distance"] = json!(13);
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    let checkpoint = import_hf(folder.path(), &folder.path().join("out"))
        .unwrap()
        .checkpoint;
    let off = logits_off(&mut golden, &checkpoint);
    assert!(off <= 1.0, "logits are {off} tolerances off");
}

#[test]
fn fields_of_published_folders_are_read_and_what_we_lack_is_refused_by_name() {
    let mut golden = Golden::open("t5_gated");
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    let published = json!({
        "architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5",
        "d_ff": 24, "d_kv": 8, "d_model": 16, "decoder_start_token_id": 0, "dropout_rate": 0.1,
        "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
        "is_encoder_decoder": true, "layer_norm_epsilon": 1e-6, "num_decoder_layers": 2,
        "num_heads": 4, "num_layers": 2, "output_past": true, "pad_token_id": 0,
        "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
        "tokenizer_class": "T5Tokenizer", "use_cache": true, "vocab_size": 61,
    });
    write_config(folder.path(), &published);
    let checkpoint = import_hf(folder.path(), &folder.path().join("out"))
        .unwrap()
        .checkpoint;
    let plan = Model::load(&checkpoint, &Devices::Cpu).unwrap().plan;
    assert_eq!((plan.seq_length, plan.decoder_length), (512, 512));
    assert_eq!((plan.start, plan.eod), (Some(0), Some(1)));
    assert_eq!(plan.model.activation, Some(Activation::GegluTanh));
    assert_eq!(
        (plan.model.dropout, plan.model.attention_dropout),
        (0.1, 0.1)
    );

    let refused = |field: &str, value: Value| -> Vec<String> {
        let mut config = published.clone();
        config[field] = value;
        write_config(folder.path(), &config);
        match import_hf(folder.path(), &folder.path().join("out")) {
            Err(Error::Foreign { problems, .. }) => problems,
            other => panic!("{other:?}"),
        }
    };
    for (field, value, line) in [
        (
            "feed_forward_proj",
            json!("gated-tanh"),
            "feed_forward_proj: found gated-tanh, want relu, gated-gelu",
        ),
        (
            "dense_act_fn",
            json!("gelu"),
            "dense_act_fn: found gelu, want gelu_new, as feed_forward_proj = gated-gelu has it",
        ),
        (
            "scale_decoder_outputs",
            json!(true),
            "scale_decoder_outputs: found true, want false",
        ),
        (
            "is_decoder",
            json!(true),
            "is_decoder: found true, want false",
        ),
        (
            "num_heads",
            json!(null),
            "num_heads: found nothing, want a count",
        ),
        (
            "n_positions",
            json!(20),
            "seq_length: found 20, want a multiple of 8",
        ),
        (
            "rope_theta",
            json!(1e4),
            "rope_theta: found 10000.0, want no such field",
        ),
        (
            "num_decoder_layers",
            json!(1),
            "decoder.block.1.layer.0.SelfAttention.q.weight: found, want no such tensor",
        ),
    ] {
        let problems = refused(field, value);
        let is_told = problems.iter().any(|problem| problem.starts_with(line));
        assert!(is_told, "{field}: {problems:?}");
    }
}

#[test]
fn copies_of_the_embedding_are_passed_over_if_they_are_it() {
    let mut golden = Golden::open("t5_gated");
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    let path = folder.path().join("model.safetensors");
    let mut reader = Reader::open(&path).unwrap();
    let mut tensors: Vec<(Entry, Vec<f32>)> = Vec::new();
    for entry in reader.entries().cloned().collect::<Vec<_>>() {
        let mut values = vec![0.0; entry.dims.iter().product()];
        let read = reader.read_part(&entry.name, &entry.dims, 0, &mut values);
        read.unwrap();
        tensors.push((entry, values));
    }
    let shared = tensors
        .iter()
        .find(|tensor| tensor.0.name == "shared.weight");
    let (dims, table) = shared
        .map(|tensor| (tensor.0.dims.clone(), tensor.1.clone()))
        .unwrap();
    let name = "encoder.embed_tokens.weight".to_owned();
    tensors.push((Entry { name, dims }, table));
    let import = |tensors: &[(Entry, Vec<f32>)]| {
        let entries = tensors.iter().map(|tensor| tensor.0.clone()).collect();
        let mut writer = Writer::create(&path, entries, None).unwrap();
        tensors
            .iter()
            .for_each(|tensor| writer.write(&tensor.1).unwrap());
        writer.finish().unwrap();
        import_hf(folder.path(), &folder.path().join("out"))
    };
    import(&tensors).unwrap();
    tensors.last_mut().unwrap().1[5] += 1.0;
    let problems = match import(&tensors) {
        Err(Error::Foreign { problems, .. }) => problems,
        other => panic!("{other:?}"),
    };
    let line = "encoder.embed_tokens.weight: found other numbers, want the tied embedding's";
    assert_eq!(problems, [line]);
}

/// transformers 5 sets `tie_word_embeddings` for every T5, and writes a head that equals the embedding as the
/// embedding alone; `scale_decoder_outputs` states whether rows are scaled before it.
#[test]
fn a_head_that_transformers_5_wrote_as_the_embedding_alone_reads_rows_unscaled() {
    let mut golden = Golden::open("t5");
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    let mut config = golden.record["config"].clone();
    config["tie_word_embeddings"] = json!(true);
    for (kind, scaled) in [("t5", Some(true)), ("t5", Some(false)), ("mt5", None)] {
        config["model_type"] = json!(kind);
        config["scale_decoder_outputs"] = json!(scaled);
        write_config(folder.path(), &config);
        let out = folder.path().join(format!("{kind}{scaled:?}"));
        let checkpoint = import_hf(folder.path(), &out).unwrap().checkpoint;
        let model = Model::load(&checkpoint, &Devices::Cpu).unwrap();
        let specs = param::specs(&model.plan);
        let find = |name: &str| specs.iter().position(|spec| spec.name == name);
        let is_tied = scaled == Some(true);
        assert_eq!(find("head.weight").is_none(), is_tied, "{kind} {scaled:?}");
        if let Some(head) = find("head.weight") {
            let table = find("embedding.weight").unwrap();
            assert_eq!(
                model.weights[head].host::<f32>().unwrap(),
                model.weights[table].host::<f32>().unwrap()
            );
        }
    }
}

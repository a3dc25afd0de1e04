//! OPT: folders of transformers' class, layouts, and no dropout of embeddings. Goldens: tests/oracles/decoder_goldens.py.

use kernels::Device;
use serde_json::json;

use crate::checkpoint::export_hf;
use crate::config::{Family, Plan};
use crate::dist::mesh::Groups;
use crate::fixtures::{Chain, nth_step, tiny_gpt, tiny_opt};
use crate::model::param;
use crate::tests::hugging_face::{follows, follows_transformers, refused_import, trained};
use crate::tests::layouts::assert_same_in;
use crate::tests::parity::Golden;
use crate::trainer::step::Trainer;

#[test]
fn opt_follows_transformers_through_ten_steps() {
    follows_transformers("opt");
}

#[test]
fn packed_documents_of_opt_follow_transformers_through_ten_steps() {
    follows_transformers("opt_packed");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn another_activation_than_opts_is_noticed() {
    let mut golden = Golden::open("hf_opt");
    golden.record["config"]["activation_function"] = json!("gelu");
    follows(&mut golden, false);
}

#[test]
fn fields_of_opt_that_nothing_follows_are_refused() {
    for (field, value, wanted) in [
        (
            "do_layer_norm_before",
            json!(false),
            "do_layer_norm_before: found false, want true",
        ),
        (
            "_remove_final_layer_norm",
            json!(true),
            "_remove_final_layer_norm: found true, want false",
        ),
        (
            "enable_bias",
            json!(false),
            "enable_bias: found false, want true",
        ),
        (
            "layer_norm_elementwise_affine",
            json!(false),
            "layer_norm_elementwise_affine: found false, want true",
        ),
        (
            "word_embed_proj_dim",
            json!(8),
            "word_embed_proj_dim: found 8, want hidden_size = 16",
        ),
        ("layerdrop", json!(0.1), "layerdrop: found 0.1, want 0"),
        (
            "activation_dropout",
            json!(0.1),
            "activation_dropout: found 0.1, want 0",
        ),
        (
            "max_position_embeddings",
            json!(18),
            "model.decoder.embed_positions.weight: found [18, 16], want [20, 16]",
        ),
    ] {
        let text = refused_import("hf_opt", json!({field: value}));
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn every_kind_of_layout_of_opt_gives_the_same_bits_and_the_predicted_memory() {
    let mut plan = tiny_opt();
    (plan.model.layers, plan.model.dropout) = (4, 0.1);
    assert_same_in(
        &plan,
        &[
            "mb=1",
            "dp=3 zero=2 mb=2",
            "tp=2 mb=2",
            "tp=4 sp dp=2 mb=3",
            "pp=2 vs=2 tp=2 sp dp=2 mb=2",
            "cp=2 tp=2 sp mb=2",
            "cp=4 dp=2 zero=3 mb=3",
            "full=1,2 pp=2 tp=2 sp dp=2 zero=2 mb=3",
            "selective mb=3",
        ],
    );
}

/// Loss of the first step of a model whose blocks add nothing to the embeddings.
fn loss_of_embeddings(plan: &Plan) -> f64 {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    for (spec, weight) in specs.iter().zip(&mut trainer.state.weights) {
        if spec.name.contains(".out.") || spec.name.contains(".fc2.") {
            weight
                .view_mut()
                .renew(|out: &mut [f32]| out.fill(0.0))
                .unwrap();
        }
    }
    let next = nth_step(plan, 1);
    trainer.gradients(&Chain::of(plan), &next).unwrap().0
}

#[test]
fn dropout_of_opt_and_bloom_leaves_embeddings_alone() {
    for family in [Family::Opt, Family::Bloom, Family::Gpt] {
        let mut plan = tiny_gpt();
        plan.model.family = family;
        let plain = loss_of_embeddings(&plan);
        plan.model.dropout = 0.5;
        let dropped = loss_of_embeddings(&plan);
        assert_eq!(plain.to_bits() == dropped.to_bits(), family != Family::Gpt);
    }
}

#[test]
fn norms_of_opt_have_the_epsilon_of_its_class() {
    let mut plan = tiny_opt();
    plan.model.norm_eps = 1e-6;
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("norm_eps = 0.000001 in opt"), "{text}");
}

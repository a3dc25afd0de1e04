//! Which tensors a model has, who holds them, and how they start.
//!
//! The list is made from the plan alone; a checkpoint holds exactly these names in this order.
//! Initial values are keyed by (seed, name, element of the whole tensor), so that every layout
//! starts from the same bits. Init: GPT-2, N(0, 0.02), residual projections / sqrt(2 layers).

use kernels::{DType, Device, Tensor, rng};
use xxhash_rust::xxh3::xxh3_64;

use crate::architecture::Positions;
use crate::config::{Biases, NormKind, OptimizerKind};
use crate::mesh::Place;
use crate::mixture::MoeConfig;
use crate::plan::Plan;

/// First values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    Zeros,
    Ones,
    Normal(f32),
}

/// One tensor of the whole model.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub name: String,
    /// Whole tensor: `[rows]` or `[rows, cols]`.
    pub dims: Vec<usize>,
    /// Rows are shared out over tensor-parallel ranks; else every rank has all of them.
    pub is_split: bool,
    pub init: Init,
    /// Rows that are not vocabulary padding.
    pub live_rows: usize,
    /// Tensors with one number are gathered, summed and shared out together.
    pub unit: usize,
    /// Number of the expert that it belongs to.
    pub expert: Option<usize>,
    /// Expert-parallel rank that has it; `None`: every rank of its group.
    pub ep_rank: Option<usize>,
    /// Pipeline rank that owns the tensor.
    pub stage: usize,
    /// Second rank that holds a copy (tied embedding on the last one).
    pub copy_stage: Option<usize>,
    /// Updated by Muon: it has a momentum and no second moment.
    pub is_muon: bool,
}

impl Spec {
    pub(crate) fn rows(&self) -> usize {
        self.dims[0]
    }

    /// Elements of one row.
    pub(crate) fn row_elements(&self) -> usize {
        self.dims[1..].iter().product()
    }

    pub(crate) fn live_elements(&self) -> usize {
        self.live_rows * self.row_elements()
    }

    /// Weight decay is for matrices only: not norms, not biases.
    pub(crate) fn has_decay(&self) -> bool {
        self.dims.len() > 1
    }

    pub(crate) fn is_on(&self, place: &Place) -> bool {
        let is_stage = self.stage == place.pp_rank || self.copy_stage == Some(place.pp_rank);
        is_stage && self.ep_rank.is_none_or(|rank| rank == place.ep_rank())
    }

    /// Rows `[first, first + rows)` of the whole tensor that a tensor-parallel rank holds.
    pub(crate) fn share(&self, tp_rank: usize, tp: usize) -> (usize, usize) {
        if self.is_split {
            let rows = self.rows() / tp;
            (tp_rank * rows, rows)
        } else {
            (0, self.rows())
        }
    }

    pub(crate) fn local_dims(&self, tp: usize) -> Vec<usize> {
        let mut dims = self.dims.clone();
        if self.is_split {
            dims[0] /= tp;
        }
        dims
    }

    /// This rank's part of the tensor at the start of training.
    pub(crate) fn initial(
        &self,
        seed: u64,
        place: &Place,
        device: &Device,
    ) -> kernels::Result<Tensor> {
        let mut tensor = Tensor::zeros(&self.local_dims(place.tp), DType::F32, device)?;
        let (first, rows) = self.share(place.tp_rank, place.tp);
        let live = self.live_rows.saturating_sub(first).min(rows) * self.row_elements();
        let out = &mut tensor.f32_mut()[..live];
        match self.init {
            Init::Zeros => {}
            Init::Ones => out.fill(1.0),
            Init::Normal(std) => {
                let first_element = (first * self.row_elements()) as u64;
                rng::fill_normal(out, seed, xxh3_64(self.name.as_bytes()), first_element, std);
            }
        }
        Ok(tensor)
    }
}

/// Last part of the names of matrices that Muon updates: what multiplies rows within a block.
const MUON: [&str; 6] = ["qkv", "q", "kv", "out", "fc1", "fc2"];

fn is_muon_matrix(spec: &Spec) -> bool {
    let name = spec.name.strip_suffix(".weight");
    let (parent, last) = name
        .and_then(|name| name.rsplit_once('.'))
        .unwrap_or_default();
    spec.dims.len() == 2 && !parent.is_empty() && MUON.contains(&last)
}

/// Name of the matrix the head multiplies with.
pub(crate) fn head_name(plan: &Plan) -> &'static str {
    if plan.model.is_tied() {
        "embedding.weight"
    } else {
        "head.weight"
    }
}

/// All tensors of the model in the order of the forward pass.
pub(crate) fn specs(plan: &Plan) -> Vec<Spec> {
    let shape = plan.shape();
    let ranks = plan.parallel.pp.max(1);
    let pieces = plan.parallel.stages(plan.model.layers);
    let last = ranks - 1;
    let normal = Init::Normal(plan.model.init_std);
    let mut list = List {
        specs: Vec::new(),
        stage: 0,
        unit: 0,
    };

    list.add(
        "embedding.weight".into(),
        &[shape.padded_vocab, shape.d_model],
        true,
        normal,
    );
    list.unit += 1;
    if plan.model.architecture().positions == Positions::Learned {
        list.add(
            "position.weight".into(),
            &[plan.seq_length, shape.d_model],
            false,
            normal,
        );
    }
    if plan.model.architecture().is_masked {
        list.add("segment.weight".into(), &[2, shape.d_model], false, normal);
    }
    if plan.model.architecture().is_post_norm {
        add_norm(&mut list, plan, "embedding.norm");
    }
    for layer in 0..plan.model.layers {
        let piece = pieces.iter().position(|piece| piece.contains(&layer));
        list.stage = piece.unwrap_or(0) % ranks;
        list.unit += 1;
        add_block(&mut list, plan, layer);
    }
    list.stage = last;
    list.unit += 1;
    if !plan.model.architecture().is_post_norm {
        add_norm(&mut list, plan, "norm");
    }
    if plan.model.architecture().is_masked {
        add_transform(&mut list, plan);
    }
    list.unit += 1;
    if plan.model.is_tied() {
        list.specs[0].copy_stage = (last > 0).then_some(last);
    } else {
        list.add(
            "head.weight".into(),
            &[shape.padded_vocab, shape.d_model],
            true,
            normal,
        );
    }
    for spec in &mut list.specs {
        if ["embedding.weight", "head.weight", "head.bias"].contains(&spec.name.as_str()) {
            spec.live_rows = plan.vocab;
        }
        spec.is_muon = plan.train.optimizer == OptimizerKind::Muon && is_muon_matrix(spec);
    }
    list.specs
}

struct List {
    specs: Vec<Spec>,
    stage: usize,
    unit: usize,
}

impl List {
    fn add(&mut self, name: String, dims: &[usize], is_split: bool, init: Init) {
        let (live_rows, stage, unit) = (dims[0], self.stage, self.unit);
        let dims = dims.to_vec();
        self.specs.push(Spec {
            name,
            dims,
            is_split,
            init,
            live_rows,
            unit,
            expert: None,
            ep_rank: None,
            stage,
            copy_stage: None,
            is_muon: false,
        });
    }
}

impl List {
    /// Output features split.
    fn column(&mut self, name: &str, dims: [usize; 2], has_bias: bool, init: Init) {
        self.add(format!("{name}.weight"), &dims, true, init);
        if has_bias {
            self.add(format!("{name}.bias"), &dims[..1], true, Init::Zeros);
        }
    }

    /// Input features split.
    fn row(&mut self, name: &str, dims: [usize; 2], has_bias: bool, init: Init) {
        self.add(format!("{name}.weight"), &dims, true, init);
        if has_bias {
            self.add(format!("{name}.bias"), &dims[1..], false, Init::Zeros);
        }
    }
}

fn add_norm(list: &mut List, plan: &Plan, name: &str) {
    list.add(
        format!("{name}.weight"),
        &[plan.model.d_model],
        false,
        Init::Ones,
    );
    if plan.model.architecture().norm == NormKind::Layer {
        list.add(
            format!("{name}.bias"),
            &[plan.model.d_model],
            false,
            Init::Zeros,
        );
    }
}

/// What a masked model has between its last block and the vocabulary.
fn add_transform(list: &mut List, plan: &Plan) {
    let (d, normal) = (plan.model.d_model, Init::Normal(plan.model.init_std));
    list.add("head.transform.weight".into(), &[d, d], false, normal);
    list.add("head.transform.bias".into(), &[d], false, Init::Zeros);
    add_norm(list, plan, "head.norm");
    list.add(
        "head.bias".into(),
        &[plan.padded_vocab()],
        true,
        Init::Zeros,
    );
}

fn add_block(list: &mut List, plan: &Plan, layer: usize) {
    let s = plan.shape();
    let biases = plan.model.architecture().biases;
    let (inner, residual) = inits(plan);
    let at = format!("layers.{layer}");
    let has_qkv_bias = biases != Biases::None;
    let has_bias = biases == Biases::All;

    add_norm(list, plan, &format!("{at}.norm1"));
    list.column(
        &format!("{at}.qkv"),
        [s.packed, s.d_model],
        has_qkv_bias,
        inner,
    );
    if plan.model.architecture().qk_norm {
        for kind in ["q_norm", "k_norm"] {
            let name = format!("{at}.{kind}.weight");
            list.add(name, &[s.d_head], false, Init::Ones);
        }
    }
    list.row(
        &format!("{at}.out"),
        [s.heads * s.d_head, s.d_model],
        has_bias,
        residual,
    );
    add_norm(list, plan, &format!("{at}.norm2"));
    match plan.model.moe_at(layer) {
        None => add_mlp(list, plan, (&at, s.d_ffn), has_bias),
        Some(moe) => {
            if moe.shared_d_ffn > 0 {
                let name = format!("{at}.shared");
                add_mlp(list, plan, (&name, moe.shared_d_ffn), has_bias);
            }
            if moe.shared_gate {
                let name = format!("{at}.shared_gate.weight");
                list.add(name, &[1, s.d_model], false, inner);
            }
            add_experts(list, plan, moe, &at);
        }
    }
}

/// Of projections inside a block and back into the residual stream.
fn inits(plan: &Plan) -> (Init, Init) {
    let std = plan.model.init_std;
    // each block adds two terms to the residual stream; this keeps its variance from growing
    let residual = std / (2.0 * plan.model.layers as f32).sqrt();
    (Init::Normal(std), Init::Normal(residual))
}

fn add_mlp(list: &mut List, plan: &Plan, (at, f): (&str, usize), has_bias: bool) {
    let (inner, residual) = inits(plan);
    let d = plan.model.d_model;
    let widths = plan.model.architecture().fc1_widths();
    list.column(&format!("{at}.fc1"), [widths * f, d], has_bias, inner);
    list.row(&format!("{at}.fc2"), [f, d], has_bias, residual);
}

/// Router and experts. Those of each expert-parallel rank are a unit.
fn add_experts(list: &mut List, plan: &Plan, moe: &MoeConfig, at: &str) {
    let (inner, _) = inits(plan);
    let name = format!("{at}.router.weight");
    list.add(name, &[moe.experts, plan.model.d_model], false, inner);
    let ep = plan.parallel.ep.max(1);
    let per_rank = moe.experts.div_ceil(ep).max(1);
    for expert in 0..moe.experts {
        if expert % per_rank == 0 {
            list.unit += 1;
        }
        let first = list.specs.len();
        let name = format!("{at}.experts.{expert}");
        add_mlp(list, plan, (&name, plan.model.d_expert()), false);
        for spec in &mut list.specs[first..] {
            spec.expert = Some(expert);
            spec.ep_rank = (ep > 1).then_some(expert / per_rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tiny_gpt, tiny_llama};

    #[test]
    fn gpt2_small_has_its_published_parameter_count() {
        let mut plan = tiny_gpt();
        plan.model = crate::ModelConfig::default();
        (plan.vocab, plan.seq_length) = (50257, 1024);
        assert_eq!(plan.parameters(), 124_439_808);
    }

    #[test]
    fn llama2_7b_has_its_published_parameter_count() {
        let mut plan = tiny_llama();
        plan.model.layers = 32;
        (plan.model.d_model, plan.model.heads, plan.model.kv_heads) = (4096, 32, 32);
        (plan.model.d_ffn, plan.vocab, plan.seq_length) = (11008, 32000, 4096);
        assert_eq!(plan.parameters(), 6_738_415_616);
    }

    #[test]
    fn shards_start_with_the_bits_of_the_whole() {
        let device = Device::cpu();
        let mut plan = tiny_llama();
        plan.vocab = 300; // the second of two shards holds padding
        for spec in specs(&plan) {
            let whole = spec.initial(7, &Place::single(), &device).unwrap();
            let mut joined = Vec::new();
            for tp_rank in 0..2 {
                let place = Place {
                    tp: 2,
                    tp_rank,
                    ..Place::single()
                };
                joined.push(spec.initial(7, &place, &device).unwrap().f32().to_vec());
            }
            let want = if spec.is_split {
                joined.concat()
            } else {
                joined.remove(0)
            };
            assert_eq!(whole.f32(), want, "{}", spec.name);
        }
    }

    #[test]
    fn padding_rows_start_at_zero() {
        let mut plan = tiny_gpt();
        plan.vocab = 130;
        let spec = &specs(&plan)[0];
        let table = spec.initial(7, &Place::single(), &Device::cpu()).unwrap();
        let live = 130 * plan.model.d_model;
        assert!(table.f32()[live..].iter().all(|&x| x == 0.0));
        assert!(table.f32()[..live].iter().all(|&x| x != 0.0));
    }
}

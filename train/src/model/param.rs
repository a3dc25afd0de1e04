//! Parameters of a model: their names and dims, the ranks that hold them, and their initial values.
//!
//! The list is made from the plan alone; a checkpoint holds exactly these names in this order.
//! Initial values are keyed by (seed, name, element of the whole tensor), so that every layout
//! starts from the same bits. Init: GPT-2, N(0, 0.02), residual projections / sqrt(2 layers).

use std::collections::BTreeSet;

use kernels::{DType, Device, Tensor, rng};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::adapted_layers::{self, AdaptedLayer};
use crate::config::architecture::Positions;
use crate::config::exact::narrow;
use crate::config::latent::Latents;
use crate::config::moe::MoeConfig;
use crate::config::mtp::depth_name;
use crate::config::plan::Plan;
use crate::config::{Biases, NormKind, OptimizerKind, QkNormOver};
use crate::dist::mesh::RankCoord;

/// Initial values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    Zeros,
    Ones,
    Normal(f32),
    /// Uniform within this bound of 0.
    Uniform(f32),
    /// Normal, of packed rows: of every `group` rows the first `queries` are multiplied by `factor`.
    Packed {
        std: f32,
        queries: usize,
        group: usize,
        factor: f32,
    },
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
    /// Tensors with the same unit are gathered, reduced and sharded together.
    pub unit: usize,
    /// Number of the expert that it belongs to.
    pub expert: Option<usize>,
    /// Expert-parallel rank that has it; `None`: every rank of its group.
    pub ep_rank: Option<usize>,
    /// Pieces of the model that use it, in order, one for each use; the first one's rank owns it, the
    /// others' have copies. The gradient of each use is summed on its own, and these in this order.
    pub uses: Vec<usize>,
    /// Updated by Muon: it has a momentum and no second moment.
    pub is_muon: bool,
    /// Layer of which it is the router's selection bias: a state that token counts update
    /// (`optim/router_bias.rs`), and no parameter. Its gradient is zero.
    pub router_bias: Option<usize>,
    /// It keeps its initial values: it has no gradient and no moments.
    pub is_frozen: bool,
}

impl Spec {
    pub(crate) fn rows(&self) -> usize {
        self.dims[0]
    }

    /// Elements per row.
    pub(crate) fn row_elements(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// Elements that are parameters of the model: no padding, no state.
    pub(crate) fn parameters(&self) -> usize {
        if self.router_bias.is_some() {
            return 0;
        }
        self.live_elements()
    }

    pub(crate) fn live_elements(&self) -> usize {
        self.live_rows * self.row_elements()
    }

    /// Weight decay is for matrices only: not norms, not biases.
    pub(crate) fn has_decay(&self) -> bool {
        self.dims.len() > 1
    }

    pub(crate) fn is_on(&self, place: &RankCoord) -> bool {
        let is_used = self
            .uses
            .iter()
            .any(|chunk| chunk % place.pp == place.pp_rank);
        is_used && self.ep_rank.is_none_or(|rank| rank == place.ep_rank())
    }

    /// Pipeline rank that owns it, of `pp`.
    pub(crate) fn owner(&self, pp: usize) -> usize {
        self.uses[0] % pp
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
        place: &RankCoord,
        device: &Device,
    ) -> kernels::Result<Tensor> {
        let mut tensor = Tensor::zeros(&self.local_dims(place.tp), DType::F32, device)?;
        // made on the host, whose random numbers every device starts from
        tensor.view_mut().edit(|all| self.draw(all, seed, place))?;
        Ok(tensor)
    }

    /// Writes the live elements of this rank's part.
    fn draw(&self, all: &mut [f32], seed: u64, place: &RankCoord) {
        let (first, rows) = self.share(place.tp_rank, place.tp);
        let live = self.live_rows.saturating_sub(first).min(rows) * self.row_elements();
        let out = &mut all[..live];
        let (first_element, key) = (first * self.row_elements(), xxh3_64(self.name.as_bytes()));
        match self.init {
            Init::Zeros => {}
            Init::Ones => out.fill(1.0),
            Init::Uniform(bound) => {
                let draw = |at: usize| {
                    let u = rng::uniform(seed, key, (first_element + at) as u64);
                    f64::from(bound) * (2.0 * u - 1.0)
                };
                for (at, x) in out.iter_mut().enumerate() {
                    *x = narrow(draw(at));
                }
            }
            Init::Normal(std) | Init::Packed { std, .. } => {
                rng::fill_normal(out, seed, key, first_element as u64, std);
            }
        }
        if let Init::Packed {
            queries,
            group,
            factor,
            ..
        } = self.init
        {
            let rows = out.chunks_mut(self.row_elements()).enumerate();
            let rows = rows.filter(|(row, _)| (first + row) % group < queries);
            rows.for_each(|(_, row)| row.iter_mut().for_each(|x| *x *= factor));
        }
    }
}

/// Last part of the names of the matrices that Muon updates: the factors of row products within a block.
const MUON: [&str; 13] = [
    "qkv",
    "out",
    "cross_q",
    "cross_kv",
    "cross_out",
    "fc1",
    "fc2",
    "q_proj",
    "q_down",
    "q_up",
    "kv_down",
    "kv_up",
    "eh_proj",
];

fn is_muon_matrix(spec: &Spec) -> bool {
    let name = spec.name.strip_suffix(".weight");
    let (parent, last) = name
        .and_then(|name| name.rsplit_once('.'))
        .unwrap_or_default();
    spec.dims.len() == 2 && !parent.is_empty() && MUON.contains(&last)
}

/// Names of the layers of a classification head: the pooler of a masked model, and the classes.
pub(crate) const POOLER: &str = "head.pooler";
pub(crate) const CLASSES: &str = "head.classes";

/// Whether a tensor is of a classification head.
pub(crate) fn is_of_classes(name: &str) -> bool {
    let layer = name.rsplit_once('.').map_or(name, |(layer, _)| layer);
    [POOLER, CLASSES].contains(&layer)
}

/// Whether a tensor is of a low-rank adapter.
pub(crate) fn is_of_lora(name: &str) -> bool {
    name.ends_with(".lora_a") || name.ends_with(".lora_b")
}

/// Tensors with a row for each id of the padded vocabulary.
const OF_VOCABULARY: [&str; 4] = [
    "embedding.weight",
    "head.weight",
    "head.bias",
    "head.lora_b",
];

/// Name of the table of learned positions.
pub(crate) const POSITIONS: &str = "position.weight";

/// Name of the rows of virtual tokens.
pub(crate) const PROMPT: &str = "prompt.weight";

/// Whether a tensor is trained beside frozen ones: it is of a low-rank adapter or of virtual tokens.
pub(crate) fn is_of_adapter(name: &str) -> bool {
    is_of_lora(name) || name.starts_with("prompt.")
}

/// Name of the matrix the head multiplies with.
pub(crate) fn head_name(plan: &Plan) -> &'static str {
    if plan.model.is_tied() {
        "embedding.weight"
    } else {
        "head.weight"
    }
}

/// Pairs of pipeline stages, the lower one first, that use the same tensor, in order.
pub(crate) fn stages_that_share(specs: &[Spec], pp: usize) -> Vec<[usize; 2]> {
    let mut pairs = BTreeSet::new();
    for spec in specs {
        let stages: BTreeSet<usize> = spec.uses.iter().map(|chunk| chunk % pp).collect();
        for &low in &stages {
            pairs.extend(stages.range(low + 1..).map(|&high| [low, high]));
        }
    }
    pairs.into_iter().collect()
}

/// All tensors of the model in the order of the forward pass.
pub(crate) fn specs(plan: &Plan) -> Vec<Spec> {
    let shape = plan.shape();
    let model_chunks = plan.model_chunks();
    let last = model_chunks.len() - 1;
    let normal = Init::Normal(plan.model.init_std);
    let (table, head) = if plan.model.architecture().is_encoder_decoder {
        (Init::Normal(1.0), fan_in(shape.d_model))
    } else {
        (normal, normal)
    };
    let mut list = List {
        specs: Vec::new(),
        uses: vec![0],
        unit: 0,
    };

    list.add(
        "embedding.weight".into(),
        &[shape.padded_vocab, shape.d_model],
        true,
        table,
    );
    list.unit += 1;
    if plan.model.architecture().positions == Positions::Learned {
        list.add(
            POSITIONS.into(),
            &[plan.position_rows(), shape.d_model],
            false,
            normal,
        );
    }
    if plan.model.architecture().is_masked {
        list.add("segment.weight".into(), &[2, shape.d_model], false, normal);
    }
    if plan.model.architecture().has_embedding_norm {
        add_norm(&mut list, plan, "embedding.norm");
    }
    if let Some(prompt) = &plan.model.prompt {
        list.unit += 1;
        let dims = [prompt.virtual_tokens, shape.d_model];
        // torch's embeddings, which an encoder reads, are of deviation 1
        let init = prompt.encoder.map_or(normal, |_| Init::Normal(1.0));
        list.add(PROMPT.into(), &dims, false, init);
        for weight in prompt
            .encoder
            .iter()
            .flat_map(|it| it.weights(shape.d_model))
        {
            let init = Init::Uniform(weight.bound);
            list.add(weight.name, &weight.dims, false, init);
        }
    }
    let chunk_of = |layer| {
        let chunk = model_chunks.iter().position(|chunk| chunk.contains(&layer));
        chunk.unwrap_or(0)
    };
    if plan.model.architecture().is_encoder_decoder {
        add_stacks(&mut list, plan, &chunk_of);
    } else {
        for layer in 0..plan.model.layers {
            list.start_unit(vec![chunk_of(layer)]);
            add_block(&mut list, plan, layer);
            add_lora(&mut list, plan, adapted_layers::of_block(plan, layer));
        }
    }
    list.start_unit(vec![last]);
    if !plan.model.architecture().is_post_norm {
        add_norm(&mut list, plan, plan.model.final_norm());
    }
    for depth in 0..plan.model.mtp_num_layers {
        list.start_unit(vec![last]);
        add_depth(&mut list, plan, depth);
    }
    match &plan.model.classify {
        Some(classify) => add_classes(&mut list, plan, classify.classes),
        None if plan.model.architecture().is_masked => add_transform(&mut list, plan),
        None => {}
    }
    list.unit += 1;
    if plan.model.classify.is_some() {
        // no use of the vocabulary but the embedding's
    } else if plan.model.is_tied() {
        list.specs[0].uses.push(last);
    } else {
        list.add(
            "head.weight".into(),
            &[shape.padded_vocab, shape.d_model],
            true,
            head,
        );
    }
    for depth in 0..plan.model.mtp_num_layers {
        for place in plan.model.uses_of_depth(depth) {
            let spec = list.specs.iter_mut().find(|spec| spec.name == place.name);
            let uses = spec.map(|spec| &mut spec.uses);
            uses.expect("both tensors of the vocabulary were added")
                .push(last);
        }
    }
    add_lora(&mut list, plan, adapted_layers::of_head(plan));
    for spec in &mut list.specs {
        if OF_VOCABULARY.contains(&spec.name.as_str()) {
            spec.live_rows = plan.vocab;
        }
        spec.is_frozen = plan.model.is_adapted() && !is_of_adapter(&spec.name);
        spec.is_muon =
            !spec.is_frozen && plan.train.optimizer == OptimizerKind::Muon && is_muon_matrix(spec);
    }
    list.specs
}

struct List {
    specs: Vec<Spec>,
    uses: Vec<usize>,
    unit: usize,
}

impl List {
    /// Starts a new unit, used by these pieces, for the tensors added from here on.
    fn start_unit(&mut self, uses: Vec<usize>) {
        self.unit += 1;
        self.uses = uses;
    }

    fn add(&mut self, name: String, dims: &[usize], is_split: bool, init: Init) {
        let (live_rows, uses, unit) = (dims[0], self.uses.clone(), self.unit);
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
            uses,
            is_muon: false,
            router_bias: None,
            is_frozen: false,
        });
    }
}

impl List {
    /// Gives the tensors from number `first` on to an expert.
    fn own_by_expert(&mut self, first: usize, expert: Option<usize>, plan: &Plan) {
        let ep_rank = expert.map(|expert| plan.ep_rank_of(expert));
        for spec in &mut self.specs[first..] {
            spec.expert = expert;
            spec.ep_rank = ep_rank.filter(|_| plan.parallel.ep > 1);
        }
    }

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

/// Initial weights with which a norm's factor is 1.
fn of_norm(plan: &Plan) -> Init {
    match plan.model.architecture().norm_plus_one {
        true => Init::Zeros,
        false => Init::Ones,
    }
}

fn add_norm(list: &mut List, plan: &Plan, name: &str) {
    list.add(
        format!("{name}.weight"),
        &[plan.model.d_model],
        false,
        of_norm(plan),
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

/// Adds a masked model's transform between its last block and the vocabulary.
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
    if plan.model.architecture().next_sentence {
        for (name, rows) in [("head.pooler", d), ("head.order", 2)] {
            list.add(format!("{name}.weight"), &[rows, d], false, normal);
            list.add(format!("{name}.bias"), &[rows], false, Init::Zeros);
        }
    }
}

/// Adds a classification head: the pooler of a masked model, and the rows of the classes. A decoder's have no bias, as in
/// transformers' `...ForSequenceClassification`.
fn add_classes(list: &mut List, plan: &Plan, classes: usize) {
    let (d, normal) = (plan.model.d_model, Init::Normal(plan.model.init_std));
    let is_masked = plan.model.architecture().is_masked;
    if is_masked {
        list.add(format!("{POOLER}.weight"), &[d, d], false, normal);
        list.add(format!("{POOLER}.bias"), &[d], false, Init::Zeros);
    }
    list.add(format!("{CLASSES}.weight"), &[classes, d], false, normal);
    if is_masked {
        list.add(format!("{CLASSES}.bias"), &[classes], false, Init::Zeros);
    }
}

fn add_block(list: &mut List, plan: &Plan, layer: usize) {
    let s = plan.shape();
    let architecture = plan.model.architecture();
    let (biases, place) = (architecture.biases, architecture.norm_place);
    let at = plan.model.block_name(layer);
    let has_qkv_bias = biases != Biases::None;
    let has_bias = biases == Biases::All;

    if place.is_before() {
        add_norm(list, plan, &format!("{at}.norm1"));
    }
    match plan.model.latents() {
        Some(latents) => add_latents(list, plan, &latents, &at),
        None => {
            let (name, dims) = (format!("{at}.qkv"), [s.packed, s.d_model]);
            list.column(&name, dims, has_qkv_bias, queries(plan));
        }
    }
    if architecture.qk_norm {
        for (kind, heads) in [("q_norm", s.heads), ("k_norm", s.kv_heads)] {
            let name = format!("{at}.{kind}.weight");
            match architecture.qk_norm_over {
                QkNormOver::Head => list.add(name, &[s.d_head], false, of_norm(plan)),
                QkNormOver::All => list.add(name, &[heads * s.d_head], true, of_norm(plan)),
            }
        }
    }
    if architecture.has_sinks {
        let init = Init::Normal(plan.model.init_std);
        list.add(format!("{at}.sinks.weight"), &[s.heads], true, init);
    }
    list.row(
        &format!("{at}.out"),
        [s.heads * s.d_value, s.d_model],
        has_bias,
        residual(plan, s.heads * s.d_value),
    );
    if place.is_after() {
        add_norm(list, plan, &format!("{at}.norm1_after"));
    }
    if place.is_before() && !architecture.has_shared_norm {
        add_norm(list, plan, &format!("{at}.norm2"));
    }
    if place.is_after() {
        // before experts, which are units of their own
        add_norm(list, plan, &format!("{at}.norm2_after"));
    }
    if plan.model.is_decoder_block(layer) {
        add_cross(list, plan, &at);
        add_norm(list, plan, &format!("{at}.norm3"));
    }
    match plan.model.moe_at(layer) {
        None => add_mlp(list, plan, (&at, s.d_ffn), has_bias),
        Some(moe) => {
            if moe.shared_d_ffn > 0 {
                let name = format!("{at}.shared");
                add_mlp(list, plan, (&name, moe.shared_d_ffn), has_bias);
            }
            if moe.shared_gate {
                let name = format!("{at}.shared_gate.weight");
                list.add(name, &[1, s.d_model], false, inner(plan));
            }
            add_experts(list, plan, moe, layer);
        }
    }
}

/// A depth of multi-token prediction: its norms, the projection of both inputs, and its block.
fn add_depth(list: &mut List, plan: &Plan, depth: usize) {
    let (d, at) = (plan.model.d_model, depth_name(depth));
    for norm in ["enorm", "hnorm", "norm"] {
        add_norm(list, plan, &format!("{at}.{norm}"));
    }
    let normal = Init::Normal(plan.model.init_std);
    list.column(&format!("{at}.eh_proj"), [d, 2 * d], false, normal);
    // its experts are units of their own
    add_block(list, plan, plan.model.layers + depth);
}

/// Projections to latents, their norms, and projections to heads.
fn add_latents(list: &mut List, plan: &Plan, latents: &Latents, at: &str) {
    for weight in latents.weights(plan.model.d_model, plan.model.heads) {
        let init = match weight.dims.len() {
            1 => of_norm(plan),
            _ => inner(plan),
        };
        let name = format!("{at}.{}.weight", weight.layer);
        list.add(name, &weight.dims, weight.is_split, init);
    }
}

/// Encoder and decoder, each with the table of biases that its layers share.
fn add_stacks(list: &mut List, plan: &Plan, chunk_of: &dyn Fn(usize) -> usize) {
    let (s, layers) = (plan.shape(), plan.model.layers);
    let stacks = [
        ("encoder", 0..layers),
        ("decoder", layers..plan.model.blocks()),
    ];
    for (stack, blocks) in stacks {
        list.start_unit(blocks.clone().map(chunk_of).collect());
        let name = format!("{stack}.relative_bias.weight");
        let dims = [s.heads, plan.model.relative_buckets];
        list.add(name, &dims, true, fan_in(s.d_model));
        for block in blocks {
            list.start_unit(vec![chunk_of(block)]);
            add_block(list, plan, block);
        }
        if stack == "encoder" {
            list.start_unit(vec![chunk_of(layers - 1)]);
            add_norm(list, plan, "encoder.norm");
        }
    }
}

/// Adapters of linear layers, which are units of their own. A is drawn as PEFT draws it (Kaiming uniform with a = sqrt 5: within 1 /
/// sqrt(in)), B is zero, so that the model starts as the frozen one.
fn add_lora(list: &mut List, plan: &Plan, layers: impl IntoIterator<Item = AdaptedLayer>) {
    let rank = plan.model.lora.as_ref().map_or(0, |lora| lora.rank);
    let mut before = None;
    for layer in layers {
        let ep_rank = layer.expert.map(|expert| plan.ep_rank_of(expert));
        if before != Some(ep_rank) {
            (list.unit, before) = (list.unit + 1, Some(ep_rank));
        }
        let first = list.specs.len();
        let [a, b] = layer.matrices(rank);
        let init = Init::Uniform(1.0 / (layer.input as f32).sqrt());
        list.add(a.name, &a.dims, a.is_split, init);
        list.add(b.name, &b.dims, b.is_split, Init::Zeros);
        list.own_by_expert(first, layer.expert, plan);
    }
}

/// Initial values of the projection to queries, keys and values. Where scores are not divided by the root of the
/// head width, queries start smaller by that factor (Raffel et al. 2020; Mesh TensorFlow).
fn queries(plan: &Plan) -> Init {
    let s = plan.shape();
    if !plan.model.architecture().is_encoder_decoder {
        return Init::Normal(plan.model.init_std);
    }
    let Init::Normal(std) = fan_in(s.d_model) else {
        unreachable!("it is a normal distribution")
    };
    let queries = s.heads / s.kv_heads * s.d_head;
    Init::Packed {
        std,
        queries,
        group: queries + 2 * s.d_head,
        factor: 1.0 / (s.d_head as f32).sqrt(),
    }
}

/// Initial values with which a sum over `inputs` features keeps its variance.
fn fan_in(inputs: usize) -> Init {
    Init::Normal(1.0 / (inputs as f32).sqrt())
}

/// Initial values of projections inside a block.
fn inner(plan: &Plan) -> Init {
    if plan.model.architecture().is_encoder_decoder {
        fan_in(plan.model.d_model)
    } else {
        Init::Normal(plan.model.init_std)
    }
}

/// Initial values of projections of `inputs` features back into the residual stream.
fn residual(plan: &Plan, inputs: usize) -> Init {
    if plan.model.architecture().is_encoder_decoder {
        return fan_in(inputs);
    }
    // each block adds two terms to the residual stream; this keeps its variance from growing
    Init::Normal(plan.model.init_std / (2.0 * plan.model.layers as f32).sqrt())
}

fn add_mlp(list: &mut List, plan: &Plan, (at, f): (&str, usize), has_bias: bool) {
    let d = plan.model.d_model;
    let widths = plan.model.architecture().fc1_widths();
    let (fc1, fc2) = (format!("{at}.fc1"), format!("{at}.fc2"));
    list.column(&fc1, [widths * f, d], has_bias, inner(plan));
    list.row(&fc2, [f, d], has_bias, residual(plan, f));
}

/// Attention of a decoder's rows to the encoder's: queries of the one, keys and values of the other.
fn add_cross(list: &mut List, plan: &Plan, at: &str) {
    let s = plan.shape();
    let (width, kv) = (s.heads * s.d_head, 2 * s.kv_heads * s.d_head);
    // as of a packed projection
    let queries = Init::Normal(1.0 / (s.d_model as f32 * s.d_head as f32).sqrt());
    list.column(&format!("{at}.cross_q"), [width, s.d_model], false, queries);
    list.column(
        &format!("{at}.cross_kv"),
        [kv, s.d_model],
        false,
        inner(plan),
    );
    let residual = residual(plan, width);
    list.row(
        &format!("{at}.cross_out"),
        [width, s.d_model],
        false,
        residual,
    );
}

/// Router and experts. Those of each expert-parallel rank are a unit.
fn add_experts(list: &mut List, plan: &Plan, moe: &MoeConfig, layer: usize) {
    let at = plan.model.block_name(layer);
    let inner = inner(plan);
    let name = format!("{at}.router.weight");
    list.add(name, &[moe.experts, plan.model.d_model], false, inner);
    if moe.expert_bias {
        let name = format!("{at}.router.bias");
        list.add(name, &[moe.experts], false, Init::Zeros);
        if let Some(bias) = list.specs.last_mut() {
            bias.router_bias = Some(layer);
        }
    }
    if moe.biases {
        let name = format!("{at}.router.logit_bias");
        list.add(name, &[moe.experts], false, Init::Zeros);
    }
    for expert in 0..moe.experts {
        if expert == 0 || plan.ep_rank_of(expert) != plan.ep_rank_of(expert - 1) {
            list.unit += 1;
        }
        let first = list.specs.len();
        let name = format!("{at}.experts.{expert}");
        add_mlp(list, plan, (&name, plan.model.d_expert()), moe.biases);
        list.own_by_expert(first, Some(expert), plan);
    }
}

impl Plan {
    /// Expert-parallel rank that has an expert.
    fn ep_rank_of(&self, expert: usize) -> usize {
        let experts = self.model.moe.as_ref().map_or(1, |moe| moe.experts);
        expert / experts.div_ceil(self.parallel.ep.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tiny_gpt, tiny_llama};

    #[test]
    fn shards_start_with_the_bits_of_the_whole() {
        let device = Device::cpu();
        let mut plan = tiny_llama();
        plan.vocab = 300; // the second of two shards holds padding
        for spec in specs(&plan) {
            let whole = spec.initial(7, &RankCoord::single(), &device).unwrap();
            let mut joined = Vec::new();
            for tp_rank in 0..2 {
                let place = RankCoord {
                    tp: 2,
                    tp_rank,
                    ..RankCoord::single()
                };
                joined.push(
                    spec.initial(7, &place, &device)
                        .unwrap()
                        .host::<f32>()
                        .unwrap()
                        .to_vec(),
                );
            }
            let want = if spec.is_split {
                joined.concat()
            } else {
                joined.remove(0)
            };
            assert_eq!(whole.host::<f32>().unwrap(), want, "{}", spec.name);
        }
    }

    #[test]
    fn padding_rows_start_at_zero() {
        let mut plan = tiny_gpt();
        plan.vocab = 130;
        let spec = &specs(&plan)[0];
        let table = spec
            .initial(7, &RankCoord::single(), &Device::cpu())
            .unwrap();
        let live = 130 * plan.model.d_model;
        assert!(
            table.host::<f32>().unwrap()[live..]
                .iter()
                .all(|&x| x == 0.0)
        );
        assert!(
            table.host::<f32>().unwrap()[..live]
                .iter()
                .all(|&x| x != 0.0)
        );
    }
}

//! A layout: sizes of the parallel axes, and what a step trades memory for.

use crate::plan::shape::Shape;
use serde_json::{Value, json};
use std::ops::Range;
use train::config::{ParallelConfig, Precision};
use train::trainer::timeline::held_by_chunk;

/// Activations that are computed again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recompute {
    None,
    /// Attention between the projections.
    Selective,
    /// The first so many whole layers of each pipeline rank; the others keep theirs.
    Layers(usize),
    /// Whole layers.
    Full,
}

impl Recompute {
    /// As `train.recompute` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Recompute::None => "none",
            Recompute::Selective => "selective",
            Recompute::Layers(_) | Recompute::Full => "full",
        }
    }

    /// `train.recompute_layers`: layers of each pipeline rank that are computed again; `None` if all of them are, or none.
    pub(crate) fn layers(self) -> Option<usize> {
        match self {
            Recompute::Layers(number) => Some(number),
            Recompute::None | Recompute::Selective | Recompute::Full => None,
        }
    }

    /// Its place in the order of what is computed again, whatever the number of layers.
    pub(crate) fn rank(self) -> usize {
        match self {
            Recompute::None => 0,
            Recompute::Selective => 1,
            Recompute::Layers(_) => 2,
            Recompute::Full => 3,
        }
    }

    /// The name with the number of layers, if it is not all of them.
    pub(crate) fn column(self) -> String {
        match self.layers() {
            Some(number) => format!("{} {number}", self.name()),
            None => self.name().into(),
        }
    }
}

/// Layers of a pipeline rank by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayersByKind {
    pub dense: usize,
    /// Of the model's other kind.
    pub others: usize,
}

/// A model chunk of a pipeline rank: layers that are computed again and layers that keep their activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLayers {
    pub again: LayersByKind,
    pub kept: LayersByKind,
}

impl ChunkLayers {
    /// All chunks of a rank together, if none of their layers is computed again.
    pub(crate) fn whole(shape: &Shape, layout: &Layout, stage: usize) -> ChunkLayers {
        let others = layout.stage_others(shape, stage);
        ChunkLayers {
            again: LayersByKind::default(),
            kept: LayersByKind {
                dense: layout.stage_layers(shape, stage) - others,
                others,
            },
        }
    }
}

impl LayersByKind {
    fn of(shape: &Shape, layers: Range<usize>) -> LayersByKind {
        let others = shape.others(layers.clone());
        LayersByKind {
            dense: layers.len() - others,
            others,
        }
    }
}

/// How a step is divided over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub tp: usize,
    pub cp: usize,
    pub pp: usize,
    /// Model chunks of a pipeline rank (virtual stages).
    pub chunks: usize,
    pub dp: usize,
    /// Adjacent data-parallel ranks that share out the experts.
    pub ep: usize,
    /// Sequences of a micro-batch.
    pub micro_batch: usize,
    /// Sequences of a step.
    pub global_batch: usize,
    pub is_sequence_parallel: bool,
    pub recompute: Recompute,
    /// Stage of ZeRO, 0 to 3.
    pub zero: u8,
    /// Whether gradients are reduced beside the backward pass.
    pub overlap: bool,
    /// Whether embedding and head each count as a layer when layers are divided over model chunks.
    pub counts_ends: bool,
    /// Number format of products.
    pub precision: Precision,
    /// Whether whole pipelines are next to each other and replicas far apart (`tp-cp-pp-ep-dp`); otherwise, as Megatron numbers ranks, the
    /// replicas of a stage are next to each other (`tp-cp-ep-dp-pp`).
    pub is_data_outermost: bool,
    /// Whether micro-batches enter the pipeline from both ends and overlap in pairs (DualPipe): an estimate, as Millrace does not train so.
    pub is_dual: bool,
    /// Whether the optimizer's state is in host memory: an estimate, as Millrace does not train so.
    pub is_offloaded: bool,
}

/// `train.precision` as the job spells it.
pub(crate) fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
        Precision::Fp16 => "fp16",
        Precision::Fp8 => "fp8",
    }
}

impl Layout {
    /// One device that runs a step of so many sequences one by one, and trades nothing: other layouts differ from it in some fields.
    pub(crate) const fn one(global_batch: usize) -> Layout {
        Layout {
            tp: 1,
            cp: 1,
            pp: 1,
            chunks: 1,
            dp: 1,
            ep: 1,
            micro_batch: 1,
            global_batch,
            is_sequence_parallel: false,
            recompute: Recompute::None,
            zero: 0,
            overlap: false,
            counts_ends: false,
            precision: Precision::Bf16,
            is_data_outermost: false,
            is_dual: false,
            is_offloaded: false,
        }
    }

    /// Bytes of a number of weights and of activations between products.
    pub(crate) fn number_bytes(&self) -> f64 {
        match self.precision {
            Precision::F32 => 4.0,
            Precision::Bf16 | Precision::Fp16 | Precision::Fp8 => 2.0,
        }
    }

    /// Number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.tp * self.cp * self.pp * self.dp
    }

    /// The axes in the order in which ranks are numbered, the first one fastest, as `parallel.order` spells it.
    pub(crate) fn order(&self) -> &'static str {
        match self.is_data_outermost {
            true => "tp-cp-pp-ep-dp",
            false => "tp-cp-ep-dp-pp",
        }
    }

    /// Ranks from a data-parallel rank to the next.
    pub(crate) fn data_stride(&self) -> usize {
        let inside = if self.is_data_outermost { self.pp } else { 1 };
        self.tp * self.cp * inside
    }

    /// Ranks from a pipeline rank to the next.
    pub(crate) fn stage_stride(&self) -> usize {
        let inside = if self.is_data_outermost { 1 } else { self.dp };
        self.tp * self.cp * inside
    }

    /// Micro-batches that a pipeline runs in a step.
    pub(crate) fn micro_batches(&self) -> usize {
        self.global_batch / (self.micro_batch * self.dp)
    }

    /// Whether stages have different numbers of layers: the first ones one more where the layers do not divide. Only without virtual
    /// stages, and without counting embedding and head.
    pub(crate) fn is_uneven(&self, shape: &Shape) -> bool {
        let is_plain = self.chunks == 1 && !self.counts_ends;
        is_plain && shape.blocks() > self.pp && !shape.blocks().is_multiple_of(self.pp)
    }

    /// Layers of a pipeline rank, embedding and head included where they count as one.
    pub(crate) fn stage_slots(&self, shape: &Shape, stage: usize) -> usize {
        let all = shape
            .blocks()
            .saturating_add(2 * usize::from(self.counts_ends));
        let more = self.is_uneven(shape) && stage < all % self.pp;
        all / self.pp + usize::from(more)
    }

    /// Layers of a pipeline rank; embedding and head take the place of a layer where they count as one.
    pub(crate) fn stage_layers(&self, shape: &Shape, stage: usize) -> usize {
        let ends = usize::from(stage == 0) + usize::from(stage + 1 == self.pp);
        self.stage_slots(shape, stage) - ends * usize::from(self.counts_ends)
    }

    /// Layers of each stage where they differ, as `parallel.stage_layers` has them; otherwise none.
    pub(crate) fn uneven_layers(&self, shape: &Shape) -> Vec<usize> {
        if !self.is_uneven(shape) {
            return Vec::new();
        }
        (0..self.pp)
            .map(|stage| self.stage_layers(shape, stage))
            .collect()
    }

    /// Layers of a pipeline rank that are of the model's other kind than dense, over its model chunks.
    pub(crate) fn stage_others(&self, shape: &Shape, stage: usize) -> usize {
        if shape.other_kind().is_none() {
            return 0;
        }
        let chunks = (0..self.chunks).map(|chunk| self.chunk_layers(shape, stage, chunk));
        chunks.map(|layers| shape.others(layers)).sum()
    }

    /// Model chunks of a pipeline rank in their order, if its first `again` layers are computed again.
    pub(crate) fn chunks_with(
        &self,
        shape: &Shape,
        stage: usize,
        again: usize,
    ) -> Vec<ChunkLayers> {
        let mut left = again;
        let chunk = |chunk: usize| {
            let layers = self.chunk_layers(shape, stage, chunk);
            let first_kept = layers.start + left.min(layers.len());
            left -= first_kept - layers.start;
            ChunkLayers {
                again: LayersByKind::of(shape, layers.start..first_kept),
                kept: LayersByKind::of(shape, first_kept..layers.end),
            }
        };
        (0..self.chunks).map(chunk).collect()
    }

    /// Layers of a model chunk of a pipeline rank.
    fn chunk_layers(&self, shape: &Shape, stage: usize, chunk: usize) -> Range<usize> {
        let ends = usize::from(self.counts_ends);
        let blocks = shape.blocks();
        if self.is_uneven(shape) {
            let first = stage * (blocks / self.pp) + stage.min(blocks % self.pp);
            return first..first + self.stage_layers(shape, stage);
        }
        let each = blocks.saturating_add(2 * ends) / (self.pp * self.chunks);
        let first = (chunk * self.pp + stage) * each;
        // embedding and head count as layers before the first and after the last one
        first.saturating_sub(ends)..(first + each - ends).min(blocks)
    }

    /// Most micro-batches whose activations a rank of the stage holds at once, in shares of all its model chunks: 1F1B starts
    /// `pp - stage` before the first backward pass; interleaved, passes of single chunks (Narayanan et al. 2021, arXiv:2104.04473,
    /// section 2.2).
    pub(crate) fn in_flight(&self, stage: usize) -> f64 {
        if self.is_dual {
            // of each of a rank's two stages half of the stages and one (arXiv:2412.19437, table 2)
            return (0.5 * (self.pp + 1) as f64).min(0.5 * self.micro_batches() as f64);
        }
        let ahead = self.pp - 1 - stage;
        let passes = match self.chunks {
            1 => ahead + 1,
            chunks => 2 * ahead + (chunks - 1) * self.pp + 1,
        };
        let chunks = self.chunks as f64;
        (passes as f64).min(self.micro_batches() as f64 * chunks) / chunks
    }

    /// The combinations of micro-batches that a rank of the stage holds at once, by model chunk.
    pub(crate) fn held_by_chunk(&self, stage: usize) -> Vec<Vec<usize>> {
        let parallel = ParallelConfig {
            pp: self.pp,
            virtual_stages: self.chunks,
            ..ParallelConfig::default()
        };
        held_by_chunk(&parallel, stage, self.repeated_micro_batches())
    }

    /// Micro-batches after which the schedule only repeats itself: three rounds of the stages.
    pub(crate) fn repeated_micro_batches(&self) -> usize {
        self.micro_batches().min(3 * self.pp)
    }

    /// The axes as a training of Millrace has them.
    pub(crate) fn parallel(&self, per_node: usize) -> ParallelConfig {
        ParallelConfig {
            tp: self.tp,
            cp: self.cp,
            pp: self.pp,
            dp: self.dp,
            ep: self.ep,
            virtual_stages: self.chunks,
            count_embedding: self.counts_ends,
            count_head: self.counts_ends,
            sequence: self.is_sequence_parallel,
            zero: self.zero,
            ranks_per_node: per_node.min(self.devices()),
            order: self.order().into(),
            ..ParallelConfig::default()
        }
    }

    /// The first rule that the layout breaks; `None` if it can run.
    pub(crate) fn contradiction(
        &self,
        shape: &Shape,
        devices: usize,
        per_node: usize,
    ) -> Option<String> {
        let divides = |whole: &str, by: usize, axis: &str| {
            Some(format!("{axis} {by} does not divide the {whole}"))
        };
        let found = self.devices();
        if found != devices {
            return Some(format!(
                "tp {} x cp {} x pp {} x dp {} = {found} devices, not {devices}",
                self.tp, self.cp, self.pp, self.dp
            ));
        }
        if self.tp > per_node {
            return Some(format!(
                "tp {} is more than the {per_node} devices of a node",
                self.tp
            ));
        }
        if !shape.heads.is_multiple_of(self.tp) {
            return divides("heads", self.tp, "tp");
        }
        if !shape.kv_heads.is_multiple_of(self.tp) {
            return divides("key and value heads", self.tp, "tp");
        }
        let lengths = [
            Some(shape.seq_length),
            shape.decoder.map(|decoder| decoder.length),
        ];
        let is_cut = |length: usize| length.is_multiple_of(2 * self.cp * self.tp);
        if !lengths.into_iter().flatten().all(is_cut) {
            return divides("halves of the sequence", self.cp * self.tp, "cp x tp");
        }
        let counted = 2 * usize::from(self.counts_ends);
        let layers = shape.blocks().saturating_add(counted);
        if !layers.is_multiple_of(self.pp * self.chunks) && !self.is_uneven(shape) {
            return divides("layers", self.pp * self.chunks, "pp x virtual stages");
        }
        if !self.global_batch.is_multiple_of(self.micro_batch * self.dp) {
            return divides(
                "global batch",
                self.micro_batch * self.dp,
                "micro-batch x dp",
            );
        }
        if let Some(mixture) = &shape.mixture {
            for (whole, of) in [
                ("experts", mixture.experts),
                ("data-parallel ranks", self.dp),
            ] {
                if !of.is_multiple_of(self.ep) {
                    return divides(whole, self.ep, "ep");
                }
            }
        }
        if self.is_dual {
            let (pp, micro_batches) = (self.pp, self.micro_batches());
            let is_even = pp.is_multiple_of(2) && micro_batches.is_multiple_of(2);
            if !is_even || self.chunks > 1 || micro_batches < 2 * pp {
                return Some(format!(
                    "DualPipe has an even pp without virtual stages, and an even number of micro-batches of 2 pp at least, not pp {pp} with {micro_batches}"
                ));
            }
        }
        if self.chunks > 1 && !self.micro_batches().is_multiple_of(self.pp) {
            return divides("micro-batches of virtual stages", self.pp, "pp");
        }
        None
    }

    /// Its settings by the names of the job's keys.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.dp, "ep": self.ep, "virtual_stages": self.chunks,
            "micro_batch": self.micro_batch, "zero": self.zero, "sequence": self.is_sequence_parallel, "order": self.order(),
            "recompute": self.recompute.name(), "recompute_layers": self.recompute.layers(),
            "precision": precision_name(self.precision),
        })
    }

    /// Its settings in a line.
    pub(crate) fn words(&self) -> String {
        format!(
            "tp {} cp {} pp {} dp {} micro-batch {} ZeRO {} recompute {} {}",
            self.tp,
            self.cp,
            self.pp,
            self.dp,
            self.micro_batch,
            self.zero,
            self.recompute.column(),
            precision_name(self.precision),
        )
    }

    /// Heads of `columns`.
    pub(crate) const HEADS: &str =
        "  tp  cp  pp   v   dp  ep  micro zero seq recompute precision outer";

    /// Its settings as columns of a table.
    pub(crate) fn columns(&self) -> String {
        format!(
            "{:>4}{:>4}{:>4}{:>4}{:>5}{:>4}{:>7}{:>5} {:>3} {:<9} {:<9} {:<5}",
            self.tp,
            self.cp,
            self.pp,
            self.chunks,
            self.dp,
            self.ep,
            self.micro_batch,
            self.zero,
            if self.is_sequence_parallel {
                "yes"
            } else {
                "no"
            },
            self.recompute.column(),
            precision_name(self.precision),
            // the axis whose ranks are farthest apart, where there are two
            match (self.pp > 1 && self.dp > 1, self.is_data_outermost) {
                (false, _) => "-",
                (true, false) => "pp",
                (true, true) => "dp",
            },
        )
    }

    /// The `[parallel]` table and the keys of `[train]` that belong to it.
    pub(crate) fn to_toml(self, shape: &Shape, per_node: usize) -> String {
        let per_node = per_node.min(self.devices());
        let stages = match self.uneven_layers(shape) {
            none if none.is_empty() => String::new(),
            layers => format!("stage_layers = {layers:?}\n"),
        };
        let again = match self.recompute {
            Recompute::Layers(number) => format!("recompute_layers = [{number}]\n"),
            // a list of the job does not belong to another method
            Recompute::None | Recompute::Selective | Recompute::Full => {
                "recompute_layers = []\n".into()
            }
        };
        format!(
            "[parallel]\ntp = {}\ncp = {}\npp = {}\ndp = {}\nep = {}\nvirtual_stages = {}\n{stages}count_embedding = {}\ncount_head = {}\nsequence = {}\nzero = {}\noverlap = {}\nranks_per_node = {per_node}\norder = \"{}\"\n\n[train]\nmicro_batch = {}\nglobal_batch = {}\nrecompute = \"{}\"\n{again}precision = \"{}\"\n",
            self.tp,
            self.cp,
            self.pp,
            self.dp,
            self.ep,
            self.chunks,
            self.counts_ends,
            self.counts_ends,
            self.is_sequence_parallel,
            self.zero,
            self.overlap,
            self.order(),
            self.micro_batch,
            self.global_batch,
            self.recompute.name(),
            precision_name(self.precision),
        )
    }
}

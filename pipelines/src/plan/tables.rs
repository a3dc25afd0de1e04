//! Published step times and the planner's: `millrace plan --check-tables`.

use crate::plan::cluster::Cluster;
use crate::plan::layout::{Layout, Recompute};
use crate::plan::memory::rank_bytes;
use crate::plan::rates::{CONSTANTS, Constants};
use crate::plan::shape::Shape;
use crate::plan::time::step_time;
use anyhow::Result;
use serde::Serialize;

/// A published run.
pub(super) struct Published {
    pub source: &'static str,
    pub name: String,
    pub cluster: &'static str,
    pub devices: usize,
    pub shape: Shape,
    pub layout: Layout,
    /// Whether products of layers are of 8 bits.
    pub is_fp8: bool,
    /// Seconds of a step.
    pub seconds: f64,
    /// Whether the constants are fitted on it.
    pub is_fitted: bool,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Paper or file, and table.
    pub source: &'static str,
    /// Model and layout.
    pub row: String,
    /// Devices.
    pub gpus: usize,
    /// Seconds of a step as published or as follows from the published FLOP/s.
    pub published_s: f64,
    /// Seconds of a step by the planner; null where the layout is refused.
    pub predicted_s: Option<f64>,
    /// `predicted_s / published_s - 1`.
    pub error: Option<f64>,
    /// Whether the fullest rank fits in a device's memory.
    pub fits: bool,
    /// Whether the constants are fitted on this row.
    pub fitted: bool,
    /// Contradiction because of which the row is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// All published rows beside the planner's times.
///
/// # Errors
/// None of a complete build: the clusters are part of it.
pub(crate) fn check_tables() -> Result<Vec<Row>> {
    published().iter().map(|of| row(of, &CONSTANTS)).collect()
}

fn row(of: &Published, constants: &Constants) -> Result<Row> {
    let cluster = Cluster::load(of.cluster)?;
    let cluster = match of.is_fp8 {
        true => cluster.in_fp8(),
        false => cluster,
    };
    let refused = of
        .layout
        .contradiction(&of.shape, of.devices, cluster.devices_per_node);
    let predicted = match refused {
        Some(_) => None,
        None => Some(step_time(&of.shape, &of.layout, &cluster, constants).total),
    };
    Ok(Row {
        source: of.source,
        row: of.name.clone(),
        gpus: of.devices,
        published_s: of.seconds,
        predicted_s: predicted,
        error: predicted.map(|found| found / of.seconds - 1.0),
        fits: refused.is_none() && rank_bytes(&of.shape, &of.layout).total() <= cluster.memory,
        fitted: of.is_fitted,
        refused,
    })
}

/// A row of a table of GPT models on DGX A100.
struct GptRow {
    name: &'static str,
    layers: usize,
    width: usize,
    heads: usize,
    pp: usize,
    chunks: usize,
    tp: usize,
    devices: usize,
    global: usize,
    micro: usize,
}

impl GptRow {
    fn shape(&self) -> Shape {
        Shape::gpt(self.layers, self.width, self.heads)
    }

    /// Full recomputation, nothing hidden: as before sequence parallelism.
    fn layout(&self) -> Layout {
        Layout {
            tp: self.tp,
            pp: self.pp,
            chunks: self.chunks,
            dp: self.devices / (self.tp * self.pp),
            micro_batch: self.micro,
            recompute: Recompute::Full,
            ..Layout::one(self.global)
        }
    }

    fn published(&self, source: &'static str, seconds: f64) -> Published {
        Published {
            source,
            name: self.name.into(),
            cluster: "dgx-a100",
            devices: self.devices,
            shape: self.shape(),
            layout: self.layout(),
            seconds,
            is_fitted: false,
            is_fp8: false,
        }
    }
}

/// A line of `GptRow`s.
macro_rules! gpt {
    ($name:literal, $layers:literal/$width:literal/$heads:literal, tp $tp:literal, pp $pp:literal x $chunks:literal, $devices:literal, $global:literal/$micro:literal) => {
        GptRow {
            name: $name,
            layers: $layers,
            width: $width,
            heads: $heads,
            tp: $tp,
            pp: $pp,
            chunks: $chunks,
            devices: $devices,
            global: $global,
            micro: $micro,
        }
    };
}

/// Every row. Sources: Narayanan et al. 2021 (arXiv:2104.04473), table 1, with the layouts of Megatron-LM's
/// `examples/sc21/run_table_1.sh`, and its README's 175B; its table 2; the results of NVIDIA's NeMo-Megatron-Launcher 23.04 with the layouts of
/// its `conf/training/gpt3`; Korthikanti et al. 2022 (arXiv:2205.05198), table 5; Smith et al. 2022
/// (arXiv:2201.11990), section 5.2; Megatron-LM's `images/model_table.png` at commit d98e8a6 (Megatron Core 0.8 on H100, sequences of 4,096 and a vocabulary
/// of 131,072 by its README); Llama 3 (arXiv:2407.21783), table 4; Mixtral 8x7B by Megatron Core's
/// `megatron/core/transformer/moe/README.md` at commit 022bcb5: its reference mapping of version 0.8, and the TFLOP/s that it states for 0.9;
/// BERT and T5 by the NeMo Framework User Guide, "BERT Results" and "T5 Results", with the layouts of NeMo's launcher (`conf/training`), and T5 11B
/// by t5x's `t5x/contrib/gpu/README.md` at commit 0fc080d; DeepSeek-V2 (arXiv:2405.04434, section 3.2.3) and V3 (arXiv:2412.19437, section 1).
pub(super) fn published() -> Vec<Published> {
    let mut rows = narayanan();
    rows.extend(zero3());
    rows.extend(nemo());
    rows.extend(korthikanti());
    rows.extend(mt_nlg());
    rows.extend(megatron_core());
    rows.extend(llama());
    rows.push(mixtral());
    rows.extend(bert());
    rows.extend(t5());
    rows.extend(deepseek());
    rows
}

fn narayanan() -> Vec<Published> {
    // with TFLOP/s per device
    let rows = [
        (gpt!("1.7B", 24/2304/24, tp 1, pp 1 x 1, 32, 512/16), 137.0),
        (gpt!("3.6B", 30/3072/32, tp 2, pp 1 x 1, 64, 512/16), 138.0),
        (gpt!("7.5B", 36/4096/32, tp 4, pp 1 x 1, 128, 512/16), 142.0),
        (
            gpt!("18.4B", 40/6144/48, tp 8, pp 1 x 1, 256, 1024/8),
            135.0,
        ),
        (
            gpt!("39.1B", 48/8192/64, tp 8, pp 2 x 1, 512, 1536/4),
            138.0,
        ),
        (
            gpt!("76.1B", 60/10240/80, tp 8, pp 4 x 3, 1024, 1792/2),
            140.0,
        ),
        (
            gpt!("145.6B", 80/12288/96, tp 8, pp 8 x 2, 1536, 2304/2),
            148.0,
        ),
        (
            gpt!("310.1B", 96/16384/128, tp 8, pp 16 x 2, 1920, 2160/1),
            155.0,
        ),
        (
            gpt!("529.6B", 105/20480/128, tp 8, pp 35 x 3, 2520, 2520/1),
            163.0,
        ),
        (
            gpt!("1008B", 128/25600/160, tp 8, pp 64 x 2, 3072, 3072/1),
            163.0,
        ),
    ];
    let fitted = rows.iter().map(|(row, tflops)| {
        let flop = with_recomputation(&row.shape(), row.global as f64);
        let seconds = flop / (row.devices as f64 * tflops * 1e12);
        Published {
            is_fitted: true,
            ..row.published("2104.04473 table 1", seconds)
        }
    });
    let mut found: Vec<Published> = fitted.collect();
    let readme = gpt!("175B", 96/12288/96, tp 8, pp 16 x 1, 1024, 1536/1);
    found.push(readme.published("Megatron-LM README (2021)", 32.0));
    found
}

/// ZeRO-3 without model parallelism. The paper does not say whether anything travelled beside work; DeepSpeed's `overlap_comm` was
/// off unless it was set (`ZERO_OPTIMIZATION_OVERLAP_COMM_DEFAULT = False`), and the rows are planned so.
fn zero3() -> Vec<Published> {
    // with TFLOP/s per device
    let rows = [
        (
            gpt!("175B, ZeRO-3", 96/12288/96, tp 1, pp 1 x 1, 384, 1536/4),
            144.0,
        ),
        (
            gpt!("175B, ZeRO-3", 96/12288/96, tp 1, pp 1 x 1, 768, 1536/2),
            88.0,
        ),
        (
            gpt!("175B, ZeRO-3", 96/12288/96, tp 1, pp 1 x 1, 1536, 1536/1),
            44.0,
        ),
        (
            gpt!("530B, ZeRO-3", 105/20480/128, tp 1, pp 1 x 1, 640, 2560/4),
            138.0,
        ),
        (
            gpt!("530B, ZeRO-3", 105/20480/128, tp 1, pp 1 x 1, 1120, 2240/2),
            98.0,
        ),
        (
            gpt!("530B, ZeRO-3", 105/20480/128, tp 1, pp 1 x 1, 2240, 2240/1),
            48.0,
        ),
    ];
    let of = |(row, tflops): &(GptRow, f64)| {
        let flop = with_recomputation(&row.shape(), row.global as f64);
        let seconds = flop / (row.devices as f64 * tflops * 1e12);
        let plain = row.published("2104.04473 table 2", seconds);
        Published {
            layout: Layout {
                zero: 3,
                ..plain.layout
            },
            ..plain
        }
    };
    rows.iter().map(of).collect()
}

/// NVIDIA's launcher at 23.04: 5B on data-parallel ranks alone, and 175B with sequence parallelism and six virtual stages; attention is not
/// fused, and computed again, without which 5B would not fit on a node. Of eight nodes the table does not say how 128 ranks of a replica
/// become 64: half of the stages, with as many layers in a chunk.
fn nemo() -> Vec<Published> {
    const SOURCE: &str = "NeMo 23.04 results";
    let small = Layout {
        micro_batch: 2,
        zero: 1,
        recompute: Recompute::Selective,
        ..Layout::one(2048)
    };
    let large = |pp, chunks| Layout {
        tp: 8,
        pp,
        chunks,
        zero: 1,
        is_sequence_parallel: true,
        recompute: Recompute::Selective,
        ..Layout::one(2048)
    };
    let rows = [
        Throughput::of(1, 40_345.0),
        Throughput::of(2, 79_815.0),
        Throughput::of(4, 161_754.0),
        Throughput::of(8, 312_774.0),
        Throughput::of(16, 659_481.0),
        Throughput::of(32, 1_159_288.0),
    ];
    let of = |row: &Throughput| row.published(SOURCE, "GPT 5B", Shape::gpt(24, 4096, 32), small);
    let mut found: Vec<Published> = rows.iter().map(of).collect();
    let gpt3 = Shape::gpt(96, 12_288, 96);
    let half = Throughput::of(8, 7500.0);
    found.push(half.published(SOURCE, "GPT 175B, pp 8", gpt3, large(8, 12)));
    let rows = [
        Throughput::of(16, 14_950.0),
        Throughput::of(32, 29_537.0),
        Throughput::of(64, 58_211.0),
        Throughput::of(128, 109_684.0),
    ];
    let of = |row: &Throughput| row.published(SOURCE, "GPT 175B, pp 16", gpt3, large(16, 6));
    found.extend(rows.iter().map(of));
    found
}

/// 2104.04473, equation 3: F = 96 B s L h^2 (1 + s/(6h) + V/(16 L h)).
fn with_recomputation(shape: &Shape, sequences: f64) -> f64 {
    let model = shape.model_flop(sequences, 1.0);
    let tokens = sequences * shape.seq_length as f64;
    let head = 6.0 * tokens * shape.end_parameters();
    (model - head) * 4.0 / 3.0 + head
}

fn korthikanti() -> Vec<Published> {
    // with seconds of full recomputation, and of sequence parallelism with selective recomputation
    let rows = [
        (
            gpt!("22B", 48/6144/64, tp 8, pp 1 x 1, 8, 4/4),
            [1.42, 1.10],
        ),
        (
            gpt!("175B", 96/12288/96, tp 8, pp 8 x 3, 64, 64/1),
            [18.13, 13.75],
        ),
        (
            gpt!("530B", 105/20480/128, tp 8, pp 35 x 3, 280, 280/1),
            [49.05, 37.83],
        ),
        (
            gpt!("1T", 128/25600/160, tp 8, pp 64 x 1, 512, 512/1),
            [94.42, 71.49],
        ),
        (
            gpt!("530B, dp 8", 105/20480/128, tp 8, pp 35 x 3, 2240, 2240/1),
            [50.4, 39.15],
        ),
    ];
    let both = |(row, [full, new]): &(GptRow, [f64; 2])| {
        const SOURCE: &str = "2205.05198 table 5";
        let before = row.published(SOURCE, *full);
        let after = row.published(SOURCE, *new);
        [
            Published {
                name: format!("{}, full recomputation", row.name),
                ..before
            },
            Published {
                name: format!("{}, sequence parallel, selective", row.name),
                layout: Layout {
                    is_sequence_parallel: true,
                    recompute: Recompute::Selective,
                    ..after.layout
                },
                ..after
            },
        ]
    };
    rows.iter().flat_map(both).collect()
}

fn mt_nlg() -> Vec<Published> {
    let rows = [
        (
            gpt!("MT-NLG 530B, 280 nodes", 105/20480/128, tp 8, pp 35 x 1, 2240, 1920/1),
            60.1,
        ),
        (
            gpt!("MT-NLG 530B, 350 nodes", 105/20480/128, tp 8, pp 35 x 1, 2800, 1920/1),
            50.2,
        ),
        (
            gpt!("MT-NLG 530B, 420 nodes", 105/20480/128, tp 8, pp 35 x 1, 3360, 1920/1),
            44.4,
        ),
    ];
    let of = |(row, seconds): &(GptRow, f64)| row.published("2201.11990 section 5.2", *seconds);
    rows.iter().map(of).collect()
}

fn llama() -> Vec<Published> {
    struct LlamaRow {
        note: &'static str,
        devices: usize,
        cp: usize,
        dp: usize,
        seq_length: usize,
        /// Sequences per data-parallel rank.
        each: usize,
        tflops: f64,
    }
    let row = |devices, dp, each, tflops| LlamaRow {
        note: "",
        devices,
        cp: 1,
        dp,
        seq_length: 8192,
        each,
        tflops,
    };
    let long = |note, dp| LlamaRow {
        note,
        cp: 16,
        seq_length: 131_072,
        ..row(16_384, dp, 16, 380.0)
    };
    let rows = [
        row(8192, 64, 32, 430.0),
        row(16_384, 128, 16, 400.0),
        long("", 8),
        long(", as first printed", 4),
    ];
    let of = |row: &LlamaRow| {
        let shape = Shape::llama3_405b(row.seq_length);
        let global_batch = row.each * row.dp;
        Published {
            source: "2407.21783 table 4",
            name: format!(
                "Llama 3 405B, {} tokens, cp {}, dp {}{}",
                row.seq_length, row.cp, row.dp, row.note
            ),
            cluster: "dgx-h100",
            devices: row.devices,
            shape,
            layout: Layout {
                tp: 8,
                cp: row.cp,
                pp: 16,
                // one layer each: the first has only the embedding, the last only the head (section 3.3.2)
                chunks: 8,
                dp: row.dp,
                is_sequence_parallel: true,
                zero: 1,
                overlap: true,
                counts_ends: true,
                ..Layout::one(global_batch)
            },
            // the paper's FLOP count half of the scores
            seconds: shape.model_flop(global_batch as f64, 0.5)
                / (row.devices as f64 * row.tflops * 1e12),
            is_fitted: false,
            is_fp8: false,
        }
    };
    rows.iter().map(of).collect()
}

/// The table has no micro-batches and no virtual stages, and does not say whether anything was computed again: here those of the
/// planner's fastest layouts that fit (`rows_without_micro_batches_have_the_fastest_that_fit`). Its README names the overlap of all
/// communication, for which gradients and parameters are those of the distributed optimizer, and the rows of a sequence are shared out.
fn megatron_core() -> Vec<Published> {
    // with TFLOP/s per device
    let rows = [
        (gpt!("1.7B", 24/2048/16, tp 1, pp 1 x 1, 48, 192/1), 408.8),
        (gpt!("7.1B", 30/4096/32, tp 2, pp 1 x 1, 96, 192/1), 465.9),
        (gpt!("16B", 32/6144/48, tp 4, pp 1 x 1, 192, 192/2), 489.1),
        (gpt!("32B", 48/7168/56, tp 8, pp 1 x 1, 384, 192/4), 459.6),
        (gpt!("70B", 84/8192/64, tp 8, pp 2 x 21, 768, 384/4), 419.7),
        (
            gpt!("119B", 92/10240/80, tp 8, pp 4 x 23, 1536, 768/2),
            420.5,
        ),
        (
            gpt!("177B", 96/12288/96, tp 8, pp 6 x 16, 2304, 1152/2),
            432.8,
        ),
        (
            gpt!("314B", 96/16384/128, tp 8, pp 8 x 12, 3072, 1536/1),
            474.4,
        ),
        (
            gpt!("462B", 112/18432/144, tp 8, pp 16 x 7, 6144, 3072/1),
            459.9,
        ),
    ];
    let of = |(row, tflops): &(GptRow, f64)| {
        let shape = Shape {
            vocab: 131_072,
            seq_length: 4096,
            is_fused: true,
            ..row.shape()
        };
        // Megatron's count has all scores
        let flop = shape.model_flop(row.global as f64, 1.0);
        Published {
            cluster: "dgx-h100",
            shape,
            layout: Layout {
                recompute: Recompute::None,
                is_sequence_parallel: row.tp > 1,
                zero: 1,
                overlap: true,
                ..row.layout()
            },
            ..row.published(
                "Megatron-LM README (H100)",
                flop / (row.devices as f64 * tflops * 1e12),
            )
        }
    };
    rows.iter().map(of).collect()
}

fn mixtral() -> Published {
    let shape = Shape::mixtral_8x7b();
    let (devices, global_batch, tflops) = (64, 256, 468.0);
    Published {
        source: "Megatron Core MoE README",
        name: "Mixtral 8x7B, ep 8".into(),
        cluster: "dgx-h100",
        devices,
        layout: Layout {
            pp: 4,
            chunks: 8,
            dp: 16,
            ep: 8,
            zero: 1,
            overlap: true,
            ..Layout::one(global_batch)
        },
        // Megatron's count has all scores
        seconds: shape.model_flop(global_batch as f64, 1.0) / (devices as f64 * tflops * 1e12),
        shape,
        is_fitted: false,
        is_fp8: false,
    }
}

/// A row of tokens or sequences per second.
struct Throughput {
    nodes: usize,
    tokens_per_s: f64,
}

impl Throughput {
    /// Nodes of 8 devices.
    const fn of(nodes: usize, tokens_per_s: f64) -> Throughput {
        Throughput {
            nodes,
            tokens_per_s,
        }
    }

    /// The run with its published tokens, those of the encoder, in place of seconds. Ranks beside the layout's are data-parallel.
    fn published(
        &self,
        source: &'static str,
        name: &str,
        shape: Shape,
        layout: Layout,
    ) -> Published {
        let devices = 8 * self.nodes;
        let of_step = layout.global_batch as f64 * shape.seq_length as f64;
        Published {
            source,
            name: name.into(),
            cluster: "dgx-a100",
            devices,
            shape,
            layout: Layout {
                dp: devices / layout.devices(),
                ..layout
            },
            seconds: of_step / self.tokens_per_s,
            is_fitted: false,
            is_fp8: false,
        }
    }
}

fn bert() -> Vec<Published> {
    // attention computed again, a distributed optimizer, nothing hidden
    let layout = Layout {
        micro_batch: 8,
        recompute: Recompute::Selective,
        zero: 1,
        ..Layout::one(2048)
    };
    let rows = [
        Throughput::of(1, 57_287.0),
        Throughput::of(2, 108_695.0),
        Throughput::of(4, 215_358.0),
        Throughput::of(8, 393_167.0),
        Throughput::of(16, 728_178.0),
    ];
    let of =
        |row: &Throughput| row.published("NeMo BERT Results", "BERT 4B", Shape::bert_4b(), layout);
    rows.iter().map(of).collect()
}

fn t5() -> Vec<Published> {
    const SOURCE: &str = "NeMo T5 Results";
    let layout = |tp, micro_batch, global_batch| Layout {
        tp,
        micro_batch,
        zero: 1,
        ..Layout::one(global_batch)
    };
    let small = Throughput::of(4, 3_273_728.0);
    let mut found = vec![small.published(SOURCE, "T5 220M", Shape::t5_220m(), layout(1, 64, 2048))];
    let rows = [
        Throughput::of(1, 110_769.0),
        Throughput::of(2, 215_579.0),
        Throughput::of(4, 417_644.0),
        Throughput::of(5, 515_100.0),
        Throughput::of(10, 957_506.0),
        Throughput::of(20, 1_626_353.0),
    ];
    let of = |row: &Throughput| row.published(SOURCE, "T5 3B", Shape::t5_3b(), layout(2, 24, 1920));
    found.extend(rows.iter().map(of));
    // sequences of 512 tokens
    let xxl = Throughput::of(64, 1887.0 * 512.0);
    let replicated = Layout {
        zero: 0,
        ..layout(8, 36, 2304)
    };
    found.push(xxl.published("t5x GPU README", "T5 1.1 XXL", Shape::t5_11b(), replicated));
    found
}

/// GPU hours per trillion tokens on H800. The devices of V2 are not published: as many as V3's.
fn deepseek() -> Vec<Published> {
    let row = |source, name: &str, shape: Shape, ep, global_batch, kilohours: f64| {
        let devices = 2048;
        let tokens = global_batch as f64 * shape.seq_length as f64;
        Published {
            source,
            name: name.into(),
            cluster: "h800",
            devices,
            layout: Layout {
                pp: 16,
                dp: 128,
                ep,
                zero: 1,
                overlap: true,
                ..Layout::one(global_batch)
            },
            seconds: tokens / 1e12 * kilohours * 1e3 * 3600.0 / devices as f64,
            shape,
            is_fitted: false,
            is_fp8: false,
        }
    };
    let v2 = Shape::deepseek_v2();
    let v3 = row(
        "2412.19437 section 1",
        "DeepSeek-V3 in fp8, ep 64",
        Shape::deepseek_v3(),
        64,
        15_360,
        180.0,
    );
    let plain = Published { is_fp8: true, ..v3 };
    let dual = Published {
        name: format!("{}, DualPipe", plain.name),
        layout: Layout {
            is_dual: true,
            ..plain.layout
        },
        ..plain
    };
    vec![
        row(
            "2405.04434 section 3.2.3",
            "DeepSeek-V2, ep 8",
            v2,
            8,
            9216,
            172.8,
        ),
        plain,
        dual,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_have_the_seconds_that_follow_from_its_flops() {
        let wanted = [
            3.53, 3.70, 3.70, 9.40, 14.45, 16.06, 24.82, 37.61, 54.08, 102.6,
        ];
        for (row, wanted) in narayanan().iter().zip(wanted) {
            assert!(
                (row.seconds / wanted - 1.0).abs() < 0.002,
                "{}: {} {wanted}",
                row.name,
                row.seconds
            );
        }
    }

    /// The planner chooses the micro-batches and virtual stages that Megatron-LM's table of H100 lacks.
    #[test]
    fn rows_without_micro_batches_have_the_fastest_that_fit() {
        let rows = megatron_core();
        for row in &rows {
            let cluster = Cluster::load(row.cluster).unwrap();
            let seconds = |of: &Layout| step_time(&row.shape, of, &cluster, &CONSTANTS).total;
            let stage = row.shape.layers / row.layout.pp;
            let most = if row.layout.pp == 1 { 1 } else { stage };
            let chunks = (1..=most).filter(|chunks| stage.is_multiple_of(*chunks));
            let all = chunks.flat_map(|chunks| {
                [1, 2, 4, 8].map(|micro_batch| Layout {
                    chunks,
                    micro_batch,
                    ..row.layout
                })
            });
            let fit = all.filter(|of| {
                let refused = of.contradiction(&row.shape, row.devices, cluster.devices_per_node);
                refused.is_none() && rank_bytes(&row.shape, of).total() <= cluster.memory
            });
            let fastest = fit
                .min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
                .unwrap();
            let of = |layout: &Layout| (layout.chunks, layout.micro_batch);
            assert_eq!(of(&row.layout), of(&fastest), "{}", row.name);
        }
        assert_eq!(rows.len(), 9);
    }

    /// The papers take the least model parallelism that fits: half of it does not.
    #[test]
    fn published_layouts_fit_and_those_of_half_their_ranks_do_not() {
        let rows = korthikanti();
        let of_one_pipeline = rows.iter().filter(|row| row.layout.dp == 1);
        let mut count = 0;
        for row in of_one_pipeline {
            let memory = Cluster::load(row.cluster).unwrap().memory;
            assert!(
                rank_bytes(&row.shape, &row.layout).total() <= memory,
                "{}",
                row.name
            );
            let halves = (1..=row.layout.pp / 2).rev();
            let half = halves
                .filter(|pp| row.shape.layers.is_multiple_of(*pp))
                .map(|pp| (row.layout.tp, pp))
                .next();
            let (tp, pp) = half.unwrap_or((row.layout.tp / 2, 1));
            let smaller = Layout {
                tp,
                pp,
                chunks: 1,
                ..row.layout
            };
            let bytes = rank_bytes(&row.shape, &smaller).total();
            assert!(
                bytes > memory,
                "{}: tp {tp} pp {pp} takes {bytes}",
                row.name
            );
            count += 1;
        }
        assert_eq!(count, 8);
    }
}

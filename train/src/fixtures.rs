//! Small plans and samples shared by the tests of several files.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Mutex;

use kernels::rng;

use crate::checkpoint::train_state::TrainState;
use crate::config::moe::{DropPolicy, MoeConfig, RouterScore};
use crate::config::plan::Plan;
use crate::config::{
    Activation, Biases, CheckpointConfig, ClassifyConfig, Determinism, Family, ModelConfig,
    NormKind, NormPlace, ParallelConfig, RopeScaling, TrainConfig,
};
use crate::data::{Sample, Samples};
use crate::metrics::{Events, StepRecord};
use crate::optim::next_step::Next;

/// GPT-2 style, 2 layers, every width different, padded vocabulary.
pub(crate) fn tiny_gpt() -> Plan {
    Plan {
        model: ModelConfig {
            family: Family::Gpt,
            layers: 2,
            d_model: 32,
            heads: 4,
            ..ModelConfig::default()
        },
        parallel: ParallelConfig::default(),
        train: TrainConfig {
            steps: 4,
            global_batch: 8,
            micro_batch: 2,
            lr: 1e-2,
            min_lr: 1e-3,
            warmup_steps: 2,
            eval_every: 2,
            eval_samples: 5,
            checkpoint: CheckpointConfig {
                every: 2,
                keep: 2,
                ..CheckpointConfig::default()
            },
            ..TrainConfig::default()
        },
        vocab: 200,
        seq_length: 16,
        decoder_length: 0,
        predictions: 0,
        start: None,
        eod: None,
        seed: 1234,
        determinism: Determinism::Layout,
        fingerprint: "fixture".into(),
    }
}

/// GPT-NeoX style: parallel layers, a quarter of a head is turned.
pub(crate) fn tiny_neox() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::GptNeox;
    plan.model.rotary_percent = 0.25;
    plan
}

/// Falcon style: parallel layers with one norm, two groups of heads.
pub(crate) fn tiny_falcon() -> Plan {
    let mut plan = tiny_gpt();
    (plan.model.family, plan.model.kv_heads) = (Family::Falcon, 2);
    plan
}

/// BLOOM style: linear biases of scores, a norm of the embedding.
pub(crate) fn tiny_bloom() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::Bloom;
    plan
}

/// OLMo 2 style: norms after the layers, and of all queries and all keys.
pub(crate) fn tiny_olmo() -> Plan {
    let mut plan = tiny_llama();
    plan.model.family = Family::Olmo2;
    plan
}

/// Gemma 3 style: wide heads, every second layer sees all keys.
pub(crate) fn tiny_gemma() -> Plan {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.family, model.head_dim) = (Family::Gemma3, 12);
    (model.sliding_window, model.global_every) = (5, 2);
    (model.rope_theta, model.local_rope_theta) = (1e6, 1e4);
    model.score_divisor = 20.0;
    plan
}

/// Gemma 2 style: every second layer sees all keys, scores and logits are capped.
pub(crate) fn tiny_gemma2() -> Plan {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.family, model.head_dim) = (Family::Gemma2, 12);
    (model.sliding_window, model.global_every) = (5, 2);
    (model.attention_cap, model.logit_cap) = (0.5, 1.5);
    plan
}

/// gpt-oss style: sinks, a layer with a window and one without, experts with biases, YaRN's ramp between pairs.
pub(crate) fn tiny_gpt_oss() -> Plan {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.family, model.head_dim) = (Family::GptOss, 12);
    (model.sliding_window, model.global_every) = (5, 2);
    model.rope_scaling = Some(RopeScaling::Yarn {
        factor: 4.0,
        original_length: 8,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: None,
        mscale: None,
        mscale_all_dim: None,
        truncate: false,
    });
    model.moe = Some(MoeConfig {
        experts: 4,
        biases: true,
        ..MoeConfig::default()
    });
    plan
}

/// DeepSeek-V3 style: latents of queries, of keys and values, stretched positions and scores, a dense layer and one with experts of
/// the best groups, chosen by biased scores, and a shared expert.
pub(crate) fn tiny_deepseek() -> Plan {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.family, model.kv_heads, model.latent_norm_eps) = (Family::DeepseekV3, 0, 1e-6);
    (model.q_lora_rank, model.kv_lora_rank) = (20, 12);
    (model.qk_head_dim, model.qk_pos_emb_head_dim) = (10, 6);
    model.v_head_dim = 14;
    model.rope_scaling = Some(RopeScaling::Yarn {
        factor: 4.0,
        original_length: 8,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: None,
        mscale: Some(0.7),
        mscale_all_dim: Some(0.9),
        truncate: true,
    });
    model.moe = Some(MoeConfig {
        experts: 8,
        top_k: 3,
        d_ffn: 16,
        dense_first: 1,
        score: RouterScore::Sigmoid,
        expert_bias: true,
        scale: 1.5,
        num_groups: 4,
        group_topk: 2,
        shared_d_ffn: 16,
        ..MoeConfig::default()
    });
    plan
}

/// DeepSeek-V2-Lite style: queries are a projection of the rows, experts are chosen by softmax.
pub(crate) fn tiny_deepseek_v2() -> Plan {
    let mut plan = tiny_deepseek();
    let model = &mut plan.model;
    (model.family, model.q_lora_rank, model.rope_scaling) = (Family::DeepseekV2, 0, None);
    if let Some(moe) = &mut model.moe {
        (moe.score, moe.expert_bias) = (RouterScore::SoftmaxTopK, false);
        moe.shared_d_ffn = 32;
    }
    plan
}

/// OPT style: as GPT-2, with two rows before the first position.
pub(crate) fn tiny_opt() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::Opt;
    plan
}

/// LLaMA style with grouped keys.
pub(crate) fn tiny_llama() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::Llama;
    plan.model.kv_heads = 2;
    plan.model.d_ffn = 48;
    plan
}

/// Step `step`, counted from 1, of a plan whose steps are all alike.
pub(crate) fn nth_step(plan: &Plan, step: u64) -> Next {
    let mut train_state = TrainState::start();
    train_state.step = step - 1;
    train_state.consumed_samples = (step - 1) * plan.train.global_batch as u64;
    train_state.next(plan)
}

/// Mixtures of 4 experts with everything that a mixture can have, every second layer.
pub(crate) fn tiny_moe() -> Plan {
    let mut plan = tiny_llama();
    plan.model.moe = Some(MoeConfig {
        experts: 4,
        d_ffn: 24,
        every: 2,
        z_loss: 0.001,
        capacity_factor: 1.25,
        drop: DropPolicy::Probability,
        shared_d_ffn: 16,
        shared_gate: true,
        ..MoeConfig::default()
    });
    plan
}

/// A masked encoder, pre-norm.
pub(crate) fn tiny_bert() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::Bert;
    plan.predictions = 4;
    plan
}

/// An encoder and a decoder, both of them with two layers.
pub(crate) fn tiny_t5() -> Plan {
    let mut plan = tiny_gpt();
    plan.model.family = Family::T5;
    (
        plan.model.relative_buckets,
        plan.model.relative_max_distance,
    ) = (8, 12);
    (plan.seq_length, plan.decoder_length, plan.start) = (24, 16, Some(0));
    plan
}

/// Plans that use every model option beyond the families' choices at least once.
pub(crate) fn options() -> Vec<Plan> {
    let with = |plan: Plan, set: fn(&mut Plan, &mut ModelConfig)| {
        let (mut plan, mut model) = (plan.clone(), plan.model);
        set(&mut plan, &mut model);
        Plan { model, ..plan }
    };
    vec![
        with(tiny_gpt(), |plan, model| {
            (model.norm, model.activation) = (Some(NormKind::Rms), Some(Activation::Geglu));
            (model.bias, model.kv_heads) = (Some(Biases::None), 2);
            (model.dropout, model.attention_dropout) = (0.2, 0.1);
            (plan.eod, plan.train.reset_attention_mask) = (Some(3), true);
            (plan.train.reset_position_ids, plan.train.eod_mask_loss) = (true, true);
        }),
        with(tiny_llama(), |_, model| {
            (model.norm, model.activation) = (Some(NormKind::Layer), Some(Activation::SquaredRelu));
            (model.family, model.head_dim, model.sliding_window) = (Family::Qwen2, 12, 5);
            (model.rotary_percent, model.attention_dropout) = (0.5, 0.3);
        }),
        with(tiny_llama(), |plan, model| {
            (model.family, model.sliding_window) = (Family::Qwen3, 7);
            (plan.eod, plan.train.reset_attention_mask) = (Some(3), true);
            (plan.train.reset_position_ids, model.dropout) = (true, 0.1);
            model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
        }),
        with(tiny_llama(), |_, model| {
            (model.parallel_residual, model.dropout) = (Some(true), 0.2);
        }),
        with(tiny_olmo(), |plan, model| {
            // rows of all layers are as large as its norms make them, beside small embeddings
            (plan.train.lr, model.init_std) = (3e-2, 0.2);
        }),
        tiny_gemma2(),
        with(tiny_gemma(), |_, model| {
            model.rope_scaling = Some(RopeScaling::Linear { factor: 8.0 });
        }),
        with(tiny_gpt(), |_, model| {
            model.norm_place = Some(NormPlace::Both)
        }),
    ]
}

/// Samples that a plan's model learns from.
pub(crate) fn samples_of(plan: &Plan) -> Box<dyn Samples> {
    let architecture = plan.model.architecture();
    if plan.model.classify.is_some() {
        Box::new(Labels::of(plan))
    } else if architecture.is_encoder_decoder {
        Box::new(Gaps::of(plan))
    } else if architecture.is_masked {
        Box::new(Blanks::of(plan))
    } else {
        Box::new(Chain::of(plan))
    }
}

/// Learnable sequences: each token follows from the one before, with some noise.
pub(crate) struct Chain {
    pub count: u64,
    pub vocab: u32,
    /// Reading this sample fails, as if the process were killed there.
    pub fails_at: Option<u64>,
}

impl Chain {
    pub(crate) fn of(plan: &Plan) -> Chain {
        Chain {
            count: 1000,
            vocab: u32::try_from(plan.vocab).unwrap(),
            fails_at: None,
        }
    }
}

/// A chain's sequences, of different lengths, with 0 to 4 tokens masked.
pub(crate) struct Blanks(Chain);

impl Blanks {
    pub(crate) fn of(plan: &Plan) -> Blanks {
        Blanks(Chain::of(plan))
    }
}

impl Samples for Blanks {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let masked = sample.masked()?;
        let t = masked.tokens.len();
        self.0.fill(index, &mut masked.targets)?;
        masked.is_swapped = index % 3 == 1;
        masked.length = t - usize::try_from(index % 4)?;
        masked.counts.fill(false);
        for hidden in 0..usize::try_from(index % 5)? {
            let at = hidden * 3 + usize::try_from(index % 3)?;
            masked.counts[at] = at < masked.length;
        }
        masked.tokens.copy_from_slice(&masked.targets);
        for at in 0..t {
            masked.segments[at] = u32::from(at > t / 2);
            if masked.counts[at] {
                masked.tokens[at] = 1;
            }
        }
        Ok(())
    }
}

/// A chain's sequences with two tokens masked for the decoder to generate, of different lengths.
pub(crate) struct Gaps(Chain);

impl Gaps {
    pub(crate) fn of(plan: &Plan) -> Gaps {
        Gaps(Chain::of(plan))
    }
}

impl Samples for Gaps {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let spans = sample.spans()?;
        self.0.fill(index, &mut spans.tokens)?;
        spans.length = spans.tokens.len() - usize::try_from(index % 4)?;
        let written = spans.targets.len() - usize::try_from(index % 5)?;
        for at in 0..spans.targets.len() {
            spans.targets[at] = spans.tokens[at] % 7;
            spans.counts[at] = at < written;
            spans.decoder_tokens[at] = match at {
                0 => 0,
                _ => spans.targets[at - 1],
            };
        }
        spans.tokens[3] = 1;
        Ok(())
    }
}

/// A chain's sequences, of different lengths, whose second token tells the label; of choices it marks the right one.
pub(crate) struct Labels {
    pub chain: Chain,
    pub head: ClassifyConfig,
}

impl Labels {
    pub(crate) fn of(plan: &Plan) -> Labels {
        Labels {
            chain: Chain::of(plan),
            head: plan
                .model
                .classify
                .clone()
                .expect("a plan with a classification head"),
        }
    }
}

impl Samples for Labels {
    fn len(&self) -> u64 {
        self.chain.count
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let to = sample.labelled()?;
        self.chain.fill(index, &mut to.tokens)?;
        let choices = self.head.choices as u64;
        let draw = rng::uniform(9, index / choices, 0) * self.head.labels() as f64;
        to.label = (0..=u32::try_from(self.head.labels() - 1)?)
            .rev()
            .find(|label| draw >= f64::from(*label))
            .unwrap_or(0);
        let is_right = u64::from(to.label) == index % choices;
        let number = rng::uniform(9, index, 1) > 0.5;
        to.number = f32::from(u8::from(number));
        to.tokens[1] = match self.head.choices {
            1 if self.head.is_regression() => 10 + u32::from(number),
            1 => 10 + to.label,
            _ => 10 + u32::from(is_right),
        };
        to.length = to.tokens.len() - usize::try_from(index % 4)?;
        for (at, segment) in to.segments.iter_mut().enumerate() {
            *segment = u32::from(at > to.tokens.len() / 2);
        }
        Ok(())
    }
}

impl Samples for Chain {
    fn len(&self) -> u64 {
        self.count
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.fill(index, &mut sample.text()?.tokens)
    }
}

impl Chain {
    fn fill(&self, index: u64, tokens: &mut [u32]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if self.fails_at == Some(index) {
            return Err("injected".into());
        }
        let mut token = u32::try_from(index).unwrap() % self.vocab;
        for (at, out) in (0u64..).zip(tokens) {
            if rng::uniform(5, index, at) < 0.1 {
                token += 1;
            }
            token = (token * 7 + 3) % self.vocab;
            *out = token;
        }
        Ok(())
    }
}

/// Records reported events, one line each, and the ops' instruction set.
#[derive(Default)]
pub(crate) struct Log(pub Mutex<Vec<String>>, pub Mutex<String>);

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Events for Log {
    fn step(&self, record: &StepRecord) {
        self.push(format!("step {}", record.step));
    }

    fn validation(&self, set: &str, step: u64, _loss: f64) {
        match set {
            "valid" => self.push(format!("validation {step}")),
            _ => self.push(format!("validation {step} {set}")),
        }
    }

    fn checkpoint(&self, step: u64, path: &Path) {
        assert!(path.join("state.json").exists());
        self.push(format!("checkpoint {step}"));
    }

    fn kernels(&self, path: &kernels::CpuPath) {
        *self.1.lock().unwrap() = path.to_string();
    }

    fn resumed(&self, step: u64) {
        self.push(format!("resumed {step}"));
    }

    fn note(&self, note: &str) {
        self.push(format!("note {note}"));
    }
}

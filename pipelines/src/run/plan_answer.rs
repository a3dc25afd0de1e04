//! The answer of `plan` for a training: ranked and rejected layouts, and the fastest one in detail, as text and as JSON.

use super::plan_bytes::{bytes, exact, gb};
use super::plan_question::{accepted, plan_of};
use super::plan_training::{Training, parameters};
use crate::job::Job;
use crate::machine::duration;
use crate::plan::{
    Asked, Gantt, Host, Layout, Placement, Planned, Rejected, by_rate, by_setting, host_bytes,
    in_next_precisions, precision_to_json, stage_bytes,
};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use train::trainer::memory::{StageMemory, predict_stages};

/// The answer of `plan` to a question.
pub(super) struct Answer<'a> {
    pub job: &'a Job,
    pub asked: &'a Asked<'a>,
    /// Layouts that fit, the fastest first.
    pub planned: &'a [Planned],
    /// Other numbers of devices on which a layout fits, if none does on those that were asked for.
    pub devices_that_fit: Vec<usize>,
    /// Layouts to show.
    pub top: usize,
    pub rejected: &'a [Rejected],
    /// Layouts that would fit with the optimizer's state in host memory, the fastest first, if they were looked for.
    pub offloaded: Option<&'a [Planned]>,
    /// Layouts that would fit with DualPipe, the fastest first, if they were asked for.
    pub dual: Option<&'a [Planned]>,
    /// In place of rates that the cluster has not.
    pub assumed: Vec<&'static str>,
    /// Memory of the best layout's stages as Millrace holds them, once it was asked for.
    pub held: OnceCell<Option<Vec<StageMemory>>>,
    /// Place of the fastest layout that Millrace holds, once it was looked for.
    pub place: OnceCell<Option<usize>>,
}

/// The fastest layout that Millrace holds.
struct Best<'a> {
    /// Among the layouts that fit.
    place: usize,
    of: &'a Planned,
}

/// Said where the best layout has ZeRO-3, by the rows of `--check-tables`.
const OPTIMISTIC_ZERO3: &str =
    "ZeRO-3 as fast as its rings: published runs took 1.1 to 2.1 times as long (--check-tables)";

/// Layouts among which the nearest one is looked for where Millrace holds none.
const LOOKED_AT: usize = 1000;

/// Bytes of the fullest rank of all stages.
fn predicted_fullest(stages: &[StageMemory]) -> Option<usize> {
    let totals = stages.iter().map(|stage| stage.fullest.total());
    totals.max()
}

/// Rejected layouts with one reason.
struct Reason<'a> {
    count: usize,
    /// The one that lacks least memory, or the first one of the search.
    example: &'a Rejected,
}

/// The head of layouts with the optimizer's state in host memory.
const ESTIMATE: &str = "optimizer state in host memory (ZeRO-Offload), an estimate: Millrace does not train so, and no keys of this answer are of these layouts";

/// The head of layouts with DualPipe.
const DUAL_ESTIMATE: &str = "DualPipe (all-to-alls behind the computation of another micro-batch), an estimate: Millrace does not train so, and no keys of this answer are of these layouts";

fn rejected(of: &Rejected) -> Value {
    json!({"layout": of.layout.to_json(), "reason": of.reason, "memory_gb": of.bytes.map(gb)})
}

impl Answer<'_> {
    fn training(&self, best: &Planned) -> Training {
        let parameters = self.parameters();
        Training::of(self.job, self.asked, best, parameters)
    }

    /// Parameters of the model, as `train` counts them.
    fn parameters(&self) -> f64 {
        let any = self.planned.first().map(|of| of.layout);
        let any = any.unwrap_or(Layout::one(self.asked.global_batch));
        parameters(
            &self.asked.shape,
            plan_of(self.job, self.asked, &any).as_ref(),
        )
    }

    /// The fastest layout that Millrace itself holds, with its place among those that fit by the planner's count of other trainers.
    fn best(&self) -> Option<Best<'_>> {
        let place = *self.place.get_or_init(|| {
            let holds = |of: &Planned| self.is_held(of) == Some(true);
            self.planned.iter().position(holds)
        });
        let place = place?;
        Some(Best {
            place,
            of: &self.planned[place],
        })
    }

    /// Whether Millrace itself holds a layout on every rank; `None` if it has no training of it. Ranks that share memory were compared
    /// by these bytes before.
    fn is_held(&self, of: &Planned) -> Option<bool> {
        let memory = self.asked.cluster.memory;
        if self.asked.cluster.cores.is_some() {
            return Some(true);
        }
        // of these alone Millrace has no fewer, with weights of 4 bytes
        let number = of.layout.number_bytes();
        let least = 4.0 / number * of.memory.weights + of.memory.gradients;
        if least > memory {
            return Some(false);
        }
        let bytes = predicted_fullest(&self.predicted(&of.layout)?)?;
        Some(bytes as f64 <= memory)
    }

    /// The layout with the fewest bytes as Millrace holds them, among the first ones.
    fn nearest_held(&self) -> Option<(&Planned, usize)> {
        let shown = self.planned.iter().take(LOOKED_AT);
        let bytes = shown.filter_map(|of| Some((of, self.exact(&of.layout)?)));
        bytes.min_by_key(|(_, bytes)| *bytes)
    }

    fn tokens_per_step(&self) -> f64 {
        self.asked.global_batch as f64 * self.asked.shape.tokens()
    }

    /// Model FLOP/s per device, counting half of the scores as the kernel computes them.
    fn flops(&self, of: &Planned) -> f64 {
        let flop = self
            .asked
            .shape
            .model_flop(self.asked.global_batch as f64, 0.5);
        flop / (of.time.total * of.layout.devices() as f64)
    }

    /// Bytes that Millrace itself holds on the fullest rank, as `train` predicts them.
    fn exact(&self, layout: &Layout) -> Option<usize> {
        predicted_fullest(&self.predicted(layout)?)
    }

    fn predicted(&self, layout: &Layout) -> Option<Vec<StageMemory>> {
        predict_stages(&plan_of(self.job, self.asked, layout)?).ok()
    }

    fn held(&self, best: &Planned) -> Option<&[StageMemory]> {
        let held = self.held.get_or_init(|| self.predicted(&best.layout));
        held.as_deref()
    }

    /// Those of the cluster's rates, and of the best layout's time.
    fn assumptions(&self) -> Vec<&'static str> {
        let is_zero3 = self.best().is_some_and(|best| best.of.layout.zero == 3);
        let is_told = is_zero3 && self.asked.cluster.cores.is_none();
        let own = is_told.then_some(OPTIMISTIC_ZERO3);
        self.assumed.iter().copied().chain(own).collect()
    }

    /// The first layouts, and the best one that Millrace holds, if it is not among them.
    fn shown(&self) -> Vec<&Planned> {
        let top = self.top.max(1);
        let mut shown: Vec<&Planned> = self.planned.iter().take(top).collect();
        shown.extend(
            self.best()
                .filter(|best| best.place >= top)
                .map(|best| best.of),
        );
        shown
    }

    /// Share of the matrix rate of its devices that the step's model FLOP are; in fp8 of the rate of 8 bits.
    fn utilization(&self, of: &Planned) -> f64 {
        let cluster = self.asked.cluster_in(of.layout.precision);
        let ranks = of.layout.devices();
        // devices that share cores share the rate of their node
        let rates = match cluster.cores {
            Some(_) => ranks.div_ceil(cluster.devices_per_node),
            None => ranks,
        };
        let matrix = cluster.matrix_of_layers.unwrap_or(cluster.matrix);
        self.flops(of) * ranks as f64 / (rates as f64 * matrix)
    }

    /// Rejected layouts by reason: rules of `train` by their key, others without their numbers.
    fn reasons(&self) -> BTreeMap<String, Reason<'_>> {
        let mut reasons: BTreeMap<String, Reason<'_>> = BTreeMap::new();
        for of in self.rejected {
            let reason = match of.reason.split_once(": found") {
                Some((key, _)) => format!("a rule of {key}"),
                None => {
                    let words = of.reason.split_whitespace();
                    let is_number = |word: &str| word.parse::<usize>().is_ok();
                    let words: Vec<&str> = words.filter(|word| !is_number(word)).collect();
                    words.join(" ")
                }
            };
            let entry = reasons.entry(reason).or_insert(Reason {
                count: 0,
                example: of,
            });
            entry.count += 1;
            let lacks = |of: &Rejected| of.bytes.unwrap_or(0.0);
            if lacks(of) < lacks(entry.example) {
                entry.example = of;
            }
        }
        reasons
    }

    /// The layout that lacks least memory, of those that lack some.
    fn nearest(&self) -> Option<&Rejected> {
        let lacking = self.rejected.iter().filter(|of| of.bytes.is_some());
        lacking.min_by(|a, b| a.bytes.unwrap_or(0.0).total_cmp(&b.bytes.unwrap_or(0.0)))
    }

    /// Everything about the layouts, with each rejected one.
    pub(super) fn to_json(&self) -> Value {
        let mut value = self.summary();
        value["rejected"] = self.rejected.iter().map(rejected).collect();
        value
    }

    /// The same with rejected layouts by reason alone.
    pub(super) fn summary(&self) -> Value {
        let (asked, cluster) = (self.asked, self.asked.cluster);
        let found = self.best();
        let best = found.as_ref().map(|best| best.of);
        let mut reasons: Vec<_> = self.reasons().into_iter().collect();
        reasons.sort_by_key(|(_, of)| std::cmp::Reverse(of.count));
        let reasons = reasons.into_iter().map(|(reason, of)| {
            json!({"reason": reason, "count": of.count, "example": rejected(of.example)})
        });
        json!({
            "job": self.job.name, "cluster": cluster.name, "devices": asked.devices,
            "device_memory_gb": gb(cluster.memory), "ranks_share_memory": cluster.cores.is_some(),
            "parameters": self.parameters(), "global_batch": asked.global_batch, "seq_length": asked.shape.seq_length,
            "layouts_that_fit": self.planned.len(), "layouts_that_do_not": self.rejected.len(),
            "layouts": self.shown().into_iter().map(|of| self.layout(of)).collect::<Vec<_>>(),
            "best": best.map(|best| self.layout(best)), "place_of_best": found.as_ref().map(|best| best.place + 1),
            "nearest_held": self.held_nowhere().map(|(of, _)| self.layout(of)),
            "memory_by_stage": best.map(|best| self.stages(best)), "sensitivity": best.map(|best| self.sensitivity(best)),
            "placement": best.map(|best| Placement::new(&best.layout, cluster).to_json()),
            "training": best.map(|best| self.training(best).to_json()), "rejected_by_reason": reasons.collect::<Vec<_>>(),
            "devices_that_fit": self.devices_that_fit,
            "nearest": self.nearest().filter(|_| self.planned.is_empty()).map(rejected), "assumed": self.assumptions(), "offload": self.offload(),
            "dualpipe": self.dualpipe(),
            "toml": best.map(|best| best.layout.to_toml(&asked.shape, cluster.devices_per_node)),
        })
    }

    fn layout(&self, of: &Planned) -> Value {
        let held = self.exact(&of.layout);
        self.layout_with(of, held.map(|bytes| bytes as f64))
    }

    /// A layout with the bytes that Millrace holds on its fullest rank, if they are known.
    fn layout_with(&self, of: &Planned, held: Option<f64>) -> Value {
        let devices = of.layout.devices();
        let rate = self.tokens_per_step() / of.time.total;
        let time = &of.time;
        let others = time.bubble + time.collectives + time.reduction + time.optimizer;
        let mut memory = bytes(&of.memory);
        memory["millrace"] = held.map(gb).into();
        // of ranks that share memory, all of them together were compared
        let holds = match self.asked.cluster.cores {
            Some(_) => Some(true),
            None => held.map(|bytes| bytes <= self.asked.cluster.memory),
        };
        memory["millrace_holds"] = holds.into();
        json!({
            "layout": of.layout.to_json(), "devices": devices, "step_s": time.total, "tokens_per_s": rate,
            "tokens_per_s_per_device": rate / devices as f64, "model_tflops_per_device": self.flops(of) / 1e12,
            "mfu": self.utilization(of), "memory_gb": memory,
            "seconds": {
                "computation": time.total - others, "bubble": time.bubble, "collectives": time.collectives,
                "reduction": time.reduction, "optimizer": time.optimizer,
            },
        })
    }

    /// Layouts with the optimizer's state in host memory, if they were looked for.
    fn offload(&self) -> Option<Value> {
        let offloaded = self.offloaded?;
        let row = |of: &Planned| {
            // no training of Millrace
            let mut row = self.layout_with(of, None);
            row["host_gb"] = gb(self.host_bytes(of)).into();
            if let Some(parts) = of.time.offload {
                row["seconds"]["gradients_down"] = parts.down.into();
                row["seconds"]["update"] = parts.update.into();
                row["seconds"]["weights_up"] = parts.up.into();
            }
            row
        };
        Some(json!({
            "estimate": ESTIMATE, "layouts_that_fit": offloaded.len(), "host": Host::of(self.asked.cluster).to_json(),
            "layouts": offloaded.iter().take(self.top.max(1)).map(row).collect::<Vec<_>>(),
        }))
    }

    /// Layouts with DualPipe, if they were asked for.
    fn dualpipe(&self) -> Option<Value> {
        let dual = self.dual?;
        // no training of Millrace
        let rows = dual.iter().take(self.top.max(1));
        let rows = rows.map(|of| self.layout_with(of, None));
        Some(json!({
            "estimate": DUAL_ESTIMATE, "layouts_that_fit": dual.len(), "layouts": rows.collect::<Vec<_>>(),
        }))
    }

    fn write_dual(&self, text: &mut String, dual: &[Planned]) -> std::fmt::Result {
        writeln!(text, "\n{DUAL_ESTIMATE}: {} layouts would fit", dual.len())?;
        if !dual.is_empty() {
            writeln!(text, "{}   step s  TFLOP/s    GB", Layout::HEADS)?;
        }
        for of in dual.iter().take(self.top.max(1)) {
            writeln!(
                text,
                "{}{:>9.3}{:>9.0}{:>6.1}",
                of.layout.columns(),
                of.time.total,
                self.flops(of) / 1e12,
                of.memory.total() / 1e9,
            )?;
        }
        Ok(())
    }

    /// Bytes of a node's own memory.
    fn host_bytes(&self, of: &Planned) -> f64 {
        let per_node = self.asked.cluster.devices_per_node;
        host_bytes(&self.asked.shape, &of.layout, per_node)
    }

    /// The way out of a search in which nothing fits.
    pub(super) fn way_out(&self) -> Option<String> {
        let offloaded = self.offloaded.filter(|_| self.planned.is_empty())?;
        match offloaded.first() {
            Some(best) => Some(format!(
                "; with the optimizer's state in host memory (--offload) {} would, the fastest with {:.3} s a step: an estimate, as Millrace does not train so",
                offloaded.len(),
                best.time.total
            )),
            // layouts that break rules alone lack no memory
            None => self
                .nearest()
                .map(|_| ", nor with the optimizer's state in host memory (--offload)".into()),
        }
    }

    fn write_offloaded(&self, text: &mut String, offloaded: &[Planned]) -> std::fmt::Result {
        writeln!(text, "\n{ESTIMATE}: {} layouts would fit", offloaded.len())?;
        if !offloaded.is_empty() {
            writeln!(
                text,
                "{}   step s    GB  host GB  down s  update s   up s",
                Layout::HEADS
            )?;
        }
        for of in offloaded.iter().take(self.top.max(1)) {
            let Some(parts) = of.time.offload else {
                continue;
            };
            writeln!(
                text,
                "{}{:>9.3}{:>6.1}{:>9.0}{:>8.3}{:>10.3}{:>7.3}",
                of.layout.columns(),
                of.time.total,
                of.memory.total() / 1e9,
                self.host_bytes(of) / 1e9,
                parts.down,
                parts.update,
                parts.up,
            )?;
        }
        for assumption in Host::of(self.asked.cluster).assumed {
            writeln!(text, "assumed: {assumption}")?;
        }
        Ok(())
    }

    /// Memory of a rank of each pipeline stage: by the planner's count, and as Millrace holds it on the fullest one.
    fn stages(&self, best: &Planned) -> Value {
        let shape = &self.asked.shape;
        let own = self.held(best);
        let stage = |stage: usize| {
            let own = own.and_then(|stages| stages.get(stage));
            let mut value = bytes(&stage_bytes(shape, &best.layout, stage));
            value["stage"] = stage.into();
            value["layers"] = best.layout.stage_layers(shape, stage).into();
            value["micro_batches_in_flight"] = best.layout.in_flight(stage).into();
            value["millrace"] = own.map(|of| exact(&of.fullest)).into();
            value
        };
        (0..best.layout.pp).map(stage).collect()
    }

    /// Steps with other rates, and of layouts that differ in one setting.
    fn sensitivity(&self, best: &Planned) -> Value {
        let whole = best.time.total;
        let rates = by_rate(self.asked, best).into_iter().map(|of| {
            json!({"rate": of.key, "factor": of.factor, "step_s": of.step_s, "change": of.step_s / whole - 1.0})
        });
        let settings = by_setting(best, self.planned, self.rejected);
        let settings = settings.iter().map(|of| of.to_json(whole));
        let precisions = in_next_precisions(self.asked, best);
        let precisions = precisions.into_iter().map(|of| {
            let rejected = self.rejection(&of);
            precision_to_json(&of, rejected.as_ref(), whole)
        });
        let settings = settings.chain(precisions);
        json!({"rates": rates.collect::<Vec<_>>(), "settings": settings.collect::<Vec<_>>()})
    }

    /// The reason why a layout that was not searched cannot run.
    fn rejection(&self, of: &Planned) -> Option<Rejected> {
        let cluster = self.asked.cluster;
        if cluster.cores.is_none() && of.memory.total() > cluster.memory {
            return Some(of.too_large());
        }
        let found = accepted(self.job, self.asked, (vec![of.clone()], Vec::new()));
        found.1.into_iter().next()
    }

    /// Where layouts fit by the planner's count and Millrace holds none of them: the nearest, with its bytes.
    fn held_nowhere(&self) -> Option<(&Planned, usize)> {
        match self.best() {
            Some(_) => None,
            None => self.nearest_held(),
        }
    }

    /// Other numbers of devices on which a layout fits, or the keys that decide it.
    fn others_in_words(&self) -> String {
        let counts: Vec<String> = self.devices_that_fit.iter().map(usize::to_string).collect();
        match (counts.is_empty(), self.nearest()) {
            (false, _) => format!("; on {} one does", counts.join(" or ")),
            (true, Some(_)) => "; nor on any more of this cluster".into(),
            (true, None) => {
                "; train.global_batch, model.layers and model.heads have to be divided".into()
            }
        }
    }

    /// The reason why no layout can be trained, if none can.
    pub(super) fn refusal(&self) -> Option<String> {
        if self.best().is_some() {
            return None;
        }
        let devices = self.asked.devices;
        if self.planned.is_empty() {
            let way_out = self.way_out().unwrap_or_default();
            let rules = match self.nearest() {
                Some(_) => "",
                None => ": all break rules, none lacks memory",
            };
            let others = self.others_in_words();
            return Some(format!(
                "no layout of this model fits on {devices} devices{rules}{others}{way_out}"
            ));
        }
        Some(format!(
            "Millrace itself holds no layout of this model on {devices} devices, which keeps weights, gradients and moments in f32; {} fit by the count of trainers in mixed precision",
            self.planned.len()
        ))
    }

    /// The schedule of the best layout, if it has several stages that each have cores of their own.
    pub(super) fn gantt(&self) -> Option<Gantt> {
        let best = self.best()?.of;
        if best.layout.pp == 1 {
            return None;
        }
        let cluster = self.asked.cluster;
        let ranks = best.layout.devices().min(cluster.devices_per_node);
        (cluster.turns(ranks) == 1.0).then(|| Gantt::new(&best.layout, &best.time))
    }

    pub(super) fn to_text(&self) -> String {
        let parameters = self.parameters();
        let count = match parameters < 1e8 {
            true => format!("{:.2}M", parameters / 1e6),
            false => format!("{:.2}B", parameters / 1e9),
        };
        let mut text = format!(
            "{} on {} devices of {}: {count} parameters, {} tokens a step; {} layouts fit, {} do not\n",
            self.job.name,
            self.asked.devices,
            self.asked.cluster.name,
            self.tokens_per_step(),
            self.planned.len(),
            self.rejected.len(),
        );
        self.write(&mut text)
            .unwrap_or_else(|_| unreachable!("a string takes all text"));
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        for assumption in self.assumptions() {
            writeln!(text, "assumed: {assumption}")?;
        }
        self.write_layouts(text)?;
        if let Some(offloaded) = self.offloaded {
            self.write_offloaded(text, offloaded)?;
        }
        if let Some(dual) = self.dual {
            self.write_dual(text, dual)?;
        }
        text.push_str("\nlayouts that were rejected, by reason:\n");
        for (reason, of) in self.reasons() {
            writeln!(text, "{:>8}  {reason}", of.count)?;
        }
        if self.planned.is_empty()
            && let Some(nearest) = self.nearest()
        {
            let l = &nearest.layout;
            writeln!(
                text,
                "nearest: {} needs {:.1} GB of {:.1}{}",
                l.words(),
                nearest.bytes.unwrap_or(0.0) / 1e9,
                self.asked.cluster.memory / 1e9,
                self.others_in_words(),
            )?;
        }
        Ok(())
    }

    /// The ranked layouts, and the best one that Millrace holds in detail.
    fn write_layouts(&self, text: &mut String) -> std::fmt::Result {
        if self.planned.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\n{}   step s  TFLOP/s    GB  Millrace GB",
            Layout::HEADS
        )?;
        // a core does less than one TFLOP/s
        let digits = if self.asked.cluster.cores.is_some() {
            4
        } else {
            0
        };
        for of in self.shown() {
            let l = &of.layout;
            writeln!(
                text,
                "{}{:>9.3}{:>9.*}{:>6.1} {:>12}",
                l.columns(),
                of.time.total,
                digits,
                self.flops(of) / 1e12,
                of.memory.total() / 1e9,
                match self.exact(l) {
                    Some(bytes) if bytes as f64 > self.asked.cluster.memory => {
                        format!("{:.1}, no", bytes as f64 / 1e9)
                    }
                    Some(bytes) => format!("{:.1}", bytes as f64 / 1e9),
                    None => "-".into(),
                },
            )?;
        }
        let memory = self.asked.cluster.memory / 1e9;
        match (self.best(), self.held_nowhere()) {
            (Some(best), _) => {
                if best.place > 0 {
                    let fastest = self.planned[0].time.total;
                    writeln!(
                        text,
                        "the {} fastest need more than the {memory:.0} GB of a device as Millrace holds them (no); what follows is of number {}, the fastest that it holds, {:+.1}% in time",
                        best.place,
                        best.place + 1,
                        100.0 * (best.of.time.total / fastest - 1.0),
                    )?;
                }
                self.write_best(text, best.of)
            }
            (None, Some((nearest, bytes))) => writeln!(
                text,
                "Millrace holds none of them in the {memory:.0} GB of a device: the nearest needs {:.1} GB, {}",
                bytes as f64 / 1e9,
                nearest.layout.words(),
            ),
            (None, None) => writeln!(text, "Millrace trains none of them"),
        }
    }

    fn write_best(&self, text: &mut String, best: &Planned) -> std::fmt::Result {
        let (time, memory) = (&best.time, &best.memory);
        let share = |part: f64| 100.0 * part / time.total;
        writeln!(
            text,
            "\nbest: bubble {:.1}%, collectives {:.1}%, reduction of gradients {:.1}%, optimizer {:.1}% of {:.3} s",
            share(time.bubble),
            share(time.collectives),
            share(time.reduction),
            share(time.optimizer),
            time.total,
        )?;
        writeln!(
            text,
            "memory of the fullest rank: weights {:.1} GB, gradients {:.1}, optimizer {:.1}, activations {:.1}",
            memory.weights / 1e9,
            memory.gradients / 1e9,
            memory.optimizer / 1e9,
            memory.activations / 1e9,
        )?;
        for level in Placement::new(&best.layout, self.asked.cluster).levels_in_words() {
            writeln!(text, "network: {level}")?;
        }
        let training = self.training(best);
        writeln!(
            text,
            "training: {} steps{}, {:.3e} tokens, {}; checkpoint {:.0} GB",
            training.steps,
            match training.is_ended_by_clock {
                true => " until train.time_budget ends it",
                false => "",
            },
            training.tokens,
            duration(training.seconds),
            training.checkpoint / 1e9,
        )?;
        let mut known = |value: Option<f64>, line: &dyn Fn(f64) -> String, key: &str| match value {
            Some(value) => writeln!(text, "{}", line(value)),
            None => writeln!(text, "not known: the cluster has no {key}"),
        };
        known(
            training.kwh,
            &|kwh| format!("energy: {:.1} MWh", kwh / 1e3),
            "watts",
        )?;
        known(
            training.price,
            &|price| format!("price: {price:.0}"),
            "price_per_hour",
        )?;
        known(
            training.failures,
            &|count| format!("expected failures: {count:.1}"),
            "failures_per_year",
        )?;
        known(
            training.interval,
            &|seconds| format!("checkpoint every {}", duration(seconds)),
            &training.lacks_for_interval,
        )?;
        if let Some(gantt) = self.gantt() {
            write!(
                text,
                "\npipeline of a step, {:.3} s (F forward, B backward):\n{gantt}",
                gantt.span()
            )?;
        }
        let per_node = self.asked.cluster.devices_per_node;
        let toml = best.layout.to_toml(&self.asked.shape, per_node);
        write!(text, "\n{toml}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cluster, Recompute};
    use crate::run::plan_question::of_model;
    use std::path::Path;
    use train::trainer::memory::{RankMemory, predict};

    /// A small model of a recipe, of four layers and 24 sequences a step.
    fn small(recipe: &str, more: &[&str]) -> Job {
        let sets = [
            "model.layers=4",
            "model.d_model=96",
            "model.heads=4",
            "model.d_ffn=160",
            "blend.seq_length=64",
            "train.global_batch=24",
            "parallel={}",
        ];
        let sets: Vec<String> = sets.iter().chain(more).map(|set| (*set).into()).collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes");
        crate::job::load(&folder.join(format!("{recipe}.toml")), &sets).unwrap()
    }

    /// Axes of a layout: tp, cp, pp, chunks, dp, ep.
    fn layouts(axes: &[[usize; 6]]) -> Vec<Layout> {
        let mut found = Vec::new();
        for &[tp, cp, pp, chunks, dp, ep] in axes {
            for zero in 0..=3 {
                for micro_batch in [1, 2] {
                    found.push(Layout {
                        tp,
                        cp,
                        pp,
                        chunks,
                        dp,
                        ep,
                        zero,
                        micro_batch,
                        recompute: Recompute::Selective,
                        ..Layout::one(24)
                    });
                }
            }
        }
        found
    }

    /// The bytes of a layout are those of the fullest of all its ranks, each predicted by itself.
    #[test]
    fn bytes_of_a_layout_are_those_of_its_fullest_rank() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let dense = layouts(&[
            [1, 1, 1, 1, 1, 1],
            [1, 1, 1, 1, 2, 1],
            [1, 1, 1, 1, 3, 1],
            [1, 1, 1, 1, 4, 1],
            [2, 1, 2, 1, 3, 1],
            [1, 2, 1, 1, 4, 1],
            [2, 2, 2, 2, 2, 1],
            [4, 1, 4, 1, 2, 1],
        ]);
        let mixtures = layouts(&[
            [1, 1, 1, 1, 4, 1],
            [1, 1, 1, 1, 4, 2],
            [2, 1, 2, 1, 4, 4],
            [1, 2, 2, 2, 6, 2],
        ]);
        let plain = ["model.kv_heads=4"];
        let mixture = [
            "model.kv_heads=4",
            "model.moe.experts=4",
            "model.moe.top_k=2",
        ];
        let saved = ["model.kv_heads=4", "train.checkpoint.every=5"];
        let cases = [
            (small("llama3_8b", &plain), &dense),
            (small("llama3_8b", &saved), &dense),
            (small("gpt3_175b", &[]), &dense),
            (small("mixtral_8x7b", &mixture), &mixtures),
        ];
        for (job, layouts) in &cases {
            let asked = of_model(job, &cluster, 8, Some(1000)).unwrap();
            let answer = Answer {
                job,
                asked: &asked,
                planned: &[],
                devices_that_fit: Vec::new(),
                top: 1,
                rejected: &[],
                offloaded: None,
                dual: None,
                assumed: Vec::new(),
                held: OnceCell::new(),
                place: OnceCell::new(),
            };
            let (mut count, mut uneven) = (0, 0);
            for layout in *layouts {
                let plan = plan_of(job, &asked, layout).unwrap();
                let Ok(ranks) = predict(&plan) else {
                    assert_eq!(answer.exact(layout), None, "{layout:?}");
                    continue;
                };
                let of_stage = ranks.len() / layout.pp;
                let totals: Vec<usize> = ranks.iter().map(RankMemory::total).collect();
                let wanted = totals.iter().copied().max();
                assert_eq!(answer.exact(layout), wanted, "{}, {layout:?}", job.name);
                let of_firsts = totals.iter().step_by(of_stage).copied().max();
                uneven += usize::from(of_firsts < wanted);
                count += 1;
            }
            assert!(
                count > layouts.len() / 2,
                "{}: {count} layouts train",
                job.name
            );
            assert!(uneven > 0, "{}: first ranks hold most everywhere", job.name);
        }
    }
}

//! `plan --serve`: ways to serve a model on a cluster, by the time to the first token, the gap between tokens and the tokens
//! per second of a device.

use super::plan_page::Page;
use crate::job::Problem;
use crate::log::print;
use crate::plan::{
    Cluster, Demand, Served, Serving, ServingQuestion, Servings, Shape, Unfit, Way, WeightFormat,
    Windowed,
};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Flags of `plan` that plan a server.
#[derive(Args)]
pub(super) struct ServingArgs {
    /// Plan a server of the job's model instead of its training: tensor and expert parallelism, format of weights and requests in flight.
    #[arg(long, conflicts_with_all = ["check_tables", "size", "run", "top"])]
    serve: bool,
    /// Tokens of a prompt, with --serve. Default: 1024.
    #[arg(long, value_name = "TOKENS")]
    input: Option<usize>,
    /// Tokens of an answer, with --serve; an encoder has none. Default: 256.
    #[arg(long, value_name = "TOKENS")]
    output: Option<usize>,
    /// Most milliseconds to the first token, with --serve.
    #[arg(long, value_name = "MS")]
    max_ttft: Option<f64>,
    /// Most milliseconds between tokens, on average, with --serve; an encoder makes none.
    #[arg(long, value_name = "MS")]
    max_tpot: Option<f64>,
}

/// A model, and the cluster that it is served on.
pub(super) struct Server<'a> {
    /// Of the job.
    pub name: &'a str,
    pub shape: Shape,
    /// Of the whole model.
    pub parameters: f64,
    pub windowed: Option<Windowed>,
    pub cluster: &'a Cluster,
    /// In place of rates that the cluster has not.
    pub assumed: Vec<&'static str>,
}

/// Forms of an answer.
pub(super) struct Printed<'a> {
    pub is_json: bool,
    pub page: Option<&'a Page>,
}

const LATENT_CACHE: &str = "the cache holds latents, as DeepSeek's servers do; millrace serve holds the keys and values that it makes of them";
const WINDOWED_CACHE: &str =
    "layers with a window keep its tokens alone; millrace serve keeps all of them";

/// Most tokens of prompt and answer.
const MOST_TOKENS: usize = 1 << 24;

impl ServingArgs {
    /// Whether a server is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.serve
    }

    /// A flag of servers that is there although none is asked for.
    pub(super) fn without_serve(&self) -> Option<&'static str> {
        let given = [
            ("--input", self.input.is_some()),
            ("--output", self.output.is_some()),
            ("--max-ttft", self.max_ttft.is_some()),
            ("--max-tpot", self.max_tpot.is_some()),
        ];
        let first = given.iter().find(|(_, is_given)| *is_given);
        first.filter(|_| !self.serve).map(|(flag, _)| *flag)
    }

    /// Tokens of a prompt and of an answer.
    pub(super) fn tokens(&self) -> [usize; 2] {
        [self.input.unwrap_or(1024), self.output.unwrap_or(256)]
    }

    /// Reports flags that cannot be, of a model if its shape is known.
    pub(super) fn check(&self, shape: Option<&Shape>, problems: &mut Vec<Problem>) {
        let mut problem = |key: &str, found: String, wanted: String| {
            problems.push(Problem {
                key: key.into(),
                found,
                wanted,
            });
        };
        for (key, tokens) in [("--input", self.input), ("--output", self.output)] {
            if let Some(tokens) = tokens.filter(|tokens| !(1..=MOST_TOKENS).contains(tokens)) {
                problem(key, tokens.to_string(), format!("1 to {MOST_TOKENS}"));
            }
        }
        for (key, most) in [("--max-ttft", self.max_ttft), ("--max-tpot", self.max_tpot)] {
            if let Some(most) = most.filter(|most| !(most.is_finite() && *most > 0.0)) {
                problem(key, most.to_string(), "a number above 0".into());
            }
        }
        let is_encoder = shape.is_some_and(|shape| Served::of(shape) == Served::Encoder);
        let of_answers = [
            ("--output", self.output.map(|tokens| tokens.to_string())),
            ("--max-tpot", self.max_tpot.map(|most| most.to_string())),
        ];
        for (key, found) in of_answers {
            if let Some(found) = found.filter(|_| is_encoder) {
                problem(key, found, "none: an encoder makes no tokens".into());
            }
        }
    }

    fn demand(&self) -> Demand {
        let [input, output] = self.tokens();
        Demand {
            input,
            output,
            most_to_first: self.max_ttft.map(|ms| ms / 1e3),
            most_between: self.max_tpot.map(|ms| ms / 1e3),
        }
    }

    /// Prints the ways to serve a model.
    ///
    /// # Errors
    /// None of them fits, or none meets the demand.
    pub(super) fn run(&self, server: Server<'_>, to: &Printed<'_>) -> Result<()> {
        let Server {
            name,
            shape,
            parameters,
            windowed,
            cluster,
            mut assumed,
        } = server;
        if shape.latent.is_some() {
            assumed.push(LATENT_CACHE);
        }
        if windowed.is_some() {
            assumed.push(WINDOWED_CACHE);
        }
        let question = ServingQuestion {
            shape,
            others: (parameters - shape.parameters()).max(0.0),
            windowed,
            cluster,
            demand: self.demand(),
        };
        let answer = Answer {
            name,
            servings: question.answer(),
            question,
            assumed,
        };
        print(&match to.is_json {
            true => format!("{}\n", answer.to_json()),
            false => answer.to_text(),
        })?;
        if let Some(page) = to.page {
            page.serving(&answer.to_json())?;
        }
        if answer.servings.all.is_empty() {
            let of = match question.shape.mixture {
                Some(_) => "",
                None => "a node of ",
            };
            bail!(
                "this model fits on no number of devices of {of}{}",
                cluster.name
            );
        }
        if answer.best().is_none() {
            bail!("nothing meets --max-ttft and --max-tpot; the nearest are in the table");
        }
        Ok(())
    }
}

struct Answer<'a> {
    name: &'a str,
    question: ServingQuestion<'a>,
    servings: Servings,
    /// In place of rates that the cluster has not.
    assumed: Vec<&'static str>,
}

/// Ways that do not fit, of those that are printed as text.
const UNFIT_LINES: usize = 12;

/// Size of the chart in characters.
const CHART: (usize, usize) = (64, 16);

impl Answer<'_> {
    fn best(&self) -> Option<&Serving> {
        self.servings.best(&self.question.demand)
    }

    /// Devices that a way takes: ranks that share cores are one.
    fn devices(&self, of: &Serving) -> f64 {
        match self.question.cluster.cores {
            Some(_) => 1.0,
            None => of.way.devices() as f64,
        }
    }

    fn served(&self) -> Served {
        self.question.served()
    }

    fn row(&self, of: &Serving) -> Value {
        let gb = |bytes: f64| bytes / 1e9;
        json!({
            "tp": of.way.tp, "ep": of.way.ep, "weights": of.way.format.name(self.question.cluster.number_bytes),
            "requests": of.way.requests, "ttft_s": of.to_first, "tpot_s": of.between,
            "tokens_per_s": of.per_device * self.devices(of), "tokens_per_s_per_device": of.per_device,
            "memory_gb": {
                "weights": gb(of.memory.weights), "cache": gb(of.memory.cache), "scratch": gb(of.memory.scratch),
                "total": gb(of.memory.total()),
            },
            "meets": of.meets(&self.question.demand),
        })
    }

    fn to_json(&self) -> Value {
        let rows = |of: &[Serving]| -> Vec<Value> { of.iter().map(|of| self.row(of)).collect() };
        let demand = &self.question.demand;
        let unfit: Vec<Value> = self
            .servings
            .unfit
            .iter()
            .map(|of| self.unfit(of))
            .collect();
        json!({
            "job": self.name, "cluster": self.question.cluster.name,
            "device_memory_gb": self.question.cluster.memory / 1e9, "parameters": self.question.all_parameters(),
            "weights_gb": self.question.bytes_of_weights() / 1e9,
            "served": self.served().name(), "input": demand.input,
            "output": (self.served() != Served::Encoder).then_some(demand.output),
            "max_ttft_s": demand.most_to_first, "max_tpot_s": demand.most_between,
            "best": self.best().map(|best| self.row(best)), "front": rows(&self.servings.front()),
            "all": rows(&self.servings.all), "do_not_fit": unfit, "assumed": self.assumed,
        })
    }

    fn unfit(&self, of: &Unfit) -> Value {
        let weights = of.way.format.name(self.question.cluster.number_bytes);
        json!({"tp": of.way.tp, "ep": of.way.ep, "weights": weights, "memory_gb": of.bytes / 1e9})
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text)
            .unwrap_or_else(|_| unreachable!("a string takes all text"));
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let (cluster, demand) = (self.question.cluster, &self.question.demand);
        let is_encoder = self.served() == Served::Encoder;
        let answers = match is_encoder {
            true => String::new(),
            false => format!(", answers of {}", demand.output),
        };
        writeln!(
            text,
            "{} served on {}: {} parameters ({:.2} GB in {}), prompts of {} tokens{answers}; {} ways fit",
            self.name,
            cluster.name,
            count(self.question.all_parameters()),
            self.question.bytes_of_weights() / 1e9,
            WeightFormat::Whole.name(cluster.number_bytes),
            demand.input,
            self.servings.all.len(),
        )?;
        let front = self.servings.front();
        if !front.is_empty() {
            text.push_str(match is_encoder {
                true => "\nnothing else is faster in both (TTFT: the whole answer; tokens are those of prompts):\n",
                false => "\nnothing else is faster in all three (TTFT: first token; TPOT: between tokens):\n",
            });
            writeln!(
                text,
                "  tp  ep weights requests  TTFT ms  TPOT ms  tokens/s a device      GB"
            )?;
        }
        for of in &front {
            writeln!(
                text,
                "{:>4}{:>4} {:<7} {:>8} {:>8.1} {:>8.2} {:>18.1} {:>7.1}{}",
                of.way.tp,
                of.way.ep,
                of.way.format.name(cluster.number_bytes),
                of.way.requests,
                of.to_first * 1e3,
                of.between * 1e3,
                of.per_device,
                of.memory.total() / 1e9,
                match of.meets(demand) {
                    true => "",
                    false => "  too slow",
                },
            )?;
        }
        if front.len() > 1 && !is_encoder {
            text.push_str(&chart(&front));
        }
        match self.best() {
            Some(best) => writeln!(
                text,
                "\nbest: {}, {}, {} requests in flight: {:.1} tokens/s of {} devices, TTFT {:.1} ms, TPOT {:.2} ms",
                axes(&best.way),
                best.way.format.name(cluster.number_bytes),
                best.way.requests,
                best.per_device * self.devices(best),
                self.devices(best),
                best.to_first * 1e3,
                best.between * 1e3,
            )?,
            None if front.is_empty() => {}
            None => text.push_str("\nnone meets the demand\n"),
        }
        for of in self.servings.unfit.iter().take(UNFIT_LINES) {
            writeln!(
                text,
                "does not fit: {} with {}: {:.1} GB a device for one request, of {:.1}",
                axes(&of.way),
                of.way.format.name(cluster.number_bytes),
                of.bytes / 1e9,
                cluster.memory / 1e9,
            )?;
        }
        let more = self.servings.unfit.len().saturating_sub(UNFIT_LINES);
        if more > 0 {
            writeln!(text, "{more} more do not fit; --json has them all")?;
        }
        for assumption in &self.assumed {
            writeln!(text, "assumed: {assumption}")?;
        }
        Ok(())
    }
}

/// A number of parameters in billions, or of a small model in millions.
fn count(parameters: f64) -> String {
    match parameters < 1e9 {
        true => format!("{:.1}M", parameters / 1e6),
        false => format!("{:.2}B", parameters / 1e9),
    }
}

/// The parallel axes of a way; without experts there is one.
fn axes(way: &Way) -> String {
    match way.ep {
        1 => format!("tp {}", way.tp),
        ep => format!("tp {} ep {ep}", way.tp),
    }
}

/// Tokens per second of a device over those of a request, on logarithmic axes; a point is its degree of tensor parallelism.
fn chart(front: &[Serving]) -> String {
    let (width, height) = CHART;
    let points: Vec<[f64; 2]> = (front.iter())
        .map(|of| [(1.0 / of.between).ln(), of.per_device.ln()])
        .collect();
    let range = |axis: usize| {
        let values = points.iter().map(|point| point[axis]);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        [least, most]
    };
    let [across, up] = [range(0), range(1)];
    let place = |value: f64, [least, most]: [f64; 2], cells: usize| {
        let share = if most > least {
            (value - least) / (most - least)
        } else {
            0.0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the cells"
        )]
        let cell = (share * (cells - 1) as f64).round() as usize;
        cell.min(cells - 1)
    };
    let mut cells = vec![vec![' '; width]; height];
    for (point, of) in points.iter().zip(front) {
        let row = height - 1 - place(point[1], up, height);
        let mark = u32::try_from(of.way.tp)
            .ok()
            .and_then(|tp| char::from_digit(tp, 36));
        cells[row][place(point[0], across, width)] = mark.unwrap_or('*');
    }
    let mut text = format!("\n{:>8.1} tokens/s a device (a digit: tp)\n", up[1].exp());
    for row in cells {
        let line: String = row.into_iter().collect();
        text += &format!("         |{}\n", line.trim_end());
    }
    text += &format!("{:>8.1} +{}\n", up[0].exp(), "-".repeat(width));
    let (slow, fast) = (across[0].exp(), across[1].exp());
    text + &format!(
        "          {slow:<8.1} tokens/s of a request {:>28.1}\n",
        fast
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_a_mark_for_each_end_of_the_front() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let question = ServingQuestion {
            shape: Shape::gpt(32, 4096, 32),
            others: 0.0,
            windowed: None,
            cluster: &cluster,
            demand: Demand {
                input: 512,
                output: 128,
                most_to_first: None,
                most_between: None,
            },
        };
        let front = question.answer().front();
        let text = chart(&front);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        assert_eq!(rows.len(), CHART.1);
        // the most tokens of a device are above, those of a request to the right
        let marks = |line: &str| line.split_once('|').map_or(0, |(_, row)| row.trim().len());
        assert!(marks(rows[0]) > 0 && marks(rows[CHART.1 - 1]) > 0, "{text}");
        assert!(
            rows.iter().any(|row| row.chars().count() == 10 + CHART.0),
            "{text}"
        );
    }
}

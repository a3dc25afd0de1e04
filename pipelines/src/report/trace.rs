//! Summary of the ranks' training traces.

use super::svg::{Bar, tick};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Ranks whose traces are read: each may have some ten megabytes.
const MOST_RANKS: usize = 64;

/// Half a nanosecond in a trace's unit, by which rounded times may differ.
const HAIR: f64 = 0.0005;

/// A trace as the trainer writes it: Chrome's JSON object form.
#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "otherData")]
    about: About,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct About {
    lost_spans: u64,
}

#[derive(Deserialize)]
struct Event {
    ph: String,
    name: String,
    tid: u32,
    #[serde(default)]
    cat: String,
    /// Microseconds.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    group: Option<String>,
    number: Option<u64>,
}

/// Kind of a span; phases have none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Compute,
    Collective,
    Wait,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Compute, Kind::Collective, Kind::Wait];

    fn of(category: &str) -> Option<Kind> {
        match category {
            "compute" => Some(Kind::Compute),
            "collective" => Some(Kind::Collective),
            "wait" => Some(Kind::Wait),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Compute => "compute",
            Kind::Collective => "collective",
            Kind::Wait => "wait",
        }
    }

    pub(super) fn colour(self) -> &'static str {
        match self {
            Kind::Compute => "--a",
            Kind::Collective => "--b",
            Kind::Wait => "--e",
        }
    }
}

/// Calls and microseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) calls: u64,
    pub(super) micros: f64,
}

impl Spent {
    fn add(&mut self, calls: u64, micros: f64) {
        self.calls += calls;
        self.micros += micros;
    }
}

/// Totals over the traced steps of one rank, or of several.
#[derive(Clone, Default)]
pub(crate) struct Profile {
    /// Step numbers.
    pub(super) steps: Vec<u64>,
    /// Duration of all steps together.
    pub(super) micros: f64,
    pub(super) ops: BTreeMap<(Kind, String), Spent>,
    pub(super) phases: BTreeMap<String, Spent>,
    /// Time of the thread that reduces gradients concurrently.
    pub(super) beside: f64,
    pub(super) lost: u64,
}

/// Traces of the job's ranks, in rank order; files that are no traces are skipped.
pub(super) fn read(out: &Path, ranks: usize) -> Vec<Profile> {
    let file = |rank| out.join("profile").join(format!("rank-{rank:03}.json"));
    let texts = (0..ranks.min(MOST_RANKS)).filter_map(|rank| std::fs::read(file(rank)).ok());
    let traces = texts.filter_map(|text| serde_json::from_slice(&text).ok());
    traces.map(Profile::of).collect()
}

impl Profile {
    fn of(trace: Trace) -> Profile {
        let mut profile = Profile {
            lost: trace.about.lost_spans,
            ..Profile::default()
        };
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for event in trace.events.into_iter().filter(|event| event.ph == "X") {
            match event.tid {
                0 => own.push(event),
                _ => other.push(event),
            }
        }
        // spans are written in the order in which they end: of two with equal times the later one is the outer
        own.reverse();
        own.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.dur.total_cmp(&a.dur)));
        profile.add_steps(&own);
        let steps = own.iter().filter(|span| span.name == "step");
        let steps: Vec<_> = steps.map(|span| (span.ts, span.ts + span.dur)).collect();
        let within = |span: &&Event| steps.iter().any(|(a, b)| (*a..*b).contains(&span.ts));
        let busy = other.iter().filter(|span| span.name == "sum gradients");
        profile.beside = busy.filter(within).map(|span| span.dur).sum();
        profile
    }

    /// Adds every instant of a step to the innermost op, collective or wait around it.
    fn add_steps(&mut self, spans: &[Event]) {
        let mut around: Vec<&Event> = Vec::new();
        for span in spans {
            while around
                .last()
                .is_some_and(|last| ends(last) <= span.ts + HAIR)
            {
                around.pop();
            }
            if span.name == "step" && span.cat == "phase" {
                self.steps.extend(span.args.number);
                self.micros += span.dur;
            } else if around.first().is_some_and(|first| first.name == "step") {
                if let Some(kind) = Kind::of(&span.cat) {
                    let spent = self.ops.entry((kind, name(span))).or_default();
                    spent.add(1, span.dur);
                    let outer = around
                        .iter()
                        .rev()
                        .find_map(|outer| Kind::of(&outer.cat).map(|kind| (kind, name(outer))));
                    if let Some(spent) = outer.and_then(|outer| self.ops.get_mut(&outer)) {
                        spent.add(0, -span.dur);
                    }
                } else if around.len() == 1 {
                    let spent = self.phases.entry(span.name.clone()).or_default();
                    spent.add(1, span.dur);
                }
            }
            around.push(span);
        }
    }

    pub(super) fn join(&mut self, other: &Profile) {
        self.steps.extend(&other.steps);
        self.micros += other.micros;
        self.beside += other.beside;
        self.lost += other.lost;
        for (op, spent) in &other.ops {
            let sum = self.ops.entry(op.clone()).or_default();
            sum.add(spent.calls, spent.micros);
        }
        for (phase, spent) in &other.phases {
            let sum = self.phases.entry(phase.clone()).or_default();
            sum.add(spent.calls, spent.micros);
        }
    }

    pub(super) fn of_kind(&self, kind: Kind) -> f64 {
        let ops = self.ops.iter().filter(|((of, _), _)| *of == kind);
        ops.map(|(_, spent)| spent.micros).sum()
    }

    /// Time within steps, but in no op, collective or wait.
    pub(super) fn outside(&self) -> f64 {
        let inside: f64 = self.ops.values().map(|spent| spent.micros).sum();
        (self.micros - inside).max(0.0)
    }

    pub(super) fn share(&self, micros: f64) -> String {
        format!(
            "{:.1}%",
            100.0 * micros / self.micros.max(f64::MIN_POSITIVE)
        )
    }

    /// Milliseconds per step.
    pub(super) fn millis(&self, micros: f64) -> f64 {
        micros / 1e3 / self.steps.len().max(1) as f64
    }

    pub(super) fn each(&self, micros: f64) -> String {
        format!("{:.2}", self.millis(micros))
    }

    pub(super) fn bar(&self, name: String, micros: f64, colour: &'static str) -> Bar {
        Bar {
            name,
            value: micros,
            label: format!("{}, {} ms", self.share(micros), tick(self.millis(micros))),
            colour,
        }
    }
}

fn ends(span: &Event) -> f64 {
    span.ts + span.dur
}

/// Name of the span, with the process group of a collective.
fn name(span: &Event) -> String {
    match &span.args.group {
        Some(group) => format!("{} ({group})", span.name),
        None => span.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn span(name: &str, cat: &str, ts: f64, dur: f64) -> serde_json::Value {
        json!({"ph": "X", "name": name, "cat": cat, "pid": 0, "tid": 0, "ts": ts, "dur": dur, "args": {}})
    }

    /// Two steps of 100 us; in the second an op of 60 us with a collective of 20 us inside.
    fn trace() -> Trace {
        let mut reduce = span("all_reduce_sum", "collective", 230.0, 20.0);
        reduce["args"] = json!({"group": "tensor", "bytes": 64});
        let mut sums = span("sum gradients", "phase", 250.0, 30.0);
        sums["tid"] = json!(1);
        let mut steps = [
            span("step", "phase", 0.0, 100.0),
            span("step", "phase", 200.0, 100.0),
        ];
        for (number, step) in steps.iter_mut().enumerate() {
            step["args"] = json!({"number": number + 4});
        }
        let [first, second] = steps;
        // in the order in which they end
        let events = json!([
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
            span("matmul::product", "compute", 10.0, 50.0),
            span("layers.0 forward", "phase", 10.0, 60.0),
            span("forward", "phase", 0.0, 80.0),
            first,
            span("validation", "phase", 100.0, 90.0),
            reduce,
            span("matmul::product", "compute", 200.0, 60.0),
            span("forward", "phase", 200.0, 60.0),
            sums,
            span("wait for gradients", "wait", 270.0, 30.0),
            second,
        ]);
        let trace = json!({"otherData": {"lost_spans": 7}, "traceEvents": events});
        serde_json::from_value(trace).unwrap()
    }

    #[test]
    fn every_instant_of_a_step_counts_once_for_the_innermost() {
        let profile = Profile::of(trace());
        assert_eq!(
            (profile.steps.as_slice(), profile.lost),
            ([4, 5].as_slice(), 7)
        );
        assert_eq!(profile.micros, 200.0);
        let spent: Vec<(&str, u64, f64)> = (profile.ops.iter())
            .map(|((_, name), spent)| (name.as_str(), spent.calls, spent.micros))
            .collect();
        let wanted = [
            ("matmul::product", 2, 90.0),
            ("all_reduce_sum (tensor)", 1, 20.0),
            ("wait for gradients", 1, 30.0),
        ];
        assert_eq!(spent, wanted);
        assert_eq!(profile.outside(), 60.0);
        let phases: Vec<(&str, f64)> = (profile.phases.iter())
            .map(|(name, spent)| (name.as_str(), spent.micros))
            .collect();
        assert_eq!(phases, [("forward", 140.0)]);
        assert_eq!(profile.beside, 30.0);
        let wait = profile.bar("x".into(), 30.0, "--e");
        assert_eq!(wait.label, "15.0%, 0.01 ms");
        let mut both = profile.clone();
        both.join(&profile);
        assert_eq!(both.each(both.micros), profile.each(profile.micros));
        assert_eq!(both.share(30.0), "7.5%");
    }

    #[test]
    fn what_is_no_trace_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = folder.path().join("profile");
        std::fs::create_dir(&profiles).unwrap();
        let empty = r#"{"otherData":{"lost_spans":0},"traceEvents":[]}"#;
        for (rank, text) in [
            (0, empty),
            (1, "{\"traceEvents\":["),
            (2, empty),
            (3, empty),
        ] {
            std::fs::write(profiles.join(format!("rank-{rank:03}.json")), text).unwrap();
        }
        // rank 3 is one of an older layout
        assert_eq!(read(folder.path(), 3).len(), 2);
    }
}

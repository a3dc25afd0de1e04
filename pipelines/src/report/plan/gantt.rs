//! The pipeline's schedule as a Gantt chart, pass by pass.

use super::texts::time;
use crate::report::html::section;
use crate::report::stack::{Key, legend};
use crate::report::svg::{open, tick, ticks};
use crate::report::values::number;
use serde_json::Value;
use std::fmt::Write;
use train::trainer::timeline::{TimedPass, span};

/// Width of the chart and of the names at its left.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 58.0;
/// Height of a stage's line, and of the time's axis below.
const LINE: f64 = 11.0;
const AXIS: f64 = 30.0;
/// Most passes of a chart, so that the page stays small, and of a line, so that each is wide enough to see.
const MOST_PASSES: usize = 20_000;
const MOST_OF_LINE: usize = 460;

/// Meanings of the colours.
const KEYS: [Key; 3] = [
    Key {
        name: "forward",
        colour: "--a",
    },
    Key {
        name: "backward",
        colour: "--b",
    },
    Key {
        name: "idle",
        colour: "--line",
    },
];

/// A stretch of the step in seconds.
#[derive(Clone, Copy)]
struct Window {
    from: f64,
    to: f64,
}

impl Window {
    fn has(self, pass: &TimedPass) -> bool {
        pass.start < self.to && pass.end > self.from
    }
}

/// The chart: of the whole step, or of its start and its end where it has too many passes to see.
pub(super) fn pipeline(of: &Value, passes: &[Vec<TimedPass>]) -> String {
    let whole = span(passes);
    if !of["best"].is_object() || whole <= 0.0 {
        return String::new();
    }
    let longest = passes.iter().map(Vec::len).max().unwrap_or(0);
    let shown = MOST_OF_LINE.min(MOST_PASSES / passes.len().max(1));
    let busy: f64 = passes
        .iter()
        .flatten()
        .map(|pass| pass.end - pass.start)
        .sum();
    let idle = 1.0 - busy / (whole * passes.len() as f64);
    let mut body = String::new();
    if longest <= shown {
        let all = Window {
            from: 0.0,
            to: whole,
        };
        body += &chart("Passes of all stages", passes, all);
    } else {
        let half = whole * shown as f64 / longest as f64 / 2.0;
        let start = Window {
            from: 0.0,
            to: half,
        };
        let end = Window {
            from: whole - half,
            to: whole,
        };
        body += "<h3>Start of the step</h3>";
        body += &chart(
            "Passes of all stages at the start of the step",
            passes,
            start,
        );
        body += "<h3>End of the step</h3>";
        body += &chart("Passes of all stages at the end of the step", passes, end);
        let _ = write!(
            body,
            "<p class=quiet>Between them the stages go on in turn for {}.</p>",
            time(whole - 2.0 * half)
        );
    }
    body += &legend(&KEYS);
    let layout = &of["best"]["layout"];
    let chunks = number(&layout["virtual_stages"]);
    let of_chunks = match chunks {
        0 | 1 => String::new(),
        _ => format!(", each through one of {chunks} virtual stages, the later ones paler"),
    };
    let lead = format!(
        "Passes of {} micro-batches by stage over {}{of_chunks}; stages are idle for {:.1}% of it. Reduction of gradients and optimizer follow.",
        longest as u64 / (2 * chunks.max(1)),
        time(whole),
        100.0 * idle,
    );
    section("pipeline", "Pipeline", &lead, &body)
}

/// The passes of a window, a line per stage.
fn chart(title: &str, passes: &[Vec<TimedPass>], window: Window) -> String {
    let height = passes.len() as f64 * LINE + AXIS;
    let scale = (WIDTH - LEFT) / (window.to - window.from);
    let x = |time: f64| LEFT + (time.clamp(window.from, window.to) - window.from) * scale;
    let mut s = String::from("<div class=\"scroll wide\" tabindex=0>");
    s += &open(title, WIDTH, height);
    // names of at most 32 stages
    let every = passes.len().div_ceil(32);
    for (stage, passes) in passes.iter().enumerate() {
        let y = (stage as f64 + 0.5) * LINE;
        if stage.is_multiple_of(every) {
            let _ = write!(
                s,
                "<text class=stage x={} y={:.1} text-anchor=end>stage {stage}</text>",
                LEFT - 6.0,
                y + 3.5
            );
        }
        let _ = write!(
            s,
            "<path class=pass stroke=\"var(--line)\" d=\"M{LEFT} {y}H{WIDTH}\" />"
        );
        s += &line(passes, window, y, &x);
    }
    let bottom = passes.len() as f64 * LINE;
    // short steps in milliseconds
    let (unit, per_second) = match window.to < 1.0 {
        true => ("ms", 1e3),
        false => ("s", 1.0),
    };
    for mark in ticks(per_second * window.from, per_second * window.to) {
        let _ = write!(
            s,
            "<text class=axis x={:.1} y={} text-anchor=middle>{} {unit}</text>",
            x(mark / per_second).clamp(LEFT + 14.0, WIDTH - 20.0),
            bottom + 18.0,
            tick(mark)
        );
    }
    s + "</svg></div>"
}

/// The passes of a stage: one path for each direction and model chunk.
fn line(passes: &[TimedPass], window: Window, y: f64, x: &dyn Fn(f64) -> f64) -> String {
    let chunks = passes.iter().map(|pass| pass.chunk + 1).max().unwrap_or(1);
    let mut s = String::new();
    for (is_backward, colour) in [(false, KEYS[0].colour), (true, KEYS[1].colour)] {
        for chunk in 0..chunks {
            let own = passes.iter().filter(|pass| {
                pass.is_backward == is_backward && pass.chunk == chunk && window.has(pass)
            });
            let mut d = String::new();
            for pass in own {
                let (from, to) = (x(pass.start), x(pass.end));
                // neighbours stay apart
                let wide = (to - from) - (0.15 * (to - from)).min(0.6);
                let _ = write!(d, "M{from:.2} {y}h{wide:.2}");
            }
            if !d.is_empty() {
                let opacity = 1.0 - 0.55 * chunk as f64 / chunks as f64;
                let _ = write!(
                    s,
                    "<path class=pass stroke=\"var({colour})\" opacity={opacity:.2} d=\"{d}\" />"
                );
            }
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use train::config::ParallelConfig;
    use train::trainer::timeline::{PassTimes, timeline};

    fn drawn(pp: usize, virtual_stages: usize, micro_batches: usize) -> String {
        let parallel = ParallelConfig {
            pp,
            virtual_stages,
            ..Default::default()
        };
        let times = PassTimes {
            forward: 1.0,
            backward: 2.0,
            head: 0.0,
        };
        let figures = json!({"best": {"layout": {"virtual_stages": virtual_stages}}});
        pipeline(&figures, &timeline(&parallel, micro_batches, times))
    }

    /// Strokes of a colour: a pass each.
    fn passes(page: &str, colour: &str) -> usize {
        page.split("<path class=pass stroke=\"var(")
            .filter(|path| path.starts_with(colour))
            .filter_map(|path| path.split("d=\"").nth(1)?.split('"').next())
            .map(|d| d.matches('h').count())
            .sum()
    }

    #[test]
    fn every_pass_of_a_step_is_drawn_once() {
        let page = drawn(4, 2, 8);
        assert_eq!(passes(&page, "--a"), 4 * 2 * 8);
        assert_eq!(passes(&page, "--b"), 4 * 2 * 8);
        assert_eq!(page.matches("<text class=stage").count(), 4);
        // 2104.04473, section 2.2: (p - 1) / v of m + (p - 1) / v micro-batches are idle
        assert!(page.contains("idle for 15.8% of it"), "{page}");
        assert!(page.contains("Passes of 8 micro-batches"), "{page}");
    }

    #[test]
    fn a_long_step_is_drawn_by_its_start_and_its_end() {
        let page = drawn(64, 2, 640);
        assert_eq!(page.matches("<svg ").count(), 2);
        let all = passes(&page, "--a") + passes(&page, "--b");
        assert!(
            (MOST_PASSES / 2..=MOST_PASSES + 4 * 64).contains(&all),
            "{all}"
        );
        assert!(page.len() < 450_000, "{}", page.len());
        // the first stage starts first, and ends last
        let paths: Vec<&str> = page.split("<path class=pass").collect();
        assert!(paths[2].contains("M58.00 5.5h"), "{}", paths[2]);
        assert!(drawn(1, 1, 0).is_empty());
    }
}

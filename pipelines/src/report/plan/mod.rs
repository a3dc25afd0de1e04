//! The page of `plan --html`: a plan's figures, as `plan --json` has them, and the schedule of its pipeline.

mod gantt;
mod layouts;
mod memory;
mod offload;
mod placement;
mod rejected;
mod sensitivity;
mod serving;
mod texts;
mod training;
mod trials;

pub(crate) use serving::serving_page;

use super::html::{self, Link};
use super::values::{number, text_value};
use crate::machine::grouped;
use serde_json::Value;
use train::trainer::timeline::TimedPass;

/// A plan of a training.
pub(crate) struct PlanPage<'a> {
    /// The answer of `plan --json`; the list of all rejected layouts may be absent.
    pub figures: &'a Value,
    /// Passes of the best layout's pipeline by rank; empty where there is none to draw.
    pub passes: &'a [Vec<TimedPass>],
    /// Day of the answer, `2026-01-31`.
    pub date: &'a str,
}

/// A part of a page: its anchor, its name in the list of contents, and its HTML, empty where there is nothing to say.
struct Part {
    id: &'static str,
    name: &'static str,
    body: String,
}

impl PlanPage<'_> {
    /// The page.
    pub(crate) fn render(&self) -> String {
        let of = self.figures;
        let part = |id, name, body| Part { id, name, body };
        let parts = [
            part("layouts", "Layouts", layouts::layouts(of)),
            part("offload", "Offload", offload::offload(of)),
            part("dualpipe", "DualPipe", offload::dualpipe(of)),
            part("step", "Step", layouts::step(of)),
            part("pipeline", "Pipeline", gantt::pipeline(of, self.passes)),
            part("memory", "Memory", memory::memory(of)),
            part("placement", "Placement", placement::placement(of)),
            part("sensitivity", "Sensitivity", sensitivity::sensitivity(of)),
            part("training", "Training", training::training(of)),
            part("measured", "Measured", trials::trials(of)),
            part("rejected", "Rejected", rejected::rejected(of)),
            part("job", "Job", training::job(of)),
        ];
        let subtitle = format!(
            "Plan of a training on {} devices of {}, {}",
            grouped(number(&of["devices"])),
            text_value(&of["cluster"]),
            self.date
        );
        page(of, &subtitle, &layouts::tiles(of), &parts)
    }
}

/// A page with the parts that are not empty.
fn page(figures: &Value, subtitle: &str, tiles: &str, parts: &[Part]) -> String {
    let shown = || parts.iter().filter(|part| !part.body.is_empty());
    let contents: Vec<Link<'_>> = shown()
        .map(|part| Link {
            id: part.id,
            name: part.name,
        })
        .collect();
    let mut body = tiles.to_owned();
    shown().for_each(|part| body += &part.body);
    html::page(&text_value(&figures["job"]), subtitle, &contents, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Figures with a text of the job in each field that has one.
    fn figures(text: &str) -> Value {
        let layout = json!({
            "tp": 1, "cp": 1, "pp": 2, "dp": 1, "virtual_stages": 1, "micro_batch": 1, "zero": 0, "sequence": false,
            "recompute": text,
        });
        let memory = json!({
            "weights": 1.0, "gradients": 2.0, "optimizer": 3.0, "activations": 4.0, "total": 10.0, "millrace": 11.0,
        });
        let mut stage = memory.clone();
        stage["stage"] = json!(0);
        stage["millrace"] = Value::Null;
        let row = json!({
            "layout": layout, "devices": 2, "step_s": 1.5, "tokens_per_s_per_device": 10.0, "model_tflops_per_device": 1.0,
            "mfu": 0.5, "memory_gb": memory, "seconds": {"computation": 1.5},
        });
        let trial = json!({
            "layout": layout, "predicted_s": 1.0, "measured_s": null, "failed": text, "predicted_bytes": 1,
        });
        json!({
            "job": text, "cluster": text, "devices": 2, "device_memory_gb": 80.0, "layouts": [row], "best": row,
            "memory_by_stage": [stage],
            "placement": {"order": text, "nodes": 1, "axes": [{"axis": text, "size": 2, "nodes_of_a_group": 1}], "map": []},
            "sensitivity": {
                "rates": [{"rate": text, "factor": 0.8, "step_s": 2.0, "change": 0.3}],
                "settings": [{"setting": text, "value": text, "only_change": {"refused": text}, "fastest": null}],
            },
            "training": {"steps": 3}, "run": {"folder": text, "rows": [trial], "toml": text},
            "rejected_by_reason": [{"reason": text, "count": 1, "example": {"layout": layout, "reason": text}}],
            "assumed": [text], "toml": text,
        })
    }

    #[test]
    fn texts_of_jobs_and_clusters_are_escaped_everywhere() {
        let evil = "</title><script>alert(1)</script><b a='\"&";
        let figures = figures(evil);
        let plan = PlanPage {
            figures: &figures,
            passes: &[],
            date: "2026-01-31",
        };
        let page = plan.render();
        assert!(!page.contains("<script") && !page.contains("<b a="));
        assert!(page.matches("&lt;script").count() > 15);
        for id in [
            "layouts",
            "memory",
            "placement",
            "sensitivity",
            "measured",
            "rejected",
            "job",
        ] {
            assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        }
        let served =
            json!({"job": evil, "cluster": evil, "assumed": [evil], "front": [{"weights": evil}]});
        assert!(!serving_page(&served, "2026-01-31").contains("<script"));
    }

    #[test]
    fn a_page_asks_for_nothing_and_differs_by_its_date_alone() {
        let figures = figures("a job");
        let of = |date| {
            let plan = PlanPage {
                figures: &figures,
                passes: &[],
                date,
            };
            plan.render()
        };
        let page = of("2026-01-31");
        assert_eq!(page.replace("2026-01-31", "2026-02-01"), of("2026-02-01"));
        for word in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

//! Pages of one self-contained HTML file: `report.html`, rendered from the manifest and the small JSON files of a job, and that of a
//! plan.

mod adapters;
mod comparison;
mod duplicates;
mod evaluation;
mod funnel;
mod groups;
mod html;
mod material;
mod outcomes;
mod plan;
mod profile;
mod samples;
mod sections;
mod sources;
mod stack;
mod stages;
mod statistics;
mod svg;
mod tasks;
mod tokens;
mod trace;
mod values;
mod what_if;

pub(crate) use material::{Material, each_figure};
pub(crate) use outcomes::dropped_by_step;
pub(crate) use plan::{PlanPage, serving_page};

/// Bytes of a page that has whole texts, and of those in it.
const PAGE_BYTES: usize = 1_900_000;
const TEXT_BYTES: usize = 1_500_000;

/// The page, with a comparison if there is another run.
pub(crate) fn render(m: &Material, other: Option<&Material>) -> String {
    let mut parts = [
        ("comparison", "Comparison", comparison::comparison(m, other)),
        ("funnel", "Funnel", funnel::funnel(m)),
        ("limits", "Other limits", what_if::what_if(m)),
        ("groups", "Groups", groups::groups(m)),
        ("text", "Languages and hosts", sections::text(m)),
        ("statistics", "Statistics", statistics::statistics(m)),
        ("duplicates", "Duplicates", duplicates::duplicates(m)),
        ("evaluation", "Evaluation sets", evaluation::evaluation(m)),
        ("data", "Data", tokens::data(m)),
        ("training", "Training", sections::training(m)),
        ("adapters", "Adapters", adapters::adapters(m)),
        ("tasks", "Evaluation tasks", tasks::tasks(m)),
        ("profile", "Step time", profile::profile(m)),
        ("generated", "Generated text", sections::generated(m)),
        ("samples", "Kept and dropped", String::new()),
        ("stages", "Stages", stages::stages(m)),
    ];
    let used: usize = parts.iter().map(|p| p.2.len()).sum();
    if let Some(part) = parts.iter_mut().find(|p| p.0 == "samples") {
        part.2 = samples::samples(m, TEXT_BYTES.min(PAGE_BYTES.saturating_sub(used)));
    }
    let shown = || parts.iter().filter(|p| !p.2.is_empty());
    let link = |part: &(&'static str, &'static str, String)| html::Link {
        id: part.0,
        name: part.1,
    };
    let contents: Vec<html::Link<'_>> = shown().map(link).collect();
    let body = sections::tiles(m) + &shown().map(|p| p.2.as_str()).collect::<String>();
    let subtitle = sections::subtitle(m);
    html::searched_page(&m.job.name, &subtitle, &contents, &body)
}
